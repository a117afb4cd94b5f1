//! Rough estimates of the device time of steps.
//!
//! A submission must end long before a ring watchdog (2 to 10 seconds) fires, so steps are distributed over
//! submissions by estimated time. A step is limited by arithmetic or by memory. Its first estimate is its
//! time at rates that a slow device of the class reaches, with as many compute units as this one has. Each
//! kind of estimate is multiplied by a factor that all programs of the device learn from timestamps of their
//! runs.

use crate::arch::{ArchClass, Caps};
use ggml_core::cost::Work;
use ggml_core::sync::lock;
use std::ops::Add;
use std::sync::Mutex;
use std::time::Duration;

/// Shortest measured time that is used as it is. What takes less time is mostly overhead.
const MEASURABLE: Duration = Duration::from_millis(2);
/// Seconds that a dispatch takes at most without doing anything: barrier, launch, and its end.
const OVERHEAD: f64 = 10e-6;
/// Smallest and largest factor.
const FACTORS: (f64, f64) = (0.02, 30.0);
/// Maximum ratio of a factor to the next one. A program that is much faster than its estimate may differ from the
/// next one, which is submitted before it has been measured.
const FALL: f64 = 4.0;

/// Estimated device time in seconds before correction, by what limits the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// Time of steps limited by arithmetic.
    pub(crate) arithmetic: f64,
    /// Time of steps limited by memory.
    pub(crate) memory: f64,
    /// Number of dispatches.
    pub(crate) dispatches: f64,
}

impl Estimate {
    /// Returns the estimate of a dispatch that does one of `parts` equal parts of the work.
    pub(crate) fn part(self, parts: usize) -> Estimate {
        let parts = parts.max(1) as f64;
        Estimate { arithmetic: self.arithmetic / parts, memory: self.memory / parts, dispatches: 1.0 }
    }
}

impl Add for Estimate {
    type Output = Estimate;

    fn add(self, other: Estimate) -> Estimate {
        Estimate {
            arithmetic: self.arithmetic + other.arithmetic,
            memory: self.memory + other.memory,
            dispatches: self.dispatches + other.dispatches,
        }
    }
}

/// Time model of a device.
#[derive(Debug)]
pub(crate) struct Model {
    flops_per_second: f64,
    bytes_per_second: f64,
    factors: Mutex<Factors>,
}

/// Measured time divided by estimated time.
#[derive(Clone, Copy, Debug)]
struct Factors {
    arithmetic: f64,
    memory: f64,
}

impl Model {
    /// Creates the model of a device: with the rates of slow compute units of its class and the number of
    /// its units, or with those of the slowest devices in use if the number is unknown.
    pub(crate) fn new(caps: &Caps) -> Model {
        let (gflops, gbytes) = match caps.arch {
            ArchClass::Cpu => (2.0, 2.0),
            ArchClass::AmdGcn | ArchClass::Other | ArchClass::Intel => (300.0, 25.0),
            ArchClass::AmdRdna1 | ArchClass::AmdRdna2 | ArchClass::Nvidia => (700.0, 40.0),
            ArchClass::AmdRdna3 | ArchClass::AmdRdna4 | ArchClass::AmdCdna => (1500.0, 60.0),
        };
        // A unit has 128 or more operations for each cycle of 1 GHz or more, and kernels of F32 reach most of
        // that. Devices have at least 3 GB/s for each unit. The smallest have more, and not less memory than others
        // of their class.
        let units = caps.compute_units.map(f64::from).filter(|_| caps.arch != ArchClass::Cpu);
        let (gflops, gbytes) = match units {
            Some(units) => (100.0 * units, f64::max(gbytes, 2.5 * units)),
            None => (gflops, gbytes),
        };
        let factors = Mutex::new(Factors { arithmetic: 1.0, memory: 1.0 });
        Model { flops_per_second: gflops * 1e9, bytes_per_second: gbytes * 1e9, factors }
    }

