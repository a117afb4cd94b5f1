// Products of weights whose blocks have HeadK (Q4_K, Q5_K) with many columns of activations in 8 bits: the method of
// mat_tile_int8.h in steps of 64 elements; data of a block of 256 are brought to LDS once for the block.
//
//   * Sixteen bytes of nibbles are 16 elements of two groups of 32: a thread loads and decodes both. Addresses are a base that
//     is the same in all lanes, plus a 32-bit offset of the lane.
//   * One thread decodes the eight scales of a row and another its eight minima; 256 elements of k use them 32 times.
//   * Minima: for a block, the sum over its groups of minimum times sum of activations is subtracted from a product. The minima
//     have 6 bits; the sums have 14 and a scale that is common to the block's eight (quantize_int8_k stores it next to the
//     scales of the groups). So two groups are one exact v_dot2_i32_i16, and a block takes 6 operations for the minima instead
//     of 8, and half of the reads.
#pragma once
#include "mat_tile_int8.h"

// dot2(a, b, c): c + the sum of two products of signed 16 bits. One instruction (v_dot2_i32_i16) on targets that also have it
// for F32.
#if defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx1011__) || defined(__gfx1012__) || \
    defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1033__) || \
    defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
DEVICE i32 dot2(u32 a, u32 b, i32 c) {
    return __builtin_amdgcn_sdot2(__builtin_bit_cast(i16x2, a), __builtin_bit_cast(i16x2, b), c, false);
}
#else
DEVICE i32 dot2(u32 a, u32 b, i32 c) {
    return (i32)(i16)a * (i32)(i16)b + (((i32)a >> 16) * ((i32)b >> 16) + c);
}
#endif

// Data of a row in a step: 16 bytes of nibbles, which are elements of two groups 32 apart.
template <class W> struct NibblesK;
template <> struct NibblesK<WeightQ4_K> {
    Bytes<16> q;
    // `at`: offset in a row of the half that a lane takes; `step`: index of the 64 elements in the block.
    DEVICE NibblesK load(const u8 *block, u32 at, u32 step) {
        return {Words<16>::bytes<16>(block + 16 + step * 32 + offset_here(at))};
    }
    INLINED Bytes<16> group(u32 g, u32) const { return nibbles(q, g * 4); }
};
template <> struct NibblesK<WeightQ5_K> {
    Bytes<16> q, fifth;
    DEVICE NibblesK load(const u8 *block, u32 at, u32 step) {
        at = offset_here(at);
        return {Words<16>::bytes<16>(block + 48 + step * 32 + at), Words<16>::bytes<16>(block + 16 + at)};
    }
    INLINED Bytes<16> group(u32 g, u32 step) const {
        return nibbles(q, g * 4) | moved_bits<4, 1>(fifth, step * 2 + g);
    }
};

