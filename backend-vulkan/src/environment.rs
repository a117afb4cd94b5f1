//! The relevant environment variables, read once.

use ggml_core::environment::{OWN, VULKAN, recorded};
use ggml_core::{Error, Result};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

/// The values read from the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// Variables in effect that change the behaviour of the loader, a driver or this crate, sorted by name.
    pub(crate) overrides: Vec<(String, String)>,
    /// The user's cache directory.
    pub(crate) cache_home: Option<PathBuf>,
}

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(Environment::read);

/// Returns the environment of this process as it was at the first call.
pub(crate) fn environment() -> &'static Environment {
    &ENVIRONMENT
}

impl Environment {
    fn read() -> Environment {
        let overrides = recorded(std::env::vars_os(), &[OWN, VULKAN]);
        Environment { overrides, cache_home: cache_home() }
    }

    /// Parses a variable's value; `None` if the variable is unset or empty.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the variable, its value and the expected form.
    pub(crate) fn parsed<T: FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>> {
        match self.value(name) {
            None | Some("") => Ok(None),
            Some(text) => {
                text.parse().map(Some).map_err(|_| Error::argument(name, format!("'{text}'"), expected))
            }
        }
    }

    /// Returns the value of an override.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.overrides.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
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
    fn a_wrong_value_is_an_argument_error_that_names_the_variable() {
        let overrides = vec![("DIPTYCH_VULKAN_X".into(), "7".into()), ("DIPTYCH_VULKAN_Y".into(), "".into())];
        let env = Environment { overrides, ..Environment::default() };
        let parsed = |name: &str| env.parsed::<u64>(name, "a number");
        assert_eq!(parsed("DIPTYCH_VULKAN_X").unwrap(), Some(7));
        assert_eq!(parsed("DIPTYCH_VULKAN_Y").unwrap(), None, "empty");
        assert_eq!(parsed("DIPTYCH_VULKAN_Z").unwrap(), None, "not set");
        let error = env.parsed::<bool>("DIPTYCH_VULKAN_X", "true or false").unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }));
        assert_eq!(error.to_string(), "DIPTYCH_VULKAN_X: '7'; expected true or false");
    }
}
