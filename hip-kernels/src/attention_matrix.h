// FLASH_ATTN_EXT for many query rows on matrix units (attention_fragment.h), k and v in F16 or in blocks, rows of up to DIM
// elements. The soft-max, the sums and the result are F32.
//
// A work-group of four wavefronts takes 64 query rows and goes through the positions 32 at a time. A wavefront has 16 of
// the rows: their queries stay in its registers as F16 (times a power of two that brings the largest of a row to 2^14 ..
// 2^15), and so do its results. A lane has scores, weights and results of two rows, four
// lanes side by side share them; on AMD's processors of one row, which two or four lanes 16 apart share.
//
//   * k and v go through LDS as F16; those of the next step are on their way meanwhile, as they are stored: in registers, or of
//     F16 on NVIDIA's processors in LDS, which has two places then (attention_cells.h, attention_rows.h).
//   * Of blocks k is whole numbers: the products of a block of 32 have a sum of their own, which is multiplied by the scale
//     of the block. v is the sum of two F16 numbers, which both are multiplied by weights.
//   * Scores come out of the units where weights go in: they never leave the registers. They are powers of two: the scale
//     and the mask bring log2(e) with them. Weights are sums of two F16 numbers, too, times 2^15, so that nothing is
//     rounded that F32 would keep, nor is where a unit takes numbers below 2^-14 for zeros.
//   * Queries are rounded to F16, as are keys in a cache of F16: of results that is an NMSE of some 1e-8. Weights that were
//     rounded would be ten times that.
//   * What is the same for all rows of a step is asked once for a fragment and not for each of its numbers: a branch for
//     each would take longer than the products. Results are rescaled where a maximum has changed.
//   * Most of a mask is zeros. On NVIDIA's processors lanes look a step ahead at the mask of the wavefront's rows, by eights of
//     F16, and only what is not all zeros is loaded number by number and added.
//   * Whether cells that no row sees hold infinities or NaNs is not asked at each step, but of the results: one that is not
//     finite has the work-group go through the positions again, carefully.
//   * What a fragment of v wants along k are positions. NVIDIA's units read v turned; for AMD's it is turned on its way
//     into LDS.
//
// Positions at the beginning and the end that the mask hides from all rows are left out (half of a causal prompt, all but
// the window of a sliding one); they are sought a position for each thread at a time.
//
// RDNA3's operands are twice as large as others', because both halves of a wavefront hold them whole. For rows of 128
// elements a step loads its k and v itself; of blocks a step has the scores of its first 16 positions before the products of
// the others begin.
//
// LDS of F16: 32.3 KiB with rows of 256 elements, 16.6 with 128, 12.6 with 64; of 128 and 64 twice that where it has two
// places. Of blocks, whose v has two tiles: 24.8 KiB with 128, 16.5 with 64. Weights that leave the registers take the place of k.
#pragma once
#include "attention_cells.h"
#include "attention_wave.h"

