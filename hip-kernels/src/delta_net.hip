// GATED_DELTA_NET: linear attention whose state forgets and corrects itself. For each head and each token in turn
// S = e^g S, S += k (beta (v - S^T k))^T, out = scale S^T q; then the new state.
//
// A column of the state (the elements of a key that belong to one element of v) stays in registers over all tokens of a
// run: eight elements in each of D / 8 lanes, D the length of a key (`delta_net_<D>`), or 256 for keys of other lengths
// (`delta_net_any`). So k and q are one run of memory for these lanes, and the two sums of a token are DPP reductions.
// A work-group of 128 threads takes 1024 / D columns of one head and slot; they read the same k and q, from the caches.
// What the next token needs is loaded before the arithmetic of a token. No LDS.
//
// Work-groups of one more slot write zeros for the tokens that belong to none.
#include "blocks.h"
#include "params.h"
#include "runs.h"

#define DELTA_THREADS 128u

// The eights of k and q, and the numbers of one token.
struct DeltaToken {
    WeightF32::Raw k, q;
    float v, g, beta;
};

// This lane's eight elements of a key of D, or, where D is 0, of a key of `end`: zeros behind it.
template <int D> DEVICE WeightF32::Raw part_of_key(const float *key, u32 part, u32 end) {
    if constexpr (D > 0) return WeightF32::fetch((const u8 *)key, part);
    return fetch_any<WeightF32>((const u8 *)key, part, end);
}

// Where the operands of a head and a column begin, and the strides of tokens.
struct DeltaInputs {
    const float *q, *k, *v, *g, *beta;
    u32 q_stride, k_stride, v_stride, heads, part, end;
    template <int D> __attribute__((device, always_inline)) DeltaToken token(u32 t) const {
        const float *key = k + (u64)t * k_stride, *query = q + (u64)t * q_stride;
        return {part_of_key<D>(key, part, end), part_of_key<D>(query, part, end), v[(u64)t * v_stride],
                g[(u64)t * heads], beta[(u64)t * heads]};
    }
};

// Zeros for one head of the tokens without a slot: a token a thread.
DEVICE void zero_others(const i32 *runs, float *d, const DeltaNetParams &p) {
    for (u32 t = thread_id(); t < p.tokens; t += DELTA_THREADS) {
        if (slot_of(runs, p.slots, t, p.tokens) < p.slots) continue;
        float *row = d + ((u64)t * p.heads[1] + group_y()) * p.d[1];
        for (u32 i = 0; i < p.d[1]; i++) row[i] = 0.0f;
    }
}

DEVICE float dot8(const float *a, const float *b) {
    float s = a[0] * b[0];
    UNROLL for (int i = 1; i < 8; i++) s = mad(a[i], b[i], s);
    return s;
}

#define DELTA_OPERANDS \
    const float *q, const float *k, const float *v, const float *g, const float *beta, const float *state, \
        const i32 *runs, float *d, DeltaNetParams p

// group_x: groups of columns; group_y: heads of v; group_z: slots.
template <int D> DEVICE void delta_net(DELTA_OPERANDS) {
    constexpr u32 LANES = (D > 0 ? D : 256) / 8, COLUMNS = DELTA_THREADS / LANES;
    u32 head = group_y(), slot = group_z(), key_head = head % p.heads[0];
    runs += p.off[6];
    d += p.off[7];
    if (slot == p.slots) {
        if (group_x() == 0) zero_others(runs, d, p);
        return;
    }
    u32 column = group_x() * COLUMNS + thread_id() / LANES, part = thread_id() % LANES * 8;
    if (column >= p.d[1]) return;
    Run run = run_of(runs, slot, p.tokens);

    // The new state lies behind the rows of tokens as the old one does.
    u64 place = (((u64)slot * p.heads[1] + head) * p.d[1] + column) * p.d[0];
    float s[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (run.count == 0 || run.position > 0) {
        WeightF32::decode(part_of_key<D>(state + p.off[5] + place, part, p.d[0]), s);
    }
    DeltaInputs in = {q + p.off[0] + key_head * p.nbq[0], k + p.off[1] + key_head * p.nbk[0],
                      v + p.off[2] + head * p.nbv[0] + column, g + p.off[3] + head, beta + p.off[4] + head,
                      p.nbq[1], p.nbk[1], p.nbv[1], p.heads[1], part, p.d[0]};
    u64 row = (u64)p.heads[1] * p.d[1];
    if (run.count > 0) {
        DeltaToken next = in.token<D>(run.first);
        NO_UNROLL for (u32 t = run.first; t < run.first + run.count; t++) {
            DeltaToken now = next;
            next = in.token<D>(minimum(t + 1, run.first + run.count - 1));
            LOADS_FIRST();
            float key[8], query[8], decay = exp_f32(now.g);
            WeightF32::decode(now.k, key);
            WeightF32::decode(now.q, query);
            UNROLL for (int i = 0; i < 8; i++) s[i] *= decay;
            float delta = now.beta * (now.v - lanes_reduce<Sum, LANES>(dot8(s, key)));
            UNROLL for (int i = 0; i < 8; i++) s[i] = mad(key[i], delta, s[i]);
            float sum = lanes_reduce<Sum, LANES>(dot8(s, query));
            if (part == 0) d[t * row + head * p.d[1] + column] = sum * p.scale;
        }
    }
    u32 left = D > 0 ? 8 : minimum(p.d[0] - minimum(part, p.d[0]), 8);
    store_any(d + p.tokens * row + place + part, s, left);
}

#define DELTA_NET(name, D) \
    KERNEL(DELTA_THREADS) delta_net_##name(DELTA_OPERANDS) { delta_net<D>(q, k, v, g, beta, state, runs, d, p); }
DELTA_NET(64, 64)
DELTA_NET(128, 128)
DELTA_NET(256, 256)
DELTA_NET(any, 0)
