//! FLASH_ATTN_EXT kernel.

use super::kernel::{Args, Kernel};
use super::soft_max::alibi_slope;
use crate::cpu::dot;
use crate::cpu::dot::float::{MAX_ROWS, Tiles, tiles};
use crate::cpu::execution::Execution;
use crate::cpu::simd::map::{fold, map, zip};
use crate::cpu::simd::math::{exp, tanh};
use crate::cpu::simd::{Job, MAX_LANES, Simd, dispatch};
use crate::cpu::window::{Input, Tile};
use crate::dtype::DType;
use crate::op::FlashAttnExt;
use crate::tensor::Tensor;
use std::ops::Range;

/// Positions of k and v that are processed together: their rows stay in the second-level cache.
const POSITIONS: usize = MAX_ROWS;

/// Bit set of the positions of a group that a query attends to.
type Seen = u64;
const _: () = assert!(POSITIONS <= Seen::BITS as usize);

/// Queries (heads times tokens) that share the loads of k and v.
const QUERIES: usize = 16;

/// Attention with online soft-max.
#[derive(Debug)]
pub(super) struct FlashAttnKernel {
    op: FlashAttnExt,
    d: usize,
    /// Row length of v, padded to whole vectors.
    dv: usize,
}

impl FlashAttnKernel {
    /// Creates the kernel for operands q, k, v and optionally a mask and sinks.
    pub(super) fn new(op: FlashAttnExt, src: &[&Tensor]) -> Result<FlashAttnKernel, String> {
        let (k, v) = (src[1], src[2]);
        if !matches!(k.dtype, DType::F32 | DType::F16 | DType::Q8_0 | DType::Q4_0) {
            return Err(format!("no attention with k and v in {}", k.dtype));
        }
        Ok(FlashAttnKernel { op, d: k.ne[0], dv: v.ne[0].next_multiple_of(MAX_LANES) })
    }

    /// Returns the number of heads that a task computes: as many heads with a common head of k as the queries
    /// allow, but fewer if threads would be idle. It divides `shared`, so that no task has two heads of k.
    fn heads(&self, run: &Execution<'_>, shared: usize, others: usize) -> usize {
        let fits = |n: &usize| shared.is_multiple_of(*n) && *n <= QUERIES;
        let busy = |n: &usize| *n == 1 || others * (shared / n) >= run.threads();
        (1..=shared).rev().filter(fits).find(busy).unwrap_or(1)
    }
}

impl Kernel for FlashAttnKernel {
    fn local_bytes(&self) -> usize {
        4 * (POSITIONS * (self.d + self.dv) + QUERIES * (POSITIONS + self.dv))
    }

    /// Each task computes some heads and tokens, all with one head of k and v.
    fn run(&self, run: &Execution<'_>, args: Args<'_>) {
        let Args { src: [Some(q), Some(k), Some(v), mask, sinks, ..], mut out, .. } = args else { return };
        let [dv, heads, tokens, batch] = out.ne();
        let shared = heads / k.ne()[2];
        let ns = heads * tokens * batch * k.ne()[1] * (self.d + self.dv) / 16;
        let heads = self.heads(run, shared, k.ne()[2] * tokens * batch);
        let tile = [dv, heads, (QUERIES / heads).max(1), 1];
        out.for_each_tile(run, tile, ns, |tile| {
            run.local(|local| {
                let scratch = Scratch::new(self, bytemuck::cast_slice_mut(local));
                let operands = Operands { q, k, v, mask, sinks, head_kv: tile.range(1).start / shared };
                dispatch(run.detected(), Attention { kernel: self, operands, scratch, tile });
            });
        });
    }
}

/// Operands of a task.
#[derive(Clone, Copy)]
struct Operands<'a> {
    q: Input<'a>,
    k: Input<'a>,
    v: Input<'a>,
    mask: Option<Input<'a>>,
    sinks: Option<Input<'a>>,
    /// Index of the head of k and v.
    head_kv: usize,
}

