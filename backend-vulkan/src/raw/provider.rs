//! Source of the Vulkan functions: the system's loader, a given file, or a virtual card.

use crate::options::VulkanOptions;
use ggml_core::backend::KernelCounts;
use ggml_core::{Error, Missing, Phase, Result, phase};
use std::path::PathBuf;

/// Name of the backend before a device is chosen.
pub(crate) const BACKEND: &str = "vulkan";

pub(super) fn unavailable(phase: Phase, missing: Missing, reason: String) -> Error {
    Error::Unavailable { backend: BACKEND.into(), phase, missing, reason }
}

/// Source of the Vulkan functions.
#[derive(Clone, Debug)]
pub(crate) enum Provider {
    /// The system's loader.
    Loader,
    /// A loader or a driver in this file.
    File(PathBuf),
    /// A virtual card.
    #[cfg(feature = "virtual")]
    Card(virtual_vulkan::Card),
    /// A test's own functions.
    #[cfg(test)]
    Functions(ash::vk::PFN_vkGetInstanceProcAddr),
}

impl Provider {
    /// Returns the source selected by the options.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no virtual card on this machine.
    pub(crate) fn of(options: &VulkanOptions) -> Result<Provider> {
        #[cfg(feature = "virtual")]
        if let Some(card) = &options.card {
            let card = virtual_vulkan::Card::new(card.clone()).map_err(|why| no_card(&why))?;
            return Ok(Provider::Card(card));
        }
        #[cfg(test)]
        if let Some(functions) = options.functions {
            return Ok(Provider::Functions(functions));
        }
        Ok(options.library.clone().map_or(Provider::Loader, Provider::File))
    }

    /// Returns the name of a device, given its index in the list.
    pub(crate) fn device_name(&self, index: usize) -> String {
        match self {
            #[cfg(feature = "virtual")]
            Provider::Card(card) => format!("{BACKEND}-virtual:{}", card.options().model.name()),
            _ => format!("{BACKEND}:{index}"),
        }
    }

    /// True if creating an instance changes the environment of the process for a moment.
    pub(super) fn enumerates_with_environment(&self) -> bool {
        match self {
            #[cfg(feature = "virtual")]
            Provider::Card(_) => true,
            _ => false,
        }
    }

    /// Loads the functions that need no instance.
    pub(super) fn entry(&self) -> Result<ash::Entry> {
        phase::call("dlopen", &self.describe());
        // SAFETY: loading runs the library's initialisers. It is the system's Vulkan loader, or the file that
        // the caller specified as a loader or driver, or the virtual card's own functions; `Entry` keeps a
        // library loaded, and every function from it is reached through types that hold the entry.
        let entry = unsafe {
            match self {
                #[cfg(windows)]
                Provider::Loader => ash::Entry::load_from(system_loader()),
                #[cfg(not(windows))]
                Provider::Loader => ash::Entry::load(),
                Provider::File(path) => ash::Entry::load_from(path),
                #[cfg(feature = "virtual")]
                Provider::Card(card) => Ok(ash::Entry::from_static_fn(card.entry())),
                #[cfg(test)]
                Provider::Functions(get) => {
                    Ok(ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr: *get }))
                }
            }
        };
        entry.map_err(|error| {
            let reason = format!("{} could not be loaded: {error}", self.describe());
            unavailable(Phase::LoadRuntime, Missing::Library, reason)
        })
    }

    /// Describes the library before it is loaded.
    fn describe(&self) -> String {
        match self {
            Provider::Loader => "the system's Vulkan loader".into(),
            Provider::File(path) => path.display().to_string(),
            #[cfg(feature = "virtual")]
            Provider::Card(card) => card.library(),
            #[cfg(test)]
            Provider::Functions(_) => "a test's own functions".into(),
        }
    }

    /// Returns the reason why no instance could be created, where the provider has a more specific one than
    /// the loader.
    pub(super) fn refusal(&self) -> Option<Error> {
        match self {
            #[cfg(feature = "virtual")]
            Provider::Card(card) => card.refusal().map(|why| no_card(&why)),
            _ => None,
        }
    }

    /// Returns the counters of each pipeline, if the device has counters.
    pub(crate) fn counts(&self) -> Vec<KernelCounts> {
        match self {
            #[cfg(feature = "virtual")]
            Provider::Card(card) => {
                let all = card.counters().into_iter();
                all.map(|(kernel, c)| KernelCounts { kernel, counts: c.by_name() }).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the path of the library; for the loader, the path of its mapping (Linux only).
    pub(super) fn library(&self) -> String {
        match self {
            Provider::Loader => loader_path(),
            Provider::File(path) => path.display().to_string(),
            #[cfg(feature = "virtual")]
            Provider::Card(card) => card.library(),
            #[cfg(test)]
            Provider::Functions(_) => "a test's own functions".into(),
        }
    }

    /// Returns true if objects are given names. Naming costs little but needs an extension.
    pub(super) fn names_objects(&self) -> bool {
        match self {
            #[cfg(feature = "virtual")]
            Provider::Card(_) => true,
            _ => false,
        }
    }
}

#[cfg(feature = "virtual")]
fn no_card(why: &virtual_vulkan::Unavailable) -> Error {
    let missing = match why {
        virtual_vulkan::Unavailable::Library(_) => Missing::Library,
        _ => Missing::Feature,
    };
    Error::Unavailable {
        backend: format!("{BACKEND}-virtual"),
        phase: Phase::LoadRuntime,
        missing,
        reason: why.to_string(),
    }
}

fn loader_path() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let path =
        maps.lines().filter_map(|l| l.split_once('/')).map(|(_, p)| p).find(|p| p.contains("libvulkan.so"));
    path.map_or_else(|| "system library".into(), |p| format!("/{p}"))
}

/// Returns the path of the system's Vulkan loader. A name without a folder would also be searched in the folder that
/// the program is started in, where anybody may have put a file.
#[cfg(windows)]
fn system_loader() -> std::path::PathBuf {
    let root = std::env::var_os("SystemRoot").unwrap_or_else(|| r"C:\Windows".into());
    std::path::Path::new(&root).join("System32").join("vulkan-1.dll")
}
