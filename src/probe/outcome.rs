//! The outcome of the smoke tests.

use super::report::Line;
use ggml_core::routes::RouteUse;
use ggml_core::routes::cards::CardReport;

/// Results of the smoke tests on one path to a device.
pub(super) struct Smoke {
    pub(super) lines: Vec<Line>,
    pub(super) runs: usize,
    pub(super) good: usize,
    /// Routes of the device, if a run opened it.
    pub(super) routes: Vec<RouteUse>,
    /// Report of the card, if a run opened it.
    pub(super) card: Option<CardReport>,
    /// Cause and remedy of a failure, in a few words.
    pub(super) failure: Option<(String, String)>,
}
