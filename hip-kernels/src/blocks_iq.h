// Weights that are indices of lattice points (grids.h): eight values for each index, of IQ3 four (blocks.h lists the members of
// a structure).
//
// Blocks of 256 are eight parts of 32. A part has indices, signs, and one or two scales. Where seven sign bits are stored, the
// eighth makes their number even. A scale is d (scale + 1/2) / 4; for IQ3 and IQ1 the power of two differs. In F32 all products
// but the last are exact, so their order does not matter.
#pragma once
#include "blocks.h"
#include "grids.h"

// Loaded data for E elements, mostly data of the part of 32.
template <int E> struct RawsOfGrid {
    static constexpr u32 COUNT = E;
    // Indices, and further fields of some types.
    u32x2 q;
    u32 high, signs, scales, k;
    u16 d;
};

template <class W, u32 BYTES_, u32 GROUP_, u32 MOST_> struct BlocksOfGrid : Blocks<W, true> {
    static constexpr u32 BLOCK = 256, BYTES = BYTES_, APART = 0, GROUP = GROUP_, MOST = MOST_;
    typedef RawsOfGrid<8> Raw;
    template <class R> DEVICE Bytes<R::COUNT> bytes(const R &raw) {
        Bytes<R::COUNT> out;
        UNROLL for (u32 i = 0; i < R::COUNT / 8; i++) {
            u32x2 eight = W::eight(raw, raw.k / 8 % 4 + i);
            out[2 * i] = eight[0];
            out[2 * i + 1] = eight[1];
        }
        return out;
    }
};

// Address of byte `at` of the block that contains element k.
template <class W> DEVICE const u8 *byte_of_block(const u8 *row, u32 k, u32 at) { return row + (k / 256 * W::BYTES + at); }

// Values of four codes of 2 bits; of four codes of 4 bits, which select one of eight values.
DEVICE u32 of_pairs(u32 codes, u32 values) {
    codes = (codes | codes << 12) & 0x000f000fu;
    return pick_bytes(values, values, (codes | codes << 6) & 0x03030303u);
}
DEVICE u32 of_nibbles(u32 codes, u32 low, u32 high) {
    codes = (codes | codes << 8) & 0x00ff00ffu;
    return pick_bytes(low, high, (codes | codes << 4) & 0x0f0f0f0fu);
}

// Negates the bytes whose bit is set. The four bytes are not zero. No carry leaves a byte.
DEVICE u32 with_signs(u32 x, u32 signs) {
    u32 ones = spread_bits(signs);
    return (x ^ ((ones << 8) - ones)) + ones;
}

// Returns eight signs from seven.
DEVICE u32 eight_signs(u32 seven) {
    seven &= 127;
    return seven | (__builtin_popcount(seven) & 1) << 7;
}

// ---- IQ2 ----

template <class W, u32 BYTES, u32 GROUP> struct BlocksIQ2 : BlocksOfGrid<W, BYTES, GROUP, 43> {
    template <class R> DEVICE u32x2 eight(const R &raw, u32 e) {
        constexpr u32 VALUES = 0x002b1908u;
        u32 codes = W::entry(W::number(raw, e)), signs = W::signs(raw, e);
        return {with_signs(of_pairs(codes & 255, VALUES), signs), with_signs(of_pairs(codes >> 8, VALUES), signs >> 4)};
    }
    template <class R> DEVICE float factor(const R &raw) {
        return f16_to_f32(raw.d) * ((float)W::scale(raw) * 0.25f + 0.125f);
    }
};

// 66 bytes: F16 scale of the scales; for each part, four bytes of indices, then a word of four times seven signs with the scale
// in the upper bits.
struct WeightIQ2_XXS : BlocksIQ2<WeightIQ2_XXS, 66, 32> {
    typedef WeightIQ2_XXS W;
    template <int E = 8> DEVICE RawsOfGrid<E> fetch(const u8 *row, u32 k) {
        return {Words<2>::bytes<8>(byte_of_block<W>(row, k, 2 + k / 32 % 8 * 8)), 0, 0, 0, k,
                *(const u16 *)byte_of_block<W>(row, k, 0)};
    }
    DEVICE u32 entry(u32 i) { return GRID_IQ2_XXS[i]; }
    template <class R> DEVICE u32 number(const R &raw, u32 e) { return raw.q[0] >> 8 * e & 255; }
    template <class R> DEVICE u32 signs(const R &raw, u32 e) { return eight_signs(raw.q[1] >> 7 * e); }
    template <class R> DEVICE u32 scale(const R &raw) { return raw.q[1] >> 28; }
};

