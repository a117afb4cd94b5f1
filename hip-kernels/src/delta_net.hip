// GATED_DELTA_NET: linear attention with a decaying state that corrects itself. For each head and each token in order: S = e^g
// S, S += k (beta (v - S^T k))^T, out = scale S^T q; then the new state.
//
// A column of the state belongs to one element of v: see columns.h. k and q are contiguous for its lanes, and the two sums of a
// token are DPP reductions. The columns of a head read the same k and q from the caches. The operands of the next token are
// loaded before the arithmetic of a token. If k and q are to be normed, that adds two reductions of values that are already in
// registers; if g and beta are to be made, that is an exponential or two for each token. The new state may also replace the
// old one: a column has one owner, which has read it. `delta_net_any` has no registers left for either. No LDS. `delta_net_<D>` is for keys of D, `delta_net_any` for others. Prompts are processed by chunks: see
// chunks.h.
#include "activation.h"
#include "chunks.h"
#include "columns.h"
#include "params.h"

// Eight elements of k and q, and the scalars of one token.
struct DeltaToken {
    WeightF32::Raw k, q;
    float v, g, beta;
};

// Addresses of the operands for a head and a column, and the strides of tokens.
struct DeltaInputs {
    const float *q, *k, *v, *g, *beta;
    u32 q_stride, k_stride, v_stride, heads, part, end;
    template <int D> INLINED DeltaToken token(u32 t) const {
        const float *key = k + (u64)t * k_stride, *query = q + (u64)t * q_stride;
        return {part_of_row<D>(key, part, end), part_of_row<D>(query, part, end), v[(u64)t * v_stride],
                g[(u64)t * heads], beta[(u64)t * heads]};
    }
};

#define DELTA_OPERANDS \
    const float *q, const float *k, const float *v, const float *g, const float *beta, const float *state, \
        const i32 *runs, const float *factors, float *d, float *own, DeltaNetParams p

// group_x: groups of columns; group_y: heads of v; group_z: slots.
template <int D> DEVICE void delta_net(DELTA_OPERANDS) {
    constexpr u32 LANES = Columns<D>::LANES;
    u32 head = group_y(), slot = group_z(), key_head = head % p.heads[0];
    runs += p.off[6];
    d += p.off[7];
    if (slot == p.slots) {
        if (group_x() == 0) zero_others(runs, d, p);
        return;
    }
    u32 column = group_x() * Columns<D>::COUNT + thread_id() / LANES, part = thread_id() % LANES * 8;
    if (column >= p.d[1]) return;
    Run run = run_of(runs, slot, p.tokens, p.run_fields);

    // The new state is stored after the rows of tokens, in the layout of the old one.
    u64 place = (((u64)slot * p.heads[1] + head) * p.d[1] + column) * p.d[0];
    float s[8];
    load_column<D>(state + p.off[5] + place, part, p.d[0], run, s);
    DeltaInputs in = {q + p.off[0] + key_head * p.nbq[0], k + p.off[1] + key_head * p.nbk[0],
                      v + p.off[2] + head * p.nbv[0] + column, g + p.off[3] + head, beta + p.off[4] + head,
                      p.nbq[1], p.nbk[1], p.nbv[1], p.heads[1], part, p.d[0]};
    u64 row = (u64)p.heads[1] * p.d[1];
    float *kept = d + p.tokens * row, factor = 0.0f;
    if constexpr (D > 0) {
        if (p.gates != 0) factor = factors[p.off[8] + head];
    }
    auto store = [&] {
        store_column<D>(kept + place, part, p.d[0], s);
        if constexpr (D > 0) {
            if (p.keeps != 0) store_column<D>(own + p.off[9] + place, part, p.d[0], s);
        }
    };
    if (run.kept == 0) store();
    if (run.count > 0) {
        DeltaToken next = in.token<D>(run.first);
        NO_UNROLL for (u32 t = run.first; t < run.first + run.count; t++) {
            DeltaToken now = next;
            next = in.token<D>(minimum(t + 1, run.first + run.count - 1));
            LOADS_FIRST();
            if constexpr (D > 0) {
                if (p.gates != 0) now.g = softplus(now.g) * factor, now.beta = times_sigmoid(1.0f, now.beta);
            }
            float key[8], query[8], decay = exp_f32(now.g);
            WeightF32::decode(now.k, key);
            WeightF32::decode(now.q, query);
            float of_query = p.scale;
            if (p.factor != 0.0f) {
                float squares = lanes_reduce<Sum, LANES>(dot8(key, key)), others = lanes_reduce<Sum, LANES>(dot8(query, query));
                float of_key = p.factor / __builtin_sqrtf(squares / (float)p.d[0] + p.eps);
                of_query *= p.factor / __builtin_sqrtf(others / (float)p.d[0] + p.eps);
                UNROLL for (int i = 0; i < 8; i++) key[i] *= of_key;
            }
            UNROLL for (int i = 0; i < 8; i++) s[i] *= decay;
            float delta = now.beta * (now.v - lanes_reduce<Sum, LANES>(dot8(s, key)));
            UNROLL for (int i = 0; i < 8; i++) s[i] = mad(key[i], delta, s[i]);
            float sum = lanes_reduce<Sum, LANES>(dot8(s, query));
            if (part == 0) d[t * row + head * p.d[1] + column] = sum * of_query;
            if (t + 1 == run.first + run.kept) store();
        }
    }
}

#define DELTA_NET(name, D) \
    KERNEL(COLUMN_THREADS) delta_net_##name(DELTA_OPERANDS) { \
        delta_net<D>(q, k, v, g, beta, state, runs, factors, d, own, p); \
    }
