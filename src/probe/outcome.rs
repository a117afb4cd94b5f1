//! The outcome of the smoke tests.

use super::report::Line;

/// Results of the smoke tests on one path to a device.
pub(super) struct Smoke {
    pub(super) lines: Vec<Line>,
    pub(super) runs: usize,
    pub(super) good: usize,
    /// Cause and remedy of a failure, in a few words.
    pub(super) failure: Option<(String, String)>,
}