/// Scratch memory of a thread.
struct Scratch<'a> {
    keys: &'a mut [f32],
    values: &'a mut [f32],
    /// Scores, then weights, of each query: [`POSITIONS`] for each.
    scores: &'a mut [[f32; POSITIONS]],
    /// Sums of weighted values.
    sums: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    fn new(kernel: &FlashAttnKernel, local: &'a mut [f32]) -> Scratch<'a> {
        let (keys, local) = local.split_at_mut(POSITIONS * kernel.d);
        let (values, local) = local.split_at_mut(POSITIONS * kernel.dv);
        let (scores, local) = local.split_at_mut(POSITIONS * QUERIES);
        // The thread's memory may be larger, because its size is that of the most demanding kernel.
        let sums = &mut local[..QUERIES * kernel.dv];
        Scratch { keys, values, scores: scores.as_chunks_mut().0, sums }
    }
}

/// A query: a head and a token, and the running maximum and sum of its soft-max.
#[derive(Clone, Copy)]
struct Query {
    head: usize,
    token: usize,
    slope: f32,
    most: f32,
    sum: f32,
}

/// Job for one tile.
struct Attention<'a, 'b> {
    kernel: &'a FlashAttnKernel,
    operands: Operands<'a>,
    scratch: Scratch<'a>,
    tile: &'a mut Tile<'b>,
}

impl Job for Attention<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let batch = self.tile.range(3).start;
        let mut queries =
            [Query { head: 0, token: 0, slope: 0.0, most: f32::NEG_INFINITY, sum: 0.0 }; QUERIES];
        let mut count = 0;
        let bias = self.kernel.op.max_bias;
        for ([head, token, _], query) in self.tile.rows().zip(&mut queries) {
            let slope = alibi_slope(bias, head, self.tile.extents()[1]);
            *query = Query { head, token, slope, ..*query };
            // A sink is a score that precedes all others and has the value zero.
            if let Some(sink) = self.operands.sinks.map(|sinks| sinks.at::<f32>([head, 0, 0, 0])) {
                query.most = sink.max(f32::NEG_INFINITY);
                // 1, or NaN for an infinite or NaN sink.
                query.sum = if sink == f32::NEG_INFINITY { 0.0 } else { 1.0 + 0.0 * sink };
            }
            count += 1;
        }
        let queries = &mut queries[..count];
        self.scratch.sums.fill(0.0);
        let n_kv = self.operands.k.ne()[1];
        for first in (0..n_kv).step_by(POSITIONS) {
            self.positions(s, queries, batch, first..n_kv.min(first + POSITIONS));
        }
        for (query, sums) in queries.iter().zip(self.scratch.sums.chunks_exact(self.kernel.dv)) {
            let row = self.tile.row([query.head, query.token, batch]);
            // A query that attends to nothing gives zeros.
            let factor = s.splat(if query.sum == 0.0 { 0.0 } else { 1.0 / query.sum });
            row.copy_from_slice(&sums[..row.len()]);
            map!(s, row, |x| s.mul(x, factor));
        }
    }
}

impl Attention<'_, '_> {
    /// Adds some positions of k and v to all queries.
    #[inline(always)]
    fn positions<S: Simd>(&mut self, s: S, queries: &mut [Query], batch: usize, positions: Range<usize>) {
        let Operands { q, k, v, mask, head_kv, .. } = self.operands;
        let (d, dv) = (self.kernel.d, self.kernel.dv);
        let Scratch { keys, values, scores, sums } = &mut self.scratch;
        let n = positions.len();
        let mut seen = [Seen::MAX >> (POSITIONS - n); QUERIES];
        if let Some(mask) = &mask {
            for ((query, row), seen) in queries.iter().zip(scores.iter_mut()).zip(&mut seen) {
                let at = [query.token, query.head % mask.ne()[2], batch % mask.ne()[3]];
                *seen = bias(s, mask, at, positions.clone(), query.slope, row);
            }
        }
        let seen = &seen[..queries.len()];
        let by_any = seen.iter().fold(0, |all, seen| all | seen);
        let by_all = seen.iter().fold(by_any, |all, seen| all & seen);
        // Above the diagonal of a causal mask there is nothing to do.
        if by_any == 0 {
            return;
        }
        widen(s, &k, [head_kv, batch], positions.clone(), by_any, keys, d);
        widen(s, &v, [head_kv, batch], positions, by_any, values, dv);
        let op = &self.kernel.op;
        tiles(s, n, queries.len(), Scores { keys, d, q, queries, batch, op, masked: mask.is_some(), scores });
        for ((query, scores), sums) in
            queries.iter_mut().zip(scores.iter_mut()).zip(sums.chunks_exact_mut(dv))
        {
            soft_max(s, query, scores, sums);
        }
        let mut mixed = by_any & !by_all;
        while mixed != 0 {
            let i = mixed.trailing_zeros() as usize;
            mixed &= mixed - 1;
            weigh_seen(s, seen, scores, i, &mut values[i * dv..][..dv], sums);
        }
        let mut j = 0;
        while j < queries.len() {
            let sums = &mut sums[j * dv..];
            if queries.len() - j >= 4 {
                weigh::<S, 4>(s, &scores[j..], values, dv, n, sums);
                j += 4;
            } else {
                weigh::<S, 1>(s, &scores[j..], values, dv, n, sums);
                j += 1;
            }
        }
    }
}

