//! Large products and attention: compared with the plain way, and timed by turns.

use super::ahead::Promise;
use super::list::{Listed, Programs};
use super::programs::{of_group, run};
use super::retained::{Plain, Sweep};
use super::scope::{Checked, Checks, Scope, same_bits, wrong};
use super::work::Work;
use ggml_core::backend::{Backend, Program};
use ggml_core::bound;
use ggml_core::metrics::{Bound, distance_in_rows};
use ggml_core::precision::Precision;
use std::sync::Arc;

/// Programs of a group's works that other threads prepare.
struct Coming {
    /// Those of the route, twice in other memory if results are compared.
    fast: Vec<Promise<Programs>>,
    /// Those of the plain way, unless they are retained.
    plain: Option<Promise<Programs>>,
}

impl Checks<'_> {
    /// Compares large works with the plain way, and measures both by turns. A route that seems slower is measured once
    /// more with everything in other memory.
    pub(super) fn compare(&mut self, listed: &Listed) -> Checked<()> {
        self.ratio = self.measured(listed, true)?;
        if self.is_slower() {
            self.retained.forget_plain();
            let again = self.measured(listed, false)?;
            self.ratio = self.ratio.zip(again).map(|(first, again)| first.max(again));
        }
        Ok(())
    }

    /// Returns the time of the plain way divided by that of the route, over all large works. The programs of the next
    /// group are prepared while those of one run, so that two groups at most are in memory.
    fn measured(&mut self, listed: &Listed, first: bool) -> Checked<Option<f64>> {
        let small = self.scope.small;
        let (mut plain_s, mut fast_s) = (0.0, 0.0);
        let sweep = if small || listed.groups.is_empty() { None } else { Sweep::new(&listed.fast) };
        let mut groups = listed.groups.iter();
        let mut next = groups.next().map(|group| (group, self.coming(listed, group, first)));
        while let Some((group, coming)) = next {
            next = groups.next().map(|group| (group, self.coming(listed, group, first)));
            let [plain, fast] = self.group(listed, group, coming, &sweep)?;
            (plain_s, fast_s) = (plain_s + plain, fast_s + fast);
        }
        Ok((fast_s > 0.0).then(|| plain_s / fast_s))
    }

    /// Queues the preparation of a group.
    fn coming(&self, listed: &Listed, group: &[Arc<Work>], first: bool) -> Coming {
        let promise = |device: &Arc<dyn Backend>| {
            let (device, group) = (device.clone(), group.to_vec());
            self.scope.workers.promise(move || of_group(device.as_ref(), &group))
        };
        let is_retained = group.iter().all(|work| self.retained.has(&listed.below, work));
        let fast = (0..if first { 2 } else { 1 }).map(|_| promise(&listed.fast)).collect();
        Coming { fast, plain: (!is_retained).then(|| promise(&listed.plain)) }
    }

    /// Checks the works of a group. Returns the seconds of the plain way and of the route.
    fn group(
        &mut self,
        listed: &Listed,
        group: &[Arc<Work>],
        coming: Coming,
        sweep: &Option<Sweep>,
    ) -> Checked<[f64; 2]> {
        let deadline = self.scope.deadline;
        if let Some(first) = group.first() {
            self.begin(&first.name)?;
        }
        let fast = coming.fast.into_iter().map(|promise| promise.wait(&deadline));
        let mut fast = fast.collect::<Checked<Vec<_>>>()?.into_iter();
        let (programs, mut others) = (fast.next().unwrap_or_default(), fast.next().map(Vec::into_iter));
        let plain = coming.plain.map(|promise| promise.wait(&deadline)).transpose()?;
        let mut plain = plain.unwrap_or_default().into_iter();
        let of_plain = if self.scope.small { None } else { self.retained.sweep(&listed.below, &listed.plain) };
        let mut seconds = [0.0; 2];
        for (work, mut fast) in group.iter().zip(programs) {
            self.begin(&work.name)?;
            let new = plain.next();
            let of_work = self.retained.plain(&listed.below, work, || {
                let program = new.map_or_else(|| super::programs::prepared(listed.plain.as_ref(), work), Ok);
                let mut program = program?;
                let values = run(program.as_mut(), work)?;
                Ok(Plain { program, values })
            })?;
            if let Some(other) = others.as_mut().and_then(Iterator::next) {
                let got = run(fast.as_mut(), work)?;
                same_bits(&work.name, 1, &got, &run({ other }.as_mut(), work)?)?;
                within_bound(work, &got, &of_work.values)?;
                self.passed += 1;
            }
            let sweeps = [of_plain.as_ref(), sweep.as_ref()];
            let of_work = by_turns(self.scope, [of_work.program.as_mut(), fast.as_mut()], sweeps)?;
            seconds = [seconds[0] + of_work[0], seconds[1] + of_work[1]];
        }
        Ok(seconds)
    }
}

/// Compares a result with the plain way's.
fn within_bound(work: &Work, got: &[f32], want: &[f32]) -> Checked<()> {
    let bound = bound::of_node(&work.graph, work.node, Precision::Fast);
    // Two results within the bound of a third are within four times the bound of each other.
    let bound = Bound { nmse: 4.0 * bound.nmse, row: 4.0 * bound.row };
    let distance = distance_in_rows(got, want, work.graph.tensor(work.node).ne[0]);
    if bound.holds(&distance) {
        return Ok(());
    }
    let what = bound.excess(&distance);
    wrong(format!("{}: {what} from the plain way, worst at {}", work.name, distance.worst))
}

/// Returns the seconds of the plain way and of the route, the least of several runs by turns, each with empty caches.
fn by_turns(
    scope: &Scope<'_>,
    mut programs: [&mut dyn Program; 2],
    sweeps: [Option<&Sweep>; 2],
) -> Checked<[f64; 2]> {
    let mut least = [f64::INFINITY; 2];
    let runs = if scope.emulated { 2 } else { 7 };
    for _ in 0..runs {
        for ((program, least), sweep) in programs.iter_mut().zip(&mut least).zip(sweeps) {
            sweep.map_or(Ok(()), Sweep::run)?;
            let timing = program.run()?;
            // The clock of an emulated card is made up.
            let device = timing.device.filter(|_| !scope.emulated);
            *least = least.min(device.unwrap_or(timing.host).as_secs_f64());
        }
    }
    Ok(least)
}