// 74 bytes: F16 scale of the scales; for each part, four half-words with an index in nine bits and seven signs; eight bytes,
// each with the scale of 16 elements in the low nibble and of the next 16 in the high one.
struct WeightIQ2_XS : BlocksIQ2<WeightIQ2_XS, 74, 16> {
    typedef WeightIQ2_XS W;
    template <int E = 8> DEVICE RawsOfGrid<E> fetch(const u8 *row, u32 k) {
        u32 part = k / 32 % 8;
        return {Words<2>::bytes<8>(byte_of_block<W>(row, k, 2 + part * 8)), 0, 0, *byte_of_block<W>(row, k, 66 + part), k,
                *(const u16 *)byte_of_block<W>(row, k, 0)};
    }
    template <class R> DEVICE u32 half_word(const R &raw, u32 e) { return (e < 2 ? raw.q[0] : raw.q[1]) >> e % 2 * 16 & 0xffff; }
    DEVICE u32 entry(u32 i) { return GRID_IQ2_XS[i]; }
    template <class R> DEVICE u32 number(const R &raw, u32 e) { return half_word(raw, e) & 511; }
    template <class R> DEVICE u32 signs(const R &raw, u32 e) { return eight_signs(half_word(raw, e) >> 9); }
    template <class R> DEVICE u32 scale(const R &raw) { return raw.scales >> raw.k / 16 % 2 * 4 & 15; }
};

// 82 bytes: F16 scale of the scales, lower bytes of the indices, signs, upper bit pairs of the indices, scales as in IQ2_XS.
struct WeightIQ2_S : BlocksIQ2<WeightIQ2_S, 82, 16> {
    typedef WeightIQ2_S W;
    template <int E = 8> DEVICE RawsOfGrid<E> fetch(const u8 *row, u32 k) {
        u32 part = k / 32 % 8;
        return {{Words<2>::one(byte_of_block<W>(row, k, 2 + part * 4)), 0}, *byte_of_block<W>(row, k, 66 + part),
                Words<2>::one(byte_of_block<W>(row, k, 34 + part * 4)), *byte_of_block<W>(row, k, 74 + part), k,
                *(const u16 *)byte_of_block<W>(row, k, 0)};
    }
    DEVICE u32 entry(u32 i) { return GRID_IQ2_S[i]; }
    template <class R> DEVICE u32 number(const R &raw, u32 e) { return (raw.q[0] >> 8 * e & 255) | (raw.high >> 2 * e & 3) << 8; }
    template <class R> DEVICE u32 signs(const R &raw, u32 e) { return raw.signs >> 8 * e; }
    template <class R> DEVICE u32 scale(const R &raw) { return WeightIQ2_XS::scale(raw); }
};

// ---- IQ3 ----

// LOW and HIGH are the eight values.
template <class W, u32 BYTES, u32 MOST, u32 LOW, u32 HIGH> struct BlocksIQ3 : BlocksOfGrid<W, BYTES, 32, MOST> {
    template <class R> DEVICE u32x2 eight(const R &raw, u32 e) {
        // Two bytes and two upper bits of the indices.
        u32 low = (e < 2 ? raw.q[0] : raw.q[1]) >> e % 2 * 16, high = raw.high >> 2 * e, signs = W::signs(raw, e);
        u32 first = W::entry((low & 255) | (high & 1) << 8), second = W::entry((low >> 8 & 255) | (high & 2) << 7);
        return {with_signs(of_nibbles(first, LOW, HIGH), signs), with_signs(of_nibbles(second, LOW, HIGH), signs >> 4)};
    }
};

// 98 bytes: F16 scale of the scales; eight bytes of indices for each part; then for each part a word of signs and scale as in
// IQ2_XXS.
struct WeightIQ3_XXS : BlocksIQ3<WeightIQ3_XXS, 98, 62, 0x1c140c04u, 0x3e342c24u> {
    typedef WeightIQ3_XXS W;
    template <int E = 8> DEVICE RawsOfGrid<E> fetch(const u8 *row, u32 k) {
        u32 part = k / 32 % 8;
        return {Words<2>::bytes<8>(byte_of_block<W>(row, k, 2 + part * 8)), 0,
                Words<2>::one(byte_of_block<W>(row, k, 66 + part * 4)), 0, k, *(const u16 *)byte_of_block<W>(row, k, 0)};
    }
    DEVICE u32 entry(u32 i) { return GRID_IQ3_XXS[i]; }
    template <class R> DEVICE u32 signs(const R &raw, u32 e) { return eight_signs(raw.signs >> 7 * e); }
    template <class R> DEVICE float factor(const R &raw) {
        return f16_to_f32(raw.d) * ((float)(raw.signs >> 28) * 0.5f + 0.25f);
    }
};

