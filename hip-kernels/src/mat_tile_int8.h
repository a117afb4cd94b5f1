// Products of quantised weights with many columns of activations in 8 bits: tiles of the result, the operands through
// LDS as bytes, a quarter of what F32 takes there. The scheme is that of mat_tile.h, with words of four neighbours
// along k in the place of floats: a 16-byte read brings 16 values.
//
// A step is 32 elements of k. Its products are summed in whole numbers over GROUP elements, then scaled and added to
// F32 sums: for each 32 products 8 dot4 and 3 operations for the scales (6 where 16 neighbours have a factor of their
// own), where F32 takes 32. The offset of weights that have one takes one more, with the sum of the activations, which
// the threads that load them put into LDS.
//
// Without dot4 the words of LDS are pairs of 16 bits, and v_pk_mad_u16 multiplies and adds two pairs of them: 16 for 32
// products. The sums of GROUP products have to fit 16 bits, which those of Q8_0 do not.
#pragma once
#include "int8.h"
#include "mat_tile.h"
#include "mat_vec_int8.h"

// Four neighbours in a word.
struct Quads {
    static constexpr u32 NEIGHBOURS = 4;
    DEVICE u32 step(u32 a, u32 b, u32 sum) { return (u32)dot4(a, b, (i32)sum); }
    DEVICE i32 total(u32 sum) { return (i32)sum; }
    // Word `i` of four weights and of four activations, given as bytes.
    template <class W> DEVICE u32 weights(u32 q, u32) { return unbiased<W>(q); }
    DEVICE u32 activations(u32 q, u32) { return q; }
};

// Two of them: bytes 0 and 2, then 1 and 3.
struct Pairs {
    static constexpr u32 NEIGHBOURS = 2;
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
    using Parts::EIGHTS;
    using Parts::ROWS;
    using Parts::TM;
    using Parts::TN;
    // Words of a row and step, and of an eight.
    static constexpr u32 WORDS = BK / FORM::NEIGHBOURS, EIGHT = 8 / FORM::NEIGHBOURS;
    // Four threads hold 32 neighbours while loading; each eight is followed by a gap of so many words in LDS, which
    // puts these threads on different banks.
    static constexpr u32 GAP = 8, GROUPS = BK / W::GROUP;
    static constexpr u32 A_LOADS = BM / ROWS, B_LOADS = (BN + ROWS - 1) / ROWS;
    static_assert(BM % ROWS == 0 && (BN % ROWS == 0 || BN < ROWS), "threads load whole eights");

    struct Shared {
        __attribute__((aligned(16))) u32 a[WORDS * BM + EIGHTS * GAP];
        __attribute__((aligned(16))) u32 b[WORDS * BN + EIGHTS * GAP];
        __attribute__((aligned(16))) float a_factor[GROUPS][BM];
        __attribute__((aligned(16))) float b_scale[BN];
        // Where weights have an offset: it, and the sums of activations.
        __attribute__((aligned(16))) float a_offset[W::OFFSET ? GROUPS : 1][W::OFFSET ? BM : 4];
        __attribute__((aligned(16))) float b_sum[W::OFFSET ? GROUPS : 1][W::OFFSET ? BN : 4];
    };

    static constexpr u32 STEPS_IN_LDS = 1;
    typedef float Sums[TM][TN];

    const u8 *a[A_LOADS];
    ColumnInt8<InMemory> b[B_LOADS];
    typename W::Raw next_a[A_LOADS];
    ColumnInt8<InMemory>::Raw<8> next_b[B_LOADS];

    static __attribute__((device, always_inline)) u32 line(u32 word, u32 width) {
        return word * width + word / EIGHT * GAP;
    }

    // Issues the loads of elements base + k .. base + k + 8; `base` is the same for all threads.
    __attribute__((device, always_inline)) void load(u32 base, u32 k, u32) {
        u64 skip = (u64)(base / W::BLOCK) * W::BYTES;
        UNROLL for (u32 i = 0; i < A_LOADS; i++) next_a[i] = W::fetch(a[i] + skip, base % W::BLOCK + k);
        UNROLL for (u32 i = 0; i < B_LOADS; i++) next_b[i] = b[i].template fetch<8>(base, k);
    }

    // Puts what was loaded into LDS; `row` and `k` are this thread's part.
    __attribute__((device, always_inline)) void store(Shared *shared, u32 row, u32 k) {
        u32 at = line(k / 8 * EIGHT, BM) + row;
        UNROLL for (u32 i = 0; i < A_LOADS; i++) {
            u32x2 q = W::bytes(next_a[i]);
            UNROLL for (u32 w = 0; w < EIGHT; w++) {
                u32 word = FORM::template weights<W>(q[w / (EIGHT / 2)], w % (EIGHT / 2));
                shared->a[at + w * BM + i * ROWS] = word;
            }
            if (k % W::GROUP == 0) {
                shared->a_factor[k / W::GROUP][row + i * ROWS] = W::factor(next_a[i]);
                if constexpr (W::OFFSET) shared->a_offset[k / W::GROUP][row + i * ROWS] = W::offset(next_a[i]);
            }
        }
        if (BN < ROWS && row >= BN) return;
        at = line(k / 8 * EIGHT, BN) + row;
        UNROLL for (u32 i = 0; i < B_LOADS; i++) {
            UNROLL for (u32 w = 0; w < EIGHT; w++) {
                u32 q = next_b[i].q[w / (EIGHT / 2)];
                shared->b[at + w * BN + i * ROWS] = FORM::activations(q, w % (EIGHT / 2));
            }
            if (k == 0) shared->b_scale[row + i * ROWS] = next_b[i].scale;
            if constexpr (W::OFFSET) {
                float sum = lanes_reduce<Sum, W::GROUP / 8>(next_b[i].scale * (float)int8_sum<1>(next_b[i].q));
                if (k % W::GROUP == 0) shared->b_sum[k / W::GROUP][row + i * ROWS] = sum;
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

    // Adds the products of group `g` of a step. A thread's rows are TM / 4 runs of four, BM / (TM / 4) apart; the same
    // for columns.
    static constexpr u32 M_APART = BM * 4 / TM, N_APART = BN * 4 / TN;
    static __attribute__((device, always_inline)) void multiply_group(const Shared *shared, u32 g, u32 m0,
                                                                      u32 n0, Sums &sum) {
        // The reads of the next group, moved up to here, would take the registers.
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
                whole[i][j] = FORM::step(x[i / 4][i % 4], y[j / 4][j % 4], w == 0 ? 0 : whole[i][j]);
            }
        }
        lds_f32x4 x[TM / 4], y[TN / 4];
        read_floats(shared->a_factor[g] + m0, shared->b_scale + n0, x, y);
        UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
            sum[i][j] = mad(x[i / 4][i % 4] * y[j / 4][j % 4], (float)FORM::total(whole[i][j]), sum[i][j]);
        }
        if constexpr (W::OFFSET) {
            read_floats(shared->a_offset[g] + m0, shared->b_sum[g] + n0, x, y);
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                sum[i][j] = mad(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j]);
            }
        }
    }

    // One number for each row and column of a thread.
    static __attribute__((device, always_inline)) void read_floats(const float *a, const float *b, lds_f32x4 *x,
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
