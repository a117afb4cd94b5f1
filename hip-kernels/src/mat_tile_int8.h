// Products of quantised weights with many columns of activations in 8 bits: tiles of the result. The operands pass through LDS
// as bytes, a quarter of the space of F32. The method is that of mat_tile.h, with words of four adjacent elements along k
// instead of floats: a 16-byte read has 16 values.
//
// A step is 32 elements of k. Its products are summed as integers over GROUP elements, then scaled and added to F32 sums: for
// each 32 products 8 dot4 and 2 operations for the scales (4 if 16 adjacent elements have a factor of their own), instead of 32
// with F32. An offset of the weights takes one more operation, with the sum of the activations, which the loading threads store
// in LDS.
//
// No instruction converts the integers to floats. They start with the bits of BEGIN_OF_SUMS = 1.5 * 2^23, whose unit in the
// last place is 1, so the bits of a sum s represent BEGIN_OF_SUMS + s. This float times the factor of the weights, minus
// BEGIN_OF_SUMS times the factor, rounded once, is s times the factor. Factors have at most 19 bits, so the subtrahend is
// exact; it is stored next to the factor in LDS. The factors of MXFP4 are powers of two of any size and need a conversion.
//
// Without dot4, the words of LDS are pairs of 16 bits, and v_pk_mad_u16 multiplies and adds two pairs: 16 instructions for 32
// products. The sums of GROUP products must fit 16 bits, which those of Q8_0 do not.
#pragma once
#include "int8.h"
#include "mat_tile.h"
#include "mat_vec_int8.h"

// The float whose bits are the initial value of sums, and these bits.
#define BEGIN_OF_SUMS 12582912.0f
#define FIRST_OF_SUMS 0x4b400000u

// True if a factor may be as large as a float; otherwise it is a number of 19 bits.
template <class W> constexpr bool ANY_FACTOR = false;
template <> constexpr bool ANY_FACTOR<WeightMXFP4> = true;

// Four adjacent elements in a word.
struct Quads {
    static constexpr u32 NEIGHBOURS = 4, OF_FOUR = 1;
    DEVICE u32 step(u32 a, u32 b, u32 sum) { return (u32)dot4(a, b, (i32)sum); }
    DEVICE i32 total(u32 sum) { return (i32)sum; }
    // Returns word `i` of four weights and of four activations, given as bytes.
    template <class W> DEVICE u32 weights(u32 q, u32) { return unbiased<W>(q); }
    DEVICE u32 activations(u32 q, u32) { return q; }
};

// Two words for four elements: bytes 0 and 2, then 1 and 3.
struct Pairs {
    static constexpr u32 NEIGHBOURS = 2, OF_FOUR = 2;
    DEVICE u16x2 pair(u32 x) { return __builtin_bit_cast(u16x2, x); }
    DEVICE u32 word(u16x2 x) { return __builtin_bit_cast(u32, x); }
    DEVICE u32 step(u32 a, u32 b, u32 sum) { return word((u16x2)(pair(a) * pair(b) + pair(sum))); }
    DEVICE i32 total(u32 sum) { return (i32)(i16)sum + ((i32)sum >> 16); }
    template <class W> DEVICE u32 weights(u32 q, u32 i) {
        static_assert(W::MOST * 127 * W::GROUP / 2 < 32768, "sums fit 16 bits");
        if constexpr (W::SIGNED) return activations(q, i);
        return word((u16x2)(pair(q >> (8 * i) & 0x00ff00ffu) - (u16)W::BIAS));
    }
    DEVICE u32 activations(u32 q, u32 i) {
        i16x2 x = __builtin_bit_cast(i16x2, i == 0 ? q << 8 : q);
        return __builtin_bit_cast(u32, (i16x2)(x >> (i16)8));
    }
};

