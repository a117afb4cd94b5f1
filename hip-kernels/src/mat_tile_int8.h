// Products of quantised weights with many columns of activations in 8 bits: tiles of words (mat_tile_words.h) of four bytes, whose
// products are summed as integers. For each 32 products they take 8 dot4 and 2 operations for the scales (4 if 16 adjacent
// elements have a factor of their own), instead of 32 with F32.
//
// No instruction converts the integers to floats. They start with the bits of BEGIN_OF_SUMS = 1.5 * 2^23, whose unit in the
// last place is 1, so the bits of a sum s represent BEGIN_OF_SUMS + s. This float times the factor of the weights, minus
// BEGIN_OF_SUMS times the factor, rounded once, is s times the factor. Factors have at most 19 bits, so the subtrahend is
// exact; it is stored next to the factor in LDS. The factors of MXFP4 are powers of two of any size and need a conversion.
#pragma once
#include "int8.h"
#include "mat_tile_words.h"
#include "mat_vec_int8.h"

// The float whose bits are the initial value of sums, and these bits.
#define BEGIN_OF_SUMS 12582912.0f
#define FIRST_OF_SUMS 0x4b400000u

// True if a factor may be as large as a float; otherwise it is a number of 19 bits.
template <class W> constexpr bool ANY_FACTOR = false;
template <> constexpr bool ANY_FACTOR<WeightMXFP4> = true;

// Four adjacent elements in a word, as signed bytes.
struct Quads {
    static constexpr u32 NEIGHBOURS = 4;
    typedef ColumnInt8<InMemory> Column;
    typedef u32 Word;
    template <class W, class V> DEVICE u32 weights(const V &q, u32 i) { return unbiased<W>(q[i]); }
    template <class RAW> DEVICE u32 activations(const RAW &raw, u32 i) { return raw.q[i]; }
    template <u32 COUNT, class RAW> DEVICE float sum(const RAW &raw) {
        return lanes_reduce<Sum, COUNT>(raw.scale * (float)int8_sum<1>(raw.q));
    }
    // True if the integers start with the bits of a float.
    template <class W> static constexpr bool AS_FLOATS = !ANY_FACTOR<W>;
    template <class W> DEVICE u32 begin(u32 a, u32 b) {
        static_assert(W::MOST * 127 * W::GROUP < 1 << 22, "sums keep the unit 1");
        return step(a, b, AS_FLOATS<W> ? FIRST_OF_SUMS : 0);
    }
    DEVICE u32 step(u32 a, u32 b, u32 sum) { return (u32)dot4(a, b, (i32)sum); }
    template <u32 BN> struct Scales {
        __attribute__((aligned(16))) float of[BN];
        template <class RAW> INLINED void store(u32 column, const RAW &raw) { of[column] = raw.scale; }
    };
    template <class W, u32 GROUPS, u32 BM> struct Factors {
        __attribute__((aligned(16))) float of[GROUPS][BM];
        // -BEGIN_OF_SUMS times the factor.
        __attribute__((aligned(16))) float begin[AS_FLOATS<W> ? GROUPS : 1][AS_FLOATS<W> ? BM : 4];
        INLINED void store(u32 group, u32 row, float factor) {
            of[group][row] = factor;
            if constexpr (AS_FLOATS<W>) begin[group][row] = factor * -BEGIN_OF_SUMS;
        }
    };
    template <class W, class T>
    DEVICE void add(const typename T::Shared *shared, u32 g, u32 m0, u32 n0, const u32 (*whole)[T::TN], typename T::Sums &sum) {
        lds_f32x4 x[T::TM / 4], y[T::TN / 4];
        T::read_floats(shared->a_factors.of[g] + m0, shared->b_scales.of + n0, x, y);
        if constexpr (AS_FLOATS<W>) {
            lds_f32x4 begin[T::TM / 4];
            UNROLL for (u32 i = 0; i < T::TM / 4; i++) {
                begin[i] = *(const lds_f32x4 *)(shared->a_factors.begin[g] + m0 + i * T::M_APART);
            }
            UNROLL for (u32 i = 0; i < T::TM; i++) UNROLL for (u32 j = 0; j < T::TN; j++) {
                float scaled = fused(bits_f32(whole[i][j]), x[i / 4][i % 4], begin[i / 4][i % 4]);
                sum[i][j] = mad(scaled, y[j / 4][j % 4], sum[i][j]);
            }
        } else {
            UNROLL for (u32 i = 0; i < T::TM; i++) UNROLL for (u32 j = 0; j < T::TN; j++) {
                sum[i][j] = mad(x[i / 4][i % 4] * y[j / 4][j % 4], (float)(i32)whole[i][j], sum[i][j]);
            }
        }
    }
};
template <class W, int BM, int BN, int TM, int TN> using TileInt8 = TileWords<W, Quads, BM, BN, TM, TN>;

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
