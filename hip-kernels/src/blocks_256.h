// Weights in blocks of 256 (blocks.h lists the members of a structure).
//
// Blocks are halves of 128 elements or quarters of 64. Parts with one or two bits for each element have bits of elements that
// are 32 apart in one byte.
#pragma once
#include "blocks_32.h"

// 84 bytes: 16 bytes, each with the scale of 16 elements in the low nibble and their minimum in the high one; 64 bytes of bit
// pairs; F16 scales of the scales and of the minima. Halves of 128: quarter n is in bits 2n of the half's 32 bytes.
struct WeightQ2_K : Blocks<WeightQ2_K, false> {
    static constexpr u32 BLOCK = 256, BYTES = 84, GROUP = 16, APART = 32, MOST = 3;
    static constexpr bool OFFSET = true;
    template <int E> struct Raws { Bytes<E> q; u32 scales, factors, k; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES;
        return {Words<4>::bytes<E>(row + 16 + (block + k / 128 % 2 * 32 + k % 32)),
                Words<4>::one(row + (block + k / 64 % 4 * 4)), Words<4>::one(row + 80 + block), k % 128};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return bit_pairs(raw.q, raw.k / 32 * 2); }
    // Scale and minimum in a byte: of four bytes, that of element k; that of k + 32 is two bytes further.
    template <class R> DEVICE u32 scale(const R &raw) { return raw.scales >> (raw.k / 16 % 2 * 8) >> (raw.k / 32 % 2 * 16); }
    template <class R> DEVICE float factor(const R &raw) { return f16_to_f32((u16)raw.factors) * (float)(scale(raw) & 15); }
    template <class R> DEVICE float offset(const R &raw) {
        return -f16_to_f32((u16)(raw.factors >> 16)) * (float)(scale(raw) >> 4 & 15);
    }
};