// Tiles of all positions. The queries pass through k and v, in tiles of all rows. Weights that leave the registers take the
// place of k.
template <class K, bool IN_BLOCKS = K::IN_BLOCKS> struct MatrixShared {
    static constexpr u32 THREADS = K::THREADS;
    union {
        __attribute__((aligned(16))) u16 k[MATRIX_POSITIONS * K::DIM];
        float weights[MATRIX_ROWS][MATRIX_POSITIONS + 1];
    };
    __attribute__((aligned(16))) u16 v[MATRIX_POSITIONS * K::DIM];
    // A number of a row of the queries, while they pass through.
    float rows[MATRIX_ROWS];
    float seen[2][THREADS / WAVE];
    __attribute__((device, always_inline)) float &of_row(u32 row) { return rows[row]; }
    __attribute__((device, always_inline)) float &weight(u32 row, u32 key) { return weights[row][key]; }
    __attribute__((device, always_inline)) const u16 *values() const { return v; }
};
// Of blocks v is the sum of both its tiles, and k has scales: of each block of a row those of all positions.
template <class K> struct MatrixShared<K, true> {
    static constexpr u32 THREADS = K::THREADS;
    union {
        __attribute__((aligned(16))) u16 k[MATRIX_POSITIONS * K::DIM];
        float weights[MATRIX_ROWS][MATRIX_POSITIONS + 1];
    };
    __attribute__((aligned(16))) u16 v[MATRIX_POSITIONS * K::DIM], v_rest[MATRIX_POSITIONS * K::DIM];
    __attribute__((aligned(16))) float scales[K::BLOCKS * MATRIX_POSITIONS];
    float seen[2][THREADS / WAVE];
    static_assert(K::BLOCKS * MATRIX_POSITIONS >= MATRIX_ROWS, "");
    __attribute__((device, always_inline)) float &of_row(u32 row) { return scales[row]; }
    __attribute__((device, always_inline)) float &weight(u32 row, u32 key) { return weights[row][key]; }
    __attribute__((device, always_inline)) const u16 *values() const { return v; }
    __attribute__((device, always_inline)) const u16 *rests_of_values() const { return v_rest; }
};
// What the parts of a kernel have in common: an attention fragment, the type of k and v, the longest row.
template <class A_, class KV_, int DIM_> struct MatrixKernel : MatrixTiles {
    typedef A_ A;
    typedef KV_ KV;
    typedef typename A::Operand Operand;
    typedef typename A::Sums Sums;
    static constexpr u32 DIM = DIM_, THREADS = MatrixGroup<A>::THREADS;
    // Fragments of a row.
    static constexpr u32 FRAGMENTS = DIM / 16;
    // Blocks of a row, where k and v are in blocks.
    static constexpr bool IN_BLOCKS = KV::BLOCK > 1;
    static constexpr u32 BLOCKS = DIM / KV::BLOCK;
    // Results of a wavefront.
    static constexpr u32 RESULTS = FRAGMENTS;
    // Whether registers do not suffice for the rows of the next step.
    static constexpr bool SPARING = DIM > A::LONGEST_AHEAD, OVER_KEYS = true;
    // Whether rows do not pass through registers; whether those of the next step are on their way meanwhile, in registers or,
    // with a second place, in LDS.
    static constexpr bool COPIED = A::COPIES && !IN_BLOCKS, AHEAD = !SPARING && !COPIED;
    static constexpr u32 STAGES = COPIED && !SPARING ? 2 : 1;
    // Whether a step's mask is looked at a step ahead, and loaded where that shows that it is no zeros. (On an H100 512 tokens of
    // a causal prompt over 4608 positions took 314 us without and 274 us with it with rows of 128, 122 and 103 us with 64.)
    static constexpr bool LOOKS = STAGES == 2;
    // Whether going through the positions carefully is code of its own: a loop without branches, which a compiler can put in
    // order (on an H100 274 us and 242 us, as above), or fewer registers: on gfx942 94 and 97, on gfx1201 142 and 154.
    static constexpr bool PASSES_APART = !DEVICE_AMD;
    // Keys' sixteens whose products are computed together.
    static constexpr u32 AT_ONCE = SPARING && IN_BLOCKS ? 1 : KEYS, SEEN_AT_ONCE = KEYS;
    typedef MatrixShared<MatrixKernel> Shared;
    typedef RowsOfStep<KV, DIM, THREADS, A::PIECE, false> Keys;
    typedef RowsOfStep<KV, DIM, THREADS, A::PIECE, A::VALUES_TURNED> Values;
    // The row of the work-group that is a lane's row `r`; the first column of a result.
    DEVICE u32 row(u32 r, u32 lane) { return MatrixGroup<A>::row(r, lane); }
    DEVICE u32 column(u32 c) { return c * 16; }
    // Who gives the statistics of a row, and what all wait for that have it.
    DEVICE bool leads() { return A::leads(); }
    DEVICE void meet() { barrier(); }
};

// Query rows of a wavefront.
template <class K> struct QueriesOfWave {
    static constexpr u32 BRINGERS = K::THREADS / MATRIX_ROWS;
    typename K::Operand rounded[K::FRAGMENTS];
    // The inverse of the factors of a lane's rows.
    float inverse[K::A::ROWS];

    // BRINGERS threads bring a row, which is `length` long.
    __attribute__((device, always_inline)) void bring(const float *row, u32 length, typename K::Shared *shared) {
        float factor = factor_of_query<BRINGERS>(row, length);
        shared->of_row(thread_id() / BRINGERS) = inverse_power(factor);
        put(row, length, factor, shared);
        barrier();
        u32 lane = MatrixGroup<typename K::A>::lane();
        UNROLL for (u32 r = 0; r < K::A::ROWS; r++) inverse[r] = shared->of_row(MatrixGroup<typename K::A>::row(r, lane));
        u32 first = MatrixGroup<typename K::A>::wave() * 16;
        UNROLL for (u32 f = 0; f < K::FRAGMENTS; f++) {
            rounded[f] = K::A::queries(shared->k + K::tile(f, MATRIX_ROWS), first, K::in_tile(f));
        }
    }
    DEVICE void put(const float *row, u32 length, float factor, typename K::Shared *shared) {
        constexpr u32 EIGHTS = TILE_K / 8;
        for (u32 e = thread_id() % BRINGERS; e < K::DIM / 8; e += BRINGERS) {
            u16 *tile = shared->k + e / EIGHTS * (MATRIX_ROWS * TILE_K);
            *(lds_u32x4 *)(tile + eight_at(thread_id() / BRINGERS, e % EIGHTS)) = eight_of_query(row, e * 8, length, factor);
        }
    }
};

