//! RMS_NORM kernel, with the operations around it.

use super::binary::apply;
use super::glu;
use super::kernel::{Args, Kernel, Operands, Planned};
use crate::cpu::execution::Execution;
use crate::cpu::simd::map::{map, zip};
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile, for_each_pair};
use crate::fuse::{Norm, Scaled};
use crate::op::{Binary, Glu, RmsNorm};
use crate::tensor::TensorId;

/// `x / sqrt(mean(x^2) + eps)` for each row. For a group also a sum before it, and after it a weight, a sum
/// or a gate, or a constant factor.
///
/// Operands: `x`, the tensor added to it, the weight, the tensor added to the norm, the gate. Results: the
/// norm, the sum.
#[derive(Debug)]
pub(super) struct NormKernel {
    eps: f32,
    factor: Option<f32>,
    gate: Option<Glu>,
}

impl NormKernel {
    /// Creates the kernel with the operation's parameters.
    pub(super) fn new(op: RmsNorm) -> NormKernel {
        NormKernel { eps: op.eps, factor: None, gate: None }
    }

    /// Plans a norm times a constant.
    pub(super) fn scaled(group: &Scaled, operands: Operands<'_>) -> Result<Planned, String> {
        let src = vec![operands.row(group.x)?];
        let kernel = NormKernel { eps: group.eps, factor: Some(group.factor), gate: None };
        Ok(Planned { kernel: Box::new(kernel), src, out: vec![group.nodes[1]] })
    }

    /// Plans a norm with its sums.
    pub(super) fn group(group: &Norm, operands: Operands<'_>) -> Result<Planned, String> {
        let graph = operands.0;
        let [x, y] = group.sum.map_or([Some(group.norm.x), None], |sum| sum.of.map(Some));
        let gate = group.gated.map(|gated| gated.gate);
        let rows = [x, y, Some(group.norm.weight), group.added(), gate];
        let src = rows.into_iter().map(|id| id.map_or(Ok(None), |id| operands.row(id)));
        let src = src.collect::<Result<Vec<_>, _>>()?;
        let same = |id: &TensorId| graph.tensor(*id).ne == graph.tensor(group.norm.x).ne;
        if !rows.into_iter().enumerate().all(|(i, id)| i == 2 || id.is_none_or(|id| same(&id))) {
            return Err("operands of other extents".into());
        }
        let gate = group.gated.map(|gated| Glu::new(gated.activation));
        let out = [group.result()].into_iter().chain(group.sum.map(|sum| sum.node)).collect();
        Ok(Planned { kernel: Box::new(NormKernel { eps: group.norm.eps, factor: None, gate }), src, out })
    }

    /// Computes one tile, and that of the sum.
    fn tile(
        &self,
        run: &Execution<'_>,
        src: &[Option<Input<'_>>],
        tile: &mut Tile<'_>,
        mut sum: Option<&mut Tile<'_>>,
    ) {
        let &[x, y, weight, added, gate, ..] = src else { return };
        for i in tile.rows() {
            let row = tile.row(i);
            if let Some(x) = &x {
                row.copy_from_slice(x.row(i));
            }
            let weight = weight.as_ref().map(|weight| weight.row([0; 3]));
            let (y, added) = (y.as_ref().map(|y| y.row(i)), added.as_ref().map(|added| added.row(i)));
            let sum = sum.as_mut().map(|sum| sum.row(i));
            let norm = Normalize { row: &mut *row, eps: self.eps, weight, factor: self.factor };
            dispatch(run.detected(), Around { y, sum, norm, added });
            if let (Some(op), Some(gate)) = (self.gate, &gate) {
                dispatch(run.detected(), glu::Apply { op, row, other: gate.row(i), gate_in_row: false });
            }
        }
    }
}

impl Kernel for NormKernel {
    /// Each thread computes whole rows of some tokens.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src, mut out, more: [sum, _], .. } = args;
        let ne = out.ne();
        let read = src.iter().flatten().count();
        let ns = ne.iter().product::<usize>() * (1 + read) / 4;
        let tile = [ne[0], (8192 / ne[0]).max(1), 1, 1];
        match sum {
            None => out.for_each_tile(run, tile, ns, |tile| self.tile(run, &src, tile, None)),
            Some(mut sum) => for_each_pair([&mut out, &mut sum], run, [tile; 2], ns, |tile, sum| {
                self.tile(run, &src, tile, Some(sum));
            }),
        }
    }
}

/// Job for the norm of a row, with sums before and after it.
struct Around<'a> {
    y: Option<&'a [f32]>,
    /// Destination of the sum.
    sum: Option<&'a mut [f32]>,
    norm: Normalize<'a>,
    added: Option<&'a [f32]>,
}

impl Job for Around<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut norm = self.norm;
        if let Some(y) = self.y {
            apply(s, Binary::Add, norm.row, y);
        }
        if let Some(sum) = self.sum {
            sum.copy_from_slice(norm.row);
        }
        norm.apply(s);
        if let Some(added) = self.added {
            apply(s, Binary::Add, norm.row, added);
        }
    }
}

/// Job for the norm of a row in place, optionally times a weight or a constant.
pub(super) struct Normalize<'a> {
    row: &'a mut [f32],
    eps: f32,
    weight: Option<&'a [f32]>,
    factor: Option<f32>,
}

impl<'a> Normalize<'a> {
    /// Returns the job for a row and a weight.
    pub(super) fn weighted(row: &'a mut [f32], eps: f32, weight: &'a [f32]) -> Normalize<'a> {
        Normalize { row, eps, weight: Some(weight), factor: None }
    }

    /// Computes the norm. Squares are added in f64, in 16 sums that the compiler vectorises: no precision is
    /// lost for very large or small values, and the sum is the same on every instruction set.
    #[inline(always)]
    fn apply<S: Simd>(&mut self, s: S) {
        let (chunks, rest) = self.row.as_chunks::<16>();
        let mut sums = [0.0f64; 16];
        for chunk in chunks {
            for i in 0..16 {
                let x = f64::from(chunk[i]);
                sums[i] += x * x;
            }
        }
        for (sum, &x) in sums.iter_mut().zip(rest) {
            *sum += f64::from(x) * f64::from(x);
        }
        let mean = sums.iter().sum::<f64>() / self.row.len() as f64;
        let scale = s.splat((1.0 / (mean + f64::from(self.eps)).sqrt()) as f32);
        match (self.weight, self.factor.map(|factor| s.splat(factor))) {
            (None, None) => map!(s, self.row, |x| s.mul(x, scale)),
            // Rounded as by SCALE.
            (None, Some(factor)) => map!(s, self.row, |x| s.fma(s.mul(x, scale), factor, s.splat(0.0))),
            (Some(weight), _) => zip!(s, self.row, weight, |x, w| s.mul(s.mul(x, scale), w)),
        }
    }
}

impl Job for Normalize<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.apply(s);
    }
}
