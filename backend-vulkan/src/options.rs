//! Options for opening the backend.

use crate::arch::{ArchClass, Matrices, SharedTiles};
use crate::environment::environment;
use crate::route::Route;
use ggml_core::phase::Deadlines;
use ggml_core::routes::{Routes, TUNE, Table, VARIABLE};
use ggml_core::{Error, Result};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Limit on the memory that the backend allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBudget {
    /// The free memory that the driver reports for each heap (VK_EXT_memory_budget) at the time of each
    /// allocation. Without the extension the free memory is unknown and the driver decides.
    Reported,
    /// This many bytes in total, regardless of the driver's report. Files that are read in place do not
    /// count.
    Bytes(u64),
    /// No limit of the backend's own: the driver decides, regardless of its report.
    Ignored,
}

impl MemoryBudget {
    /// Accepted forms, for messages.
    const FORMS: &str = "a number of bytes, or 'ignore'";
}

impl FromStr for MemoryBudget {
    type Err = Error;

    /// Parses a number of bytes, or `ignore`.
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

/// Options for opening the backend.
#[derive(Clone, Debug)]
pub struct VulkanOptions {
    /// Index of the device in [`enumerate`](crate::enumerate); `None`: the first of the best kind (discrete,
    /// then integrated, then virtual, then CPU).
    pub device: Option<usize>,
    /// Choice of routes, see [`Route`]. `None`: the value of `DIPTYCH_ROUTES`, or else those that were
    /// verified on the device or are known to work on devices like it.
    pub routes: Option<Routes>,
    /// Directory of the verdicts on routes; `None`: none are read. The default is `diptych/routes` in the user's cache
    /// directory.
    pub routes_dir: Option<PathBuf>,
    /// Uses the kernels of this class on any device. `None`: the value of `DIPTYCH_VULKAN_ARCH`, or else the
    /// device's own class.
    pub arch: Option<ArchClass>,
    /// Use of matrix units by products and attention: both routes, on or off. `None`: the value of
    /// `DIPTYCH_VULKAN_MATRIX_UNITS` (`off`, `on` or `emulated`), or else what the choice of routes says.
    pub matrices: Option<Matrices>,
    /// Use of the route by which matrix-vector products read weights through workgroup-shared memory. `None`: the value
    /// of `DIPTYCH_VULKAN_STAGED_WEIGHTS` (`true` or `false`), or else what the choice of routes says.
    pub staged_weights: Option<bool>,
    /// Products on matrix units that use tiles shared between work-groups. `None`: the value of
    /// `DIPTYCH_VULKAN_SHARED_TILES` (`off`, `on` or `small`), or else [`SharedTiles::Large`] if the choice of routes
    /// has them.
    pub shared_tiles: Option<SharedTiles>,
    /// Limit on allocated memory. An allocation beyond it is [`Error::OutOfMemory`], because a driver may
    /// grant more memory than exists and lose the device when the memory is used. `None`: the value of
    /// `DIPTYCH_VULKAN_MEMORY` (bytes, or `ignore` for drivers that report wrong values), or else
    /// [`MemoryBudget::Reported`].
    pub memory: Option<MemoryBudget>,
    /// Deadlines of all waits.
    pub deadlines: Deadlines,
    /// Loads the validation layer with synchronisation validation and collects its messages
    /// ([`VulkanBackend::validation_messages`](crate::VulkanBackend::validation_messages)). An error if the
    /// layer is not installed.
    pub validation: bool,
    /// Directory of the persistent pipeline cache; `None`: no cache on disk. The default is `diptych/vulkan`
    /// in the user's cache directory.
    pub pipeline_cache_dir: Option<PathBuf>,
    /// Writes a marker after each node, so that an error of a hanging or lost device names the node. Where
    /// the driver has no buffer markers, every node then waits for the previous one.
    pub breadcrumbs: bool,
    /// Path of the Vulkan loader's library; `None`: the system's.
    pub library: Option<PathBuf>,
    /// A virtual card used instead of the machine's devices.
    #[cfg(feature = "virtual")]
    pub card: Option<virtual_vulkan::Options>,
    /// Entry point of a test's own Vulkan implementation.
    #[cfg(test)]
    pub(crate) functions: Option<ash::vk::PFN_vkGetInstanceProcAddr>,
    /// Lowers the maximum window of an operand, in bytes, below the device's limit.
    pub max_binding: Option<u64>,
    /// Lowers the maximum number of work-groups in each dimension below the device's limit.
    pub max_workgroups: Option<u32>,
    /// Moves all data through staging memory, even where the CPU could write device memory directly.
    pub force_staging: bool,
    /// Fills compute memory with NaNs when it is allocated, so that reads of uninitialised memory show up. On
    /// by default in builds with debug assertions.
    pub poison: bool,
    /// Estimated device time of one submission; a program is split into submissions of at most about this
    /// length.
    pub submission_budget: Duration,
}

impl Default for VulkanOptions {
    fn default() -> Self {
        VulkanOptions {
            device: None,
            routes: None,
            routes_dir: environment().cache_home.as_ref().map(|dir| dir.join("diptych").join("routes")),
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
            // Watchdogs end a submission after 2 to 10 seconds, and estimates can be wrong by a factor of
            // ten.
            submission_budget: Duration::from_millis(100),
        }
    }
}

impl VulkanOptions {
    /// Returns the default options for a backend name: `vulkan`, `vulkan:N` or, with the feature `virtual`,
    /// `vulkan-virtual:CARD`. `CARD` is `vega10`, `vega20`, `navi31`, `gfx1151`, or the processor on it, `gfx900`,
    /// `gfx906`, `gfx1100`; an empty name means `vega20`. Checks, faults and execution order of a virtual card come from the
    /// environment.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any other name, and for a variable that cannot be parsed.
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
            let cards: Vec<&str> = Model::ALL.map(Model::name).to_vec();
            Error::argument("virtual card", format!("'{name}'"), format!("one of {}", cards.join(", ")))
        })?;
        let card = Options::from_environment(model)
            .map_err(|why| Error::argument("environment of the virtual card", why, ""))?;
        // RADV has its own cache of compiled shaders on disk. Breadcrumbs cost nothing on a virtual card and
        // name the node where a shader failed.
        Ok(VulkanOptions {
            card: Some(card),
            breadcrumbs: true,
            pipeline_cache_dir: None,
            // Tests must not depend on what was verified before.
            routes_dir: None,
            ..VulkanOptions::default()
        })
    }

    /// Returns the class forced by the option or the environment, if any.
    pub(crate) fn forced_arch(&self) -> Result<Option<ArchClass>> {
        match self.arch {
            Some(class) => Ok(Some(class)),
            None => {
                let expected = format!("one of {}", ArchClass::names());
                environment().parsed("DIPTYCH_VULKAN_ARCH", &expected)
            }
        }
    }

    /// Returns the use of matrix units set by the option or the environment, if any.
    pub(crate) fn used_matrices(&self) -> Result<Option<Matrices>> {
        match self.matrices {
            Some(matrices) => Ok(Some(matrices)),
            None => environment().parsed("DIPTYCH_VULKAN_MATRIX_UNITS", Matrices::FORMS),
        }
    }

    /// Returns the products that use tiles shared between work-groups, if the option or the environment says.
    pub(crate) fn chosen_shared_tiles(&self) -> Result<Option<SharedTiles>> {
        match self.shared_tiles {
            Some(shared) => Ok(Some(shared)),
            None => environment().parsed("DIPTYCH_VULKAN_SHARED_TILES", SharedTiles::FORMS),
        }
    }

    /// Returns the choice of routes, with those that other options and variables stand for.
    pub(crate) fn chosen_routes(&self) -> Result<Routes> {
        let named = |mut routes: Routes, names: &[Route], option: Option<bool>, variable: Option<bool>| {
            for name in names.iter().map(|route| route.row().name) {
                routes = match (option, variable, &self.routes) {
                    (Some(is_used), _, None) => routes.with(name, is_used),
                    (Some(is_used), _, Some(_)) => routes.or(name, is_used),
                    // A variable does not change what an application chose.
                    (None, Some(is_used), None) => routes.or(name, is_used),
                    _ => routes,
                };
            }
            routes
        };
        let mut routes = match &self.routes {
            Some(routes) => routes.clone(),
            None => {
                let routes: Routes = environment().parsed(VARIABLE, Routes::FORMS)?.unwrap_or_default();
                match environment().value(TUNE).filter(|value| !value.is_empty()) {
                    Some(value) => routes.tuned_by(value)?,
                    None => routes,
                }
            }
        };
        let units = |matrices: Matrices| matrices != Matrices::Off;
        routes = named(
            routes,
            &[Route::MatrixProducts, Route::MatrixAttention],
            self.matrices.map(units),
            self.used_matrices()?.map(units),
        );
        let staged = environment().parsed("DIPTYCH_VULKAN_STAGED_WEIGHTS", "'true' or 'false'")?;
        routes = named(routes, &[Route::StagedWeights], self.staged_weights, staged);
        let shared = |shared: SharedTiles| shared != SharedTiles::Off;
        routes = named(
            routes,
            &[Route::SharedTiles],
            self.shared_tiles.map(shared),
            self.chosen_shared_tiles()?.map(shared),
        );
        Ok(routes)
    }

    /// Returns the limit on allocated memory, from the option or the environment.
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
