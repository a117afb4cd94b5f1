//! The loader's library and a Vulkan instance, with the validation layer's messages if requested.

use super::provider::{BACKEND, Provider, unavailable};
use crate::environment::environment;
use crate::error::failure;
use ash::{ext, khr, vk};
use ggml_core::sync::lock;
use ggml_core::{Missing, Phase, Result, phase};
use std::borrow::Cow;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// Version that the instance requests: the highest whose features are used.
const API_VERSION: u32 = vk::API_VERSION_1_3;

/// Messages of the validation layer.
#[derive(Debug, Default)]
pub(crate) struct Messages(Mutex<Vec<String>>);

impl Messages {
    /// Returns all messages so far.
    pub(crate) fn list(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

/// A Vulkan instance.
pub(crate) struct Instance {
    /// The functions of the instance.
    pub(super) raw: ash::Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    messages: Option<Arc<Messages>>,
    /// Version of the loader.
    pub(crate) loader_version: u32,
    /// Path of the loader's library, if it could be determined.
    pub(crate) library: String,
    /// Source of the functions.
    pub(crate) provider: Provider,
    /// The loaded library; the last field, so that it is unloaded last.
    entry: ash::Entry,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("library", &self.library).finish_non_exhaustive()
    }
}

impl Instance {
    /// Loads the library and creates an instance.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: `Missing::Library` if the loader is missing, `Missing::Device` if it finds no
    /// driver, `Missing::Feature` if it is older than Vulkan 1.2 or validation is requested and the layer is
    /// not installed.
    pub(crate) fn new(provider: Provider, validation: bool) -> Result<Arc<Instance>> {
        let entry = provider.entry()?;
        phase::learnt("library", &provider.library());
        let loader_version = loader_version(&entry)?;
        let layers = if validation { vec![validation_layer(&entry)?] } else { Vec::new() };
        let messages = validation.then(|| Arc::new(Messages::default()));
        let raw = {
            let _alone = provider.enumerates_with_environment().then(|| exclusively(&ENUMERATION));
            let _others = (!provider.enumerates_with_environment()).then(|| shared(&ENUMERATION));
            create(&entry, &layers, validation, provider.names_objects())
                .map_err(|error| provider.refusal().unwrap_or(error))?
        };
        let mut instance = Instance {
            messenger: None,
            messages,
            loader_version,
            library: provider.library(),
            raw,
            entry,
            provider,
        };
        instance.register_messenger()?;
        Ok(Arc::new(instance))
    }

    /// Returns true if objects are given names.
    pub(super) fn names_objects(&self) -> bool {
        self.provider.names_objects()
    }

    /// Returns the loader's functions.
    pub(super) fn entry(&self) -> &ash::Entry {
        &self.entry
    }

    /// Returns the messages of the validation layer; `None` without it.
    pub(crate) fn messages(&self) -> Option<&Arc<Messages>> {
        self.messages.as_ref()
    }

    /// Returns the physical devices in the loader's order.
    pub(crate) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>> {
        phase::call("vkEnumeratePhysicalDevices", "");
        let _others = shared(&ENUMERATION);
        // SAFETY: the instance is alive.
        let devices = unsafe { self.raw.enumerate_physical_devices() };
        devices.map_err(|code| match code {
            vk::Result::ERROR_INITIALIZATION_FAILED => unavailable(
                Phase::Enumerate,
                Missing::Device,
                format!("no driver could list devices; {}", driver_manifests()),
            ),
            code => failure(BACKEND, Phase::Enumerate, "vkEnumeratePhysicalDevices", code),
        })
    }

    /// Keeps the drivers of the instance loaded until the process ends. NVIDIA's libraries need another part of the C
    /// library's thread-local storage each time they are loaded: in a process that opens and closes devices, the loader
    /// finds no driver in the end ("cannot allocate memory in static TLS block").
    pub(crate) fn keep_loaded(self: &Arc<Self>) {
        // One instance is enough.
        let _ = LOADED.set(self.clone());
    }

