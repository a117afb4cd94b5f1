// Pairs of F16 in words: weights decoded to F16, F32 rounded to F16.
#pragma once
#include "blocks.h"

typedef f16 f16x2 __attribute__((ext_vector_type(2)));

// Converts two of four bytes to F16, as 1024 + byte.
DEVICE f16x2 byte_pair(u32 q, u32 which) {
    return __builtin_bit_cast(f16x2, pick_bytes(q, 0x64646464u, which == 0 ? 0x04010400u : 0x04030402u));
}

// Returns the integers of two adjacent elements without the bias. Bytes become F16 in pairs: a byte under a high byte of 0x64
// is the number 1024 + byte, from which 1024 and the bias are subtracted exactly.
template <class W, class V> DEVICE f16x2 whole_pair(const V &q, u32 i) {
    f16 bias = W::SIGNED ? 1152.0f : 1024.0f + W::BIAS;
    return byte_pair(W::SIGNED ? q[i / 2] ^ 0x80808080u : q[i / 2], i % 2) - bias;
}

// Computes values in groups of eight: a packed product and sum with factor and offset, which round once. Three instructions for
// two values.
template <class W, int E = 8> DEVICE void decode_halves(const typename W::template Raws<E> &raw, lds_u32x4 *out) {
    auto q = W::bytes(raw);
    f16 factor = (f16)W::factor(raw), offset = 0;
    if constexpr (W::OFFSET) offset = (f16)W::offset(raw);
    UNROLL for (u32 i = 0; i < E / 2; i++) {
        f16x2 x = whole_pair<W>(q, i);
        out[i / 4][i % 4] = __builtin_bit_cast(u32, W::OFFSET ? (f16x2)(x * factor + offset) : (f16x2)(x * factor));
    }
}
template <class W> DEVICE lds_u32x4 decode_halves(const typename W::Raw &raw) {
    if constexpr (W::BLOCK == 1) {
        return __builtin_bit_cast(lds_u32x4, raw.x);
    } else {
        lds_u32x4 out;
        decode_halves<W, 8>(raw, &out);
        return out;
    }
}

// Computes values without a factor, exactly.
template <class W, int E> DEVICE void decode_wholes(const typename W::template Raws<E> &raw, lds_u32x4 *out) {
    auto q = W::bytes(raw);
    UNROLL for (u32 i = 0; i < E / 2; i++) out[i / 4][i % 4] = __builtin_bit_cast(u32, whole_pair<W>(q, i));
}
// Returns x * factor - rounded, where `rounded` is the rounded product: an F16 number, so that both ways have the same result.
DEVICE f16x2 rounding_errors(f16x2 x, f16x2 factor, f16x2 rounded) {
#if __has_builtin(__builtin_elementwise_fma)
    return __builtin_elementwise_fma(x, factor, -rounded);
#else
    // The run-time compiler of ROCm 5.2. F32 holds the product and the difference exactly.
    return (f16x2){(f16)((float)x[0] * (float)factor[0] - (float)rounded[0]),
                   (f16)((float)x[1] * (float)factor[1] - (float)rounded[1])};
#endif
}

// Computes values of a type whose factor is an F16 number, as exact sums of two F16 numbers: the rounded value and the rounding
// error. (Factor times integer has 19 bits and is a multiple of 2^-24, as all F16 numbers are; so is the rest, which has eight
// bits.) The rest is multiplied by 2^REST_EXPONENT.
template <class W, int E, u32 REST_EXPONENT>
DEVICE void decode_sums(const typename W::template Raws<E> &raw, lds_u32x4 *out, lds_u32x4 *rest) {
    static_assert(!W::OFFSET && W::MOST <= 128, "");
    auto q = W::bytes(raw);
    f16x2 factor = (f16)W::factor(raw), of_rest = (f16)(1u << REST_EXPONENT);
    UNROLL for (u32 i = 0; i < E / 2; i++) {
        f16x2 x = whole_pair<W>(q, i), rounded = x * factor;
        out[i / 4][i % 4] = __builtin_bit_cast(u32, rounded);
        rest[i / 4][i % 4] = __builtin_bit_cast(u32, rounding_errors(x, factor, rounded) * of_rest);
    }
}

// Rounds two numbers to F16.
DEVICE u32 half_pair(float a, float b) {
#if DEVICE_AMD
    return __builtin_bit_cast(u32, (f16x2){(f16)a, (f16)b});
#else
    u32 both;
    __asm__("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(both) : "f"(a), "f"(b));
    return both;
#endif
}
// Returns the rounding errors.
DEVICE u32 rest_pair(float a, float b, u32 rounded) {
    return half_pair(a - f16_to_f32(rounded & 0xffff), b - f16_to_f32(rounded >> 16));
}
// Sets the upper bit of a half if all bits of its exponent are set: an infinity or a NaN.
DEVICE u32 special_halves(u32 pair) { return (pair & 0x7c007c00u) + 0x04000400u; }
