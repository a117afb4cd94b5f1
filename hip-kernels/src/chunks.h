// GATED_DELTA_NET and SSM_SCAN for prompts, by chunks of tokens. Sources: Yang, Kautz and Hatamizadeh, "Gated delta networks:
// improving Mamba2 with delta rule" (2024), section 3.3 (the inverse is the UT transform of Joffrain et al., 2006); Dao and Gu,
// "Transformers are SSMs" (2024), section 6.
//
// In a chunk, let a_i be the decay of token i, D_ij the product of a_l for j < l <= i, G_i that of all up to a_i, H_i that of
// all after a_i, and S the state before the chunk. The updates of the tokens of a delta net are the rows u_i of U with
//
//     (I + A) U = diag(beta) R,  R_i = v_i - G_i S^T k_i,  A_ij = beta_i D_ij (k_i . k_j) for j < i
//
// and with T = (I + A)^-1 and P_ij = D_ij (q_i . k_j) for j <= i
//
//     out_i = scale (G_i S^T q_i + (P T diag(beta) R)_i),  S becomes G_last S + K^T (diag(H) T diag(beta) R)
//
// A state space model has b as k, c as q, x as v and steps as beta, but neither A nor a scale: T = I, R_i = v_i.
//
// T and P T do not depend on the state: `delta_chunk` and `scan_chunk` compute them for all chunks at once. `walk` then
// processes the chunks of a sequence in order, with some columns of the state. Decays are products of numbers up to 1, never
// differences of logarithms, so gates of zero and of minus infinity need no special case.
//
// Tokens after the end of a run count as zeros with beta 0 and decay 1. Products with the zeros outside a triangle are not
// added, so a NaN affects only its own token and later ones.
#pragma once
#include "columns.h"
#include "index.h"
#include "params.h"

// Tokens of a chunk: `ggml_core::kernel::chunks::TOKENS`.
#define CHUNK 32u
// Floats of a chunk in scratch: the factors of R (32 rows for U, 32 for the results), 32 decays G of S^T k, 32 of S^T q with
// the scale. Without A the factors for U are a diagonal, which replaces the first decays.
#define CHUNK_FLOATS (64 * CHUNK + 64)

#define CHUNK_THREADS 256u
// Columns of the state in a work-group of `walk`.
#define WALK_COLUMNS 16u

DEVICE u32 chunks_of(const Run &run) { return (run.count + CHUNK - 1) / CHUNK; }
// Largest number of chunks that runs with this many tokens can have.
DEVICE u32 all_chunks(u32 tokens, u32 slots) { return (tokens + slots * (CHUNK - 1)) / CHUNK; }

// The products with the state are unrolled for PTX, whose compiler interleaves them; on AMD's processors that would take
// registers.
#if DEVICE_AMD
#define TURNS NO_UNROLL
#else
#define TURNS UNROLL
#endif

// Loads four elements at a multiple of 16 bytes.
DEVICE f32x4 aligned_quad(const float *at) { return (f32x4)*(const lds_f32x4 *)at; }

// Loads four elements of a row of length `end`, zeros after it; WHOLE: of a row of DK that starts at a multiple of 16 bytes.
template <bool WHOLE> DEVICE f32x4 row_quad(const float *row, u32 quad, u32 end) {
    if constexpr (WHOLE) return aligned_quad(row + quad * 4);
    f32x4 x;
    UNROLL for (u32 l = 0; l < 4; l++) {
        float element = row[minimum(quad * 4 + l, end - 1)];
        x[l] = quad * 4 + l < end ? element : 0.0f;
    }
    return x;
}

DEVICE float dot4f(lds_f32x4 a, lds_f32x4 b, float sum) {
    UNROLL for (int l = 0; l < 4; l++) sum = mad(a[l], b[l], sum);
    return sum;
}

// Keys and queries of a chunk, which are loaded into LDS: half of their elements at a time, in quads stored in the order
// `quad ^ row % 8`, so that eight rows are on different banks.
template <int DK, bool WHOLE> struct ChunkRows {
    static constexpr u32 HALF = DK / 8, EACH = CHUNK * HALF / CHUNK_THREADS;
    typedef f32x4 Quads[EACH];

    // Issues the loads of half `half`. For rows after the last one, the last one is read.
    DEVICE void load(Quads &to, const float *rows, u32 stride, u32 left, u32 half, u32 end) {
        u32 thread = offset_here(thread_id());
        UNROLL for (u32 i = 0; i < EACH; i++) {
            u32 at = thread + i * CHUNK_THREADS, row = minimum(at / HALF, left - 1);
            to[i] = row_quad<WHOLE>(rows + (u64)row * stride, half * HALF + at % HALF, end);
        }
    }
    DEVICE void store(lds_f32x4 *to, const Quads &from, u32 left) {
        u32 thread = offset_here(thread_id());
        UNROLL for (u32 i = 0; i < EACH; i++) {
            u32 at = thread + i * CHUNK_THREADS, row = at / HALF;
            to[row * HALF + (at % HALF ^ row % 8)] = row < left ? (lds_f32x4)from[i] : lds_f32x4(0.0f);
        }
    }
};