DELTA_NET(64, 64)
DELTA_NET(128, 128)
DELTA_NET(256, 256)
DELTA_NET(any, 0)

// Computes column j of T by substitution: from the top, each element is subtracted from those below as soon as it is known. A
// is stored by columns, in lines of `line` elements.
DEVICE void inverse_column(const float *a, u32 line, u32 j, float *x) {
    UNROLL for (u32 i = 0; i < CHUNK; i++) x[i] = i == j ? 1.0f : 0.0f;
    UNROLL for (u32 l = 0; l < CHUNK - 1; l++) {
        UNROLL for (u32 quad = (l + 1) / 4; quad < CHUNK / 4; quad++) {
            lds_f32x4 factor = *(const lds_f32x4 *)(a + l * line + quad * 4);
            UNROLL for (u32 i = 0; i < 4; i++) {
                if (quad * 4 + i > l) x[quad * 4 + i] = mad(-factor[i], x[l], x[quad * 4 + i]);
            }
        }
    }
}

// Decays and betas of a head, from the first token of a chunk on.
struct DeltaGates {
    const float *g, *beta;
    u32 heads;
    INLINED void of(u32 token, float *decay, float *share) const {
        *decay = exp_f32(g[(u64)token * heads]);
        *share = beta[(u64)token * heads];
    }
};

#define CHUNK_OPERANDS \
    const float *q, const float *k, const float *g, const float *beta, const i32 *runs, float *chunks, DeltaNetParams p

// group_x: chunks of all slots; group_y: heads of v.
template <int DK, bool WHOLE> DEVICE void delta_chunk(CHUNK_OPERANDS, ChunkShared<DK> &shared) {
    constexpr u32 LINE = ChunkShared<DK>::LINE;
    u32 thread = thread_id(), head = group_y(), key_head = head % p.heads[0];
    ChunkPlace place;
    if (!find_chunk(runs + p.off[6], group_x(), p.tokens, p.slots, &place)) return;
    u64 gate = (u64)place.token * p.heads[1] + head;
    DeltaGates gates = {g + p.off[3] + gate, beta + p.off[4] + gate, p.heads[1]};
    k += p.off[1] + key_head * p.nbk[0] + (u64)place.token * p.nbk[1];
    q += p.off[0] + key_head * p.nbq[0] + (u64)place.token * p.nbq[1];
    chunk_products<DK, WHOLE, true>(k, p.nbk[1], q, p.nbq[1], gates, place.left, p.d[0], shared);

    const float *weights = shared.table[1];
    float *inverse = shared.table[2];
    if (thread < CHUNK) {
        float x[CHUNK];
        inverse_column(shared.table[0], LINE, thread, x);
        UNROLL for (u32 i = 0; i < CHUNK; i++) inverse[i * LINE + thread] = x[i];
    }
    barrier();

    // A row and four columns of T, and of P T.
    u32 i = thread / 8, j = thread % 8 * 4;
    lds_f32x4 through = lds_f32x4(0.0f);
    _Pragma("unroll 4") for (u32 l = 0; l <= i; l++) {
        through += weights[i * LINE + l] * *(const lds_f32x4 *)(inverse + l * LINE + j);
    }
    lds_f32x4 direct = *(const lds_f32x4 *)(inverse + i * LINE + j);
    lds_f32x4 to_state, to_result;
    UNROLL for (u32 c = 0; c < 4; c++) {
        to_state[c] = direct[c] * shared.beta[j + c] * shared.decay[CHUNK - 1][i];
        to_result[c] = through[c] * shared.beta[j + c] * p.scale;
    }
    chunks += ((u64)head * all_chunks(p.tokens, p.slots) + group_x()) * CHUNK_FLOATS;
    *(lds_f32x4 *)(chunks + i * CHUNK + j) = to_state;
    *(lds_f32x4 *)(chunks + (CHUNK + i) * CHUNK + j) = to_result;
    if (thread < 64) {
        float decay = shared.decay[thread % CHUNK][CHUNK];
        chunks[64 * CHUNK + thread] = thread < CHUNK ? decay : decay * p.scale;
    }
}

#define WALK_OPERANDS \
    const float *q, const float *k, const float *v, const float *state, const i32 *runs, const float *chunks, float *d, \
        DeltaNetParams p

template <int DK, bool WHOLE> DEVICE void delta_walk(WALK_OPERANDS, WalkShared<DK> &shared) {
    u32 head = group_y(), key_head = head % p.heads[0];
    WalkInputs in = {k + p.off[1] + key_head * p.nbk[0], q + p.off[0] + key_head * p.nbq[0],
                     v + p.off[2] + head * p.nbv[0], p.nbk[1], p.nbq[1], p.nbv[1]};
    walk<DK, WHOLE, true>(in, state + p.off[5], runs + p.off[6], chunks, d + p.off[7], p, shared);
}

#define DELTA_CHUNKS(name, DK, WHOLE) \
    KERNEL(CHUNK_THREADS) delta_chunk_##name(CHUNK_OPERANDS) { \
        LDS ChunkShared<DK> shared; \
        delta_chunk<DK, WHOLE>(q, k, g, beta, runs, chunks, p, shared); \
    } \
    WAVES_PER_SIMD(2) KERNEL(CHUNK_THREADS) delta_walk_##name(WALK_OPERANDS) { \
        LDS WalkShared<DK> shared; \
        delta_walk<DK, WHOLE>(q, k, v, state, runs, chunks, d, p, shared); \
    }
DELTA_CHUNKS(64, 64, true)
DELTA_CHUNKS(128, 128, true)
DELTA_CHUNKS(any, 128, false)
