//! SSM_CONV kernel.

use super::kernel::{Args, Kernel};
use crate::cpu::execution::Execution;
use crate::cpu::simd::{Job, MAX_LANES, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use crate::op::ssm_conv::Tokens;
use crate::tensor::Tensor;

/// Channels that a thread processes at a time; a multiple of every vector length. Rows of this length, for
/// [`TAPS`] inputs and the taps, stay in a first-level cache.
const CHANNELS: usize = 512;

/// Taps whose products are added in registers.
const TAPS: usize = 4;

/// Returns the run of a slot, limited to the existing tokens.
pub(super) fn tokens_of(runs: &Input<'_>, slot: usize, tokens: usize) -> Tokens {
    let field = |i| runs.at::<i32>([i, slot, 0, 0]).max(0) as usize;
    let first = field(0).min(tokens);
    let count = field(1).min(tokens - first);
    let kept = if runs.ne()[0] == Tokens::WITH_KEPT { field(3).min(count) } else { count };
    Tokens { first, count, position: field(2), kept }
}

/// Convolution along the tokens of sequences.
#[derive(Debug)]
pub(super) struct SsmConvKernel {
    taps: usize,
}

impl SsmConvKernel {
    /// Creates the kernel for operands x, w, state and runs.
    pub(super) fn new(src: &[&Tensor]) -> SsmConvKernel {
        SsmConvKernel { taps: src[1].ne[0] }
    }
}

impl Kernel for SsmConvKernel {
    /// Returns the size of the taps of a thread's channels, stored tap by tap, and of a row of zeros.
    fn local_bytes(&self) -> usize {
        4 * CHANNELS * (self.taps + 1)
    }

    /// Each task computes some channels of all tokens and slots.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(x), Some(w), Some(state), Some(runs), ..], mut out, .. } = args else { return };
        let [channels, rows, ..] = out.ne();
        let ns = channels * rows * (1 + self.taps / 8) + channels * self.taps;
        out.for_each_tile(run, [CHANNELS, rows, 1, 1], ns, |tile| {
            run.local(|local| {
                let (taps, zeros) = bytemuck::cast_slice_mut(local).split_at_mut(CHANNELS * self.taps);
                for (i, c) in tile.range(0).enumerate() {
                    let of_channel = w.row::<f32>([c, 0, 0]);
                    of_channel.iter().enumerate().for_each(|(tap, &x)| taps[tap * CHANNELS + i] = x);
                }
                zeros.fill(0.0);
                let (x, state, runs) = (&x, &state, &runs);
                dispatch(run.detected(), Convolution { x, state, runs, taps, zeros, tile });
            });
        });
    }
}

/// Job for some channels.
struct Convolution<'a, 'b> {
    x: &'a Input<'a>,
    state: &'a Input<'a>,
    runs: &'a Input<'a>,
    /// Taps: [`CHANNELS`] values for each tap.
    taps: &'a [f32],
    zeros: &'a [f32],
    tile: &'a mut Tile<'b>,
}

impl<'a> Convolution<'a, '_> {
    /// Returns the inputs at token `j - before` of a run: from the batch, from the state, or zeros before the
    /// first token of the sequence.
    #[inline(always)]
    fn input(&self, slot: usize, run: Tokens, j: usize, before: usize) -> &'a [f32] {
        let channels = self.tile.range(0);
        let n_state = self.state.ne()[1];
        if j >= before {
            &self.x.row([run.first + j - before, 0, 0])[channels]
        } else if run.count > 0 && run.position + j < before {
            &self.zeros[..channels.len()]
        } else {
            &self.state.row([n_state + j - before, slot, 0])[channels]
        }
    }
}

impl Job for Convolution<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (tokens, n_state) = (self.x.ne()[1], self.state.ne()[1]);
        for t in 0..tokens {
            self.tile.row::<f32>([t, 0, 0]).fill(0.0);
        }
        for slot in 0..self.state.ne()[2] {
            let run = tokens_of(self.runs, slot, tokens);
            for j in 0..run.count {
                for first in (0..=n_state).step_by(TAPS) {
                    let mut x: [&[f32]; TAPS] = [&[]; TAPS];
                    let count = TAPS.min(n_state + 1 - first);
                    for (i, x) in x[..count].iter_mut().enumerate() {
                        *x = self.input(slot, run, j, n_state - first - i);
                    }
                    let out = self.tile.row([run.first + j, 0, 0]);
                    add_products(s, out, &self.taps[first * CHANNELS..], &x[..count], first > 0);
                }
            }
            for i in 0..n_state {
                let newest = self.input(slot, run, run.kept, n_state - i);
                self.tile.row([tokens + n_state * slot + i, 0, 0]).copy_from_slice(newest);
            }
        }
    }
}

/// Computes `out = w[0] * x[0] + w[1] * x[1] + ...`, added to the previous contents if `more`; `w` has
/// [`CHANNELS`] values for each tap.
#[inline(always)]
fn add_products<S: Simd>(s: S, out: &mut [f32], w: &[f32], x: &[&[f32]], more: bool) {
    for (i, out) in out.chunks_mut(S::LANES).enumerate() {
        let at = i * S::LANES;
        let mut sum = if more { s.load_partial(out) } else { s.splat(0.0) };
        for (tap, x) in x.iter().enumerate() {
            let x = &x[at..];
            let x = if x.len() < S::LANES { s.load_partial(x) } else { s.load(x) };
            sum = s.fma(s.load(&w[tap * CHANNELS + at..]), x, sum);
        }
        if out.len() < S::LANES { s.store_partial(out, sum) } else { s.store(out, sum) }
    }
}

const _: () = assert!(CHANNELS.is_multiple_of(MAX_LANES));
