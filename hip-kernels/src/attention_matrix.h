// FLASH_ATTN_EXT for many query rows on matrix units (attention_fragment.h), with k and v in F16 or in blocks and rows of up to
// DIM elements. The soft-max, the sums and the result are F32.
//
// A work-group of four wavefronts takes 64 query rows and steps through the positions 32 at a time. A wavefront has 16 of the
// rows. Their queries stay in its registers as F16, multiplied by a power of two that brings the largest element of a row to
// 2^14 .. 2^15; so do its results. A lane has scores, weights and results of two rows, which four adjacent lanes share; on
// AMD's processors, of one row, which two or four lanes 16 apart share.
//
//   * k and v pass through LDS as F16. Meanwhile the next step is loaded, as stored: into registers or, for F16 on NVIDIA's
//     processors, into a second place in LDS (attention_cells.h, attention_rows.h).
//   * Blocks of k become integers: the products of a block of 32 have their own sum, which is multiplied by the scale of the
//     block. Blocks of v become sums of two F16 numbers, each of which is multiplied by the weights.
//   * The matrix units return scores in the layout in which they take weights, so scores never leave the registers. They are in
//     base 2: log2(e) is part of the scale and of the slope of the mask. Weights are also sums of two F16 numbers, multiplied
//     by 2^15. So nothing is rounded that F32 would keep, even where a matrix unit treats numbers below 2^-14 as zeros.
//   * Queries are rounded to F16, as are keys in a cache of F16: an NMSE of about 1e-8 in the results. Rounded weights would
//     cause ten times as much.
//   * Conditions that are equal for all rows of a step are tested once for a fragment, not for each of its values: a branch for
//     each would take longer than the products. Results are rescaled only if a maximum has changed.
//   * Most of a mask is zeros. On NVIDIA's processors, lanes read the mask of the wavefront's rows one step ahead, in groups of
//     eight F16. Only if it is not all zeros, it is loaded value by value and added.
//   * Infinities and NaNs in cells that no row sees are not tested in each step, but in the results: if one is not finite, the
//     work-group processes the positions again, carefully.
//   * A fragment of v has positions along k. NVIDIA's matrix units can transpose v when they load it; for AMD's it is
//     transposed on its way into LDS.
//
// Positions at the beginning and at the end that the mask hides from all rows are skipped (half of a causal prompt; all but the
// window of a sliding one). The search for them checks one position in each thread at a time.
//
// RDNA3's operands are twice as large as those of others, because both halves of a wavefront hold all of them. With rows of 128
// elements, a step loads its k and v itself; with blocks, a step computes the scores of its first 16 positions before the
// products of the others start.
//
// LDS for F16: 32.3 KiB with rows of 256 elements, 16.6 with 128, 12.6 with 64; for 128 and 64 twice that if there are two
// places. For blocks, whose v has two tiles: 24.8 KiB with 128, 16.5 with 64. Weights that leave the registers overwrite k.
#pragma once
#include "attention_cells.h"
#include "attention_wave.h"

