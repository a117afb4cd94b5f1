//! How to open the backend: one structure, made once.

use crate::arch::{ArchClass, Matrices, SharedTiles};
use crate::environment::environment;
use ggml_core::phase::Deadlines;
use ggml_core::{Error, Result};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How much memory the backend takes for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBudget {
    /// What the driver reports as free (VK_EXT_memory_budget), heap by heap, at the time of each allocation. Without
    /// the extension nothing is known and the driver decides.
    Reported,
    /// This many bytes in all, whatever the driver reports. Files that are read in place do not count.
    Bytes(u64),
    /// As much as the driver gives, whatever it reports.
    Ignored,
}

impl MemoryBudget {
    /// What can be parsed, for messages.
    const FORMS: &str = "a number of bytes, or 'ignore'";
}

impl FromStr for MemoryBudget {
    type Err = Error;

    /// A number of bytes, or `ignore`.
    fn from_str(text: &str) -> Result<MemoryBudget> {
        match text {
            "ignore" => Ok(MemoryBudget::Ignored),
            bytes => bytes
                .parse()
                .map(MemoryBudget::Bytes)
                .map_err(|_| Error::argument("memory budget", format!("'{text}'"), MemoryBudget::FORMS)),
        }
    }
}

/// How to open the backend.
#[derive(Clone, Debug)]
pub struct VulkanOptions {
    /// Which device, as an index into [`enumerate`](crate::enumerate); `None`: the first of the best kind (discrete,
    /// then integrated, then virtual, then a processor).
    pub device: Option<usize>,
    /// Uses the kernels of this class whatever the device is. `None`: what `DIPTYCH_VULKAN_ARCH` says, else the
    /// device's own class.
    pub arch: Option<ArchClass>,
    /// What products use of matrix units. `None`: what `DIPTYCH_VULKAN_MATRIX_UNITS` says (`off`, `on` or `emulated`), else
    /// [`Matrices::of`] the device's class.
    pub matrices: Option<Matrices>,
    /// Lets weights of mat-vec go through shared memory, where the device's class has kernels for that (NVIDIA) and shared
    /// memory can have several views. `None`: what `DIPTYCH_VULKAN_STAGED_WEIGHTS` says (`true` or `false`), else they may.
    pub staged_weights: Option<bool>,
    /// Which products on matrix units have tiles that work-groups share. `None`: what `DIPTYCH_VULKAN_SHARED_TILES` says (`off`, `on`
    /// or `small`), else [`SharedTiles::Large`].
    pub shared_tiles: Option<SharedTiles>,
    /// How much memory may be taken. An allocation beyond it is [`Error::OutOfMemory`], because a driver may give more
    /// than there is and lose the device when the memory is used. `None`: what `DIPTYCH_VULKAN_MEMORY` says (bytes, or
    /// `ignore`: some drivers report wrong figures), else [`MemoryBudget::Reported`].
    pub memory: Option<MemoryBudget>,
    /// Deadlines of all waits.
    pub deadlines: Deadlines,
    /// Loads the validation layer with synchronisation validation and collects its messages
    /// ([`VulkanBackend::validation_messages`](crate::VulkanBackend::validation_messages)). An error if the layer is
    /// not installed.
    pub validation: bool,
    /// Where compiled pipelines are kept from process to process; `None`: nowhere. The default is `diptych/vulkan` in
    /// the user's cache directory.
    pub pipeline_cache_dir: Option<PathBuf>,
    /// Leaves a mark after each node, so that an error of a hanging or lost device names the node. Where the driver
    /// has no buffer markers every node then waits for the one before it.
    pub breadcrumbs: bool,
    /// The loader's library; `None`: the system's.
    pub library: Option<PathBuf>,
    /// A virtual card instead of the machine's devices.
    #[cfg(feature = "virtual")]
    pub card: Option<virtual_vulkan::Options>,
    /// Vulkan's functions, in a test.
    #[cfg(test)]
    pub(crate) functions: Option<ash::vk::PFN_vkGetInstanceProcAddr>,
    /// Lowers the largest window of an operand, in bytes, below what the device reports.
    pub max_binding: Option<u64>,
    /// Lowers the largest number of work-groups in each direction, below what the device reports.
    pub max_workgroups: Option<u32>,
    /// Moves all data through staging memory, also where the processor could write device memory directly.
    pub force_staging: bool,
    /// Fills compute memory with NaNs when it is allocated, so that a read of what was never written shows. The
    /// default is that of debug assertions.
    pub poison: bool,
    /// The device time, by estimate, that one submission may take before the next one begins.
    pub submission_budget: Duration,
}

impl Default for VulkanOptions {
    fn default() -> Self {
        VulkanOptions {
            device: None,
            arch: None,
            matrices: None,
            staged_weights: None,
            shared_tiles: None,
            memory: None,
            deadlines: Deadlines::default(),
            validation: false,
            pipeline_cache_dir: environment()
                .cache_home
                .as_ref()
                .map(|dir| dir.join("diptych").join("vulkan")),
            breadcrumbs: false,
            library: None,
            #[cfg(feature = "virtual")]
            card: None,
            #[cfg(test)]
            functions: None,
            max_binding: None,
            max_workgroups: None,
            force_staging: false,
            poison: cfg!(debug_assertions),
            // Watchdogs end a submission after 2 to 10 seconds, and estimates can be wrong by a factor of ten.
            submission_budget: Duration::from_millis(100),
        }
    }
}