// 110 bytes: F16 scale of the scales, lower bytes of the indices as in IQ3_XXS, their ninth bits, signs, nibbles of scales.
struct WeightIQ3_S : BlocksIQ3<WeightIQ3_S, 110, 15, 0x07050301u, 0x0f0d0b09u> {
    typedef WeightIQ3_S W;
    template <int E = 8> DEVICE RawsOfGrid<E> fetch(const u8 *row, u32 k) {
        u32 part = k / 32 % 8;
        return {Words<2>::bytes<8>(byte_of_block<W>(row, k, 2 + part * 8)), *byte_of_block<W>(row, k, 66 + part),
                Words<2>::one(byte_of_block<W>(row, k, 74 + part * 4)), *byte_of_block<W>(row, k, 106 + part / 2), k,
                *(const u16 *)byte_of_block<W>(row, k, 0)};
    }
    DEVICE u32 entry(u32 i) { return GRID_IQ3_S[i]; }
    template <class R> DEVICE u32 signs(const R &raw, u32 e) { return raw.signs >> 8 * e; }
    template <class R> DEVICE float factor(const R &raw) {
        return f16_to_f32(raw.d) * (float)((raw.scales >> raw.k / 32 % 2 * 4 & 15) * 2 + 1);
    }
};

// ---- IQ1 ----

// Values are -1, 0 and 1, plus or minus an eighth: integers in units of an eighth.
template <class W, u32 BYTES, u32 GROUP> struct BlocksIQ1 : BlocksOfGrid<W, BYTES, GROUP, 9> {
    template <class R> DEVICE u32x2 eight(const R &raw, u32 e) {
        u32 codes = GRID_IQ1[W::number(raw, e)], values = W::less(raw, e) ? 0x0007fff7u : 0x000901f9u;
        return {of_pairs(codes & 255, values), of_pairs(codes >> 8, values)};
    }
    template <class R> DEVICE float factor(const R &raw) {
        return f16_to_f32(raw.d) * ((float)(W::scale(raw) & 7) * 0.25f + 0.125f);
    }
};

// 50 bytes: F16 scale of the scales; lower bytes of the indices; for each part a half-word with four times three upper bits,
// the scale, and the sign of the eighth.
struct WeightIQ1_S : BlocksIQ1<WeightIQ1_S, 50, 32> {
    typedef WeightIQ1_S W;
    template <int E = 8> DEVICE RawsOfGrid<E> fetch(const u8 *row, u32 k) {
        u32 part = k / 32 % 8;
        return {{Words<2>::one(byte_of_block<W>(row, k, 2 + part * 4)), 0}, *(const u16 *)byte_of_block<W>(row, k, 34 + part * 2),
                0, 0, k, *(const u16 *)byte_of_block<W>(row, k, 0)};
    }
    template <class R> DEVICE u32 number(const R &raw, u32 e) { return (raw.q[0] >> 8 * e & 255) | (raw.high >> 3 * e & 7) << 8; }
    template <class R> DEVICE bool less(const R &raw, u32) { return raw.high >> 15; }
    template <class R> DEVICE u32 scale(const R &raw) { return raw.high >> 12; }
};

// 56 bytes: lower bytes of the indices; nibbles with three upper bits and the sign of the eighth; four half-words, each with
// the scales of four times 16 elements in three bits, and a nibble of the F16 scale of the scales.
struct WeightIQ1_M : BlocksIQ1<WeightIQ1_M, 56, 16> {
    typedef WeightIQ1_M W;
    template <int E = 8> DEVICE RawsOfGrid<E> fetch(const u8 *row, u32 k) {
        u32 part = k / 32 % 8;
        u32x2 s = Words<8>::bytes<8>(byte_of_block<W>(row, k, 48));
        u32 d = (s[0] >> 12 & 0xf) | (s[0] >> 24 & 0xf0) | (s[1] >> 4 & 0xf00) | (s[1] >> 16 & 0xf000);
        return {{Words<4>::one(byte_of_block<W>(row, k, part * 4)), 0}, *(const u16 *)byte_of_block<W>(row, k, 32 + part * 2), 0,
                (part < 4 ? s[0] : s[1]) >> part / 2 % 2 * 16, k, (u16)d};
    }
    template <class R> DEVICE u32 number(const R &raw, u32 e) { return (raw.q[0] >> 8 * e & 255) | (raw.high >> 4 * e & 7) << 8; }
    template <class R> DEVICE bool less(const R &raw, u32 e) { return raw.high >> 4 * e & 8; }
    template <class R> DEVICE u32 scale(const R &raw) { return raw.scales >> raw.k / 16 % 4 * 3; }
};
