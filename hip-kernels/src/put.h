// Rows in the types of caches.
#pragma once
#include "blocks.h"

// Element type of written rows: put rounds elements k .. k + 8 of a row and stores them, up to the end of the row.
template <class T> struct Plain {
    static constexpr u32 BYTES = sizeof(T);
    DEVICE void round(float *y, float x) { *y = x; }
    DEVICE void round(u16 *y, float x) { *y = f32_to_f16(x); }
    DEVICE void put(u8 *row, u32 k, const float *x, u32 end) {
        T y[8];
        UNROLL for (int j = 0; j < 8; j++) round(&y[j], x[j]);
        T *at = (T *)row + k;
        store_any(at, y, end - k);
    }
};

// Blocks of 32 are rounded by four adjacent lanes. The scale is stored as F16, but the values are computed with the scale
// before that rounding.
DEVICE float largest_of_block(const float *x) {
    float most = 0.0f;
    UNROLL for (int j = 0; j < 8; j++) most = larger(most, __builtin_fabsf(x[j]));
    return lanes_reduce<Max, 4>(most);
}

struct BlockQ8_0 {
    static constexpr u32 BYTES = 34;
    DEVICE void put(u8 *row, u32 k, const float *x, u32) {
        float scale = largest_of_block(x) / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        u32 q[8];
        // To nearest, halves away from zero.
        UNROLL for (int j = 0; j < 8; j++) q[j] = (u32)(i32)__builtin_roundf(x[j] * inverse);
        u8 *block = row + (u64)(k / 32) * BYTES;
        *(u32x2 *)(block + 2 + k % 32) = (u32x2){low_bytes(q[0], q[1], q[2], q[3]), low_bytes(q[4], q[5], q[6], q[7])};
        if (k % 32 == 0) *(u16 *)block = f32_to_f16(scale);
    }
};

// The word of the lane two further in each group of four.
template <int LANES> DEVICE u32 from_other_half(u32 x) { return f32_bits(LANES_XOR_2(bits_f32(x))); }

struct BlockQ4_0 {
    static constexpr u32 BYTES = 18;
    // The first element of the largest magnitude becomes -8: returns true if it is negative.
    DEVICE bool extreme_is_negative(u32 k, const float *x, float most) {
        u32 first = 0;
        // From the last to the first; an earlier element gets a greater number, whose lowest bit is the sign.
        UNROLL for (int j = 7; j >= 0; j--) {
            if (__builtin_fabsf(x[j]) == most) first = (32 - k % 32 - j) * 2 + (f32_bits(x[j]) >> 31);
        }
        return f32_bits(lanes_reduce<MaxOrNan, 4>(bits_f32(first))) & 1;
    }
    DEVICE void put(u8 *row, u32 k, const float *x, u32) {
        float most = largest_of_block(x);
        float scale = (extreme_is_negative(k, x, most) ? most : -most) / 8.0f;
        float inverse = most > 0.0f ? 1.0f / scale : 0.0f;
        u32 q[8];
        UNROLL for (int j = 0; j < 8; j++) q[j] = minimum((u32)(i32)mad(x[j], inverse, 8.5f), 15);
        u32 low = low_bytes(q[0], q[1], q[2], q[3]), high = low_bytes(q[4], q[5], q[6], q[7]);
        // The first two lanes write: their elements are the low nibbles, those of the others the high ones.
        low |= from_other_half<4>(low) << 4;
        high |= from_other_half<4>(high) << 4;
        u8 *block = row + (u64)(k / 32) * BYTES;
        if (k % 32 < 16) *(u32x2 *)(block + 2 + k % 32) = (u32x2){low, high};
        if (k % 32 == 0) *(u16 *)block = f32_to_f16(scale);
    }
};
