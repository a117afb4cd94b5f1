//! Extent of the checks of a route, and their state.

use super::ahead::Workers;
use super::found::{Checked, Found, Stop, wrong};
use super::retained::Retained;
use ggml_core::backend::Backend;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::routes::GAIN;
use ggml_core::{Deadline, Graph};

/// Part by which a route may be slower before the plain way is used.
const MARGIN: f64 = 1.05;

/// The same for an emulated card, whose times say little, and there the speed from which on a candidate is used.
const EMULATED_MARGIN: f64 = 4.0;

/// Part by which times of the same kernels may differ: somebody else uses the card if it is more.
pub(super) const NOISE: f64 = 0.1;

/// Extent of the checks of a route.
pub(super) struct Scope<'a> {
    /// Name of the route.
    pub(super) route: &'a str,
    /// True for an emulated card and a processor: small sizes.
    pub(super) small: bool,
    /// True for an emulated card.
    pub(super) emulated: bool,
    /// True for a candidate of the tuning table.
    pub(super) tunes: bool,
    /// True to run cases of all types.
    pub(super) full: bool,
    /// Time for the checks.
    pub(super) deadline: Deadline,
    /// Threads that prepare programs.
    pub(super) workers: &'a Workers,
}

/// The checks of a route under way.
pub(super) struct Checks<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) retained: &'a mut Retained,
    pub(super) about: &'a mut dyn FnMut(&str),
    pub(super) passed: usize,
    /// Cases of the catalogue among them.
    pub(super) cases: usize,
    /// Time of the plain way divided by that of the route.
    pub(super) ratio: Option<f64>,
    /// Weights that products of one token read in the plain way and with the route, in GB/s.
    pub(super) bandwidth: Option<[f64; 2]>,
    /// Part by which times of the same kernels differ.
    pub(super) spread: f64,
}

impl Checks<'_> {
    /// True if the plain way is faster by more than the margin.
    pub(super) fn is_slower(&self) -> bool {
        let margin = if self.scope.emulated { EMULATED_MARGIN } else { MARGIN };
        self.ratio.is_some_and(|ratio| ratio * margin < 1.0)
    }

    /// True if a candidate is faster than the table's value by so much that it is worth leaving the table.
    pub(super) fn is_faster(&self) -> bool {
        let gain = if self.scope.emulated { EMULATED_MARGIN } else { GAIN };
        self.ratio.is_some_and(|ratio| ratio > gain)
    }

    /// True if times of the same kernels differ so much that they say nothing about others.
    pub(super) fn is_noisy(&self) -> bool {
        !self.scope.emulated && self.spread > NOISE
    }

    pub(super) fn begin(&mut self, what: &str) -> Checked<()> {
        (self.about)(what);
        if self.scope.deadline.passed() { Err(Stop::Found(Found::Late)) } else { Ok(()) }
    }
}

/// True if the kernels of a graph differ between the plain way and the route.
pub(super) fn is_taken(devices: [&dyn Backend; 2], graph: &Graph, precision: Precision) -> bool {
    let [plain, fast] = devices.map(|device| {
        let plan = Plan::fused(graph, device, precision).ok()?;
        device.kernels(graph, &plan).ok()
    });
    fast.is_some() && fast != plain
}

/// Fails if a result has other bits than that of the first run.
pub(super) fn same_bits(name: &str, run: usize, first: &[f32], values: &[f32]) -> Checked<()> {
    match first.iter().zip(values).position(|(a, b)| a.to_bits() != b.to_bits()) {
        Some(at) => wrong(format!(
            "{name}: other bits in run {run}: {} in place of {} at {at}",
            values[at], first[at]
        )),
        None => Ok(()),
    }
}