/// Sink of the products of keys and queries, which converts them to scores.
struct Scores<'a, 'b> {
    keys: &'a [f32],
    d: usize,
    q: Input<'a>,
    queries: &'b [Query],
    batch: usize,
    op: &'b FlashAttnExt,
    masked: bool,
    scores: &'b mut [[f32; POSITIONS]],
}

impl<'a> Tiles<'a> for Scores<'a, '_> {
    #[inline(always)]
    fn row(&self, i: usize) -> &'a [f32] {
        &self.keys[i * self.d..][..self.d]
    }

    #[inline(always)]
    fn column(&self, j: usize) -> &'a [f32] {
        self.q.row([self.queries[j].token, self.queries[j].head, self.batch])
    }

    #[inline(always)]
    fn put<S: Simd>(&mut self, s: S, j: usize, products: &[f32]) {
        score(s, self.op, self.masked, products, &mut self.scores[j]);
    }
}

/// Converts rows of k or v to F32, each padded to `stride` with zeros. Rows that no query attends to become
/// zeros.
#[inline(always)]
fn widen<S: Simd>(
    s: S,
    x: &Input<'_>,
    [head, batch]: [usize; 2],
    positions: Range<usize>,
    seen: Seen,
    out: &mut [f32],
    stride: usize,
) {
    for (i, out) in out.chunks_exact_mut(stride).take(positions.len()).enumerate() {
        if seen >> i & 1 == 0 {
            out.fill(0.0);
            continue;
        }
        let (row, rest) = out.split_at_mut(x.ne()[0]);
        let at = [positions.start + i, head, batch];
        match x.dtype() {
            DType::F16 => dot::widen::<S, dot::F16>(s, x.row(at), row),
            DType::Q8_0 => dot::widen::<S, dot::BlockQ8>(s, x.row(at), row),
            DType::Q4_0 => dot::widen::<S, dot::BlockQ4>(s, x.row(at), row),
            _ => row.copy_from_slice(x.row(at)),
        }
        rest.fill(0.0);
    }
}

/// Writes `slope * mask` for some positions and returns the positions that are not hidden. A hidden one
/// becomes minus infinity for any slope.
#[inline(always)]
fn bias<S: Simd>(
    s: S,
    mask: &Input<'_>,
    at: [usize; 3],
    positions: Range<usize>,
    slope: f32,
    out: &mut [f32; POSITIONS],
) -> Seen {
    let out = &mut out[..positions.len()];
    if mask.dtype() == DType::F16 {
        dot::widen::<S, dot::F16>(s, &mask.row(at)[positions], out);
    } else {
        out.copy_from_slice(&mask.row(at)[positions]);
    }
    let (slope, least) = (s.splat(slope), s.splat(f32::NEG_INFINITY));
    map!(s, out, |m| s.select_lt(m, s.splat(f32::MIN), least, s.mul(m, slope)));
    // Not "> minus infinity": a position with a NaN mask counts as visible.
    let bit = |(i, &m): (usize, &f32)| Seen::from(m != f32::NEG_INFINITY) << i;
    out.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
}

/// Computes the scores of a query from its products: scaled, soft-capped, plus the mask in `scores` if there
/// is one. A mask of minus infinity stays minus infinity for any product, and missing positions become minus
/// infinity.
#[inline(always)]
fn score<S: Simd>(s: S, op: &FlashAttnExt, masked: bool, products: &[f32], scores: &mut [f32; POSITIONS]) {
    let (seen, unseen) = scores.split_at_mut(products.len());
    unseen.fill(f32::NEG_INFINITY);
    if !masked {
        seen.fill(0.0);
    }
    let (scale, least) = (s.splat(op.scale), s.splat(f32::NEG_INFINITY));
    if op.logit_softcap == 0.0 {
        zip!(s, seen, products, |bias, x| {
            s.select_lt(bias, s.splat(f32::MIN), least, s.fma(x, scale, bias))
        });
    } else {
        let cap = s.splat(op.logit_softcap);
        zip!(s, seen, products, |bias, x| {
            let capped = tanh(s, s.div(s.mul(x, scale), cap));
            s.select_lt(bias, s.splat(f32::MIN), least, s.fma(cap, capped, bias))
        });
    }
}

