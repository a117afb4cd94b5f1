//! Instances: RADV's, created for the family of the card.

use super::api::{code, extension, write_list};
use super::terminal::without_remark;
use crate::card::{Card, Model};
use crate::environment::next_card;
use crate::instance::{INSTANCES, Instance, PHYSICAL};
use crate::reply::{Reply, unknown};
use crate::table::lock;
use crate::{MESA, Unavailable};
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::{CStr, c_char};
use std::sync::Mutex;

/// Instance extensions passed through from RADV.
const EXTENSIONS: [&CStr; 3] =
    [c"VK_EXT_debug_utils", c"VK_KHR_get_physical_device_properties2", c"VK_KHR_device_group_creation"];

/// Environment variable with RADV's family.
const FAMILY: &str = "RADV_FORCE_FAMILY";

/// Creates RADV's instance and enumerates its device, because RADV reads the family at that point.
///
/// # Safety
/// `info` is valid.
unsafe fn make(info: *const vk::InstanceCreateInfo<'_>) -> Reply<Instance> {
    let card = next_card().map_err(|why| {
        tracing::error!(%why, "no virtual card");
        vk::Result::ERROR_INCOMPATIBLE_DRIVER
    })?;
    card.shared.options.faults.enter("vkCreateInstance").map_err(vk::Result::from_raw)?;
    let functions = card.shared.radv.functions();
    // SAFETY: these are the functions of a Vulkan driver.
    let entry = unsafe { ash::Entry::from_static_fn(functions) };
    let family = Family::set(card.shared.options.model);
    // SAFETY: `info` is the caller's, and valid.
    let radv = unsafe { entry.create_instance(&*info, None) }?;
    // SAFETY: the instance was just made.
    let physical = without_remark(|| unsafe { radv.enumerate_physical_devices() });
    drop(family);
    let instance = physical.and_then(|physical| {
        check_version(&radv, &physical).map_err(|why| refused(&card, why))?;
        Ok(Instance { card, radv: radv.clone(), physical })
    });
    if instance.is_err() {
        // SAFETY: created above and not shared.
        unsafe { radv.destroy_instance(None) };
    }
    instance
}

/// Stores the reason and returns the Vulkan code for it.
fn refused(card: &Card, why: Unavailable) -> vk::Result {
    tracing::error!(%why, "no virtual card");
    card.shared.refuse(why);
    vk::Result::ERROR_INCOMPATIBLE_DRIVER
}

/// Sets the family in the environment while RADV enumerates devices. Only one exists at a time.
struct Family {
    before: Option<std::ffi::OsString>,
    _alone: std::sync::MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Family {
    fn set(model: Model) -> Family {
        let alone = lock(&ALONE);
        let before = std::env::var_os(FAMILY);
        if before.as_deref() != Some(model.name().as_ref()) {
            // SAFETY: RADV can be configured only through the environment. The standard library locks out
            // Rust's readers of the environment, and the C library keeps the old values alive for other
            // readers.
            unsafe { std::env::set_var(FAMILY, model.name()) };
        }
        Family { before, _alone: alone }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            match &self.before {
                Some(value) => std::env::set_var(FAMILY, value),
                None => std::env::remove_var(FAMILY),
            }
        }
    }
}

/// Compares RADV's version with the supported one.
fn check_version(radv: &ash::Instance, devices: &[vk::PhysicalDevice]) -> Result<(), Unavailable> {
    let Some(&device) = devices.first() else {
        return Err(Unavailable::Library("it made no null device".into()));
    };
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
    // SAFETY: the device is RADV's, which supports Vulkan 1.2 or later.
    unsafe { radv.get_physical_device_properties2(device, &mut properties) };
    let text = |text: Result<&CStr, _>| text.unwrap_or_default().to_string_lossy().into_owned();
    let (name, info) = (text(driver.driver_name_as_c_str()), text(driver.driver_info_as_c_str()));
    let right = driver.driver_id == vk::DriverId::MESA_RADV && is_supported(&info);
    if right { Ok(()) } else { Err(Unavailable::Version(format!("{name} {info}"))) }
}

/// Returns true if a driver info such as "Mesa 25.0.7-2" is of the supported version.
fn is_supported(info: &str) -> bool {
    let version = info.strip_prefix("Mesa ").unwrap_or_default();
    version.strip_prefix(MESA).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

pub(crate) unsafe extern "system" fn create(
    info: *const vk::InstanceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: Vulkan's rules for the caller.
    code(unsafe { make(info) }.map(|instance| {
        let handle = instance.radv.handle();
        let devices = instance.physical.clone();
        let instance = INSTANCES.put(handle.as_raw(), instance);
        for device in devices {
            PHYSICAL.put(device.as_raw(), instance.clone());
        }
        // SAFETY: Vulkan's rules for the caller.
        unsafe { *out = handle };
    }))
}

pub(crate) unsafe extern "system" fn destroy(
    handle: vk::Instance,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let Some(instance) = INSTANCES.take(handle.as_raw()) else { return };
    for device in &instance.physical {
        PHYSICAL.take(device.as_raw());
    }
    // SAFETY: the caller destroys it once, after everything created from it.
    unsafe { instance.radv.destroy_instance(None) };
}

pub(crate) unsafe extern "system" fn physical_devices(
    handle: vk::Instance,
    count: *mut u32,
    to: *mut vk::PhysicalDevice,
) -> vk::Result {
    let instance = INSTANCES.get(handle.as_raw()).ok_or_else(|| unknown("VkInstance", handle.as_raw()));
    code(instance.and_then(|instance| {
        let faults = &instance.card.shared.options.faults;
        faults.enter("vkEnumeratePhysicalDevices").map_err(vk::Result::from_raw)?;
        // SAFETY: Vulkan's rules for the caller.
        unsafe { write_list(&instance.physical, count, to) }
    }))
}

pub(crate) unsafe extern "system" fn version(out: *mut u32) -> vk::Result {
    // SAFETY: Vulkan's rules for the caller.
    unsafe { *out = vk::API_VERSION_1_3 };
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "system" fn layers(count: *mut u32, _to: *mut vk::LayerProperties) -> vk::Result {
    // SAFETY: Vulkan's rules for the caller.
    unsafe { *count = 0 };
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "system" fn extensions(
    layer: *const c_char,
    count: *mut u32,
    to: *mut vk::ExtensionProperties,
) -> vk::Result {
    if !layer.is_null() {
        return vk::Result::ERROR_LAYER_NOT_PRESENT;
    }
    let all = EXTENSIONS.map(extension);
    // SAFETY: Vulkan's rules for the caller.
    code(unsafe { write_list(&all, count, to) })
}

#[cfg(test)]
mod tests {
    use super::is_supported;

    #[test]
    fn versions() {
        assert!(is_supported("Mesa 25.0.7-2~bpo12+1") && is_supported("Mesa 25.0"));
        for other in ["Mesa 25.1.0", "Mesa 25.01", "Mesa 22.3.6", "Mesa 2", "", "25.0.7"] {
            assert!(!is_supported(other), "{other}");
        }
    }
}
