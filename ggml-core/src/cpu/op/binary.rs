//! ADD and MUL kernels.

use super::kernel::{Args, Kernel, row_tiles};
use crate::cpu::execution::Execution;
use crate::cpu::simd::map::{map, zip};
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use crate::op::Binary;

/// Elements of `b` that are gathered at a time if its rows are not contiguous.
const GATHERED: usize = 256;

/// ADD or MUL of each element, with the second operand repeated.
#[derive(Debug)]
pub(super) struct BinaryKernel(Binary);

impl BinaryKernel {
    /// Creates the kernel of an operation.
    pub(super) fn new(op: Binary) -> BinaryKernel {
        BinaryKernel(op)
    }
}

impl Kernel for BinaryKernel {
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [a, Some(b), ..], mut out, .. } = args else { return };
        let ne = out.ne();
        let ns = ne.iter().product::<usize>() / 4;
        out.for_each_tile(run, row_tiles(ne), ns, |tile| {
            dispatch(run.detected(), Combine { op: self.0, a: a.as_ref(), b: &b, tile });
        });
    }
}

/// One tile: `a` is copied into the result unless it is already there, then `b` is applied.
pub(super) struct Combine<'a, 'b, 'c> {
    pub(super) op: Binary,
    pub(super) a: Option<&'a Input<'a>>,
    pub(super) b: &'a Input<'a>,
    pub(super) tile: &'c mut Tile<'b>,
}

impl Job for Combine<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let first = self.tile.range(0).start;
        let [m0, m1, m2, m3] = self.b.ne();
        for [i1, i2, i3] in self.tile.rows() {
            let row = self.tile.row::<f32>([i1, i2, i3]);
            if let Some(a) = self.a {
                a.gather([i1, i2, i3], first, row);
            }
            let b_row = [i1 % m1, i2 % m2, i3 % m3];
            if m0 == 1 {
                let b = s.splat(self.b.at([0, b_row[0], b_row[1], b_row[2]]));
                match self.op {
                    Binary::Add => map!(s, row, |x| s.add(x, b)),
                    Binary::Mul => map!(s, row, |x| s.mul(x, b)),
                }
                continue;
            }
            let mut done = 0;
            while done < row.len() {
                // Up to the next repetition of the row of b.
                let at = (first + done) % m0;
                let end = row.len().min(done + m0 - at);
                if self.b.rows_contiguous() {
                    let b = &self.b.row(b_row)[at..at + end - done];
                    apply(s, self.op, &mut row[done..end], b);
                    done = end;
                } else {
                    let end = end.min(done + GATHERED);
                    let mut b = [0.0; GATHERED];
                    self.b.gather(b_row, at, &mut b[..end - done]);
                    apply(s, self.op, &mut row[done..end], &b[..end - done]);
                    done = end;
                }
            }
        }
    }
}

/// Applies `op` to a row and another of the same length, in place.
#[inline(always)]
pub(super) fn apply<S: Simd>(s: S, op: Binary, x: &mut [f32], b: &[f32]) {
    match op {
        Binary::Add => zip!(s, x, b, |x, b| s.add(x, b)),
        Binary::Mul => zip!(s, x, b, |x, b| s.mul(x, b)),
    }
}