    /// Returns the estimate of work that one dispatch does.
    pub(crate) fn estimate(&self, work: Work) -> Estimate {
        let (arithmetic, memory) = (work.flops / self.flops_per_second, work.bytes / self.bytes_per_second);
        let dispatch = Estimate { dispatches: 1.0, ..Estimate::default() };
        match arithmetic > memory {
            true => Estimate { arithmetic, ..dispatch },
            false => Estimate { memory, ..dispatch },
        }
    }

    /// Returns an estimate in seconds, corrected by what was learnt so far.
    pub(crate) fn seconds(&self, estimate: Estimate) -> f64 {
        lock(&self.factors).seconds(estimate)
    }

    /// Learns from a run, given the estimate and the measured time of each part. `first`: it is the first run
    /// of its program, which includes page faults, loading of code and rising clocks.
    ///
    /// On a fast device the parts are too short to measure individually, but their total is not. A part that
    /// is long enough also counts by itself, because a mean hides slower parts. A first run, and one that is
    /// too short to measure, say how long the work takes at most: they can only lower a factor.
    pub(crate) fn observe(&self, parts: impl IntoIterator<Item = (Estimate, Duration)>, first: bool) {
        let mut samples: Vec<(Estimate, Duration)> = parts.into_iter().collect();
        let total = samples
            .iter()
            .fold((Estimate::default(), Duration::ZERO), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        samples.retain(|part| part.1 >= MEASURABLE);
        samples.push((total.0, total.1.max(MEASURABLE)));
        let rises = !first && total.1 >= MEASURABLE;
        let mut factors = lock(&self.factors);
        let (arithmetic, memory): (Vec<_>, Vec<_>) =
            samples.into_iter().partition(|(estimate, _)| factors.by_arithmetic(*estimate));
        let arithmetic = arithmetic.into_iter().map(|(e, time)| (e.arithmetic, e.dispatches, time));
        factors.arithmetic = learn(factors.arithmetic, arithmetic, rises);
        let memory = memory.into_iter().map(|(e, time)| (e.memory, e.dispatches, time));
        factors.memory = learn(factors.memory, memory, rises);
    }
}

impl Factors {
    fn seconds(self, estimate: Estimate) -> f64 {
        estimate.arithmetic * self.arithmetic + estimate.memory * self.memory + estimate.dispatches * OVERHEAD
    }

