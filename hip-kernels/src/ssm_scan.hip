// SSM_SCAN: the selective state space of Mamba-2. For each head and each token in order, with step = ln(1 + e^dt), S = e^(step
// a) S + b (step x)^T, out = S^T c; then the new state.
//
// A column is the state of a channel: see columns.h. The sum of a token is a DPP reduction, and the operands of the next token
// are loaded before the arithmetic of a token. Heads of a group and columns of a head read the same b and c, from the caches.
// No LDS. `ssm_scan_128` is for states of 128, `ssm_scan_any` for others. Prompts are processed by chunks: see chunks.h.
#include "activation.h"
#include "chunks.h"
#include "columns.h"
#include "params.h"

// Eight elements of b and c, and the scalars of one token.
struct ScanToken {
    WeightF32::Raw b, c;
    float x, dt;
};

// Addresses of the operands for a head and a channel, and the strides of tokens.
struct ScanInputs {
    const float *x, *dt, *b, *c;
    u32 x_stride, b_stride, c_stride, heads, part, end;
    template <int D> INLINED ScanToken token(u32 t) const {
        const float *to = b + (u64)t * b_stride, *from = c + (u64)t * c_stride;
        return {part_of_row<D>(to, part, end), part_of_row<D>(from, part, end), x[(u64)t * x_stride],
                dt[(u64)t * heads]};
    }
};

#define SCAN_OPERANDS \
    const float *x, const float *dt, const float *a, const float *b, const float *c, const float *state, \
        const i32 *runs, float *d, SsmScanParams p

// group_x: groups of channels; group_y: heads; group_z: slots.
template <int D> DEVICE void ssm_scan(SCAN_OPERANDS) {
    constexpr u32 LANES = Columns<D>::LANES;
    u32 head = group_y(), slot = group_z(), group = head / (p.heads[1] / p.heads[0]);
    runs += p.off[6];
    d += p.off[7];
    if (slot == p.slots) {
        if (group_x() == 0) zero_others(runs, d, p);
        return;
    }
    u32 channel = group_x() * Columns<D>::COUNT + thread_id() / LANES, part = thread_id() % LANES * 8;
    if (channel >= p.d[1]) return;
    Run run = run_of(runs, slot, p.tokens, p.run_fields);

    // The new state is stored after the rows of tokens, in the layout of the old one.
    u64 place = (((u64)slot * p.heads[1] + head) * p.d[1] + channel) * p.d[0];
    float s[8];
    load_column<D>(state + p.off[5] + place, part, p.d[0], run, s);
    ScanInputs in = {x + p.off[0] + head * p.nbx[0] + channel, dt + p.off[1] + head, b + p.off[3] + group * p.nbb[0],
                     c + p.off[4] + group * p.nbc[0], p.nbx[1], p.nbb[1], p.nbc[1], p.heads[1], part, p.d[0]};
    u64 row = (u64)p.heads[1] * p.d[1];
    float *kept = d + p.tokens * row + place;
    if (run.kept == 0) store_column<D>(kept, part, p.d[0], s);
    if (run.count > 0) {
        float rate = a[p.off[2] + head];
        ScanToken next = in.token<D>(run.first);
        NO_UNROLL for (u32 t = run.first; t < run.first + run.count; t++) {
            ScanToken now = next;
            next = in.token<D>(minimum(t + 1, run.first + run.count - 1));
            LOADS_FIRST();
            float to[8], from[8], step = softplus(now.dt), decay = exp_f32(step * rate), input = step * now.x;
            WeightF32::decode(now.b, to);
            WeightF32::decode(now.c, from);
            UNROLL for (int i = 0; i < 8; i++) s[i] = mad(to[i], input, s[i] * decay);
            float sum = lanes_reduce<Sum, LANES>(dot8(s, from));
            if (part == 0) d[t * row + head * p.d[1] + channel] = sum;
            if (t + 1 == run.first + run.kept) store_column<D>(kept, part, p.d[0], s);
        }
    }
}