// ---- Independent of the state ----

template <int DK> struct ChunkShared {
    static constexpr u32 LINE = 36, ROWS = 64 * DK / 8;
    union {
        // Half of the keys and of the queries.
        lds_f32x4 rows[ROWS];
        // A by columns, P and T by rows.
        __attribute__((aligned(16))) float table[3][CHUNK * LINE];
    };
    // D, with G as its last column; decays and betas.
    float decay[CHUNK][CHUNK + 1], gate[CHUNK], beta[CHUNK];
};

// A chunk of a slot: its first token and its number of tokens.
struct ChunkPlace {
    u32 token, left;
};

// Finds chunk `chunk` of all; returns false if there are fewer.
DEVICE bool find_chunk(const i32 *runs, u32 chunk, u32 tokens, u32 slots, ChunkPlace *place) {
    for (u32 slot = 0; slot < slots; slot++) {
        Run run = run_of(runs, slot, tokens);
        if (chunk < chunks_of(run)) {
            *place = {run.first + chunk * CHUNK, minimum(run.count - chunk * CHUNK, CHUNK)};
            return true;
        }
        chunk -= chunks_of(run);
    }
    return false;
}

// Column j of D or, after the last one, G.
DEVICE void decay_column(float (*decay)[CHUNK + 1], const float *gate, u32 j) {
    float product = 1.0f;
    u32 first = j < CHUNK ? j + 1 : 0;
    _Pragma("unroll 4") for (u32 i = 0; i < CHUNK; i++) {
        product = i < first ? 1.0f : product * gate[i];
        decay[i][j] = product;
    }
}

// Computes the products of keys (with A) and queries with keys, multiplied by their decays: A by columns, P by rows. Keys and
// queries start at the chunk's first token. Gates: returns the decay and the beta of a token. A thread has rows `row` and
// `row + 16` of both, columns `col` and `col + 16`.
template <int DK, bool WHOLE, bool WITH_A, class Gates>
DEVICE void chunk_products(const float *k, u32 k_stride, const float *q, u32 q_stride, const Gates &gates, u32 left,
                           u32 end, ChunkShared<DK> &shared) {
    typedef ChunkRows<DK, WHOLE> Rows;
    constexpr u32 HALF = Rows::HALF, LINE = ChunkShared<DK>::LINE, FROM = WITH_A ? 0 : 2;
    u32 thread = thread_id();
    typename Rows::Quads keys, queries;
    Rows::load(keys, k, k_stride, left, 0, end);
    Rows::load(queries, q, q_stride, left, 0, end);
    if (thread < CHUNK) {
        float gate, beta;
        gates.of(minimum(thread, left - 1), &gate, &beta);
        shared.gate[thread] = thread < left ? gate : 1.0f;
        shared.beta[thread] = thread < left ? beta : 0.0f;
    }
    u32 row = thread / 16, col = thread % 16;
    float sum[4][2] = {};
    NO_UNROLL for (u32 half = 0; half < 2; half++) {
        Rows::store(shared.rows, keys, left);
        Rows::store(shared.rows + CHUNK * HALF, queries, left);
        barrier();
        if (half == 0) {
            Rows::load(keys, k, k_stride, left, 1, end);
            Rows::load(queries, q, q_stride, left, 1, end);
            if (thread <= CHUNK) decay_column(shared.decay, shared.gate, thread);
        }
        _Pragma("unroll 4") for (u32 quad = 0; quad < HALF; quad++) {
            lds_f32x4 x[4], y[2];
            UNROLL for (u32 i = FROM; i < 4; i++) x[i] = shared.rows[(row + 16 * i) * HALF + (quad ^ row % 8)];
            UNROLL for (u32 i = 0; i < 2; i++) y[i] = shared.rows[(col + 16 * i) * HALF + (quad ^ col % 8)];
            UNROLL for (u32 i = FROM; i < 4; i++) UNROLL for (u32 j = 0; j < 2; j++) {
                sum[i][j] = dot4f(x[i], y[j], sum[i][j]);
            }
        }
        barrier();
    }
    UNROLL for (u32 i = 0; i < 2; i++) UNROLL for (u32 j = 0; j < 2; j++) {
        u32 r = row + 16 * i, c = col + 16 * j;
        float decay = shared.decay[r][c];
        if constexpr (WITH_A) shared.table[0][c * LINE + r] = shared.beta[r] * decay * sum[i][j];
        shared.table[1][r * LINE + c] = decay * sum[i + 2][j];
    }
    barrier();
}