    /// Returns true if most of the estimated time is that of steps limited by arithmetic.
    fn by_arithmetic(self, estimate: Estimate) -> bool {
        estimate.arithmetic * self.arithmetic > estimate.memory * self.memory
    }
}

/// Returns a factor after samples of estimated seconds, dispatches and measured time. The sample with the largest
/// ratio counts. A larger factor is adopted immediately, and only what overhead does not explain.
fn learn(factor: f64, samples: impl Iterator<Item = (f64, f64, Duration)>, rises: bool) -> f64 {
    let bounds = samples.filter(|(estimate, ..)| *estimate > 0.0).map(|(estimate, dispatches, time)| {
        let time = time.as_secs_f64();
        ((time - dispatches * OVERHEAD) / estimate, time / estimate)
    });
    let Some((least, most)) = bounds.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))) else { return factor };
    let next = if least > factor && rises { least } else { factor.min(most.max(factor / FALL)) };
    next.clamp(FACTORS.0, FACTORS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(arch: ArchClass, compute_units: Option<u32>) -> Model {
        Model::new(&Caps { compute_units, ..Caps::imagined(arch, 16) })
    }

    /// Returns the estimate of a second of arithmetic, and of a second of memory.
    fn seconds() -> [Estimate; 2] {
        let second = Estimate { dispatches: 1.0, ..Estimate::default() };
        [Estimate { arithmetic: 1.0, ..second }, Estimate { memory: 1.0, ..second }]
    }

    fn near(model: &Model, estimate: Estimate, wanted: f64) {
        let found = model.seconds(estimate);
        assert!((found / wanted - 1.0).abs() < 0.01, "{found} in place of {wanted}");
    }

    #[test]
    fn each_run_teaches_and_a_slow_one_at_once() {
        let model = model(ArchClass::Cpu, None);
        let estimate = model.estimate(Work { flops: 4e7, bytes: 2e6 });
        near(&model, estimate, 0.02);
        model.observe([(estimate, Duration::from_millis(200))], true);
        near(&model, estimate, 0.02);
        model.observe([(estimate, Duration::from_millis(200))], false);
        near(&model, estimate, 0.2);
        model.observe([(estimate, Duration::from_millis(100))], false);
        near(&model, estimate, 0.1);
        model.observe([(estimate, Duration::from_millis(3))], true);
        near(&model, estimate, 0.025);
        model.observe([(estimate, Duration::from_micros(3))], false);
        near(&model, estimate, 0.00625);
        model.observe([(estimate, Duration::from_micros(3))], false);
        near(&model, estimate, 0.002);
        let [_, memory] = seconds();
        near(&model, memory, 1.0);
    }

    #[test]
    fn a_short_run_of_short_work_teaches_nothing() {
        let model = model(ArchClass::Nvidia, None);
        let estimate = model.estimate(Work { flops: 1e3, bytes: 8e7 });
        near(&model, estimate, 2e-3);
        model.observe([(estimate, Duration::from_micros(5))], false);
        near(&model, estimate, 2e-3);
    }

    #[test]
    fn arithmetic_and_memory_are_learnt_apart() {
        let [arithmetic, memory] = seconds();
        let model = model(ArchClass::AmdGcn, None);
        for _ in 0..5 {
            model.observe([(memory, Duration::from_millis(30))], false);
        }
        near(&model, memory, 0.03);
        near(&model, arithmetic, 1.0);
        model.observe([(arithmetic, Duration::from_secs(3))], false);
        near(&model, memory, 0.03);
        near(&model, arithmetic, 3.0);
    }

    #[test]
    fn many_short_parts_teach_together() {
        let [arithmetic, _] = seconds();
        let model = model(ArchClass::Nvidia, None);
        let fast = [(arithmetic.part(10), Duration::from_micros(500)); 100];
        for _ in 0..4 {
            model.observe(fast, false);
        }
        near(&model, arithmetic, 0.02);
        model.observe(fast.into_iter().chain([(arithmetic.part(10), Duration::from_millis(20))]), false);
        near(&model, arithmetic, 0.2);
    }

    /// Many dispatches of little work take as long as they take: other work is not slower.
    #[test]
    fn overhead_is_not_blamed_on_work() {
        let model = model(ArchClass::Nvidia, None);
        let [_, memory] = seconds();
        let small = Estimate { memory: 1e-6, dispatches: 300.0, ..Estimate::default() };
        model.observe([(small, Duration::from_micros(2900))], false);
        near(&model, memory, 1.0);
        assert!(model.seconds(small) > 2.9e-3);
    }

    /// A decode step and a short prompt of a model with 30 billion weights, 3 billion of them in use, are one
    /// submission of a large card from the first run on, and are divided on a small one.
    #[test]
    fn the_first_estimate_is_that_of_the_device() {
        let budget = 0.1;
        let step = Work { flops: 6.6e9, bytes: 1.8e9 };
        let prompt = Work { flops: 64.0 * 6.6e9, bytes: 17e9 };
        let first = |units, work| {
            let model = model(ArchClass::Nvidia, units);
            model.seconds(model.estimate(work))
        };
        assert!(first(Some(132), step) < budget && first(Some(132), prompt) < budget);
        assert!(first(None, prompt) > budget && first(Some(3), prompt) > budget);
        let model = model(ArchClass::AmdRdna2, Some(2));
        near(&model, model.estimate(Work { flops: 2e11, bytes: 0.0 }), 1.0);
    }
}