    fn register_messenger(&mut self) -> Result<()> {
        let Some(messages) = &self.messages else { return Ok(()) };
        let debug = ext::debug_utils::Instance::new(&self.entry, &self.raw);
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(
                vk::DebugUtilsMessageSeverityFlagsEXT::ERROR | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING,
            )
            .message_type(
                vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                    | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
            )
            .pfn_user_callback(Some(on_message))
            .user_data(Arc::as_ptr(messages).cast_mut().cast());
        // SAFETY: the instance was created with VK_EXT_debug_utils; the user data is the `Messages` that this
        // structure holds an `Arc` of, and the messenger is destroyed before it in `drop`.
        let messenger = unsafe { debug.create_debug_utils_messenger(&info, None) }
            .map_err(|code| failure(BACKEND, Phase::LoadRuntime, "vkCreateDebugUtilsMessengerEXT", code))?;
        self.messenger = Some((debug, messenger));
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((debug, messenger)) = self.messenger.take() {
            // SAFETY: the messenger belongs to this instance and is destroyed once.
            unsafe { debug.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: everything created from the instance holds an `Arc` of it, so nothing is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// An instance that is never destroyed.
static LOADED: OnceLock<Arc<Instance>> = OnceLock::new();

/// Held while instances are created and devices enumerated. A virtual card enumerates when its instance is created, and
/// configures RADV for that through the environment of the whole process: other drivers must not read it meanwhile.
/// The callers wait with a deadline: both run under [`guarded`](crate::deadline::guarded).
static ENUMERATION: RwLock<()> = RwLock::new(());

fn shared(lock: &RwLock<()>) -> RwLockReadGuard<'_, ()> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn exclusively(lock: &RwLock<()>) -> RwLockWriteGuard<'_, ()> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn loader_version(entry: &ash::Entry) -> Result<u32> {
    // SAFETY: the entry is loaded.
    let version = unsafe { entry.try_enumerate_instance_version() }
        .map_err(|code| failure(BACKEND, Phase::LoadRuntime, "vkEnumerateInstanceVersion", code))?
        .unwrap_or(vk::API_VERSION_1_0);
    if version < vk::API_VERSION_1_2 {
        let reason = format!("the loader supports Vulkan {}; 1.2 is required", version_text(version));
        return Err(unavailable(Phase::LoadRuntime, Missing::Feature, reason));
    }
    Ok(version)
}

fn validation_layer(entry: &ash::Entry) -> Result<&'static CStr> {
    // SAFETY: the entry is loaded.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }
        .map_err(|code| failure(BACKEND, Phase::LoadRuntime, "vkEnumerateInstanceLayerProperties", code))?;
    let found = layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(VALIDATION_LAYER));
    found.then_some(VALIDATION_LAYER).ok_or_else(|| {
        let reason = "VK_LAYER_KHRONOS_validation is not installed".to_string();
        unavailable(Phase::LoadRuntime, Missing::Feature, reason)
    })
}

fn has_extension(entry: &ash::Entry, layer: Option<&CStr>, name: &CStr) -> bool {
    // SAFETY: the entry is loaded; the layer's name is that of an installed layer or absent.
    let extensions = unsafe { entry.enumerate_instance_extension_properties(layer) }.unwrap_or_default();
    extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name))
}

fn create(
    entry: &ash::Entry,
    layers: &[&'static CStr],
    validation: bool,
    names: bool,
) -> Result<ash::Instance> {
    let mut extensions = Vec::new();
    let mut flags = vk::InstanceCreateFlags::empty();
    if has_extension(entry, None, khr::portability_enumeration::NAME) {
        extensions.push(khr::portability_enumeration::NAME.as_ptr());
        flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
    }
    let synchronisation =
        validation && has_extension(entry, Some(VALIDATION_LAYER), ext::validation_features::NAME);
    if validation || names {
        extensions.push(ext::debug_utils::NAME.as_ptr());
    }
    if synchronisation {
        extensions.push(ext::validation_features::NAME.as_ptr());
    }
    let layers: Vec<_> = layers.iter().map(|l| l.as_ptr()).collect();
    let application = vk::ApplicationInfo::default()
        .application_name(c"diptych")
        .engine_name(c"diptych")
        .api_version(API_VERSION);
    let enabled = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
    let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&enabled);
    let mut info = vk::InstanceCreateInfo::default()
        .flags(flags)
        .application_info(&application)
        .enabled_layer_names(&layers)
        .enabled_extension_names(&extensions);
    if synchronisation {
        info = info.push_next(&mut features);
    }
    phase::call("vkCreateInstance", "");
    // SAFETY: layers and extensions are listed by the loader; all pointers are valid until the call returns.
    unsafe { entry.create_instance(&info, None) }.map_err(|code| match code {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
            let reason = format!("the loader found no working driver; {}", driver_manifests());
            unavailable(Phase::LoadRuntime, Missing::Device, reason)
        }
        code => failure(BACKEND, Phase::LoadRuntime, "vkCreateInstance", code),
    })
}

/// Callback of the validation layer, called on the thread that makes the offending call.
unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes valid data, or null, for the duration of this call.
    let message = unsafe { data.as_ref().and_then(|d| d.message_as_c_str()) };
    let text = message.map_or(Cow::Borrowed("(no text)"), CStr::to_string_lossy);
    // SAFETY: the user data is the address of a `Messages` that outlives the messenger (see `register_messenger`).
    if let Some(messages) = unsafe { user.cast::<Messages>().as_ref() } {
        tracing::warn!("validation: {text}");
        lock(&messages.0).push(text.into_owned());
    }
    vk::FALSE
}

/// Formats a version ("1.3.239").
pub(crate) fn version_text(version: u32) -> String {
    let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
    format!("{major}.{minor}.{}", vk::api_version_patch(version))
}

/// Describes the driver manifests that the loader could choose from.
pub(crate) fn driver_manifests() -> String {
    let named = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].into_iter();
    if let Some((name, value)) = named.filter_map(|n| Some((n, environment().value(n)?))).next() {
        return format!("{name} restricts it to '{value}'");
    }
    let dirs = ["/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"];
    let mut found = Vec::new();
    for dir in dirs {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        found.extend(
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n.ends_with(".json")),
        );
    }
    found.sort();
    match found.is_empty() {
        true => format!("there is no driver manifest in {}", dirs.join(", ")),
        false => format!("driver manifests: {}", found.join(", ")),
    }
}
