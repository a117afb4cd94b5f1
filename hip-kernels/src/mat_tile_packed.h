// Products of quantised weights with many columns of activations in F16, for targets without dot products of bytes: tiles of words
// (mat_tile_words.h) of two numbers. v_pk_fma_f16 multiplies and adds two pairs, 16 instructions for 32 products; two more add
// the sums of even and odd elements to F32 sums.
//
// Weights are the integers of their blocks, without a factor, which F16 holds exactly. A column of activations is multiplied by
// a power of two that brings its largest magnitude to 2^3 .. 2^4 (`round_half`), and its results by the inverse. So the sum of
// the 16 products of a group that a half of the word adds is below 16 * 128 * 16: nothing overflows, whatever the weights are.
// Its rounding has an NMSE of 2e-7 to 1.3e-6 (types with minima), where activations in 8 bits have 1e-5.
#pragma once
#include "mat_tile_half.h"
#include "mat_tile_words.h"

#if HAS_PACKED_HALVES
// A column of activations in F16.
struct ColumnHalf {
    const u8 *x;
    template <int E> struct Raw {
        lds_u32x4 of[E / 8];
    };
    template <int E> INLINED Raw<E> fetch(u32 base, u32 k) const {
        typedef u32 Eight __attribute__((ext_vector_type(4), aligned(16)));
        Raw<E> raw;
        UNROLL for (u32 i = 0; i < E / 8; i++) raw.of[i] = *(const Eight *)(x + (u64)base * 2 + k * 2 + i * 16);
        return raw;
    }
};

// Adds a half of a word times a factor.
template <u32 HALF> DEVICE float add_half(u32 halves, float factor, float sum) {
#if defined(__gfx900__) || defined(__gfx902__) || defined(__gfx909__) || defined(__gfx90c__)
    // The compiler uses it only where denormals are flushed everywhere.
    if constexpr (HALF == 0) {
        __asm__("v_mad_mix_f32 %0, %1, %2, %0 op_sel_hi:[1,0,0]" : "+v"(sum) : "v"(halves), "v"(factor));
    } else {
        __asm__("v_mad_mix_f32 %0, %1, %2, %0 op_sel:[1,0,0] op_sel_hi:[1,0,0]" : "+v"(sum) : "v"(halves), "v"(factor));
    }
    return sum;
#else
    return mad(f16_to_f32((u16)(halves >> 16 * HALF)), factor, sum);
#endif
}

// Two adjacent elements in a word, as F16.
struct Halves {
    static constexpr u32 NEIGHBOURS = 2;
    typedef ColumnHalf Column;
    typedef u32 Word;
    DEVICE f16x2 pair(u32 x) { return __builtin_bit_cast(f16x2, x); }
    DEVICE u32 word(f16x2 x) { return __builtin_bit_cast(u32, x); }
    template <class W, class V> DEVICE u32 weights(const V &q, u32 i) { return word(whole_pair<W>(q, i)); }
    template <class RAW> DEVICE u32 activations(const RAW &raw, u32 i) { return raw.of[i / 4][i % 4]; }
    template <u32 COUNT, class RAW> DEVICE float sum(const RAW &raw) {
        float sum = 0.0f;
        UNROLL for (u32 i = 0; i < sizeof(RAW) / 4; i++) {
            sum = add_half<1>(raw.of[i / 4][i % 4], 1.0f, add_half<0>(raw.of[i / 4][i % 4], 1.0f, sum));
        }
        return lanes_reduce<Sum, COUNT>(sum);
    }
    template <class W> DEVICE u32 begin(u32 a, u32 b) {
        static_assert(W::MOST <= 128 && W::GROUP <= 32, "sums fit F16");
        return word(pair(a) * pair(b));
    }
    DEVICE u32 step(u32 a, u32 b, u32 sum) { return word(__builtin_elementwise_fma(pair(a), pair(b), pair(sum))); }
    // A column has one scale, with which its results are multiplied.
    template <u32 BN> struct Scales {
        template <class RAW> INLINED void store(u32, const RAW &) {}
    };
    template <class W, u32 GROUPS, u32 BM> struct Factors {
        __attribute__((aligned(16))) float of[GROUPS][BM];
        INLINED void store(u32 group, u32 row, float factor) { of[group][row] = factor; }
    };
    template <class W, class T>
    DEVICE void add(const typename T::Shared *shared, u32 g, u32 m0, u32, const u32 (*whole)[T::TN], typename T::Sums &sum) {
        lds_f32x4 x[T::TM / 4];
        UNROLL for (u32 i = 0; i < T::TM / 4; i++) {
            x[i] = *(const lds_f32x4 *)(shared->a_factors.of[g] + m0 + i * T::M_APART);
        }
        UNROLL for (u32 i = 0; i < T::TM; i++) UNROLL for (u32 j = 0; j < T::TN; j++) {
            sum[i][j] = add_half<0>(whole[i][j], x[i / 4][i % 4], sum[i][j]);
            sum[i][j] = add_half<1>(whole[i][j], x[i / 4][i % 4], sum[i][j]);
        }
    }
};
template <class W, int BM, int BN, int TM, int TN> using TilePacked = TileWords<W, Halves, BM, BN, TM, TN>;

template <class W, class T>
DEVICE void mat_tile_packed(const u8 *a, const u16 *x, const float *scale, float *d, const MulMatParams &p,
                            typename T::Shared *shared) {
    Corner at = corner<T>(p);
    if (at.row >= p.m) return;
    T t;
    begin_rows<W>(t, a, p, at);
    u64 plane = scratch_column(p, at.z, 0);
    t.b[0] = {(const u8 *)(x + (plane + column<T>(p, at, 0)) * half_pitch(p.k))};
    typename T::Sums sum;
    walk(t, p.k, shared, sum);
    UNROLL for (u32 j = 0; j < T::TN; j++) {
        scale_column<T>(j, scale[plane + minimum(column_of<T>(at.col + T::n0(), j), p.n - 1)], sum);
    }
    store_tile<T>(d, p, at, sum);
}
#endif
