//! How long steps take on the device, roughly.
//!
//! A submission must end long before a ring watchdog (2 to 10 seconds) fires, so steps are dealt out to submissions by
//! estimated time. The estimate is the larger of arithmetic and memory time at rates that a slow device of the class
//! reaches, times a factor learnt from the timestamps of earlier runs.

use crate::arch::ArchClass;
use ggml_core::cost::Work;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

/// The time model of a device.
#[derive(Debug)]
pub(crate) struct Model {
    flops_per_second: f64,
    bytes_per_second: f64,
    /// Measured over estimated time.
    factor: Mutex<f64>,
}

/// Times shorter than this are mostly overhead and say nothing about rates.
const MEASURABLE: Duration = Duration::from_millis(2);

impl Model {
    /// For a class of devices: rates of the slowest of them that anybody uses.
    pub(crate) fn new(class: ArchClass) -> Model {
        let (gflops, gbytes) = match class {
            ArchClass::Cpu => (2.0, 2.0),
            ArchClass::AmdGcn | ArchClass::Other | ArchClass::Intel => (300.0, 25.0),
            ArchClass::AmdRdna1 | ArchClass::AmdRdna2 | ArchClass::Nvidia => (700.0, 40.0),
            ArchClass::AmdRdna3 | ArchClass::AmdRdna4 | ArchClass::AmdCdna => (1500.0, 60.0),
        };
        Model { flops_per_second: gflops * 1e9, bytes_per_second: gbytes * 1e9, factor: Mutex::new(1.0) }
    }

    /// Estimated device time of a step before correction, in seconds.
    pub(crate) fn seconds(&self, work: Work) -> f64 {
        (work.flops / self.flops_per_second).max(work.bytes / self.bytes_per_second)
    }

    /// What estimates have to be multiplied by, as learnt so far.
    pub(crate) fn factor(&self) -> f64 {
        *self.factor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns from a run: of each of its parts the estimate before correction, in seconds, and the measured time.
    ///
    /// The parts of a fast device are too short to tell, all of them together are not. A part that is long enough counts
    /// by itself too, for a mean hides what is slower.
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
        // Slower than thought is believed at once, faster by half with every run.
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
