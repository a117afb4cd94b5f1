//! Kernels of gated linear units.

use super::kernel::{Args, Kernel, row_tiles};
use crate::cpu::execution::Execution;
use crate::cpu::simd::map::zip;
use crate::cpu::simd::math::{activate, gated};
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::op::{Activation, Clamped, Glu};

/// `activation(gate) * up`, or SWIGLU_OAI.
#[derive(Debug)]
pub(super) struct GluKernel(Glu);

impl GluKernel {
    /// Creates the kernel with the operation's parameters.
    pub(super) fn new(op: Glu) -> GluKernel {
        GluKernel(op)
    }
}

impl Kernel for GluKernel {
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [first, second, ..], mut out, .. } = args;
        let ne = out.ne();
        let n = ne[0];
        let ns = 2 * ne.iter().product::<usize>();
        // A single operand has rows twice as long as the result's, which hold both halves.
        let halves = first.filter(|x| x.ne()[0] != n);
        out.for_each_tile(run, row_tiles(ne), ns, |tile| {
            let from = tile.range(0).start;
            for i in tile.rows() {
                let row: &mut [f32] = tile.row(i);
                let end = from + row.len();
                let (gate, up) = match (halves, first, second) {
                    (Some(both), ..) => {
                        let (a, b) = both.row(i).split_at(n);
                        if self.0.swapped { (Some(b), Some(a)) } else { (Some(a), Some(b)) }
                    }
                    (None, gate, up) => (gate.map(|x| x.row(i)), up.map(|x| x.row(i))),
                };
                // Gate or up, whichever is not in the result's row.
                let (other, gate_in_row) = match (gate, up) {
                    (Some(gate), Some(up)) => {
                        row.copy_from_slice(&gate[from..end]);
                        (up, true)
                    }
                    (None, Some(up)) => (up, true),
                    (Some(gate), None) => (gate, false),
                    (None, None) => continue,
                };
                dispatch(run.detected(), Apply { op: self.0, row, other: &other[from..end], gate_in_row });
            }
        });
    }
}

/// Function of gate and up.
trait Gate: Copy {
    fn apply<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F;
}

impl Gate for Activation {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F {
        s.mul(activate(s, self, gate), up)
    }
}

impl Gate for Clamped {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F {
        let limit = s.splat(self.limit);
        // This order of operands propagates NaN.
        let (x, y) = (s.min(limit, gate), s.max(s.splat(-self.limit), s.min(limit, up)));
        s.mul(gated(s, x, s.mul(x, s.splat(self.alpha))), s.add(y, s.splat(1.0)))
    }
}

/// Job on a row that holds gate or up and receives the result; `other` is the other operand.
pub(super) struct Apply<'a> {
    pub(super) op: Glu,
    pub(super) row: &'a mut [f32],
    pub(super) other: &'a [f32],
    pub(super) gate_in_row: bool,
}

impl Apply<'_> {
    #[inline(always)]
    fn with<S: Simd>(self, s: S, function: impl Gate) {
        if self.gate_in_row {
            zip!(s, self.row, self.other, |gate, up| function.apply(s, gate, up));
        } else {
            zip!(s, self.row, self.other, |up, gate| function.apply(s, gate, up));
        }
    }
}

impl Job for Apply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if let Some(clamped) = self.op.clamped {
            return self.with(s, clamped);
        }
        // One loop for each function, so that the function is selected outside the loop.
        match self.op.activation {
            Activation::Silu => self.with(s, Activation::Silu),
            Activation::Gelu => self.with(s, Activation::Gelu),
            Activation::GeluErf => self.with(s, Activation::GeluErf),
            Activation::GeluQuick => self.with(s, Activation::GeluQuick),
            Activation::Relu => self.with(s, Activation::Relu),
            Activation::Sigmoid => self.with(s, Activation::Sigmoid),
            Activation::Softplus => self.with(s, Activation::Softplus),
            Activation::Tanh => self.with(s, Activation::Tanh),
        }
    }
}
