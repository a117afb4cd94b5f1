// Weights as they lie in GGUF files: eight neighbours of a row at a time.
//
// Every kernel that reads weights (products and GET_ROWS) does so through one of these structures:
//
//   Raw         what was loaded, so that loads can be issued long before their values are needed
//   fetch       loads elements k .. k + 8 of a row; k is a multiple of 8
//   fetch_some  the same where the row may end before k + 8: what is beyond gives zeros
//   decode      the eight values, up to a factor
//   one         one value of a plain type
//   factor      that factor: the scale of the block (1 for plain types)
//   BIAS        what has to be taken from each decoded value (a nibble counts from 8)
//   GROUP       of block types: neighbours that have their factor in common
//
// so value i is factor * (decode[i] - BIAS). The block types load whole numbers below 128 in magnitude, one a byte, in
// element `q` of Raw. In a product the factor and the bias are applied to sums of eight instead
// of to each value: sum(w y) = factor * (sum(decode y) - BIAS * sum(y)).
#pragma once
#include "device.h"

struct WeightF32 {
    static constexpr u32 BLOCK = 1, BYTES = 4;
    static constexpr float BIAS = 0.0f;
    struct Raw { f32x4 low, high; };
    DEVICE Raw fetch(const u8 *row, u32 k) {
        const u8 *at = row + k * 4;
        return {*(const f32x4 *)at, *(const f32x4 *)(at + 16)};
    }
    DEVICE Raw fetch_some(const u8 *row, u32 k, u32 end) {
        const float *at = (const float *)row;
        Raw raw = {f32x4(0.0f), f32x4(0.0f)};
        UNROLL for (u32 j = 0; j < 4; j++) {
            if (k + j < end) raw.low[j] = at[k + j];
            if (k + j + 4 < end) raw.high[j] = at[k + j + 4];
        }
        return raw;
    }
    DEVICE void decode(const Raw &raw, float *out) {
        UNROLL for (int j = 0; j < 4; j++) {
            out[j] = raw.low[j];
            out[j + 4] = raw.high[j];
        }
    }
    DEVICE float factor(const Raw &) { return 1.0f; }
    DEVICE float one(const u8 *row, u32 k) { return ((const float *)row)[k]; }
};

// F16 and BF16 differ in the conversion only.
template <bool BRAIN> struct Weight16 {
    static constexpr u32 BLOCK = 1, BYTES = 2;
    static constexpr float BIAS = 0.0f;
    struct Raw { u16x8 x; };
    DEVICE Raw fetch(const u8 *row, u32 k) { return {*(const u16x8 *)(row + k * 2)}; }
    DEVICE Raw fetch_some(const u8 *row, u32 k, u32 end) {
        const u16 *at = (const u16 *)row;
        Raw raw = {u16x8(0)};
        UNROLL for (u32 j = 0; j < 8; j++) if (k + j < end) raw.x[j] = at[k + j];
        return raw;
    }
    DEVICE void decode(const Raw &raw, float *out) {
        UNROLL for (int j = 0; j < 8; j++) out[j] = BRAIN ? bf16_to_f32(raw.x[j]) : f16_to_f32(raw.x[j]);
    }
    DEVICE float factor(const Raw &) { return 1.0f; }
    DEVICE float one(const u8 *row, u32 k) {
        u16 x = ((const u16 *)row)[k];
        return BRAIN ? bf16_to_f32(x) : f16_to_f32(x);
    }
};
typedef Weight16<false> WeightF16;
typedef Weight16<true> WeightBF16;

// Blocks of 32 in 34 bytes: F16 scale, 32 signed bytes. Rows are whole blocks, so eight elements are all there or not
// at all; blocks are 2-byte aligned.
struct WeightQ8_0 {
    static constexpr u32 BLOCK = 32, BYTES = 34, GROUP = 32;
    static constexpr float BIAS = 0.0f;
    struct Raw { u32x2 q; u16 scale; };
    DEVICE Raw fetch(const u8 *row, u32 k) {
        u32 block = k / 32 * BYTES;
        return {*(const u32x2 *)(row + 2 + (block + k % 32)), *(const u16 *)(row + block)};
    }
    DEVICE Raw fetch_some(const u8 *row, u32 k, u32 end) { return k < end ? fetch(row, k) : Raw{u32x2(0), 0}; }
    DEVICE void decode(const Raw &raw, float *out) {
        UNROLL for (int j = 0; j < 8; j++) out[j] = i8_to_f32(raw.q[j / 4], j % 4);
    }
    DEVICE float factor(const Raw &raw) { return f16_to_f32(raw.scale); }
};

