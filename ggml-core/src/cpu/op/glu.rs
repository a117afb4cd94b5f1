//! Gated linear units.

use super::{Args, Kernel, row_tiles};
use crate::cpu::run::Run;
use crate::cpu::simd::map::zip;
use crate::cpu::simd::math::activate;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::op::{Activation, Glu};

/// `activation(gate) * up`.
#[derive(Debug)]
pub(super) struct GluKernel(Glu);

impl GluKernel {
    /// With the operation's parameters.
    pub(super) fn new(op: Glu) -> GluKernel {
        GluKernel(op)
    }
}

impl Kernel for GluKernel {
    fn run(&self, run: &Run<'_>, args: Args<'_>) {
        let Args { src: [first, second, ..], mut out, .. } = args;
        let ne = out.ne();
        let n = ne[0];
        let ns = 2 * ne.iter().product::<usize>();
        // With one operand its rows are twice as long as those of the result: both halves are in them.
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
                let activation = self.0.activation;
                match (gate, up) {
                    (Some(gate), Some(up)) => {
                        row.copy_from_slice(&gate[from..end]);
                        dispatch(
                            run.detected(),
                            Apply { activation, row, other: &up[from..end], gate_in_row: true },
                        );
                    }
                    (None, Some(up)) => {
                        dispatch(
                            run.detected(),
                            Apply { activation, row, other: &up[from..end], gate_in_row: true },
                        );
                    }
                    (Some(gate), None) => {
                        let other = &gate[from..end];
                        dispatch(run.detected(), Apply { activation, row, other, gate_in_row: false });
                    }
                    (None, None) => {}
                }
            }
        });
    }
}

/// A row that has the gate, or what is gated, and gets the result; the other one comes beside it.
struct Apply<'a> {
    activation: Activation,
    row: &'a mut [f32],
    other: &'a [f32],
    gate_in_row: bool,
}

impl Apply<'_> {
    #[inline(always)]
    fn with<S: Simd>(self, s: S, activation: Activation) {
        if self.gate_in_row {
            zip!(s, self.row, self.other, |gate, up| s.mul(activate(s, activation, gate), up));
        } else {
            zip!(s, self.row, self.other, |up, gate| s.mul(activate(s, activation, gate), up));
        }
    }
}

impl Job for Apply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // One loop for each function: the choice is made outside of it.
        match self.activation {
            Activation::Silu => self.with(s, Activation::Silu),
            Activation::Gelu => self.with(s, Activation::Gelu),
            Activation::GeluErf => self.with(s, Activation::GeluErf),
            Activation::GeluQuick => self.with(s, Activation::GeluQuick),
            Activation::Relu => self.with(s, Activation::Relu),
        }
    }
}
