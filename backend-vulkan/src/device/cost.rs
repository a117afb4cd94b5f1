//! Rough estimates of the device time of steps.
//!
//! A submission must end long before a ring watchdog (2 to 10 seconds) fires, so steps are distributed over
//! submissions by estimated time. The estimate is the larger of arithmetic and memory time at rates that a
//! slow device of the class reaches, multiplied by a factor learnt from the timestamps of earlier runs.

use crate::arch::ArchClass;
use ggml_core::cost::Work;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

/// Time model of a device.
#[derive(Debug)]
pub(crate) struct Model {
    flops_per_second: f64,
    bytes_per_second: f64,
    /// Measured time divided by estimated time.
    factor: Mutex<f64>,
}

/// Shortest measured time that is used. Shorter times are mostly overhead and do not reflect rates.
const MEASURABLE: Duration = Duration::from_millis(2);

impl Model {
    /// Creates the model of a device class, with the rates of the slowest devices in use.
    pub(crate) fn new(class: ArchClass) -> Model {
        let (gflops, gbytes) = match class {
            ArchClass::Cpu => (2.0, 2.0),
            ArchClass::AmdGcn | ArchClass::Other | ArchClass::Intel => (300.0, 25.0),
            ArchClass::AmdRdna1 | ArchClass::AmdRdna2 | ArchClass::Nvidia => (700.0, 40.0),
            ArchClass::AmdRdna3 | ArchClass::AmdRdna4 | ArchClass::AmdCdna => (1500.0, 60.0),
        };
        Model { flops_per_second: gflops * 1e9, bytes_per_second: gbytes * 1e9, factor: Mutex::new(1.0) }
    }

    /// Returns the estimated device time of a step in seconds, before correction.
    pub(crate) fn seconds(&self, work: Work) -> f64 {
        (work.flops / self.flops_per_second).max(work.bytes / self.bytes_per_second)
    }

    /// Returns the factor learnt so far, by which estimates have to be multiplied.
    pub(crate) fn factor(&self) -> f64 {
        *self.factor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the factor from a run, given the uncorrected estimate in seconds and the measured time of each
    /// part.
    ///
    /// On a fast device the parts are too short to measure individually, but their total is not. A part that
    /// is long enough also counts by itself, because a mean hides slower parts.
    pub(crate) fn observe(&self, parts: impl IntoIterator<Item = (f64, Duration)>) {
        let ratio = |estimate: f64, measured: Duration| {
            (measured >= MEASURABLE).then(|| (measured.as_secs_f64() / estimate.max(1e-9)).clamp(0.02, 30.0))
        };
        let (mut all, mut slowest) = ((0.0, Duration::ZERO), None);
        for (estimate, measured) in parts {
            all = (all.0 + estimate, all.1 + measured);
            slowest = ratio(estimate, measured).into_iter().chain(slowest).reduce(f64::max);
        }
        let Some(seen) = ratio(all.0, all.1).into_iter().chain(slowest).reduce(f64::max) else { return };
        let mut factor = self.factor.lock().unwrap_or_else(PoisonError::into_inner);
        // A larger ratio is adopted immediately; with a smaller one the factor moves half of the difference
        // per run.
        *factor = if seen > *factor { seen } else { 0.5 * (*factor + seen) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_count() {
        let model = Model::new(ArchClass::Cpu);
        let estimate = model.seconds(Work { flops: 1e7, bytes: 2e6 });
        assert_eq!(estimate, 5e-3);
        model.observe([(estimate, Duration::from_micros(5))]);
        assert_eq!(model.factor(), 1.0, "too short to tell");
        model.observe([(estimate, Duration::from_secs_f64(estimate * 10.0))]);
        assert!((model.factor() - 10.0).abs() < 0.01);
        model.observe([(estimate, Duration::from_secs_f64(estimate))]);
        assert!((model.factor() - 5.5).abs() < 0.01);
    }

    #[test]
    fn many_short_parts_teach_together() {
        let model = Model::new(ArchClass::Nvidia);
        let fast = [(0.1, Duration::from_micros(500)); 100];
        for _ in 0..12 {
            model.observe(fast);
        }
        assert!(model.factor() < 0.021, "{}", model.factor());
        model.observe(fast.into_iter().chain([(0.1, Duration::from_millis(20))]));
        assert!((model.factor() - 0.2).abs() < 1e-6, "a part that is slower than the mean counts");
    }
}