// 110 bytes: 32 bytes of third bits; 64 bytes of bit pairs as in Q2_K; 12 bytes of 6-bit scales with an offset of 32; an F16
// scale of the scales. Elements have an offset of 4. Bit n of byte l of the third bits belongs to element 32n + l. Scale n has
// its low nibble in byte n % 8 (in the high nibble from n = 8 on), and its upper bits in bits 2(n / 4) of byte 8 + n % 4.
struct WeightQ3_K : Blocks<WeightQ3_K, false> {
    static constexpr u32 BLOCK = 256, BYTES = 110, GROUP = 16, APART = 32, MOST = 4;
    static constexpr float BIAS = 4.0f;
    template <int E> struct Raws { Loaded<E, Words<2>::ALIGNED> q, third; u32 low, high, k; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES;
        return {Words<2>::load<E, OPEN>(row + 32 + (block + k / 128 % 2 * 32 + k % 32)), Words<2>::load<E, OPEN>(row + (block + k % 32)),
                Words<2>::one(row + 96 + (block + k / 64 % 2 * 4)), Words<2>::one(row + 104 + block), k % 256,
                *(const u16 *)(row + 108 + block)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) {
        return bit_pairs(raw.q.bytes(), raw.k / 32 % 4 * 2) | moved_bits<2, 1>(raw.third.bytes(), raw.k / 32);
    }
    template <class R> DEVICE float factor(const R &raw) {
        u32 four = (raw.low >> (raw.k / 128 * 4) & 0x0f0f0f0fu) | (raw.high >> (raw.k / 64 * 2) & 0x03030303u) << 4;
        u32 scale = four >> (raw.k / 16 % 2 * 8) >> (raw.k / 32 % 2 * 16) & 255;
        return f16_to_f32(raw.scale) * ((float)scale - 32.0f);
    }
};

// Head of Q4_K and Q5_K: F16 scales of the scales and of the minima, then eight scales and eight minima of 6 bits in 12 bytes.
// The first four are the lower bits of bytes 0 .. 4 and 4 .. 8. The last four are the nibbles of bytes 8 .. 12 and, above them,
// the upper bit pairs of bytes 0 .. 4 and 4 .. 8.
struct HeadK {
    u32x4 word;
    // Index of the 64 elements in the block, and of the half within them.
    u32 quarter, odd;
    DEVICE HeadK load(const u8 *block, u32 k) { return {Words<16>::bytes<16>(block), k / 64 % 4, k / 32 % 2}; }
    INLINED void settle(u32 k) {
        quarter = k / 64 % 4;
        odd = k / 32 % 2;
    }
    // Scale and minimum in bytes 0 and 2. The four bytes are those of an even group of 32 elements and of the next group; all
    // steps but the last are the same for both. The selection of bytes and the shift depend only on the lane.
    INLINED u32 scale() const {
        u32 even = quarter % 2 * 0x02020202u;
        bool last = quarter & 2;
        u32 first = pick_bytes(word[1], word[2], 0x05040100u + even);
        u32 low = pick_bytes(first, word[3], last ? 0x05040504u + even : 0x03020100u);
        low = upper_half_shifted(low, last ? 4 : 0) & 0x0f0f0f0fu;
        return as_it_is(low | (first >> (last ? 2 : 0) & 0x30303030u)) >> (odd * 8);
    }
    INLINED float factor() const {
        return f16_to_f32((u16)word[0]) * (float)(scale() & 255);
    }
    INLINED float offset() const {
        return -f16_to_f32((u16)(word[0] >> 16)) * (float)(scale() >> 16 & 255);
    }
};

// Block types whose Raw has it as `head`.
template <class W> struct BlocksWithHead : Blocks<W, false> {
    static constexpr u32 BLOCK = 256, GROUP = 32, APART = 32;
    static constexpr bool OFFSET = true;
    template <class R> DEVICE float factor(const R &raw) { return raw.head.factor(); }
    template <class R> DEVICE float offset(const R &raw) { return raw.head.offset(); }
    template <class R> DEVICE void settle(R *raw, u32 k) { raw->head.settle(k); }
};

// 144 bytes: HeadK, 128 bytes of nibbles, 32 for each 64 elements.
struct WeightQ4_K : BlocksWithHead<WeightQ4_K> {
    static constexpr u32 BYTES = 144, MOST = 15;
    template <int E> struct Raws { Bytes<E> q; HeadK head; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES;
        return {Words<E < 16 ? E : 16>::template bytes<E>(row + 16 + (block + k / 64 % 4 * 32 + k % 32)), HeadK::load(row + block, k)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return nibbles(raw.q, raw.head.odd * 4); }
};

// 176 bytes: HeadK, 32 bytes of fifth bits (bit n of byte l belongs to element 32n + l), nibbles as in Q4_K.
struct WeightQ5_K : BlocksWithHead<WeightQ5_K> {
    static constexpr u32 BYTES = 176, MOST = 31;
    template <int E> struct Raws { Bytes<E> q, fifth; HeadK head; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES;
        return {Words<E>::template bytes<E>(row + 48 + (block + k / 64 % 4 * 32 + k % 32)),
                Words<E>::template bytes<E>(row + 16 + (block + k % 32)), HeadK::load(row + block, k)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) {
        return nibbles(raw.q, raw.head.odd * 4) | moved_bits<4, 1>(raw.fifth, raw.head.quarter * 2 + raw.head.odd);
    }
};

// 210 bytes: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, an F16 scale of the scales. Elements have
// an offset of 32. Halves of 128: quarters 0 and 1 are in the low nibbles of the half's 64 bytes, 2 and 3 in their high
// nibbles; quarter n is in bits 2n of its 32 bytes of pairs.
struct WeightQ6_K : Blocks<WeightQ6_K, false> {
    static constexpr u32 BLOCK = 256, BYTES = 210, GROUP = 16, APART = 64, MOST = 32;
    static constexpr float BIAS = 32.0f;
    template <int E> struct Raws { Loaded<E, Words<2>::ALIGNED> low, high; u32 quarter; u16 scale; i8 part; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES, half = k / 128 % 2;
        return {Words<2>::load<E, OPEN>(row + (block + half * 64 + k % 64)),
                Words<2>::load<E, OPEN>(row + 128 + (block + half * 32 + k % 32)), k / 32 % 4,
                *(const u16 *)(row + 208 + block), *(const i8 *)(row + 192 + (block + k % 256 / 16))};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) {
        return nibbles(raw.low.bytes(), raw.quarter / 2 * 4) | moved_bits<4, 3>(raw.high.bytes(), raw.quarter * 2);
    }
    template <class R> DEVICE float factor(const R &raw) { return f16_to_f32(raw.scale) * (float)raw.part; }
};

// 136 bytes: F16 scale of the scales, upper bit pairs of eight scales, their low nibbles, and for each 32 elements 16 bytes of
// nibbles as in IQ4_NL. The scales have 6 bits and an offset of 32.
struct WeightIQ4_XS : Blocks<WeightIQ4_XS, true> {
    static constexpr u32 BLOCK = 256, BYTES = 136, GROUP = 32, APART = 16, MOST = 127;
    template <int E> struct Raws { Bytes<E> q; u32x2 head; u32 k; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES;
        return {Words<8>::bytes<E>(row + 8 + (block + k / 32 % 8 * 16 + k % 16)), Words<8>::bytes<8>(row + block), k % 256};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return TableIQ4::all(nibbles(raw.q, (raw.k & 16) / 4)); }
    template <class R> DEVICE float factor(const R &raw) {
        u32 part = raw.k / 32, high = raw.head[0] >> 16 >> (part * 2) & 3;
        u32 scale = (raw.head[1] >> (part * 4) & 15) | high << 4;
        return f16_to_f32((u16)raw.head[0]) * ((float)scale - 32.0f);
    }
};
