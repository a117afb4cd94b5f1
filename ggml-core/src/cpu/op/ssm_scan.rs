//! SSM_SCAN kernel.

use super::kernel::{Args, Kernel};
use super::ssm_conv::tokens_of;
use crate::cpu::execution::Execution;
use crate::cpu::simd::math::activate;
use crate::cpu::simd::{Job, Simd, dispatch};
use crate::cpu::window::{Input, Tile, for_each_pair};
use crate::op::Activation;
use crate::tensor::Tensor;

/// Channels of a head that a thread processes at a time: 16 KiB for states of 128, to fit a first-level
/// cache.
const CHANNELS: usize = 32;

/// State space recurrence.
#[derive(Debug)]
pub(super) struct SsmScanKernel {
    /// Length of a channel's state.
    n: usize,
}

impl SsmScanKernel {
    /// Creates the kernel for operands x, dt, a, b, c, state and runs.
    pub(super) fn new(src: &[&Tensor]) -> SsmScanKernel {
        SsmScanKernel { n: src[5].ne[0] }
    }
}

impl Kernel for SsmScanKernel {
    /// Returns the size of the state of a task's channels.
    fn local_bytes(&self) -> usize {
        4 * self.n * CHANNELS
    }

    /// Each task computes some channels of a head in all slots. The state is updated in the memory of the new
    /// state; while drafts are computed there, the state before them is in scratch memory.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args {
            src: [Some(x), Some(dt), Some(a), Some(b), Some(c), Some(state), Some(runs), ..],
            out,
            ..
        } = args
        else {
            return;
        };
        let ([n, d, heads, slots], tokens) = (state.ne(), x.ne()[2]);
        let ns = n * d * heads * (tokens + slots) / 8;
        let [mut out, mut new_state] = out.split([[d, heads, tokens, 1], state.ne()]);
        let tiles = [[CHANNELS, 1, tokens, 1], [n, CHANNELS, 1, slots]];
        for_each_pair([&mut out, &mut new_state], run, tiles, ns, |out, new_state| {
            run.local(|local| {
                let operands = Operands { x, dt, a, b, c, state, runs };
                let kept = &mut bytemuck::cast_slice_mut(local)[..self.n * CHANNELS];
                dispatch(run.detected(), Channels { operands: &operands, kept, out, new_state });
            });
        });
    }
}

/// Operands by their names in the definition.
struct Operands<'a> {
    x: Input<'a>,
    dt: Input<'a>,
    a: Input<'a>,
    b: Input<'a>,
    c: Input<'a>,
    state: Input<'a>,
    runs: Input<'a>,
}

/// Job for some channels of a head.
struct Channels<'a, 'b, 'c> {
    operands: &'a Operands<'a>,
    /// Scratch memory for the state of the channels.
    kept: &'a mut [f32],
    out: &'a mut Tile<'b>,
    new_state: &'a mut Tile<'c>,
}

impl Job for Channels<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Operands { x, state, runs, .. } = self.operands;
        let tokens = x.ne()[2];
        let (head, channels) = (self.out.range(1).start, self.out.range(0));
        for t in 0..tokens {
            self.out.row::<f32>([head, t, 0]).fill(0.0);
        }
        for slot in 0..state.ne()[3] {
            let run = tokens_of(runs, slot, tokens);
            let fresh = run.count > 0 && run.position == 0;
            for j in channels.clone() {
                let to = self.new_state.row::<f32>([j, head, slot]);
                if fresh { to.fill(0.0) } else { to.copy_from_slice(state.row([j, head, slot])) }
            }
            for t in run.first..run.first + run.kept {
                self.token(s, [head, t, slot]);
            }
            if run.kept == run.count {
                continue;
            }
            let n = state.ne()[0];
            for (kept, j) in self.kept.chunks_exact_mut(n).zip(channels.clone()) {
                kept.copy_from_slice(self.new_state.row([j, head, slot]));
            }
            for t in run.first + run.kept..run.first + run.count {
                self.token(s, [head, t, slot]);
            }
            for (kept, j) in self.kept.chunks_exact(n).zip(channels.clone()) {
                self.new_state.row([j, head, slot]).copy_from_slice(kept);
            }
        }
    }
}

impl Channels<'_, '_, '_> {
    /// Processes one token for all channels.
    #[inline(always)]
    fn token<S: Simd>(&mut self, s: S, [head, t, slot]: [usize; 3]) {
        let Operands { x, dt, a, b, c, .. } = self.operands;
        let group = head / (x.ne()[1] / b.ne()[1]);
        let (to, from) = (b.row::<f32>([group, t, 0]), c.row::<f32>([group, t, 0]));
        let step = activate(s, Activation::Softplus, s.splat(dt.at::<f32>([head, t, 0, 0])));
        let mut lanes = [0.0; crate::cpu::simd::MAX_LANES];
        s.store(&mut lanes, step);
        let step = lanes[0];
        let decay = (step * a.at::<f32>([0, head, 0, 0])).exp();
        let channels = self.out.range(0);
        let values = &x.row::<f32>([head, t, 0])[channels.clone()];
        let out = self.out.row::<f32>([head, t, 0]);
        for ((out, value), j) in out.iter_mut().zip(values).zip(channels) {
            *out = advance(s, self.new_state.row([j, head, slot]), [to, from], [decay, step * value]);
        }
    }
}

/// Processes one token for one channel: `state = decay state + input to`; returns the product of the new
/// state and `from`.
#[inline(always)]
fn advance<S: Simd>(s: S, state: &mut [f32], [to, from]: [&[f32]; 2], [decay, input]: [f32; 2]) -> f32 {
    let (decay, input) = (s.splat(decay), s.splat(input));
    let step = |old: S::F, to: S::F| s.fma(to, input, s.mul(old, decay));
    let whole = state.len() / S::LANES * S::LANES;
    let (head, tail) = state.split_at_mut(whole);
    let mut sum = s.splat(0.0);
    let vectors = to.chunks_exact(S::LANES).zip(from.chunks_exact(S::LANES));
    for (state, (to, from)) in head.chunks_exact_mut(S::LANES).zip(vectors) {
        let new = step(s.load(state), s.load(to));
        s.store(state, new);
        sum = s.fma(new, s.load(from), sum);
    }
    if !tail.is_empty() {
        let new = step(s.load_partial(tail), s.load_partial(&to[whole..]));
        s.store_partial(tail, new);
        sum = s.fma(new, s.load_partial(&from[whole..]), sum);
    }
    s.sum(sum)
}
