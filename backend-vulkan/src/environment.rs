//! The environment variables that matter here, read once.

use ggml_core::{Error, Result};
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::arch::ArchClass;

/// Prefixes of variables that change what a Vulkan loader, layer or driver does.
const OVERRIDE_PREFIXES: [&str; 8] =
    ["VK_", "RADV_", "MESA_", "ACO_", "AMD_", "LP_", "LVP_", "DIPTYCH_VULKAN_"];

/// Variables without a common prefix that do so too.
const OVERRIDE_NAMES: [&str; 4] = ["DRI_PRIME", "GALLIVM_DEBUG", "NIR_DEBUG", "__NV_PRIME_RENDER_OFFLOAD"];

/// What was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// `DIPTYCH_VULKAN_ARCH`.
    arch: Option<String>,
    /// Variables in effect that change the behaviour of the loader or a driver, sorted by name.
    pub(crate) overrides: Vec<(String, String)>,
    /// Where this user's caches are.
    pub(crate) cache_home: Option<PathBuf>,
}

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(Environment::read);

/// The environment of this process as it was when it was first asked for.
pub(crate) fn environment() -> &'static Environment {
    &ENVIRONMENT
}

impl Environment {
    fn read() -> Environment {
        let mut overrides: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .filter(|(name, _)| is_override(name))
            .collect();
        overrides.sort();
        let arch = overrides.iter().find(|(name, _)| name == "DIPTYCH_VULKAN_ARCH").map(|(_, v)| v.clone());
        Environment { arch, overrides, cache_home: cache_home() }
    }

    /// The class that `DIPTYCH_VULKAN_ARCH` forces.
    pub(crate) fn forced_arch(&self) -> Result<Option<ArchClass>> {
        match &self.arch {
            Some(name) if !name.is_empty() => match name.parse() {
                Ok(class) => Ok(Some(class)),
                Err(error) => Err(Error::argument_said("DIPTYCH_VULKAN_ARCH", format!("{error}"))),
            },
            _ => Ok(None),
        }
    }

    /// The value of an override.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.overrides.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

fn is_override(name: &str) -> bool {
    OVERRIDE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || OVERRIDE_NAMES.contains(&name)
}

fn cache_home() -> Option<PathBuf> {
    let dir = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if cfg!(windows) {
        dir("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        dir("HOME").map(|home| home.join("Library/Caches"))
    } else {
        dir("XDG_CACHE_HOME")
            .filter(|d| d.is_absolute())
            .or_else(|| dir("HOME").map(|home| home.join(".cache")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_recognised() {
        for name in
            ["VK_DRIVER_FILES", "RADV_DEBUG", "MESA_VK_DEVICE_SELECT", "LP_NATIVE_VECTOR_WIDTH", "DRI_PRIME"]
        {
            assert!(is_override(name), "{name}");
        }
        assert!(!is_override("PATH") && !is_override("HOME"));
    }

    #[test]
    fn a_wrong_class_is_an_error() {
        let env = |arch: &str| Environment { arch: Some(arch.into()), ..Environment::default() };
        assert_eq!(env("amd_gcn").forced_arch().unwrap(), Some(ArchClass::AmdGcn));
        assert_eq!(env("").forced_arch().unwrap(), None);
        assert!(env("vega").forced_arch().unwrap_err().to_string().contains("AMD_GCN"));
    }
}