// Blocks of 32 in 18 bytes: F16 scale, 16 bytes whose low nibbles are elements 0 .. 16 and whose high nibbles are
// elements 16 .. 32, counted from 8.
struct WeightQ4_0 {
    static constexpr u32 BLOCK = 32, BYTES = 18, GROUP = 32;
    static constexpr float BIAS = 8.0f;
    // Nibbles of the eight elements, one a byte.
    struct Raw { u32x2 q; u16 scale; };
    DEVICE Raw fetch(const u8 *row, u32 k) {
        u32 block = k / 32 * BYTES;
        u32x2 q = *(const u32x2 *)(row + 2 + (block + k % 16));
        return {(q >> (k & 16 ? 4 : 0)) & 0x0f0f0f0fu, *(const u16 *)(row + block)};
    }
    DEVICE Raw fetch_some(const u8 *row, u32 k, u32 end) { return k < end ? fetch(row, k) : Raw{u32x2(0), 0}; }
    DEVICE void decode(const Raw &raw, float *out) {
        UNROLL for (int j = 0; j < 8; j++) out[j] = u8_to_f32(raw.q[j / 4], j % 4);
    }
    DEVICE float factor(const Raw &raw) { return f16_to_f32(raw.scale); }
};

// Blocks of 256 in 210 bytes: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, an F16 scale of
// the scales; 32 stands for zero. Elements come in halves of 128, each of four quarters of 32: quarters 0 and 1 in the
// low nibbles of the half's 64 bytes, 2 and 3 in their high nibbles, quarter n in bits 2n of its 32 bytes of pairs.
struct WeightQ6_K {
    static constexpr u32 BLOCK = 256, BYTES = 210, GROUP = 16;
    static constexpr float BIAS = 32.0f;
    struct Raw { u32x2 q; u16 scale; i8 part; };
    DEVICE Raw fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES, half = k / 128 % 2, quarter = k / 32 % 4, lane = k % 32;
        u32x2 low = *(const u32x2 *)(row + (block + half * 64 + quarter % 2 * 32 + lane));
        u32x2 high = *(const u32x2 *)(row + 128 + (block + half * 32 + lane));
        u32x2 q = (low >> (quarter / 2 * 4) & 0x0f0f0f0fu) | (high >> (2 * quarter) & 0x03030303u) << 4;
        return {q, *(const u16 *)(row + 208 + block), *(const i8 *)(row + 192 + (block + k % 256 / 16))};
    }
    DEVICE Raw fetch_some(const u8 *row, u32 k, u32 end) { return k < end ? fetch(row, k) : Raw{u32x2(0), 0, 0}; }
    DEVICE void decode(const Raw &raw, float *out) {
        UNROLL for (int j = 0; j < 8; j++) out[j] = u8_to_f32(raw.q[j / 4], j % 4);
    }
    DEVICE float factor(const Raw &raw) { return f16_to_f32(raw.scale) * (float)raw.part; }
};

// The eight values themselves.
template <class W> DEVICE void decode_values(const typename W::Raw &raw, float *out) {
    W::decode(raw, out);
    if constexpr (W::BLOCK > 1) {
        float factor = W::factor(raw);
        UNROLL for (int j = 0; j < 8; j++) out[j] = (out[j] - W::BIAS) * factor;
    }
}

// The rest of a row of which `k` elements are before: fetched in eights wherever that many are left.
template <class W> DEVICE typename W::Raw fetch_any(const u8 *row, u32 k, u32 end) {
    return k + 8 <= end ? W::fetch(row, k) : W::fetch_some(row, k, end);
}
