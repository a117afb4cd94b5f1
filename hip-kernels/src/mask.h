// Attention masks and ALiBi slopes, for SOFT_MAX and FLASH_ATTN_EXT.
#pragma once
#include "device.h"

// Returns element `i` of a mask whose type is 1 (F32) or 2 (F16) in the two low bits; 0 if there is none (0).
DEVICE float mask_at(const void *mask, u32 type, u64 i) {
    if ((type & 3) == 0) return 0.0f;
    return (type & 3) == 1 ? ((const float *)mask)[i] : f16_to_f32(((const u16 *)mask)[i]);
}

// The same in two steps, so that other loads can be in flight between them: the stored bits, and the number that they
// represent.
DEVICE u32 mask_bits(const void *mask, u32 type, u64 i) {
    if ((type & 3) == 0) return 0;
    return (type & 3) == 1 ? ((const u32 *)mask)[i] : ((const u16 *)mask)[i];
}
DEVICE float mask_of_bits(u32 type, u32 bits) { return (type & 3) == 2 ? f16_to_f32((u16)bits) : bits_f32(bits); }

// True if the mask hides a position: `bias` is slope times mask, or the score. Also: the score, from the score without mask.
DEVICE bool is_hidden(float bias) { return bias == -infinity(); }
DEVICE float masked(float score, float bias) { return is_hidden(bias) ? -infinity() : score + bias; }

// Slope of a head: 1 without bias, otherwise 2^(-max_bias (h + 1) / n) for the first n = 2^floor(log2 heads) heads, and the odd
// powers of half that exponent for the others.
DEVICE float alibi_slope(float max_bias, u32 head, u32 heads_log2) {
    if (!(max_bias > 0.0f)) return 1.0f;
    float step = -max_bias / (float)heads_log2;
    float exponent = head < heads_log2 ? step * (float)(head + 1)
                                       : step * 0.5f * (float)(2 * (head - heads_log2) + 1);
    return exp2_hw(exponent);
}
