//! Findings that end the checks of a route.

use ggml_core::Error;

/// Finding of a check that ends the checks.
pub(super) enum Found {
    /// Wrong results, described.
    Wrong(String),
    /// Time ran out.
    Late,
}

pub(super) type Checked<T> = std::result::Result<T, Stop>;

/// Reasons to stop.
pub(super) enum Stop {
    Found(Found),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

pub(super) fn wrong<T>(what: String) -> Checked<T> {
    Err(Stop::Found(Found::Wrong(what)))
}
