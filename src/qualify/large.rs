//! Large products and attention: compared with the reference or the plain way, and timed by turns.

use super::ahead::Promise;
use super::found::{Checked, Found, Stop, wrong};
use super::listed::{Coming, Listed};
use super::programs::{decoded, prepared, run_undecoded};
use super::retained::{Plain, Sweep};
use super::scope::{Checks, NOISE, Scope, same_bits};
use super::work::Work;
use ggml_core::Result;
use ggml_core::backend::Program;
use ggml_core::bound;
use ggml_core::metrics::{Bound, distance_in_rows};
use ggml_core::precision::Precision;
use ggml_core::routes::GAIN;
use std::sync::Arc;

impl Checks<'_> {
    /// Compares large works with the plain way, and measures both by turns. A route that seems slower, and a candidate that
    /// seems faster, is measured once more with everything in other memory.
    pub(super) fn compare(&mut self, listed: &mut Listed) -> Checked<()> {
        let coming = listed.coming.take();
        let tunes = self.scope.tunes;
        self.ratio = self.measured(listed, coming)?;
        if !tunes && self.is_slower() || tunes && self.is_faster() && !self.is_noisy() {
            self.retained.forget_plain();
            let passed = self.passed;
            let again = self.measured(listed, None)?;
            // The same checks again count once.
            self.passed = passed;
            let better = if tunes { f64::min } else { f64::max };
            self.ratio = self.ratio.zip(again).map(|(first, again)| better(first, again));
        }
        Ok(())
    }

    /// Returns the time of the plain way divided by that of the route, over all large works. The programs of the next
    /// group are prepared while those of one run, so that two groups at most are in memory.
    fn measured(&mut self, listed: &Listed, coming: Option<Coming>) -> Checked<Option<f64>> {
        let mut times = Vec::new();
        let mut groups = listed.groups.iter();
        let mut next =
            groups.next().map(|group| (group, coming.unwrap_or_else(|| self.coming(listed, group))));
        let mut judged = Vec::new();
        while let Some((group, coming)) = next {
            next = groups.next().map(|group| (group, self.coming(listed, group)));
            times.extend(self.group(listed, group, coming, &mut judged)?);
        }
        for promise in judged {
            if let Some(what) = promise.wait(&self.scope.deadline)? {
                return wrong(what);
            }
            self.passed += 1;
        }
        let sum = |of: &dyn Fn(&Times) -> f64| times.iter().map(of).sum::<f64>();
        let least = sum(&|times| times.least[0]);
        self.spread = (sum(&|times| times.middle) / least - 1.0).max(self.spread);
        self.bandwidth = bandwidth(&times);
        let ratio = if self.scope.tunes { gain(&times) } else { least / sum(&|times| times.least[1]) };
        Ok((!times.is_empty()).then_some(ratio))
    }

    /// Measures how fast both ways read the weights of a product of one column.
    pub(super) fn memory(&mut self, listed: &Listed, work: &Work) -> Checked<()> {
        self.begin(&work.name)?;
        let mut programs = [prepared(listed.plain.as_ref(), work)?, prepared(listed.fast.as_ref(), work)?];
        let [plain, fast] = &mut programs;
        let results = [run_undecoded(plain.as_mut(), work)?, run_undecoded(fast.as_mut(), work)?];
        if let Some(what) = judge(work, results, &[])? {
            return wrong(what);
        }
        let sweep = self.retained.sweep.clone();
        let times = by_turns(self.scope, [plain.as_mut(), fast.as_mut()], sweep.as_deref())?;
        self.bandwidth = bandwidth(&[Times { bytes: work.read_bytes().unwrap_or(0), ..times }]);
        self.passed += 1;
        Ok(())
    }

    fn coming(&self, listed: &Listed, group: &[Arc<Work>]) -> Coming {
        let is_retained = group.iter().all(|work| self.retained.has(&listed.below, work));
        Coming::of(self.scope.workers, listed, group, !is_retained)
    }

    /// Runs the works of a group, and has other threads judge the results. Returns the times of each work.
    fn group(
        &mut self,
        listed: &Listed,
        group: &[Arc<Work>],
        coming: Coming,
        judged: &mut Vec<Promise<Option<String>>>,
    ) -> Checked<Vec<Times>> {
        let deadline = self.scope.deadline;
        if let Some(first) = group.first() {
            self.begin(&first.name)?;
        }
        let mut programs = coming.fast.wait(&deadline)?;
        let others = programs.split_off(programs.len() / 2);
        let plain = coming.plain.map(|promise| promise.wait(&deadline)).transpose()?;
        let mut plain = plain.unwrap_or_default().into_iter();
        let mut times = Vec::new();
        let sweep = self.retained.sweep.clone();
        for ((work, mut fast), mut other) in group.iter().zip(programs).zip(others) {
            self.begin(&work.name)?;
            let new = plain.next();
            let of_plain = self.retained.plain(&listed.below, work, || {
                let mut program = new.map_or_else(|| prepared(listed.plain.as_ref(), work), Ok)?;
                let values =
                    if work.wanted.is_some() { Vec::new() } else { run_undecoded(program.as_mut(), work)? };
                Ok(Plain { program, values: Arc::new(values) })
            })?;
            let results = [run_undecoded(fast.as_mut(), work)?, run_undecoded(other.as_mut(), work)?];
            drop(other);
            let (of_work, want) = (work.clone(), of_plain.values.clone());
            judged.push(self.scope.workers.promise_first(move || judge(&of_work, results, &want)));
            let mut timed =
                || by_turns(self.scope, [of_plain.program.as_mut(), fast.as_mut()], sweep.as_deref());
            let mut of_work = timed()?;
            // Somebody else may use the card for a moment only.
            for _ in 0..if self.scope.tunes && !self.scope.emulated { 2 } else { 0 } {
                if of_work.spread() > NOISE {
                    of_work = timed()?;
                }
            }
            times.push(Times { bytes: work.read_bytes().unwrap_or(0), ..of_work });
        }
        Ok(times)
    }
}