template <class W, int BM_, int BN_, int TM_, int TN_> struct TileInt8K : TileParts<BM_, BN_, 64, TM_, TN_> {
    typedef TileParts<BM_, BN_, 64, TM_, TN_> Parts;
    typedef float Sums[TM_][TN_];
    using Parts::BK;
    using Parts::BM;
    using Parts::BN;
    using Parts::THREADS;
    using Parts::TM;
    using Parts::TN;
    // Two threads load a row and four a column, four words of each group. Gaps after four words put them on different banks.
    static constexpr u32 A_FOUR = 4 * BM + 16, B_FOUR = 4 * BN + 8;
    static_assert(THREADS == BN * 4 && THREADS >= BM * 2 && BM % WAVE == 0, "threads load 16 bytes of each row and column");

    struct Shared {
        __attribute__((aligned(16))) u32 a[4 * A_FOUR];
        __attribute__((aligned(16))) u32 b[4 * B_FOUR];
        // For each group the factors, then -BEGIN_OF_SUMS times them.
        __attribute__((aligned(16))) float a_factor[8][2][BM];
        // Minima of two groups in a word; their negated scale, then BEGIN_OF_SUMS times it.
        __attribute__((aligned(16))) u32 a_minima[4][BM];
        __attribute__((aligned(16))) float a_minimum[2][BM];
        // RoundedK, one of its words in each line.
        __attribute__((aligned(16))) u32 b_block[4 * B_FOUR];
    };

    // The first row of the tile and the first of all columns, the same in all lanes; offsets of the lane.
    const u8 *a, *b, *blocks;
    u32 a_at, a_head, b_at, b_block;
    NibblesK<W> next_a;
    u32x4 next_head, next_b, next_block;
    // Roles of the wavefronts: those that load rows, and those that decode the scales (0) and the minima (1) of a block's head.
    u32 wave = wave_id();
    INLINED bool has_row() const { return THREADS == BM * 2 || wave < BM * 2 / WAVE; }
    INLINED u32 part() const { return wave / (BM / WAVE); }

    // `last`: the last row, counted from `first`; `stride`: distance of rows in bytes.
    INLINED void rows(const u8 *first, u32 stride, u32 last) {
        a = first;
        a_at = minimum(thread_id() / 2 % BM, last) * stride + thread_id() % 2 * 16;
        a_head = minimum(thread_id() % BM, last) * stride;
    }
    // Column of the tile that this thread loads, and its row of rounded activations, counted from `first`.
    DEVICE u32 column() { return thread_id() / 4; }
    INLINED void columns(const u8 *q, const float *of_blocks, u64 first, u32 row, u32 k) {
        b = q + first * k;
        blocks = (const u8 *)of_blocks + first * (k / 4);
        b_at = row * k + thread_id() % 4 * 16;
        b_block = row * (k / 4) + thread_id() % 4 * 16;
    }

    INLINED void load(u32 base) {
        const u8 *block = a + (u64)(base / 256) * W::BYTES;
        if (has_row()) next_a = NibblesK<W>::load(block, a_at, base / 64 % 4);
        next_b = Words<16>::bytes<16>(b + base + offset_here(b_at));
        if (base % 256 == 0) {
            if (has_row()) next_head = Words<16>::bytes<16>(block + offset_here(a_head));
            next_block = Words<16>::bytes<16>(blocks + base / 4 + offset_here(b_block));
        }
    }

    // Stores the loaded values in LDS.
    INLINED void store(Shared *shared, u32 base) const {
        u32 thread = thread_id(), of_a = thread % 2 * A_FOUR + thread / 2, of_b = thread % 4 * B_FOUR + thread / 4;
        UNROLL for (u32 w = 0; w < 4; w++) shared->b[of_b + w * BN] = next_b[w];
        if (has_row()) {
            UNROLL for (u32 g = 0; g < 2; g++) {
                Bytes<16> q = next_a.group(g, base / 64 % 4);
                UNROLL for (u32 w = 0; w < 4; w++) shared->a[of_a + g * 2 * A_FOUR + w * BM] = q[w];
            }
        }
        if (base % 256 == 0) {
            UNROLL for (u32 w = 0; w < 4; w++) shared->b_block[of_b + w * BN] = next_block[w];
            if (part() == 0) store_scales(shared, thread % BM);
            if (part() == 1) store_minima(shared, thread % BM);
        }
    }
    INLINED void store_scales(Shared *shared, u32 row) const {
        u32x4 word = next_head;
        float scale = f16_to_f32((u16)word[0]);
        u32 scales[2] = {word[1] & 0x3f3f3f3fu, (word[3] & 0x0f0f0f0fu) | (word[1] >> 2 & 0x30303030u)};
        UNROLL for (u32 g = 0; g < 8; g++) {
            float factor = scale * u8_to_f32(as_it_is(scales[g / 4]), g % 4);
            shared->a_factor[g][0][row] = factor;
            shared->a_factor[g][1][row] = factor * -BEGIN_OF_SUMS;
        }
    }
    INLINED void store_minima(Shared *shared, u32 row) const {
        u32x4 word = next_head;
        float scale = f16_to_f32((u16)(word[0] >> 16));
        u32 minima[2] = {word[2] & 0x3f3f3f3fu, (word[3] >> 4 & 0x0f0f0f0fu) | (word[2] >> 2 & 0x30303030u)};
        UNROLL for (u32 i = 0; i < 4; i++) {
            shared->a_minima[i][row] = pick_bytes(minima[i / 2], 0, i % 2 ? 0x04030402u : 0x04010400u);
        }
        shared->a_minimum[0][row] = -scale;
        shared->a_minimum[1][row] = scale * BEGIN_OF_SUMS;
    }

    // A thread's rows are TM / 4 groups of four, which are BM / (TM / 4) apart; the same for columns.
    template <class V, class T> DEVICE void read_rows(const T *a, V *x) {
        UNROLL for (u32 i = 0; i < TM / 4; i++) x[i] = *(const V *)(a + i * (BM * 4 / TM));
    }
    template <class V, class T> DEVICE void read_columns(const T *b, V *y) {
        UNROLL for (u32 i = 0; i < TN / 4; i++) y[i] = *(const V *)(b + i * (BN * 4 / TN));
    }

    // Adds scaled sums that started with BEGIN_OF_SUMS: `x` are the factors of rows, `begin` is -BEGIN_OF_SUMS times them.
    DEVICE void add(const u32 (*whole)[TN], const lds_f32x4 *x, const lds_f32x4 *begin, const lds_f32x4 *y, Sums &sum) {
        UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
            float scaled = fused(bits_f32(whole[i][j]), x[i / 4][i % 4], begin[i / 4][i % 4]);
            sum[i][j] = mad(scaled, y[j / 4][j % 4], sum[i][j]);
        }
    }

    // Computes the products of step number `step` of a block.
    DEVICE void multiply(const Shared *shared, u32 step, u32 m0, u32 n0, Sums &sum) {
        const float *factors = shared->a_factor[step * 2][0] + m0;
        const u32 *scales = shared->b_block + step / 2 * B_FOUR + step % 2 * 2 * BN + n0;
        UNROLL for (u32 g = 0; g < 2; g++) {
            // The reads of the next group, moved up to here, would take registers.
            ONE_BY_ONE();
            u32 whole[TM][TN];
            UNROLL for (u32 w = 0; w < 8; w++) {
                u32 four = g * 2 + w / 4;
                lds_u32x4 x[TM / 4], y[TN / 4];
                read_rows(shared->a + four * A_FOUR + w % 4 * BM + m0, x);
                read_columns(shared->b + four * B_FOUR + w % 4 * BN + n0, y);
                UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                    i32 before = w == 0 ? (i32)FIRST_OF_SUMS : (i32)whole[i][j];
                    whole[i][j] = (u32)dot4(x[i / 4][i % 4], y[j / 4][j % 4], before);
                }
            }
            lds_f32x4 x[TM / 4], begin[TM / 4], y[TN / 4];
            read_rows(factors + g * 2 * BM, x);
            read_rows(factors + (g * 2 + 1) * BM, begin);
            read_columns((const float *)scales + g * BN, y);
            add(whole, x, begin, y, sum);
        }
    }

    // Subtracts the contribution of a block's minima from its products.
    DEVICE void minima(const Shared *shared, u32 m0, u32 n0, Sums &sum) {
        ONE_BY_ONE();
        u32 whole[TM][TN];
        UNROLL for (u32 w = 0; w < 4; w++) {
            lds_u32x4 x[TM / 4], y[TN / 4];
            read_rows(shared->a_minima[w] + m0, x);
            read_columns(shared->b_block + 2 * B_FOUR + w * BN + n0, y);
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                i32 before = w == 0 ? (i32)FIRST_OF_SUMS : (i32)whole[i][j];
                whole[i][j] = (u32)dot2(x[i / 4][i % 4], y[j / 4][j % 4], before);
            }
        }
        lds_f32x4 x[TM / 4], begin[TM / 4], y[TN / 4];
        read_rows(shared->a_minimum[0] + m0, x);
        read_rows(shared->a_minimum[1] + m0, begin);
        read_columns((const float *)shared->b_block + 3 * B_FOUR + n0, y);
        add(whole, x, begin, y, sum);
    }

    // All steps along k. While one is multiplied, the loads of the next are in flight.
    INLINED void walk(u32 end, Shared *shared, Sums &sum) {
        u32 m0 = Parts::m0(), n0 = Parts::n0();
        UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) sum[i][j] = 0.0f;
        load(0);
        NO_UNROLL for (u32 base = 0; base < end; base += BK) {
            store(shared, base);
            barrier();
            if (base + BK < end) load(base + BK);
            if (base % 256 == 0) minima(shared, m0, n0, sum);
            multiply(shared, base / BK % 4, m0, n0, sum);
            barrier();
        }
    }
};

// Like mat_tile_int8; `blocks`: RoundedK of all columns.
template <class W, class T>
DEVICE void mat_tile_int8_k(const u8 *a, const u8 *q, const float *blocks, float *d, const MulMatParams &p,
                            typename T::Shared *shared) {
    Corner at = corner<T>(p);
    if (at.row >= p.m) return;
    T t;
    t.rows(a + row_offset(p.off0, p.nb0, at.row, at.z.a2, at.z.a3) * W::BYTES, p.nb0[0] * W::BYTES, p.m - 1 - at.row);
    t.columns(q, blocks, scratch_column(p, at.z, at.col), minimum(T::column(), p.n - 1 - at.col), p.k);
    typename T::Sums sum;
    t.walk(p.k, shared, sum);
    store_tile<T>(d, p, at, sum);
}
