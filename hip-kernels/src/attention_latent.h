// FLASH_ATTN_EXT for many query rows and rows of up to 576 elements of k and 512 of v (latent attention: attention_long.h) on
// matrix units, with k and v in F16. The computations of a wavefront are in attention_wave.h, as for attention_matrix.h.
//
// The registers of a wavefront cannot hold such a row. The four wavefronts of a work-group share 16 query rows, and each has a
// part of the elements. The positions are processed 32 at a time.
//
//   * Of each 192 elements of k, each wavefront has 48. It keeps the same elements of the queries in its registers and sums
//     their contributions to the scores. These sums pass through LDS; each wavefront then adds all four in the same order, so
//     all have the same scores, maxima, sums and weights without further communication.
//   * Of each 256 columns of v, each wavefront has 64, whose results stay in its registers.
//   * k and v pass through LDS, one part of a piece at a time, in memory that only this wavefront uses: it waits for no other.
//     The work-group has two barriers in a step, for the scores. Registers have no room for the next piece: while one is
//     loaded, other wavefronts compute.
//
// LDS: for each wavefront 4 KiB (a piece of k or of v, or its sums) and 1 KiB of weights (used where v has an infinity or a
// NaN): 20 KiB.
#pragma once
#include "attention_wave.h"

#define LATENT_ROWS 16u

template <class K> struct LatentShared {
    __attribute__((aligned(16))) u16 part[MATRIX_WAVES][K::PART];
    // Private to each wavefront. Before the first step: a value for each row of the queries, and which positions are visible.
    union {
        float weights[MATRIX_WAVES][LATENT_ROWS][16];
        float of_row[LATENT_ROWS];
        float seen[2][K::THREADS / WAVE];
    };
    INLINED const u16 *values() const { return part[K::wave()]; }
    INLINED float &weight(u32 row, u32 key) { return weights[K::wave()][row][key]; }
};

template <class A_, class KV_> struct LatentKernel : MatrixTiles {
    typedef A_ A;
    typedef KV_ KV;
    typedef typename A::Operand Operand;
    typedef typename A::Sums Sums;
    static constexpr u32 THREADS = MatrixGroup<A>::THREADS, AT_ONCE = KEYS, SEEN_AT_ONCE = 1;
    // Pieces of a row of k and of v, the elements of each that a wavefront has, and its fragments in a piece and in total.
    static constexpr u32 KEY_PIECES = 3, OF_KEY = 48, KEY_FRAGMENTS = OF_KEY / 16, FRAGMENTS = KEY_PIECES * KEY_FRAGMENTS;
    static constexpr u32 OF_VALUE = A::LATENT_VALUES, VALUE_PIECES = 512 / (MATRIX_WAVES * OF_VALUE);
    static constexpr u32 VALUE_FRAGMENTS = OF_VALUE / 16, RESULTS = VALUE_PIECES * VALUE_FRAGMENTS;
    static constexpr bool IN_BLOCKS = KV::BLOCK > 1, SPARING = true, OVER_KEYS = false, LOOKS = false;
    // Size of a wavefront's part of LDS in halves.
    static constexpr u32 PART = MATRIX_POSITIONS * 64;
    static_assert(!IN_BLOCKS, "of blocks v would have rests, and k scales");
    typedef LatentShared<LatentKernel> Shared;
    typedef RowsOfStep<KV, OF_KEY, A::LANES, A::PIECE, false> Keys;
    typedef RowsOfStep<KV, OF_VALUE, A::LANES, A::PIECE, A::VALUES_TURNED> Values;
    DEVICE u32 wave() { return MatrixGroup<A>::wave(); }
    DEVICE u32 row(u32 r, u32 lane) { return A::row_of_wave(r, lane); }
    DEVICE u32 column(u32 c) {
        return c / VALUE_FRAGMENTS * (MATRIX_WAVES * OF_VALUE) + wave() * OF_VALUE + c % VALUE_FRAGMENTS * 16;
    }
    DEVICE bool leads() { return A::leads() && wave() == 0; }
    DEVICE void meet() { wave_barrier(); }
};