/// Compares two results of a route with each other and with the reference's, or with the plain way's where that is not
/// known. Returns a description if they differ.
fn judge(work: &Work, results: [Vec<u8>; 2], plain: &[u8]) -> Result<Option<String>> {
    let [first, second] = &results;
    let got = decoded(first)?;
    let same = if first == second { Ok(()) } else { same_bits(&work.name, 1, &got, &decoded(second)?) };
    let bound = bound::of_node(&work.graph, work.node, Precision::Fast);
    let (want, bound, of) = match &work.wanted {
        Some(wanted) => (wanted.values(), bound, "the reference"),
        // Two results within the bound of a third are within four times the bound of each other.
        None => (decoded(plain)?, Bound { nmse: 4.0 * bound.nmse, row: 4.0 * bound.row }, "the plain way"),
    };
    let distance = distance_in_rows(&got, &want, work.graph.tensor(work.node).ne[0]);
    match same {
        Ok(()) if bound.holds(&distance) => Ok(None),
        Ok(()) => {
            let what = bound.excess(&distance);
            Ok(Some(format!("{}: {what} from {of}, worst at {}", work.name, distance.worst)))
        }
        Err(Stop::Found(Found::Wrong(what))) => Ok(Some(what)),
        Err(Stop::Found(Found::Late)) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Seconds of a work.
struct Times {
    /// The least of the plain way and of the route.
    least: [f64; 2],
    /// The median of the plain way.
    middle: f64,
    /// Bytes of the weights, of a product of one column; else 0.
    bytes: u64,
}

impl Times {
    /// Returns the part by which the times of the plain way differ.
    fn spread(&self) -> f64 {
        self.middle / self.least[0] - 1.0
    }
}

/// Returns the weights that products of one column read in the plain way and with the route, in GB/s.
fn bandwidth(times: &[Times]) -> Option<[f64; 2]> {
    let of_one = || times.iter().filter(|times| times.bytes > 0);
    let bytes = of_one().map(|times| times.bytes as f64).sum::<f64>();
    let read = |i: usize| bytes / of_one().map(|times| times.least[i]).sum::<f64>() / 1e9;
    of_one().next().map(|_| [0, 1].map(read))
}

/// Returns the mean gain of a candidate. It is the gain of the slowest work if that is slower than with the table's value
/// by more than a candidate has to be faster.
fn gain(times: &[Times]) -> f64 {
    let gains = || times.iter().map(|times| times.least[0] / times.least[1]);
    let mean = (gains().map(f64::ln).sum::<f64>() / times.len() as f64).exp();
    let slowest = gains().fold(f64::INFINITY, f64::min);
    if slowest * GAIN < 1.0 { slowest } else { mean }
}

/// Returns the seconds of the plain way and of the route in several runs by turns, each with empty caches.
fn by_turns(scope: &Scope<'_>, mut programs: [&mut dyn Program; 2], sweep: Option<&Sweep>) -> Checked<Times> {
    let mut seconds = [Vec::new(), Vec::new()];
    let runs = if scope.emulated { 2 } else { 7 };
    for _ in 0..runs {
        for (program, seconds) in programs.iter_mut().zip(&mut seconds) {
            sweep.map_or(Ok(()), Sweep::run)?;
            let timing = program.run()?;
            // The clock of an emulated card is made up.
            let device = timing.device.filter(|_| !scope.emulated);
            seconds.push(device.unwrap_or(timing.host).as_secs_f64());
        }
    }
    seconds.iter_mut().for_each(|seconds| seconds.sort_by(f64::total_cmp));
    let [plain, fast] = seconds;
    Ok(Times { least: [plain[0], fast[0]], middle: plain[runs / 2], bytes: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_gains_where_no_work_loses() {
        let of = |plain: f64, fast: f64| Times { least: [plain, fast], middle: plain, bytes: 0 };
        assert!((gain(&[of(4.0, 2.0), of(8.0, 8.0)]) - 2f64.sqrt()).abs() < 1e-9);
        assert!((gain(&[of(1.0, 1.04), of(2.0, 1.0)]) - (2.0 / 1.04f64).sqrt()).abs() < 1e-9);
        assert_eq!(gain(&[of(1.0, 1.25), of(8.0, 1.0)]), 0.8);
    }

    #[test]
    fn bandwidth_is_that_of_single_columns() {
        let of = |bytes: u64, plain: f64| Times { least: [plain, plain / 2.0], middle: plain, bytes };
        assert_eq!(
            bandwidth(&[of(3_000_000_000, 1.0), of(0, 9.0), of(1_000_000_000, 1.0)]),
            Some([2.0, 4.0])
        );
        assert_eq!(bandwidth(&[of(0, 1.0)]), None);
    }
}
