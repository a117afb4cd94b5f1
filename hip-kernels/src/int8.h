// Activations in 8 bits: blocks of 32 signed bytes with an F32 scale, which is the largest magnitude divided by 127. Rounding
// is to nearest, ties to even; the NMSE of one product is about 1e-5.
//
// A block with an infinity or a NaN gets a NaN as its scale, so that an earlier fault remains visible in the result. Blocks
// whose magnitudes are all below SMALLEST become zeros.
#pragma once
#include "blocks.h"

// For smaller magnitudes, 127 divided by them could be infinite.
#define SMALLEST 1e-36f

// Eight bytes of a block, and its scale.
struct EightInt8 {
    u32x2 q;
    float scale;
};

// Rounds eight adjacent elements. Four adjacent lanes hold a block and must all be active.
DEVICE EightInt8 quantize_eight(const WeightF32::Raw &raw) {
    float x[8], most = 0.0f;
    WeightF32::decode(raw, x);
    UNROLL for (int j = 0; j < 8; j++) most = MaxOrNan::of(most, __builtin_fabsf(x[j]));
    most = lanes_reduce<MaxOrNan, 4>(most);
    bool finite = most < infinity();
    float factor = finite && most >= SMALLEST ? 127.0f * reciprocal_hw(most) : 0.0f;
    // The unit in the last place of the sum is 1, and its low byte is the rounded number: 1.5 * 2^23 has a 0 there.
    u32 q[8];
    UNROLL for (int j = 0; j < 8; j++) q[j] = f32_bits(fused(x[j], factor, 12582912.0f));
    EightInt8 out;
    out.q = (u32x2){low_bytes(q[0], q[1], q[2], q[3]), low_bytes(q[4], q[5], q[6], q[7])};
    out.scale = !finite ? __builtin_nanf("") : most >= SMALLEST ? most * (1.0f / 127.0f) : 0.0f;
    return out;
}

// Returns the sum of activations, each multiplied by TIMES.
template <int TIMES, class V> DEVICE i32 int8_sum(V q) {
    constexpr u32 EACH = ((u32)TIMES & 255) * 0x01010101u;
    i32 sum = 0;
    if constexpr (EACH != 0) {
        UNROLL for (u32 i = 0; i < sizeof(V) / 4; i++) sum = dot4(EACH, q[i], sum);
    }
    return sum;
}

// Data of 256 adjacent elements: the scales of their groups of 32; the sums of activations in each group as integers, and the
// scale of these. The sums are within 8191 in magnitude, so eight of them multiplied by 63 (the largest minimum) need 22 bits.
struct RoundedK {
    float scales[8];
    i16 sums[8];
    float scale_of_sums, unused[3];
};

// Writes the results of the lanes of a block; `lane` of 32 adjacent lanes, all active.
DEVICE void store_rounded_k(RoundedK *to, u32 lane, const EightInt8 &eight) {
    float sum = lanes_reduce<Sum, 4>((float)int8_sum<1>(eight.q)) * eight.scale;
    float most = lanes_reduce<MaxOrNan, 32>(__builtin_fabsf(sum));
    float whole = most >= SMALLEST ? fused(sum * reciprocal_hw(most), 8191.0f, 12582912.0f) : 12582912.0f;
    if (lane % 4 == 0) {
        to->scales[lane / 4] = eight.scale;
        to->sums[lane / 4] = (i16)f32_bits(whole);
    }
    if (lane == 0) to->scale_of_sums = most * (1.0f / 8191.0f);
}

// Subtracts the bias from four weights; the results are signed. No borrow leaves a byte: its top bit is set before and cleared
// afterwards.
template <class W> DEVICE u32 unbiased(u32 q) {
    if constexpr (W::BIAS == 0.0f) {
        return q;
    } else {
        return ((q | 0x80808080u) - (u32)W::BIAS * 0x01010101u) ^ 0x80808080u;
    }
}