impl VulkanOptions {
    /// The default options for a backend name, `vulkan`, `vulkan:N` or, with the feature `virtual`, `vulkan-virtual:CARD`
    /// (`vega10`, `vega20`, or the processor on it, `gfx900`, `gfx906`; nothing is a `vega20`), with checks, faults and
    /// order as the environment says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any other name, and for a variable that is not understood.
    pub fn for_name(name: &str) -> Result<VulkanOptions> {
        #[cfg(feature = "virtual")]
        if let Some(card) = name.strip_prefix("vulkan-virtual") {
            return VulkanOptions::for_card(card.strip_prefix(':').unwrap_or(card));
        }
        let wrong = || Error::argument("backend", format!("'{name}'"), "'vulkan' or 'vulkan:N'");
        let device = match name.strip_prefix("vulkan").ok_or_else(wrong)? {
            "" => None,
            rest => Some(rest.strip_prefix(':').and_then(|n| n.parse().ok()).ok_or_else(wrong)?),
        };
        Ok(VulkanOptions { device, ..VulkanOptions::default() })
    }

    #[cfg(feature = "virtual")]
    fn for_card(name: &str) -> Result<VulkanOptions> {
        use virtual_vulkan::{Model, Options};
        let model = if name.is_empty() { Some(Model::default()) } else { Model::parse(name) };
        let model = model.ok_or_else(|| {
            Error::argument("virtual card", format!("'{name}'"), "vega20, vega10, gfx906 or gfx900")
        })?;
        let card = Options::from_environment(model)
            .map_err(|why| Error::argument("environment of the virtual card", why, ""))?;
        // What is compiled is taken from RADV's own cache, which it keeps on disk itself.
        // Its markers cost nothing, and name the node where a shader went wrong.
        Ok(VulkanOptions {
            card: Some(card),
            breadcrumbs: true,
            pipeline_cache_dir: None,
            ..VulkanOptions::default()
        })
    }

    /// The class that is forced, by option or environment.
    pub(crate) fn forced_arch(&self) -> Result<Option<ArchClass>> {
        match self.arch {
            Some(class) => Ok(Some(class)),
            None => {
                let expected = format!("one of {}", ArchClass::names());
                environment().parsed("DIPTYCH_VULKAN_ARCH", &expected)
            }
        }
    }

    /// What products use of matrix units, by option or environment, if they say.
    pub(crate) fn used_matrices(&self) -> Result<Option<Matrices>> {
        match self.matrices {
            Some(matrices) => Ok(Some(matrices)),
            None => environment().parsed("DIPTYCH_VULKAN_MATRIX_UNITS", Matrices::FORMS),
        }
    }

    /// Whether weights of mat-vec may go through shared memory, by option or environment.
    pub(crate) fn staged_weights(&self) -> Result<bool> {
        match self.staged_weights {
            Some(staged) => Ok(staged),
            None => {
                let asked = environment().parsed("DIPTYCH_VULKAN_STAGED_WEIGHTS", "'true' or 'false'")?;
                Ok(asked.unwrap_or(true))
            }
        }
    }

    /// Which products have tiles that work-groups share, by option or environment.
    pub(crate) fn shared_tiles(&self) -> Result<SharedTiles> {
        match self.shared_tiles {
            Some(shared) => Ok(shared),
            None => {
                let asked = environment().parsed("DIPTYCH_VULKAN_SHARED_TILES", SharedTiles::FORMS)?;
                Ok(asked.unwrap_or(SharedTiles::Large))
            }
        }
    }

    /// How much memory may be taken, by option or environment.
    pub(crate) fn memory_budget(&self) -> Result<MemoryBudget> {
        match self.memory {
            Some(budget) => Ok(budget),
            None => {
                let asked = environment().parsed("DIPTYCH_VULKAN_MEMORY", MemoryBudget::FORMS)?;
                Ok(asked.unwrap_or(MemoryBudget::Reported))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets() {
        assert_eq!("ignore".parse::<MemoryBudget>().unwrap(), MemoryBudget::Ignored);
        assert_eq!("17179869184".parse::<MemoryBudget>().unwrap(), MemoryBudget::Bytes(16 << 30));
        for wrong in ["", "-1", "16G", "Ignore", "18446744073709551616"] {
            let error = wrong.parse::<MemoryBudget>().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(VulkanOptions::for_name("vulkan").unwrap().device, None);
        assert_eq!(VulkanOptions::for_name("vulkan:2").unwrap().device, Some(2));
        for wrong in ["vulkan2", "vulkan:", "vulkan:x", "hip", ""] {
            assert!(VulkanOptions::for_name(wrong).is_err(), "{wrong}");
        }
    }
}