// Tiles of all positions. Before, the queries pass through k and v, in tiles of all rows. Weights that leave the registers
// overwrite k.
template <class K, bool IN_BLOCKS = K::IN_BLOCKS> struct MatrixShared {
    static constexpr u32 THREADS = K::THREADS;
    union {
        __attribute__((aligned(16))) u16 k[MATRIX_POSITIONS * K::DIM];
        float weights[MATRIX_ROWS][MATRIX_POSITIONS + 1];
    };
    __attribute__((aligned(16))) u16 v[MATRIX_POSITIONS * K::DIM];
    // A value for each row of the queries, while they pass through.
    float rows[MATRIX_ROWS];
    float seen[2][THREADS / WAVE];
    INLINED float &of_row(u32 row) { return rows[row]; }
    INLINED float &weight(u32 row, u32 key) { return weights[row][key]; }
    INLINED const u16 *values() const { return v; }
};
// With blocks, v is the sum of two tiles, and k has scales: for each block of a row those of all positions.
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
    INLINED float &of_row(u32 row) { return scales[row]; }
    INLINED float &weight(u32 row, u32 key) { return weights[row][key]; }
    INLINED const u16 *values() const { return v; }
    INLINED const u16 *rests_of_values() const { return v_rest; }
};
// Constants and types of a kernel: an attention fragment, the type of k and v, the longest row.
template <class A_, class KV_, int DIM_> struct MatrixKernel : MatrixTiles {
    typedef A_ A;
    typedef KV_ KV;
    typedef typename A::Operand Operand;
    typedef typename A::Sums Sums;
    static constexpr u32 DIM = DIM_, THREADS = MatrixGroup<A>::THREADS;
    // Fragments of a row.
    static constexpr u32 FRAGMENTS = DIM / 16;
    // Blocks of a row, if k and v are in blocks.
    static constexpr bool IN_BLOCKS = KV::BLOCK > 1;
    static constexpr u32 BLOCKS = DIM / KV::BLOCK;
    // Fragments of the results of a wavefront.
    static constexpr u32 RESULTS = FRAGMENTS;
    // True if registers do not suffice for the rows of the next step.
    static constexpr bool SPARING = DIM > A::LONGEST_AHEAD, OVER_KEYS = true;
    // True if rows are copied to LDS without registers; true if the rows of the next step are loaded ahead into registers.
    // STAGES: places in LDS; with two, the next step is loaded into the other.
    static constexpr bool COPIED = A::COPIES && !IN_BLOCKS, AHEAD = !SPARING && !COPIED;
    static constexpr u32 STAGES = COPIED && !SPARING ? 2 : 1;
    // True if a preview of the mask is read one step ahead, and the mask is loaded only if the preview is not all zeros. (H100,
    // 512 tokens of a causal prompt over 4608 positions: 314 us without and 274 us with it with rows of 128, 122 and 103 us
    // with 64.)
    static constexpr bool LOOKS = STAGES == 2;
    // True if the careful pass has its own code. The plain pass is then a loop without branches, which the compiler schedules
    // better (on an H100 242 instead of 274 us, as above); otherwise fewer registers are needed (94 instead of 97 on gfx942,
    // 142 instead of 154 on gfx1201).
    static constexpr bool PASSES_APART = !DEVICE_AMD;
    // Groups of 16 keys whose products are computed together.
    static constexpr u32 AT_ONCE = SPARING && IN_BLOCKS ? 1 : KEYS, SEEN_AT_ONCE = KEYS;
    typedef MatrixShared<MatrixKernel> Shared;
    typedef RowsOfStep<KV, DIM, THREADS, A::PIECE, false> Keys;
    typedef RowsOfStep<KV, DIM, THREADS, A::PIECE, A::VALUES_TURNED> Values;
    // Row of the work-group for row `r` of a lane; first column of a result.
    DEVICE u32 row(u32 r, u32 lane) { return MatrixGroup<A>::row(r, lane); }
    DEVICE u32 column(u32 c) { return c * 16; }
    // True in one lane for each row, which stores its statistics; barrier for the weights in LDS.
    DEVICE bool leads() { return A::leads(); }
    DEVICE void meet() { barrier(); }
};

