//! SOFT_MAX kernel.

use super::kernel::{Args, Kernel};
use crate::cpu::dot;
use crate::cpu::execution::Execution;
use crate::cpu::simd::map::{fold, map, zip};
use crate::cpu::simd::math::exp;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::Input;
use crate::dtype::DType;
use crate::op::SoftMax;

/// `soft_max(scale * x + slope * mask)` of each row. An element whose mask is minus infinity counts as minus
/// infinity, whatever its `x`. A row of only minus infinity gives zeros.
#[derive(Debug)]
pub(super) struct SoftMaxKernel(SoftMax);

impl SoftMaxKernel {
    /// Creates the kernel with the operation's parameters.
    pub(super) fn new(op: SoftMax) -> SoftMaxKernel {
        SoftMaxKernel(op)
    }
}

impl Kernel for SoftMaxKernel {
    /// Each thread computes whole rows.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [x, mask, ..], mut out, .. } = args;
        let ne = out.ne();
        let ns = 2 * ne.iter().product::<usize>();
        let rows = (4096 / ne[0]).max(1);
        out.for_each_tile(run, [ne[0], rows, 1, 1], ns, |tile| {
            for [i1, i2, i3] in tile.rows() {
                let row = tile.row([i1, i2, i3]);
                if let Some(x) = &x {
                    row.copy_from_slice(x.row([i1, i2, i3]));
                }
                let slope = alibi_slope(self.0.max_bias, i2, ne[2]);
                let mask = mask.as_ref().map(|m| (m, [i1, i2 % m.ne()[2], i3 % m.ne()[3]]));
                dispatch(run.detected(), SoftMaxRow { row, mask, scale: self.0.scale, slope });
            }
        });
    }
}

/// Returns ALiBi's slope of head `h` of `n`. With the largest power of two `p <= n` and the factor
/// `f = 2^(-max_bias / p)`, it is `f^(h + 1)` for the first `p` heads; the others have the odd powers of
/// `sqrt(f)`, from the first on. The kernels of other devices compute the same powers.
pub(super) fn alibi_slope(max_bias: f32, h: usize, n: usize) -> f32 {
    let power = 1usize << n.max(1).ilog2();
    let factor = (-max_bias / power as f32).exp2();
    if h < power { factor.powi(h as i32 + 1) } else { factor.sqrt().powi(2 * (h - power) as i32 + 1) }
}

/// Job that replaces `row` by its soft-max. `mask`: the mask, and the indices of the row of it.
pub(super) struct SoftMaxRow<'a> {
    pub(super) row: &'a mut [f32],
    pub(super) mask: Option<(&'a Input<'a>, [usize; 3])>,
    pub(super) scale: f32,
    pub(super) slope: f32,
}

impl Job for SoftMaxRow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row = self.row;
        let scale = s.splat(self.scale);
        match self.mask {
            None => map!(s, row, |x| s.mul(x, scale)),
            Some((mask, at)) => scaled_and_biased(s, row, scale, self.slope, mask, at),
        }
        let least = s.splat(f32::NEG_INFINITY);
        let most = s.greatest(fold!(s, row, f32::NEG_INFINITY, least, |most, x| s.max(x, most)));
        if most == f32::NEG_INFINITY {
            // `most` ignores NaNs.
            let nan = row.iter().any(|x| x.is_nan());
            row.fill(if nan { f32::NAN } else { 0.0 });
            return;
        }
        let most = s.splat(most);
        map!(s, row, |x| exp(s, s.sub(x, most)));
        let sum = s.sum(fold!(s, row, 0.0, s.splat(0.0), |sum, x| s.add(sum, x)));
        let factor = s.splat(1.0 / sum);
        map!(s, row, |x| s.mul(x, factor));
    }
}

/// Number of elements of a mask that are converted at a time.
const CHUNK: usize = 256;

/// Computes `scale * x + slope * mask`; minus infinity, for any `x`, where the mask is minus infinity.
#[inline(always)]
fn scaled_and_biased<S: Simd>(
    s: S,
    row: &mut [f32],
    scale: S::F,
    slope: f32,
    mask: &Input<'_>,
    at: [usize; 3],
) {
    let (slope, least) = (s.splat(slope), s.splat(f32::NEG_INFINITY));
    let mut wide = [0.0; CHUNK];
    for (i, row) in row.chunks_mut(CHUNK).enumerate() {
        let (first, bias) = (i * CHUNK, &mut wide[..row.len()]);
        if mask.dtype() == DType::F16 {
            dot::widen::<S, dot::F16>(s, &mask.row(at)[first..first + bias.len()], bias);
        } else {
            bias.copy_from_slice(&mask.row(at)[first..first + bias.len()]);
        }
        zip!(s, row, bias, |x, bias| {
            // Only minus infinity is less than the smallest finite float; NaN is not.
            s.select_lt(bias, s.splat(f32::MIN), least, s.fma(x, scale, s.mul(slope, bias)))
        });
    }
}