// ---- From chunk to chunk ----

// LDS in quads. After the products, `states` and `queries` hold their partial sums; then `states` holds R and U.
template <int DK> struct WalkShared {
    static constexpr u32 HALF = DK / 8;
    // Columns of S in quads, those of a column in the order `quad ^ column / 4`; the partial sums take 768.
    static constexpr u32 STATES = WALK_COLUMNS * DK / 4, QUERIES = STATES == 512 ? CHUNK * HALF : 768 - STATES;
    lds_f32x4 keys[CHUNK * HALF], sums[STATES + QUERIES], factors[64 * CHUNK / 4];
};

// Keys, queries and values of a head, and the strides of tokens.
struct WalkInputs {
    const float *k, *q, *v;
    u32 k_stride, q_stride, v_stride;
};

// A thread's part of the products with the state: a quarter of each half of a key, rows `line` and `line + 16` of keys and of
// queries, four columns. The thread completes one of these rows, `row`; keys come before queries.
struct RowPart {
    u32 part, lane, line, four;
    INLINED explicit RowPart(u32 thread)
        : part(uniform(thread / 64)), lane(thread % 64), line(lane / 4), four(lane % 4) {}
    INLINED u32 row() const { return part * 16 + line; }
    INLINED u32 token() const { return row() % CHUNK; }
};

// A thread's part of the state: a quad of some columns.
template <int DK> struct StatePart {
    static constexpr u32 QUADS = DK / 4, COLUMNS = WALK_COLUMNS * QUADS / CHUNK_THREADS;
    u32 quad, column;
    INLINED explicit StatePart(u32 thread)
        : quad(thread % 8 + thread / 32 % (QUADS / 8) * 8),
          column((thread / 8 % 4 + thread / (4 * QUADS) * 4) * COLUMNS) {}
};

// Data of a chunk that a thread loads.
template <int DK, bool WHOLE, bool WITH_A> struct WalkChunk {
    typedef ChunkRows<DK, WHOLE> Rows;
    // Without A the factors for U are not read.
    static constexpr u32 FIRST = WITH_A ? 0 : 1;
    typename Rows::Quads keys[2], queries[2];
    f32x4 factors[2];
    // For its row and columns: the values, the decay of the state, and the decay of the whole chunk.
    f32x4 values;
    float decay, all;

    // Issues the loads of a chunk; the inputs and the scratch data start with the run. `d`: lengths of keys and values.
    INLINED void load(u32 chunk, const WalkInputs &in, const float *chunks, const Run &run,
                                                     u32 first_column, const u32 *d) {
        RowPart at(offset_here(thread_id()));
        u32 token = chunk * CHUNK, left = minimum(run.count - token, CHUNK);
        UNROLL for (u32 half = 0; half < 2; half++) {
            Rows::load(keys[half], in.k + (u64)token * in.k_stride, in.k_stride, left, half, d[0]);
            Rows::load(queries[half], in.q + (u64)token * in.q_stride, in.q_stride, left, half, d[0]);
        }
        chunks += (u64)chunk * CHUNK_FLOATS;
        UNROLL for (u32 i = FIRST; i < 2; i++) {
            factors[i] = aligned_quad(chunks + (thread_id() + i * CHUNK_THREADS) * 4);
        }
        decay = chunks[64 * CHUNK + at.row()];
        all = chunks[64 * CHUNK + (WITH_A ? CHUNK : 2 * CHUNK) - 1];
        const float *v = in.v + (u64)(token + minimum(at.token(), left - 1)) * in.v_stride;
        values = load_quad(v, first_column + at.four * 4, d[1]);
    }
    // Stores eight quads of a row in the order `quad ^ row % 8`.
    INLINED void put_factors(lds_f32x4 *to) const {
        u32 thread = offset_here(thread_id());
        UNROLL for (u32 i = FIRST; i < 2; i++) {
            u32 at = thread + i * CHUNK_THREADS;
            to[at ^ at / 8 % 8] = (lds_f32x4)factors[i];
        }
    }
};

