//! GATED_DELTA_NET kernel.

use super::kernel::{Args, Kernel};
use super::ssm_conv::tokens_of;
use crate::cpu::execution::Execution;
use crate::cpu::simd::{Job, MAX_LANES, Simd, dispatch};
use crate::cpu::window::{Input, Tile, for_each_pair};
use crate::op::GatedDeltaNet;
use crate::tensor::Tensor;

/// Columns of a state that a thread processes at a time: 16 KiB for keys of 128, to fit a first-level cache.
const COLUMNS: usize = 32;

/// Columns that share the loads of key and query.
const GROUP: usize = 4;

/// Gated delta net recurrence.
#[derive(Debug)]
pub(super) struct DeltaNetKernel {
    op: GatedDeltaNet,
    /// Length of a column in scratch memory: that of a key, padded to whole vectors.
    stride: usize,
}

impl DeltaNetKernel {
    /// Creates the kernel for operands q, k, v, g, beta, state and runs.
    pub(super) fn new(op: GatedDeltaNet, src: &[&Tensor]) -> DeltaNetKernel {
        DeltaNetKernel { op, stride: src[0].ne[0].next_multiple_of(MAX_LANES) }
    }
}

impl Kernel for DeltaNetKernel {
    /// Returns the size of a task's columns, a key and a query.
    fn local_bytes(&self) -> usize {
        4 * self.stride * (COLUMNS + 2)
    }

    /// Each task processes some columns of a head in all slots. Their state stays in scratch memory for all
    /// tokens of a run.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args {
            src: [Some(q), Some(k), Some(v), Some(g), Some(beta), Some(state), Some(runs), ..],
            out,
            ..
        } = args
        else {
            return;
        };
        let ([d_k, d_v, heads, slots], tokens) = (state.ne(), v.ne()[2]);
        let ns = d_k * d_v * heads * (tokens + slots) / 8;
        let [mut out, mut new_state] = out.split([[d_v, heads, tokens, 1], state.ne()]);
        let tiles = [[COLUMNS, 1, tokens, 1], [d_k, COLUMNS, 1, slots]];
        for_each_pair([&mut out, &mut new_state], run, tiles, ns, |out, new_state| {
            run.local(|local| {
                let local = &mut bytemuck::cast_slice_mut(local)[..self.stride * (COLUMNS + 2)];
                let (columns, vectors) = local.split_at_mut(self.stride * COLUMNS);
                let (key, query) = vectors.split_at_mut(self.stride);
                let operands = Operands { q, k, v, g, beta, state, runs };
                let scratch = Scratch { columns, key, query, stride: self.stride };
                let task = Columns { scale: self.op.scale, operands: &operands, scratch, out, new_state };
                dispatch(run.detected(), task);
            });
        });
    }
}

/// Operands by their names in the definition.
struct Operands<'a> {
    q: Input<'a>,
    k: Input<'a>,
    v: Input<'a>,
    g: Input<'a>,
    beta: Input<'a>,
    state: Input<'a>,
    runs: Input<'a>,
}

/// Scratch memory of a thread; every vector has `stride` elements, padded with zeros.
struct Scratch<'a> {
    columns: &'a mut [f32],
    key: &'a mut [f32],
    query: &'a mut [f32],
    stride: usize,
}

/// Job for some columns of a head.
struct Columns<'a, 'b, 'c> {
    scale: f32,
    operands: &'a Operands<'a>,
    scratch: Scratch<'a>,
    out: &'a mut Tile<'b>,
    new_state: &'a mut Tile<'c>,
}