// Sums of products of a block, times its scales.
template <class K>
DEVICE void add_block(const typename K::Shared *shared, const QueriesOfWave<K> &queries, u32 b, u32 first,
                      typename K::Sums *s) {
    typedef typename K::A A;
    typedef float Run __attribute__((ext_vector_type(A::RUN)));
    constexpr u32 OF_BLOCK = K::KV::BLOCK / 16;
    ONE_BY_ONE();
    typename K::Sums part[K::AT_ONCE];
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
        // Zeros that the compiler knows would have registers of their own throughout.
        part[j][i] = K::SPARING ? computed_here(0.0f) : 0.0f;
    }
    UNROLL for (u32 f = b * OF_BLOCK; f < (b + 1) * OF_BLOCK; f++) {
        multiply_fragment<K>(shared->k, f, queries.rounded[f], first, part);
    }
    const float *scales = shared->scales + b * MATRIX_POSITIONS + first * 16;
    u32 lane = MatrixGroup<A>::lane();
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) UNROLL for (u32 i = 0; i < A::SUMS; i += A::RUN) {
        Run scale = *(const Run *)(scales + j * 16 + A::place(i, lane));
        UNROLL for (u32 e = 0; e < A::RUN; e++) s[j][i + e] = computed_here(mad(part[j][i + e], scale[e], s[j][i + e]));
    }
}
// Products of AT_ONCE keys' sixteens of a step.
template <class K>
DEVICE void multiply_keys(const typename K::Shared *shared, const QueriesOfWave<K> &queries, u32 first, typename K::Sums *s) {
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) s[j] = 0.0f;
    if constexpr (K::IN_BLOCKS) {
        UNROLL for (u32 b = 0; b < K::BLOCKS; b++) add_block<K>(shared, queries, b, first, s);
    } else {
        UNROLL for (u32 f = 0; f < K::FRAGMENTS; f++) multiply_fragment<K>(shared->k, f, queries.rounded[f], first, s);
    }
}

// Rows of k and v of a work-group, on their way into LDS a step at a time.
template <class K> struct MatrixRows {
    const u8 *k, *v;
    u32 pitch[2], length[2], end;
    typename K::Keys keys;
    typename K::Values values;

    // Those of a first step, where they go ahead.
    __attribute__((device, always_inline)) void begin(u32 base, typename K::Shared *shared) {
        // Nobody reads any more what was in LDS.
        barrier();
        if (base >= end) return;
        if (K::AHEAD) load(base);
        if constexpr (K::STAGES == 2) copy(base, shared);
    }
    // Brings those of a step; `others`: the place of the next, which are on their way then. All wavefronts meet.
    __attribute__((device, always_inline)) void bring(u32 base, typename K::Shared *now, typename K::Shared *others) {
        u32 next = base + MATRIX_POSITIONS;
        if constexpr (K::STAGES == 2) {
            K::A::copied();
            barrier();
            if (next < end) copy(next, others);
        } else if constexpr (K::COPIED) {
            barrier();
            copy(base, now);
            K::A::copied();
            barrier();
        } else {
            if (!K::AHEAD) load(base);
            barrier();
            store(now);
            barrier();
            if (K::AHEAD && next < end) load(next);
        }
    }
    __attribute__((device, always_inline)) void copy(u32 base, typename K::Shared *to) {
        keys.template copy<typename K::A>(k, pitch[0], base, end, length[0], to->k);
        values.template copy<typename K::A>(v, pitch[1], base, end, length[1], to->v);
    }
    __attribute__((device, always_inline)) void load(u32 base) {
        keys.load_rows(k, pitch[0], base, end, length[0]);
        values.load_rows(v, pitch[1], base, end, length[1]);
    }
    __attribute__((device, always_inline)) void store(typename K::Shared *to) {
        if constexpr (K::IN_BLOCKS) {
            keys.store_wholes(to->k, to->scales);
            values.template store_sums<K::A::REST_EXPONENT>(to->v, to->v_rest);
        } else {
            keys.store(to->k);
            values.store(to->v);
        }
    }
};