// Elements of the work-group's query rows that a wavefront has.
template <class K> struct LatentQueries {
    static constexpr u32 BRINGERS = K::THREADS / LATENT_ROWS, EIGHTS = K::OF_KEY / 8;
    typename K::Operand rounded[K::FRAGMENTS];
    // Inverse factors of the lane's rows.
    float inverse[K::A::ROWS];

    // Loads rows of length `length` with BRINGERS threads each, a piece at a time; each wavefront takes its elements.
    INLINED void bring(const float *row, u32 length, typename K::Shared *shared) {
        float factor = factor_of_query<BRINGERS>(row, length);
        shared->of_row[thread_id() / BRINGERS] = inverse_power(factor);
        UNROLL for (u32 piece = 0; piece < K::KEY_PIECES; piece++) {
            for (u32 e = thread_id() % BRINGERS; e < MATRIX_WAVES * EIGHTS; e += BRINGERS) {
                u32 first = piece * (MATRIX_WAVES * K::OF_KEY) + e * 8;
                *place(shared->part[e / EIGHTS], e % EIGHTS) = eight_of_query(row, first, length, factor);
            }
            barrier();
            take(piece, shared);
            barrier();
        }
    }
    // Place of group `e` of eight elements of this thread's row.
    DEVICE lds_u32x4 *place(u16 *tiles, u32 e) {
        u16 *tile = tiles + e * 8 / TILE_K * (LATENT_ROWS * TILE_K);
        return (lds_u32x4 *)(tile + eight_at(thread_id() / BRINGERS, e * 8 % TILE_K / 8));
    }
    INLINED void take(u32 piece, const typename K::Shared *shared) {
        const u16 *part = shared->part[K::wave()];
        UNROLL for (u32 f = 0; f < K::KEY_FRAGMENTS; f++) {
            rounded[piece * K::KEY_FRAGMENTS + f] = K::A::queries(part + K::tile(f, LATENT_ROWS), 0, K::in_tile(f));
        }
        if (piece > 0) return;
        u32 lane = MatrixGroup<typename K::A>::lane();
        UNROLL for (u32 r = 0; r < K::A::ROWS; r++) inverse[r] = shared->of_row[K::row(r, lane)];
    }
};

// Adds the sums of all wavefronts; each gets all results. Lanes with the same index have the same values.
template <class K> DEVICE void add_parts(typename K::Shared *shared, typename K::Sums *s) {
    typedef typename K::A A;
    u32 lane = MatrixGroup<A>::lane();
    UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 i = 0; i < A::SUMS; i += 4) {
        auto to = (lds_f32x4 *)shared->part[K::wave()] + (j * A::SUMS + i) / 4 * A::LANES + lane;
        *to = (lds_f32x4){s[j][i], s[j][i + 1], s[j][i + 2], s[j][i + 3]};
    }
    barrier();
    UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 i = 0; i < A::SUMS; i += 4) {
        lds_f32x4 all = 0.0f;
        UNROLL for (u32 w = 0; w < MATRIX_WAVES; w++) {
            all += ((const lds_f32x4 *)shared->part[w])[(j * A::SUMS + i) / 4 * A::LANES + lane];
        }
        UNROLL for (u32 e = 0; e < 4; e++) s[j][i + e] = all[e];
    }
    // Afterwards v overwrites them.
    barrier();
}

// Rows of k and v of a work-group. A wavefront stores its part of a piece in LDS; for v it learns whether there is an infinity
// or a NaN.
template <class K> struct LatentRows {
    const u8 *k, *v;
    u32 pitch[2], length[2], end;
    INLINED void put_keys(u32 piece, u32 base, u16 *part) const {
        typename K::Keys keys;
        load<K::OF_KEY>(keys, k, 0, base, piece);
        keys.store(part);
    }
    INLINED bool put_values(u32 piece, u32 base, u16 *part) const {
        typename K::Values values;
        load<K::OF_VALUE>(values, v, 1, base, piece);
        return values.store(part);
    }
    // Most rows have the maximum length and need no check at each load.
    template <u32 OF_WAVE, class ROWS>
    INLINED void load(ROWS &into, const u8 *from, u32 which, u32 base, u32 piece) const {
        u32 first = (piece * MATRIX_WAVES + K::wave()) * OF_WAVE;
        if (first + OF_WAVE <= length[which]) {
            into.template load<false>(from, pitch[which], base, end, 0, first);
        } else {
            into.template load<true>(from, pitch[which], base, end, length[which], first);
        }
    }
};