#define SSM_SCAN(name, D) \
    KERNEL(COLUMN_THREADS) ssm_scan_##name(SCAN_OPERANDS) { ssm_scan<D>(x, dt, a, b, c, state, runs, d, p); }
SSM_SCAN(128, 128)
SSM_SCAN(any, 0)

// Decays and steps of a head, from the first token of a chunk on.
struct ScanGates {
    const float *dt;
    float rate;
    u32 heads;
    INLINED void of(u32 token, float *decay, float *step) const {
        *step = softplus(dt[(u64)token * heads]);
        *decay = exp_f32(*step * rate);
    }
};

#define CHUNK_OPERANDS \
    const float *dt, const float *a, const float *b, const float *c, const i32 *runs, float *chunks, SsmScanParams p

// group_x: chunks of all slots; group_y: heads.
template <int DK, bool WHOLE> DEVICE void scan_chunk(CHUNK_OPERANDS, ChunkShared<DK> &shared) {
    u32 thread = thread_id(), head = group_y(), group = head / (p.heads[1] / p.heads[0]);
    ChunkPlace place;
    if (!find_chunk(runs + p.off[6], group_x(), p.tokens, p.slots, &place)) return;
    dt += p.off[1] + (u64)place.token * p.heads[1] + head;
    b += p.off[3] + group * p.nbb[0] + (u64)place.token * p.nbb[1];
    c += p.off[4] + group * p.nbc[0] + (u64)place.token * p.nbc[1];
    ScanGates gates = {dt, a[p.off[2] + head], p.heads[1]};
    chunk_products<DK, WHOLE, false>(b, p.nbb[1], c, p.nbc[1], gates, place.left, p.d[0], shared);

    u32 i = thread / 8, j = thread % 8 * 4;
    lds_f32x4 weights = *(const lds_f32x4 *)(shared.table[1] + i * ChunkShared<DK>::LINE + j);
    UNROLL for (u32 l = 0; l < 4; l++) weights[l] *= shared.beta[j + l];
    chunks += ((u64)head * all_chunks(p.tokens, p.slots) + group_x()) * CHUNK_FLOATS;
    *(lds_f32x4 *)(chunks + (CHUNK + i) * CHUNK + j) = weights;
    if (thread < CHUNK) {
        chunks[64 * CHUNK + thread] = shared.beta[thread] * shared.decay[CHUNK - 1][thread];
        chunks[65 * CHUNK + thread] = shared.decay[thread][CHUNK];
    }
}

#define WALK_OPERANDS \
    const float *x, const float *b, const float *c, const float *state, const i32 *runs, const float *chunks, float *d, \
        SsmScanParams p

template <int DK, bool WHOLE> DEVICE void scan_walk(WALK_OPERANDS, WalkShared<DK> &shared) {
    u32 head = group_y(), group = head / (p.heads[1] / p.heads[0]);
    WalkInputs in = {b + p.off[3] + group * p.nbb[0], c + p.off[4] + group * p.nbc[0], x + p.off[0] + head * p.nbx[0],
                     p.nbb[1], p.nbc[1], p.nbx[1]};
    walk<DK, WHOLE, false>(in, state + p.off[5], runs + p.off[6], chunks, d + p.off[7], p, shared);
}

#define SCAN_CHUNKS(name, DK, WHOLE) \
    KERNEL(CHUNK_THREADS) scan_chunk_##name(CHUNK_OPERANDS) { \
        LDS ChunkShared<DK> shared; \
        scan_chunk<DK, WHOLE>(dt, a, b, c, runs, chunks, p, shared); \
    } \
    WAVES_PER_SIMD(2) KERNEL(CHUNK_THREADS) scan_walk_##name(WALK_OPERANDS) { \
        LDS WalkShared<DK> shared; \
        scan_walk<DK, WHOLE>(x, b, c, state, runs, chunks, d, p, shared); \
    }
SCAN_CHUNKS(128, 128, true)
SCAN_CHUNKS(any, 128, false)