impl Job for Columns<'_, '_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Operands { q, state, runs, .. } = self.operands;
        let tokens = q.ne()[2];
        let (head, columns) = (self.out.range(1).start, self.out.range(0));
        for t in 0..tokens {
            self.out.row::<f32>([head, t, 0]).fill(0.0);
        }
        for slot in 0..state.ne()[3] {
            let run = tokens_of(runs, slot, tokens);
            let stride = self.scratch.stride;
            for (j, to) in columns.clone().zip(self.scratch.columns.chunks_exact_mut(stride)) {
                let fresh = run.count > 0 && run.position == 0;
                copy_padded(if fresh { &[] } else { state.row([j, head, slot]) }, to);
            }
            for t in run.first..run.first + run.kept {
                self.token(s, head, t);
            }
            for (j, from) in columns.clone().zip(self.scratch.columns.chunks_exact(stride)) {
                let to = self.new_state.row([j, head, slot]);
                to.copy_from_slice(&from[..to.len()]);
            }
            for t in run.first + run.kept..run.first + run.count {
                self.token(s, head, t);
            }
        }
    }
}

/// Copies a vector and pads it with zeros.
#[inline(always)]
fn copy_padded(from: &[f32], to: &mut [f32]) {
    let (head, rest) = to.split_at_mut(from.len());
    head.copy_from_slice(from);
    rest.fill(0.0);
}

impl Columns<'_, '_, '_> {
    /// Processes one token for all columns.
    #[inline(always)]
    fn token<S: Simd>(&mut self, s: S, head: usize, t: usize) {
        let Operands { q, k, v, g, beta, .. } = self.operands;
        let Scratch { columns, key, query, stride } = &mut self.scratch;
        let head_k = head % k.ne()[1];
        copy_padded(k.row([head_k, t, 0]), key);
        copy_padded(q.row([head_k, t, 0]), query);
        let decay = g.at::<f32>([head, t, 0, 0]).exp();
        let beta: f32 = beta.at([head, t, 0, 0]);
        let values = &v.row::<f32>([head, t, 0])[self.out.range(0)];
        let out = self.out.row::<f32>([head, t, 0]);
        for ((out, values), columns) in
            out.chunks_mut(GROUP).zip(values.chunks(GROUP)).zip(columns.chunks_exact_mut(GROUP * *stride))
        {
            // Missing columns of the last group are computed from whatever the scratch memory holds, and
            // ignored.
            let mut value = [0.0; GROUP];
            value[..values.len()].copy_from_slice(values);
            let sums = step(s, columns, key, query, value, decay, beta);
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * self.scale);
        }
    }
}

/// Processes one token for [`GROUP`] consecutive columns; returns the products of the new columns and the
/// query.
///
/// Two passes over the columns: the first one computes the products of the state and the key, the second one
/// updates the state.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "columns are indices of several arrays")]
fn step<S: Simd>(
    s: S,
    columns: &mut [f32],
    key: &[f32],
    query: &[f32],
    value: [f32; GROUP],
    decay: f32,
    beta: f32,
) -> [f32; GROUP] {
    let n = key.len();
    // Checked once, so that the loops need no bounds checks.
    assert!(n.is_multiple_of(S::LANES) && query.len() == n && columns.len() == GROUP * n);
    let mut acc = [s.splat(0.0); GROUP];
    for at in (0..n).step_by(S::LANES) {
        // SAFETY: a vector at `at` ends within `n`, the length of the key.
        let k = unsafe { s.load_at(key, at) };
        for c in 0..GROUP {
            // SAFETY: as above, in column `c` of `GROUP` columns of the same length.
            acc[c] = s.fma(unsafe { s.load_at(columns, c * n + at) }, k, acc[c]);
        }
    }
    let known = s.sum4(acc);
    let mut delta = [s.splat(0.0); GROUP];
    for c in 0..GROUP {
        delta[c] = s.splat(beta * (value[c] - decay * known[c]));
    }
    let decay = s.splat(decay);
    let mut acc = [s.splat(0.0); GROUP];
    for at in (0..n).step_by(S::LANES) {
        // SAFETY: a vector at `at` ends within `n`, the length of both.
        let (k, q) = unsafe { (s.load_at(key, at), s.load_at(query, at)) };
        for c in 0..GROUP {
            // SAFETY: as above, in column `c`.
            let old = unsafe { s.load_at(columns, c * n + at) };
            let new = s.fma(k, delta[c], s.mul(old, decay));
            s.store(&mut columns[c * n + at..], new);
            acc[c] = s.fma(new, q, acc[c]);
        }
    }
    s.sum4(acc)
}
