//! ROPE kernel.

use super::kernel::{Args, Kernel};
use crate::cpu::execution::Execution;
use crate::cpu::simd::math::sin_cos_revolutions;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use crate::kernel::rope::{frequency_table, magnitude};
use crate::op::{Rope, RopeMode};

/// Pairs whose sines and cosines are computed at a time, for all heads of a token.
const PAIRS: usize = 64;

/// Rotation of pairs.
#[derive(Debug)]
pub(super) struct RopeKernel {
    mode: RopeMode,
    n_dims: usize,
    magnitude: f32,
    /// Revolutions per position of each pair: high part, low part (see [`crate::kernel::rope`]).
    table: Box<[f32]>,
}

impl RopeKernel {
    /// Creates the kernel with the operation's parameters.
    pub(super) fn new(op: Rope) -> RopeKernel {
        let table = frequency_table(&op).into();
        RopeKernel { mode: op.mode, n_dims: op.n_dims, magnitude: magnitude(&op), table }
    }
}

impl Kernel for RopeKernel {
    /// Each thread processes all heads of some tokens, so that sines and cosines are computed once for each
    /// token.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [x, Some(positions), factors, ..], mut out, .. } = args else { return };
        let ne = out.ne();
        let ns = ne.iter().product::<usize>();
        let tokens = (4096 / (ne[0] * ne[1])).max(1);
        out.for_each_tile(run, [ne[0], ne[1], tokens, 1], ns, |tile| {
            if let Some(x) = &x {
                tile.rows().for_each(|i| tile.row::<f32>(i).copy_from_slice(x.row(i)));
            }
            self.rotate(run, &positions, factors.as_ref(), tile);
        });
    }
}

/// Job for one tile in place.
struct Rotate<'a, 'b, 'c> {
    kernel: &'a RopeKernel,
    positions: &'a [i32],
    factors: Option<&'a [f32]>,
    tile: &'c mut Tile<'b>,
}

impl Job for Rotate<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let kernel = self.kernel;
        let pairs = kernel.n_dims / 2;
        let mut sines = [0.0; PAIRS];
        let mut cosines = [0.0; PAIRS];
        let [_, heads, tokens, batches] = std::array::from_fn(|d| self.tile.range(d));
        for t in tokens {
            for first in (0..pairs).step_by(PAIRS) {
                let n = PAIRS.min(pairs - first);
                kernel.sines_and_cosines(
                    s,
                    self.positions[t],
                    self.factors,
                    first,
                    &mut sines[..n],
                    &mut cosines[..n],
                );
                for b in batches.clone() {
                    for h in heads.clone() {
                        let row = self.tile.row([h, t, b]);
                        kernel.rotate_row(row, first, &sines[..n], &cosines[..n]);
                    }
                }
            }
        }
    }
}

impl RopeKernel {
    /// Rotates the rows of a tile in place.
    pub(super) fn rotate(
        &self,
        run: &Execution<'_>,
        positions: &Input<'_>,
        factors: Option<&Input<'_>>,
        tile: &mut Tile<'_>,
    ) {
        let (positions, factors) = (positions.row([0; 3]), factors.map(|factors| factors.row([0; 3])));
        dispatch(run.detected(), Rotate { kernel: self, positions, factors, tile });
    }

    /// Computes sine and cosine, times the magnitude, of pairs `first ..` at a position.
    ///
    /// The fraction of a revolution is computed as described in [`crate::kernel::rope`], so that it is
    /// accurate to F32 even at positions where the angle itself is not.
    #[inline(always)]
    fn sines_and_cosines<S: Simd>(
        &self,
        s: S,
        position: i32,
        factors: Option<&[f32]>,
        first: usize,
        sines: &mut [f32],
        cosines: &mut [f32],
    ) {
        let position = position as f32;
        let mut revolutions = [0.0; PAIRS];
        for (i, revolution) in revolutions[..sines.len()].iter_mut().enumerate() {
            let (mut high, mut low) = (self.table[2 * (first + i)], self.table[2 * (first + i) + 1]);
            if let Some(factors) = factors {
                let factor = factors[first + i];
                let quotient = high / factor;
                low = (remainder(quotient, factor, high) + low) / factor;
                high = quotient;
            }
            let product = position * high;
            let low = -remainder(position, high, product) + position * low;
            *revolution = (product - product.round_ties_even()) + low;
        }
        let magnitude = s.splat(self.magnitude);
        let chunks = sines.chunks_mut(S::LANES).zip(cosines.chunks_mut(S::LANES));
        for ((sines, cosines), revolution) in chunks.zip(revolutions.chunks(S::LANES)) {
            let (sin, cos) = sin_cos_revolutions(s, s.load(revolution));
            s.store_partial(sines, s.mul(sin, magnitude));
            s.store_partial(cosines, s.mul(cos, magnitude));
        }
    }

    /// Rotates pairs `first ..` of a row.
    #[inline(always)]
    fn rotate_row(&self, row: &mut [f32], first: usize, sines: &[f32], cosines: &[f32]) {
        let rotated = |a: f32, b: f32, sin: f32, cos: f32| (a * cos - b * sin, a * sin + b * cos);
        match self.mode {
            RopeMode::Normal => {
                let pairs = row[2 * first..].as_chunks_mut::<2>().0;
                for ((pair, &sin), &cos) in pairs.iter_mut().zip(sines).zip(cosines) {
                    (pair[0], pair[1]) = rotated(pair[0], pair[1], sin, cos);
                }
            }
            RopeMode::Neox => {
                let (low, high) = row.split_at_mut(self.n_dims / 2);
                let pairs = low[first..].iter_mut().zip(&mut high[first..]);
                for (((a, b), &sin), &cos) in pairs.zip(sines).zip(cosines) {
                    (*a, *b) = rotated(*a, *b, sin, cos);
                }
            }
        }
    }
}

/// Returns `c - a * b`, where `c` is the rounded product: in f64 the product of two F32 values is exact.
#[inline(always)]
fn remainder(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(c) - f64::from(a) * f64::from(b)) as f32
}