// Computes the products of a step's keys, summed over all wavefronts.
template <class K>
DEVICE void multiply_pieces(const LatentRows<K> &rows, u32 base, const LatentQueries<K> &queries, typename K::Shared *shared,
                            typename K::Sums *s) {
    u16 *part = shared->part[K::wave()];
    UNROLL for (u32 j = 0; j < K::KEYS; j++) s[j] = 0.0f;
    UNROLL for (u32 piece = 0; piece < K::KEY_PIECES; piece++) {
        rows.put_keys(piece, base, part);
        wave_barrier();
        UNROLL for (u32 f = 0; f < K::KEY_FRAGMENTS; f++) {
            multiply_fragment<K>(part, f, queries.rounded[piece * K::KEY_FRAGMENTS + f], 0, s);
        }
        // Otherwise the compiler moves products after those of the next pieces and keeps all operands in registers.
        UNROLL for (u32 j = 0; j < K::KEYS; j++) sums_here(s[j]);
        wave_barrier();
    }
    add_parts<K>(shared, s);
}

// Adds the products of a step's weights with piece PIECE of v and the following pieces.
template <class K, u32 PIECE = 0>
DEVICE void add_pieces(const LatentRows<K> &rows, u32 base, const typename K::Sums *s, typename K::Shared *shared,
                       AttentionOfWave<K> &a) {
    constexpr u32 COUNT = K::VALUE_FRAGMENTS, FIRST = PIECE * COUNT;
    bool special = !in_all_lanes(!rows.put_values(PIECE, base, shared->part[K::wave()]));
    wave_barrier();
    // No `else`: the results of both branches would have registers of their own.
    if (special) a.template add_values_seen<FIRST, COUNT>(s, shared);
    if (!unknown(special)) a.template add_values<FIRST, COUNT>(s, shared);
    wave_barrier();
    if constexpr (PIECE + 1 < K::VALUE_PIECES) add_pieces<K, PIECE + 1>(rows, base, s, shared, a);
}

template <class K>
DEVICE void attention_latent(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out,
                             float *stats, const FlashAttnPieces &p, typename K::Shared *shared) {
    typedef typename K::A A;
    AttentionWork<LATENT_ROWS> work(p);
    const Heads &h = work.h;
    u32 splits = work.splits, row0 = work.row0, begin = work.begin, end = work.end;
    if (splits == 1) out += p.off[5];
    to_head<typename K::KV>(k, v, p, h);

    AttentionOfWave<K> a;
    a.begin(p, h, sinks, row0, begin == 0);
    LatentQueries<K> queries;
    u32 brought = row0 + thread_id() / LatentQueries<K>::BRINGERS;
    queries.bring(q + query_offset(p, h, query(h, brought)), p.d[0], shared);
    ScoresOfWave<A> to_score;
    to_score.begin(p, queries.inverse);
    skip_hidden<K::THREADS, LATENT_ROWS>(mask, p, h, row0, begin, end, shared->seen);

    MaskOfRows<K> masks;
    masks.begin(mask, p, h, row0);
    LatentRows<K> rows = {k, v, {p.nbk[0], p.nbv[0]}, {p.d[0], p.d[1]}, end};
    NO_UNROLL for (u32 base = begin; base < end; base += MATRIX_POSITIONS) {
        typename K::Sums s[K::KEYS];
        multiply_pieces<K>(rows, base, queries, shared, s);
        UNROLL for (u32 j = 0; j < K::KEYS; j++) {
            typename MaskOfRows<K>::Bits bits = {};
            typename K::Sums bias;
            masks.load(base + j * 16, end, bits);
            masks.numbers(base + j * 16, end, bits, bias);
            to_score.of(s[j], bias);
            to_score.hide(s[j], bias);
            // Only the mask of 16 positions is in registers at a time.
            sums_here(s[j]);
        }
        a.rescale(s);
        a.template weigh<true>(s);
        add_pieces<K>(rows, base, s, shared, a);
    }
    a.store(p, h, row0, splits, out, stats);
}