template <class W, class FORM, int BM_, int BN_, int TM_, int TN_> struct TileInt8 : TileParts<BM_, BN_, 32, TM_, TN_> {
    typedef TileParts<BM_, BN_, 32, TM_, TN_> Parts;
    using Parts::BK;
    using Parts::BM;
    using Parts::BN;
    using Parts::TM;
    using Parts::TN;
    // Two threads load a row or a column, sixteen adjacent elements each. If a tile has as many columns as rows, half of the
    // wavefronts load the rows and the others the columns; otherwise some load both.
    static constexpr u32 EACH = 16, SHARERS = BK / EACH;
    static constexpr bool APART = BM == BN;
    static_assert(Parts::THREADS == (APART ? BM + BN : BM) * SHARERS && BN <= BM && BN * SHARERS % WAVE == 0, "a load each");
    // Words of a row in a step, and of the elements that a thread loads.
    static constexpr u32 WORDS = BK / FORM::NEIGHBOURS, OF_EACH = EACH / FORM::NEIGHBOURS;
    // The words that a thread loads are followed by a gap of this many words in LDS, which puts threads that share a row on
    // different banks.
    static constexpr u32 GAP = 32 / SHARERS, GROUPS = BK / W::GROUP;
    static constexpr u32 A_LOADS = 1, B_LOADS = 1;
    // A thread's part while loading (TileParts); true if its wavefront loads rows, or columns.
    DEVICE u32 row(u32 = 0) { return thread_id() / SHARERS % BM; }
    DEVICE u32 k() { return thread_id() % SHARERS * EACH; }
    u32 wave = wave_id();
    INLINED bool has_row() const { return !APART || wave < BM * SHARERS / WAVE; }
    INLINED bool has_column() const {
        return APART ? !has_row() : wave < BN * SHARERS / WAVE;
    }
    // True if the integers start with the bits of a float.
    static constexpr bool AS_FLOATS = FORM::NEIGHBOURS == 4 && !ANY_FACTOR<W>;
    static constexpr u32 FIRST = AS_FLOATS ? FIRST_OF_SUMS : 0;
    static_assert(W::MOST * 127 * W::GROUP < 1 << 22, "sums keep the unit 1");

    struct Shared {
        __attribute__((aligned(16))) u32 a[WORDS * BM + SHARERS * GAP];
        __attribute__((aligned(16))) u32 b[WORDS * BN + SHARERS * GAP];
        __attribute__((aligned(16))) float a_factor[GROUPS][BM];
        // -BEGIN_OF_SUMS times the factor.
        __attribute__((aligned(16))) float a_begin[AS_FLOATS ? GROUPS : 1][AS_FLOATS ? BM : 4];
        __attribute__((aligned(16))) float b_scale[BN];
        // For weights with an offset: the offset, and the sums of activations.
        __attribute__((aligned(16))) float a_offset[W::OFFSET ? GROUPS : 1][W::OFFSET ? BM : 4];
        __attribute__((aligned(16))) float b_sum[W::OFFSET ? GROUPS : 1][W::OFFSET ? BN : 4];
    };

    static constexpr u32 STEPS_IN_LDS = 1;
    typedef float Sums[TM][TN];

    const u8 *a[1];
    ColumnInt8<InMemory> b[1];
    typename W::template Raws<EACH> next_a;
    ColumnInt8<InMemory>::Raw<EACH> next_b;

    static INLINED u32 line(u32 word, u32 width) {
        return word * width + word / OF_EACH * GAP;
    }

    // Issues the loads of elements base + k .. base + k + EACH; `base` is the same for all threads.
    INLINED void load(u32 base, u32 k, u32) {
        u64 skip = (u64)(base / W::BLOCK) * W::BYTES;
        if (has_row()) next_a = W::template fetch<EACH>(a[0] + skip, base % W::BLOCK + k);
        if (has_column()) next_b = b[0].template fetch<EACH>(base, k);
    }

    // Stores the loaded values in LDS; `row` and `k` are this thread's part.
    INLINED void store(Shared *shared, u32 row, u32 k) {
        if (has_row()) {
            u32 at = line(k / FORM::NEIGHBOURS, BM) + row;
            Bytes<EACH> q = W::bytes(next_a);
            UNROLL for (u32 w = 0; w < OF_EACH; w++) {
                shared->a[at + w * BM] = FORM::template weights<W>(q[w / FORM::OF_FOUR], w % FORM::OF_FOUR);
            }
            if (k % W::GROUP == 0) {
                float factor = W::factor(next_a);
                shared->a_factor[k / W::GROUP][row] = factor;
                if constexpr (AS_FLOATS) shared->a_begin[k / W::GROUP][row] = factor * -BEGIN_OF_SUMS;
                if constexpr (W::OFFSET) shared->a_offset[k / W::GROUP][row] = W::offset(next_a);
            }
        }
        if (has_column()) {
            u32 at = line(k / FORM::NEIGHBOURS, BN) + row;
            UNROLL for (u32 w = 0; w < OF_EACH; w++) {
                shared->b[at + w * BN] = FORM::activations(next_b.q[w / FORM::OF_FOUR], w % FORM::OF_FOUR);
            }
            if (k == 0) shared->b_scale[row] = next_b.scale;
            if constexpr (W::OFFSET) {
                float sum = lanes_reduce<Sum, W::GROUP / EACH>(next_b.scale * (float)int8_sum<1>(next_b.q));
                if (k % W::GROUP == 0) shared->b_sum[k / W::GROUP][row] = sum;
            }
        }
    }

    DEVICE void clear(Sums &sum) {
        UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) sum[i][j] = 0.0f;
    }

    // Adds the products of a step; m0 and n0 are this thread's part.
    DEVICE void multiply(const Shared *shared, u32 m0, u32 n0, Sums &sum) {
        UNROLL for (u32 g = 0; g < GROUPS; g++) multiply_group(shared, g, m0, n0, sum);
    }

    // Adds the products of group `g` of a step. A thread's rows are TM / 4 groups of four, which are BM / (TM / 4) apart; the
    // same for columns.
    static constexpr u32 M_APART = BM * 4 / TM, N_APART = BN * 4 / TN;
    static INLINED void multiply_group(const Shared *shared, u32 g, u32 m0,
                                                                      u32 n0, Sums &sum) {
        // The reads of the next group, moved up to here, would take registers.
        ONE_BY_ONE();
        u32 whole[TM][TN];
        constexpr u32 COUNT = W::GROUP / FORM::NEIGHBOURS;
        UNROLL for (u32 w = 0; w < COUNT; w++) {
            u32 word = g * COUNT + w;
            lds_u32x4 x[TM / 4], y[TN / 4];
            const u32 *a = shared->a + line(word, BM) + m0, *b = shared->b + line(word, BN) + n0;
            UNROLL for (u32 i = 0; i < TM / 4; i++) x[i] = *(const lds_u32x4 *)(a + i * M_APART);
            UNROLL for (u32 i = 0; i < TN / 4; i++) y[i] = *(const lds_u32x4 *)(b + i * N_APART);
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                whole[i][j] = FORM::step(x[i / 4][i % 4], y[j / 4][j % 4], w == 0 ? FIRST : whole[i][j]);
            }
        }
        lds_f32x4 x[TM / 4], y[TN / 4];
        read_floats(shared->a_factor[g] + m0, shared->b_scale + n0, x, y);
        if constexpr (AS_FLOATS) {
            lds_f32x4 begin[TM / 4];
            UNROLL for (u32 i = 0; i < TM / 4; i++) begin[i] = *(const lds_f32x4 *)(shared->a_begin[g] + m0 + i * M_APART);
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                float scaled = fused(bits_f32(whole[i][j]), x[i / 4][i % 4], begin[i / 4][i % 4]);
                sum[i][j] = mad(scaled, y[j / 4][j % 4], sum[i][j]);
            }
        } else {
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                sum[i][j] = mad(x[i / 4][i % 4] * y[j / 4][j % 4], (float)FORM::total(whole[i][j]), sum[i][j]);
            }
        }
        if constexpr (W::OFFSET) {
            read_floats(shared->a_offset[g] + m0, shared->b_sum[g] + n0, x, y);
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                sum[i][j] = mad(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j]);
            }
        }
    }

    // Reads one number for each row and column of a thread.
    static INLINED void read_floats(const float *a, const float *b, lds_f32x4 *x,
                                                                   lds_f32x4 *y) {
        UNROLL for (u32 i = 0; i < TM / 4; i++) x[i] = *(const lds_f32x4 *)(a + i * M_APART);
        UNROLL for (u32 i = 0; i < TN / 4; i++) y[i] = *(const lds_f32x4 *)(b + i * N_APART);
    }
};

template <class W, class T>
DEVICE void mat_tile_int8(const u8 *a, const u8 *q, const float *scale, float *d, const MulMatParams &p,
                          typename T::Shared *shared) {
    Corner at = corner<T>(p);
    if (at.row >= p.m) return;
    T t;
    begin_rows<W>(t, a, p, at);
    UNROLL for (u32 i = 0; i < T::B_LOADS; i++) {
        u64 row = scratch_column(p, at.z, column<T>(p, at, i));
        t.b[i] = {q + row * p.k, scale + row * (p.k / 32)};
    }
    typename T::Sums sum;
    walk(t, p.k, shared, sum);
    store_tile<T>(d, p, at, sum);
}