// The scores of a step, whose mask is `bits` and nothing where it is `clear`.
template <class K>
DEVICE void scores_of_step(const typename K::Shared *shared, u32 base, u32 end, const QueriesOfWave<K> &queries,
                           const ScoresOfWave<typename K::A> &to_score, const MaskOfRows<K> &mask,
                           const typename MaskOfRows<K>::Bits *bits, bool clear, bool careful, typename K::Sums *s) {
    typename K::Sums bias = 0.0f;
    UNROLL for (u32 j = 0; j < K::KEYS; j++) {
        if (j % K::AT_ONCE == 0) {
            multiply_keys<K>(shared, queries, j, s + j);
            // Otherwise the products would come after what is asked about the mask, with all operands in registers.
            UNROLL for (u32 i = 0; i < K::AT_ONCE; i++) sums_here(s[j + i]);
        }
        if (!K::LOOKS) mask.numbers(base + j * 16, end, bits[j], bias);
        to_score.of(s[j], bias);
        if (K::AT_ONCE == 1) UNROLL for (u32 i = 0; i < K::A::SUMS; i++) s[j][i] = computed_here(s[j][i]);
    }
    if (clear) return;
    if (K::LOOKS) UNROLL for (u32 j = 0; j < K::KEYS; j++) {
        mask.numbers(base + j * 16, end, bits[j], bias);
        to_score.add_mask(s[j], bias);
    }
    if (!unknown(careful)) return;
    UNROLL for (u32 j = 0; j < K::KEYS; j++) {
        mask.numbers(base + j * 16, end, bits[j], bias);
        to_score.hide(s[j], bias);
    }
}

// Goes through the positions. `careful`: asks again which of them are hidden, whatever their scores and values are.
template <class K>
DEVICE void add_positions(u32 begin, u32 end, MatrixRows<K> &rows, const MaskOfRows<K> &mask, const QueriesOfWave<K> &queries,
                          const ScoresOfWave<typename K::A> &to_score, bool careful, typename K::Shared *shared,
                          AttentionOfWave<K> &a) {
    typename MaskOfRows<K>::Bits bits[K::KEYS] = {};
    typename MaskOfRows<K>::Look look;
    rows.begin(begin, shared);
    if (K::LOOKS) mask.look(begin, end, look);
    u32 turn = 0;
    NO_UNROLL for (u32 base = begin; base < end; base += MATRIX_POSITIONS) {
        typename K::Shared *now = shared + turn;
        if (K::STAGES == 2) turn ^= 1;
        bool clear = K::LOOKS && mask.clear(look);
        if (!clear) mask.load_step(base, end, bits);
        if (K::LOOKS) mask.look(base + MATRIX_POSITIONS, end, look);
        rows.bring(base, now, shared + turn);
        typename K::Sums s[K::KEYS];
        scores_of_step<K>(now, base, end, queries, to_score, mask, bits, clear, careful, s);
        a.rescale(s);
        // Not one or the other: results of both would have registers of their own.
        if (unknown(careful)) {
            a.template weigh<true>(s);
            a.template add_values_seen<0, K::RESULTS>(s, now);
        }
        if (!unknown(careful)) {
            a.template weigh<false>(s);
            a.template add_values<0, K::RESULTS>(s, now);
        }
    }
}

template <class K>
DEVICE void attention_matrix(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out,
                             float *stats, const FlashAttnPieces &p, typename K::Shared *shared) {
    typedef typename K::A A;
    auto [h, splits, row0, begin, end] = MatrixWork<MATRIX_ROWS>(p);
    if (splits == 1) out += p.off[5];
    k += row_offset(p.off[1], p.nbk, 0, h.kv_head, h.batch) * K::KV::BYTES;
    v += row_offset(p.off[2], p.nbv, 0, h.kv_head, h.batch) * K::KV::BYTES;

    QueriesOfWave<K> queries;
    u32 brought = row0 + thread_id() / QueriesOfWave<K>::BRINGERS;
    queries.bring(q + query_offset(p, h, query(h, brought)), p.d[0], shared);
    ScoresOfWave<A> to_score;
    to_score.begin(p, queries.inverse);
    skip_hidden<K::THREADS, MATRIX_ROWS>(mask, p, h, row0, begin, end, shared->seen);

    MaskOfRows<K> masks;
    masks.begin(mask, p, h, row0);
    MatrixRows<K> rows = {k, v, {p.nbk[0], p.nbv[0]}, {p.d[0], p.d[1]}, end, {}, {}};
    AttentionOfWave<K> a;
    auto pass = [&](bool careful) __attribute__((device, always_inline)) {
        a.begin(p, h, sinks, row0, group_x() == 0);
        add_positions<K>(begin, end, rows, masks, queries, to_score, careful, shared, a);
        return group_reduce<Max, K::THREADS>(a.finite() ? 0.0f : 1.0f, shared->seen[0]) == 0.0f;
    };
    if (K::PASSES_APART) {
        if (!pass(false)) pass(true);
    } else {
        bool careful = false;
        NO_UNROLL do careful = !pass(careful) && !careful;
        while (careful);
    }
    a.store(p, h, row0, splits, out, stats);
}
