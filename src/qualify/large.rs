//! Large products and attention: compared with the plain way, and timed by turns.

use super::programs::{prepared_in, run};
use super::retained::Sweep;
use super::scope::{Checked, Checks, Scope, same_bits, wrong};
use super::work::Work;
use crate::isolate::protocol::ProductShape;
use ggml_core::backend::{Backend, Bindings, Program};
use ggml_core::evaluate::bind;
use ggml_core::metrics::{Bound, distance_in_rows};
use ggml_core::precision::Precision;
use ggml_core::{DType, Result, bound};
use std::rc::Rc;

impl Checks<'_> {
    /// Returns the large works that take the route; those of a group have the same weights.
    pub(super) fn large(&self) -> Checked<Vec<Vec<Rc<Work>>>> {
        let small = self.scope.small;
        let columns = if small { [40, 1] } else { [512, 1] };
        let products =
            self.products().into_iter().map(|product| columns.map(|n| (Some(product), n)).to_vec());
        let groups = products.chain([vec![(None, 0)]]);
        let mut retained = self.scope.retained.borrow_mut();
        let mut large = Vec::new();
        for group in groups {
            let works =
                group.into_iter().map(|shape| retained.work(shape, small)).collect::<Result<Vec<_>>>()?;
            let taken = works.into_iter().filter(|work| self.is_taken(&work.graph));
            large.push(taken.collect());
        }
        Ok(large)
    }

    /// Returns the shapes of large products: those of the model, else usual ones.
    fn products(&self) -> Vec<ProductShape> {
        let of = |dtype, k, rows| ProductShape { dtype, k, rows };
        match (self.scope.products, self.scope.small) {
            ([], true) => vec![of(DType::Q4_K, 4096, 64), of(DType::F16, 4096, 40)],
            ([], false) => {
                vec![of(DType::Q4_K, 4096, 14336), of(DType::F16, 14336, 4096), of(DType::Q8_0, 4096, 4096)]
            }
            (products, _) => products.to_vec(),
        }
    }

    /// Compares large works with the plain way, and measures both by turns. A route that seems slower is measured once
    /// more with everything in other memory.
    pub(super) fn compare(&mut self, large: &[Vec<Rc<Work>>]) -> Checked<()> {
        self.ratio = self.measured(large, true)?;
        if self.is_slower() {
            self.scope.retained.borrow_mut().forget_plain();
            let again = self.measured(large, false)?;
            self.ratio = self.ratio.zip(again).map(|(first, again)| first.max(again));
        }
        Ok(())
    }

    /// Returns the time of the plain way divided by that of the route, over all large works.
    fn measured(&mut self, large: &[Vec<Rc<Work>>], first: bool) -> Checked<Option<f64>> {
        let scope = self.scope;
        let plain_way = (scope.plain, scope.below.as_str());
        let (mut plain_s, mut fast_s) = (0.0, 0.0);
        let sweep = if scope.small { None } else { Sweep::new(scope.fast) };
        for group in large {
            let mut memory = [None, None];
            for work in group {
                self.begin(&work.name)?;
                let mut fast = in_memory(scope.fast, work, &mut memory[0])?;
                let mut retained = scope.retained.borrow_mut();
                let of_plain = if scope.small { None } else { retained.sweep(plain_way) };
                let plain = retained.plain(plain_way, work)?;
                if first {
                    let got = run(fast.as_mut(), work)?;
                    let other = in_memory(scope.fast, work, &mut memory[1])?;
                    same_bits(&work.name, 1, &got, &run({ other }.as_mut(), work)?)?;
                    within_bound(work, &got, &plain.values)?;
                    self.passed += 1;
                }
                let sweeps = [of_plain.as_ref(), sweep.as_ref()];
                let [plain, fast] = by_turns(scope, [plain.program.as_mut(), fast.as_mut()], sweeps)?;
                (plain_s, fast_s) = (plain_s + plain, fast_s + fast);
            }
        }
        Ok((fast_s > 0.0).then(|| plain_s / fast_s))
    }
}

/// Prepares a work with weights that are uploaded for the first work of a group.
fn in_memory(device: &dyn Backend, work: &Work, memory: &mut Option<Bindings>) -> Result<Box<dyn Program>> {
    let bindings = match memory {
        Some(bindings) => bindings,
        None => memory.insert(bind(device, &work.graph, &work.data)?),
    };
    prepared_in(device, work, bindings)
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
        let devices = [scope.plain, scope.fast].into_iter().zip(sweeps);
        for ((program, least), (device, sweep)) in programs.iter_mut().zip(&mut least).zip(devices) {
            sweep.map_or(Ok(()), |sweep| sweep.run(device))?;
            let timing = program.run()?;
            // The clock of an emulated card is made up.
            let device = timing.device.filter(|_| !scope.emulated);
            *least = least.min(device.unwrap_or(timing.host).as_secs_f64());
        }
    }
    Ok(least)
}