template <int DK> DEVICE void put_states(lds_f32x4 *states, const f32x4 *s) {
    StatePart<DK> at(offset_here(thread_id()));
    UNROLL for (u32 c = 0; c < StatePart<DK>::COLUMNS; c++) {
        u32 column = at.column + c;
        states[column * (DK / 4) + (at.quad ^ column / 4)] = (lds_f32x4)s[c];
    }
}

// Adds the products of half a key (with A) and half a query with the state.
template <int DK, u32 FROM>
DEVICE void multiply_states(const lds_f32x4 *keys, const lds_f32x4 *queries, const lds_f32x4 *states, u32 half,
                            float (*sum)[4]) {
    constexpr u32 HALF = DK / 8;
    RowPart at(offset_here(thread_id()));
    TURNS for (u32 i = 0; i < HALF / 4; i++) {
        u32 quad = at.part * (HALF / 4) + i, mixed = quad ^ at.line % 8;
        lds_f32x4 x[4], y[4];
        UNROLL for (u32 j = 0; j < 2; j++) {
            if constexpr (FROM == 0) x[j] = keys[(at.line + 16 * j) * HALF + mixed];
            x[j + 2] = queries[(at.line + 16 * j) * HALF + mixed];
        }
        UNROLL for (u32 j = 0; j < 4; j++) y[j] = states[(at.four * 4 + j) * (DK / 4) + (half * HALF + quad ^ at.four)];
        UNROLL for (u32 m = FROM; m < 4; m++) UNROLL for (u32 j = 0; j < 4; j++) sum[m][j] = dot4f(x[m], y[j], sum[m][j]);
    }
}

// Adds the sums of all quarters for the thread's row, if the thread's quarter is `FROM` or later.
template <u32 FROM> DEVICE lds_f32x4 join_quarters(lds_f32x4 *sums, float (*sum)[4]) {
    RowPart at(offset_here(thread_id()));
    lds_f32x4 own = lds_f32x4(0.0f);
    UNROLL for (u32 m = FROM; m < 4; m++) {
        lds_f32x4 row = {sum[m][0], sum[m][1], sum[m][2], sum[m][3]};
        if (m == at.part) own = row;
        else sums[((at.part + 3 - m) % 4 * 4 + m) * 64 + at.lane] = row;
    }
    barrier();
    if (at.part >= FROM) {
        UNROLL for (u32 i = 0; i < 3; i++) own += sums[(i * 4 + at.part) * 64 + at.lane];
    }
    return own;
}

// Adds the products of the thread's row of factors with R, up to its own token.
DEVICE lds_f32x4 multiply_rests(const lds_f32x4 *factors, const lds_f32x4 *rests, const RowPart &at, lds_f32x4 sum) {
    u32 count = at.token() + 1, mixed = at.row() % 8;
    factors += at.row() * 8;
    rests += at.four;
    NO_UNROLL for (u32 i = 0; i < count / 4; i++) {
        lds_f32x4 factor = factors[i ^ mixed];
        UNROLL for (u32 j = 0; j < 4; j++) sum += factor[j] * rests[(i * 4 + j) * 4];
    }
    lds_f32x4 factor = factors[minimum(count / 4, 7) ^ mixed];
    UNROLL for (u32 j = 0; j < 3; j++) {
        if (j < count % 4) sum += factor[j] * rests[(count / 4 * 4 + j) * 4];
    }
    return sum;
}

// Adds the updates of the tokens to the thread's part of the state. The first half of the keys has replaced the queries.
template <int DK>
DEVICE void add_written(const lds_f32x4 *keys, const lds_f32x4 *first_keys, const float *writes, f32x4 *s) {
    constexpr u32 HALF = DK / 8;
    StatePart<DK> at(offset_here(thread_id()));
    const lds_f32x4 *lines = at.quad < HALF ? first_keys : keys;
    writes += at.column;
    _Pragma("unroll 8") for (u32 j = 0; j < CHUNK; j++) {
        f32x4 key = lines[j * HALF + (at.quad % HALF ^ j % 8)];
        UNROLL for (u32 c = 0; c < StatePart<DK>::COLUMNS; c++) s[c] += key * writes[j * WALK_COLUMNS + c];
    }
}