/// Converts scores to weights relative to the largest score so far, and rescales the previous sums to it.
#[inline(always)]
fn soft_max<S: Simd>(s: S, query: &mut Query, scores: &mut [f32; POSITIONS], sums: &mut [f32]) {
    let least = s.splat(f32::NEG_INFINITY);
    let most =
        s.greatest(fold!(s, scores, f32::NEG_INFINITY, least, |most, x| s.max(x, most))).max(query.most);
    if most == f32::NEG_INFINITY {
        // `most` ignores NaNs.
        if scores.iter().any(|x| x.is_nan()) {
            query.sum = f32::NAN;
        }
        scores.fill(0.0);
        return;
    }
    if query.most < most {
        let factor = exp(s, s.splat(query.most - most));
        map!(s, sums, |x| s.mul(x, factor));
        query.sum = s.sum(s.mul(s.splat(query.sum / S::LANES as f32), factor));
        query.most = most;
    }
    let most = s.splat(most);
    map!(s, scores, |x| exp(s, s.sub(x, most)));
    query.sum += s.sum(fold!(s, scores, 0.0, s.splat(0.0), |sum, x| s.add(sum, x)));
}

/// Handles a non-finite value at position `i`, which some queries do not attend to: a weight of zero would
/// not suppress it. The value is added to the queries that attend to it and then replaced by zeros.
#[inline(always)]
fn weigh_seen<S: Simd>(
    s: S,
    seen: &[Seen],
    weights: &[[f32; POSITIONS]],
    i: usize,
    value: &mut [f32],
    sums: &mut [f32],
) {
    let zero = s.splat(0.0);
    // 0 times a non-finite value is NaN.
    if s.sum(fold!(s, value, 0.0, zero, |sum, x| s.fma(x, zero, sum))) == 0.0 {
        return;
    }
    for ((seen, weights), sums) in seen.iter().zip(weights).zip(sums.chunks_exact_mut(value.len())) {
        if seen >> i & 1 == 1 {
            let weight = s.splat(weights[i]);
            zip!(s, sums, value, |sum, x| s.fma(weight, x, sum));
        }
    }
    value.fill(0.0);
}

/// Adds `n` weighted values to the sums of `R` queries; two vectors of each sum stay in registers.
#[inline(always)]
fn weigh<S: Simd, const R: usize>(
    s: S,
    weights: &[[f32; POSITIONS]],
    values: &[f32],
    dv: usize,
    n: usize,
    sums: &mut [f32],
) {
    let Some(weights) = weights.first_chunk::<R>() else { return };
    let n = n.min(POSITIONS);
    // Checked once, so that the loop needs no bounds checks.
    assert!(values.len() >= n * dv && sums.len() >= R * dv && dv.is_multiple_of(S::LANES));
    let pairs = 2 * S::LANES;
    for at in (0..dv).step_by(pairs) {
        // If the number of vectors is odd, the last one is computed twice.
        let second = if at + pairs <= dv { at + S::LANES } else { at };
        let mut acc = [[s.splat(0.0); 2]; R];
        for r in 0..R {
            acc[r] = [s.load(&sums[r * dv + at..]), s.load(&sums[r * dv + second..])];
        }
        #[allow(
            clippy::needless_range_loop,
            reason = "`j` is an index of values and of every query's weights"
        )]
        for j in 0..n {
            // SAFETY: `j < n` and a vector at `at` or `second` ends within `dv`, so within `n * dv`.
            let (a, b) = unsafe { (s.load_at(values, j * dv + at), s.load_at(values, j * dv + second)) };
            for r in 0..R {
                let weight = s.splat(weights[r][j]);
                acc[r] = [s.fma(weight, a, acc[r][0]), s.fma(weight, b, acc[r][1])];
            }
        }
        for r in 0..R {
            s.store(&mut sums[r * dv + at..], acc[r][0]);
            s.store(&mut sums[r * dv + second..], acc[r][1]);
        }
    }
}
