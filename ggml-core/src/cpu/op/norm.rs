//! RMS_NORM.

use super::{Args, Kernel};
use crate::cpu::run::Run;
use crate::cpu::simd::map::map;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::op::RmsNorm;

/// `x / sqrt(mean(x^2) + eps)` for each row.
#[derive(Debug)]
pub(super) struct RmsNormKernel(RmsNorm);

impl RmsNormKernel {
    /// With the operation's parameters.
    pub(super) fn new(op: RmsNorm) -> RmsNormKernel {
        RmsNormKernel(op)
    }
}

impl Kernel for RmsNormKernel {
    /// A thread has whole rows: a few tokens' worth.
    fn run(&self, run: &Run<'_>, args: Args<'_>) {
        let Args { src: [x, ..], mut out, .. } = args;
        let ne = out.ne();
        let ns = ne.iter().product::<usize>() / 2;
        let rows = (8192 / ne[0]).max(1);
        out.for_each_tile(run, [ne[0], rows, 1, 1], ns, |tile| {
            for i in tile.rows() {
                let row = tile.row(i);
                if let Some(x) = &x {
                    row.copy_from_slice(x.row(i));
                }
                dispatch(run.detected(), Normalize { row, eps: self.0.eps });
            }
        });
    }
}

/// One row in place.
struct Normalize<'a> {
    row: &'a mut [f32],
    eps: f32,
}

impl Job for Normalize<'_> {
    type Out = ();

    /// Squares are added in f64, in 16 sums that the compiler puts into vectors: neither huge nor tiny rows lose
    /// anything, and the sum is the same on every instruction set.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
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
        map!(s, self.row, |x| s.mul(x, scale));
    }
}