// Query rows of a wavefront.
template <class K> struct QueriesOfWave {
    static constexpr u32 BRINGERS = K::THREADS / MATRIX_ROWS;
    typename K::Operand rounded[K::FRAGMENTS];
    // Inverse factors of the lane's rows.
    float inverse[K::A::ROWS];

    // Loads rows of length `length` with BRINGERS threads each.
    INLINED void bring(const float *row, u32 length, typename K::Shared *shared) {
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

// Adds the products of a block, multiplied by its scales.
template <class K>
DEVICE void add_block(const typename K::Shared *shared, const QueriesOfWave<K> &queries, u32 b, u32 first,
                      typename K::Sums *s) {
    typedef typename K::A A;
    typedef float Run __attribute__((ext_vector_type(A::RUN)));
    constexpr u32 OF_BLOCK = K::KV::BLOCK / 16;
    ONE_BY_ONE();
    typename K::Sums part[K::AT_ONCE];
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
        // Zeros known to the compiler would have registers of their own throughout.
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
// Computes the products of AT_ONCE groups of 16 keys of a step.
template <class K>
DEVICE void multiply_keys(const typename K::Shared *shared, const QueriesOfWave<K> &queries, u32 first, typename K::Sums *s) {
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) s[j] = 0.0f;
    if constexpr (K::IN_BLOCKS) {
        UNROLL for (u32 b = 0; b < K::BLOCKS; b++) add_block<K>(shared, queries, b, first, s);
    } else {
        UNROLL for (u32 f = 0; f < K::FRAGMENTS; f++) multiply_fragment<K>(shared->k, f, queries.rounded[f], first, s);
    }
}

// Rows of k and v of a work-group, which are loaded into LDS step by step.
template <class K> struct MatrixRows {
    const u8 *k, *v;
    u32 pitch[2], length[2], end;
    typename K::Keys keys;
    typename K::Values values;

    // Starts the loads of the first step, if rows are loaded ahead.
    INLINED void begin(u32 base, typename K::Shared *shared) {
        // No thread reads the previous contents of LDS any more.
        barrier();
        if (base >= end) return;
        if (K::AHEAD) load(base);
        if constexpr (K::STAGES == 2) copy(base, shared);
    }
    // Completes the loads of a step and starts those of the next, into `others` if there are two places. Has barriers of the
    // work-group.
    INLINED void bring(u32 base, typename K::Shared *now, typename K::Shared *others) {
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
    INLINED void copy(u32 base, typename K::Shared *to) {
        keys.template copy<typename K::A>(k, pitch[0], base, end, length[0], to->k);
        values.template copy<typename K::A>(v, pitch[1], base, end, length[1], to->v);
    }
    INLINED void load(u32 base) {
        keys.load_rows(k, pitch[0], base, end, length[0]);
        values.load_rows(v, pitch[1], base, end, length[1]);
    }
    INLINED void store(typename K::Shared *to) {
        if constexpr (K::IN_BLOCKS) {
            keys.store_wholes(to->k, to->scales);
            values.template store_sums<K::A::REST_EXPONENT>(to->v, to->v_rest);
        } else {
            keys.store(to->k);
            values.store(to->v);
        }
    }
};

// Computes the scores of a step. `bits` is its mask, which is unused if `clear`.
template <class K>
DEVICE void scores_of_step(const typename K::Shared *shared, u32 base, u32 end, const QueriesOfWave<K> &queries,
                           const ScoresOfWave<typename K::A> &to_score, const MaskOfRows<K> &mask,
                           const typename MaskOfRows<K>::Bits *bits, bool clear, bool careful, typename K::Sums *s) {
    typename K::Sums bias = 0.0f;
    UNROLL for (u32 j = 0; j < K::KEYS; j++) {
        if (j % K::AT_ONCE == 0) {
            multiply_keys<K>(shared, queries, j, s + j);
            // Otherwise the compiler moves the products after the tests of the mask and keeps all operands in registers.
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

// Processes the positions. `careful`: tests again which of them are hidden, whatever their scores and values are.
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
        // No `else`: the results of both branches would have registers of their own.
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
    AttentionWork<MATRIX_ROWS> work(p);
    const Heads &h = work.h;
    u32 splits = work.splits, row0 = work.row0, begin = work.begin, end = work.end;
    if (splits == 1) out += p.off[5];
    to_head<typename K::KV>(k, v, p, h);

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
    auto pass = [&] INLINED(bool careful) {
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