// group_x: columns of the state; group_y: heads; group_z: slots, plus one for tokens without a slot. `in` starts at the head.
// P: a parameter structure.
template <int DK, bool WHOLE, bool WITH_A, class P>
DEVICE void walk(WalkInputs in, const float *state, const i32 *runs, const float *chunks, float *d, const P &p,
                 WalkShared<DK> &shared) {
    typedef ChunkRows<DK, WHOLE> Rows;
    constexpr u32 COLUMNS = StatePart<DK>::COLUMNS, FROM = WITH_A ? 0 : 2;
    u32 thread = thread_id(), head = group_y(), slot = group_z();
    if (slot == p.slots) {
        if (group_x() == 0) zero_others<CHUNK_THREADS>(runs, d, p);
        return;
    }
    Run run = run_of(runs, slot, p.tokens);
    u32 first_chunk = 0, first_column = group_x() * WALK_COLUMNS;
    for (u32 i = 0; i < slot; i++) first_chunk += chunks_of(run_of(runs, i, p.tokens));
    in.k += (u64)run.first * in.k_stride;
    in.q += (u64)run.first * in.q_stride;
    in.v += (u64)run.first * in.v_stride;
    chunks += ((u64)head * all_chunks(p.tokens, p.slots) + first_chunk) * CHUNK_FLOATS;
    u64 result_row = (u64)p.heads[1] * p.d[1];
    float *result = d + run.first * result_row + head * p.d[1];

    StatePart<DK> at_state(thread);
    u64 place = (((u64)slot * p.heads[1] + head) * p.d[1] + first_column + at_state.column) * p.d[0];
    f32x4 s[COLUMNS];
    UNROLL for (u32 c = 0; c < COLUMNS; c++) {
        s[c] = f32x4(0.0f);
        if ((run.count == 0 || run.position > 0) && first_column + at_state.column + c < p.d[1]) {
            s[c] = load_quad(state + place + (u64)c * p.d[0], at_state.quad * 4, p.d[0]);
        }
    }

    lds_f32x4 *states = shared.sums, *queries = shared.sums + WalkShared<DK>::STATES;
    lds_f32x4 *rests = states, *writes = states + CHUNK * 4;
    WalkChunk<DK, WHOLE, WITH_A> next;
    if (run.count > 0) next.load(0, in, chunks, run, first_column, p.d);
    NO_UNROLL for (u32 chunk = 0; chunk < chunks_of(run); chunk++) {
        u32 left = minimum(run.count - chunk * CHUNK, CHUNK);
        put_states<DK>(states, s);
        next.put_factors(shared.factors);
        // S^T k and S^T q.
        float sum[4][4] = {};
        UNROLL for (u32 half = 0; half < 2; half++) {
            Rows::store(shared.keys, next.keys[half], left);
            Rows::store(queries, next.queries[half], left);
            barrier();
            multiply_states<DK, FROM>(shared.keys, queries, states, half, sum);
            barrier();
        }
        lds_f32x4 own = join_quarters<FROM>(shared.sums, sum) * next.decay;
        RowPart at(offset_here(thread));
        if (at.part < 2) {
            lds_f32x4 rest = at.token() < left ? (lds_f32x4)next.values : lds_f32x4(0.0f);
            if constexpr (WITH_A) rest -= own;
            rests[at.row() * 4 + at.four] = rest;
            if constexpr (!WITH_A) own = rest * next.decay;
        }
        barrier();
        Rows::store(queries, next.keys[0], left);
        float all = next.all;
        // After the last chunk, loads it again: a value that may stay unchanged would occupy its registers all the time.
        next.load(minimum(chunk + 1, chunks_of(run) - 1), in, chunks, run, first_column, p.d);
        if (WITH_A || at.part >= 2) {
            lds_f32x4 begin = WITH_A && at.part < 2 ? lds_f32x4(0.0f) : own;
            own = multiply_rests(shared.factors, rests, at, begin);
        }
        if (at.part < 2) {
            writes[at.row() * 4 + at.four] = own;
        } else if (at.token() < left) {
            float *row = result + (chunk * CHUNK + at.token()) * result_row;
            store_quad(row, first_column + at.four * 4, p.d[1], (f32x4)own);
        }
        barrier();
        UNROLL for (u32 c = 0; c < COLUMNS; c++) s[c] *= all;
        add_written<DK>(shared.keys, queries, (const float *)writes, s);
        barrier();
    }

    float *to = d + p.tokens * result_row + place;
    UNROLL for (u32 c = 0; c < COLUMNS; c++) {
        if (first_column + at_state.column + c >= p.d[1]) continue;
        store_quad(to + (u64)c * p.d[0], at_state.quad * 4, p.d[0], s[c]);
    }
}
