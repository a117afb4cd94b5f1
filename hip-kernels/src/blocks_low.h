// Weights of one, two and four bits in blocks of their own, and ternary ones (blocks.h lists the members of a structure).
#pragma once
#include "blocks.h"

// Four pairs of bits, one in each byte.
DEVICE u32 spread_pairs(u32 bits) {
    bits = (bits | bits << 12) & 0x000f000fu;
    return (bits | bits << 6) & 0x03030303u;
}

// F16 scale, 128 bits: a value is twice its bit minus 1.
struct WeightQ1_0 : BlocksWithScale<WeightQ1_0, false> {
    static constexpr u32 BLOCK = 128, BYTES = 18, GROUP = 32, APART = 0, MOST = 1;
    static constexpr float BIAS = 1.0f;
    template <int E> struct Raws { u32 q; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 128 * BYTES;
        return {(u32)*(const u16 *)(row + 2 + (block + k % 128 / 16 * 2)) >> k % 16, *(const u16 *)(row + block)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) {
        Bytes<E> out;
        UNROLL for (u32 i = 0; i < E / 4; i++) out[i] = spread_bits(raw.q >> 4 * i) << 1;
        return out;
    }
};

// F16 scale, 64 bit pairs with an offset of 1.
struct WeightQ2_0 : BlocksWithScale<WeightQ2_0, false> {
    static constexpr u32 BLOCK = 64, BYTES = 18, GROUP = 32, APART = 0, MOST = 2;
    static constexpr float BIAS = 1.0f;
    template <int E> struct Raws { u32 q; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 64 * BYTES;
        const u8 *at = row + 2 + (block + k % 64 / 4);
        return {E == 8 ? *(const u16 *)at : Words<2>::one(at), *(const u16 *)(row + block)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) {
        Bytes<E> out;
        UNROLL for (u32 i = 0; i < E / 4; i++) out[i] = spread_pairs(raw.q >> 8 * i & 255);
        return out;
    }
};

// 66 bytes: 64 bytes of bit pairs as in Q2_K, F16 scale; offset of 1.
struct WeightTQ2_0 : BlocksWithScale<WeightTQ2_0, false> {
    static constexpr u32 BLOCK = 256, BYTES = 66, GROUP = 32, APART = 32, MOST = 2;
    static constexpr float BIAS = 1.0f;
    template <int E> struct Raws { Loaded<E, Words<2>::ALIGNED> q; u32 k; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES;
        return {Words<2>::load<E, OPEN>(row + (block + k / 128 % 2 * 32 + k % 32)), k, *(const u16 *)(row + 64 + block)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return bit_pairs(raw.q.bytes(), raw.k / 32 % 4 * 2); }
};

// 54 bytes: 48 bytes of five base-3 digits, four bytes of four digits, F16 scale; offset of 1. A byte is 256 times the fraction
// that its digits represent, rounded up: multiplied by 3^n, its fractional part begins with digit n. Digits n of the first 32
// bytes are elements 32n .. 32n + 32, those of the next 16 bytes 160 + 16n .. 176 + 16n, those of the last four
// 240 + 4n .. 244 + 4n.
struct WeightTQ1_0 : BlocksWithScale<WeightTQ1_0, false> {
    static constexpr u32 BLOCK = 256, BYTES = 54, GROUP = 32, APART = 0, MOST = 1;
    static constexpr float BIAS = 1.0f;
    template <int E> struct Raws { Loaded<E, Words<2>::ALIGNED> q; u32 k; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 256 * BYTES, inner = k % 256;
        // The last four bytes are loaded together with adjacent ones.
        u32 at = inner < 160 ? inner % 32 : inner < 240 ? 32 + inner % 16 : BYTES - E;
        return {Words<2>::load<E, OPEN>(row + (block + at)), inner, *(const u16 *)(row + 52 + block)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) {
        Bytes<E> q = raw.q.bytes();
        bool last = raw.k >= 240;
        u32 four = q[E / 4 - 2] >> 16 | q[E / 4 - 1] << 16;
        u32 n = raw.k < 160 ? raw.k / 32 : last ? (raw.k - 240) / 4 : (raw.k - 160) / 16;
        UNROLL for (u32 i = 0; i < E / 4; i++) q[i] = digits(last ? four : q[i], last ? n + i : n);
        return q;
    }
    // Digit n of four bytes.
    DEVICE u32 digits(u32 q, u32 n) {
        u32 power = n < 4 ? 0x1b090301u >> 8 * n & 255 : 81;
        u32 even = (q & 0x00ff00ffu) * power & 0x00ff00ffu, odd = (q >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
        return (even * 3 >> 8 & 0x00030003u) | (odd * 3 & 0x03000300u);
    }
};

// 36 bytes: scales of 16 elements as unsigned E4M3 numbers; for each 16 elements, eight bytes of nibbles that are E2M1 numbers:
// elements 0 .. 8 in the low nibbles, 8 .. 16 in the high ones.
struct WeightNVFP4 : Blocks<WeightNVFP4, true> {
    static constexpr u32 BLOCK = 64, BYTES = 36, GROUP = 16, APART = 0, MOST = 12;
    template <int E> struct Raws { u32x2 q; u32 k; u8 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 64 * BYTES, part = k / 16 % 4;
        return {Words<4>::bytes<8>(row + 4 + (block + part * 8)), k, *(row + (block + part))};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) {
        if constexpr (E == 8) {
            return TableE2M1::all(nibbles(raw.q, raw.k / 8 % 2 * 4));
        } else {
            u32x2 low = TableE2M1::all(nibbles(raw.q, 0)), high = TableE2M1::all(nibbles(raw.q, 4));
            return {low[0], low[1], high[0], high[1]};
        }
    }
    // Converted as F16, whose exponent bias is greater by eight; halved, because the table is doubled. The largest encoding is
    // no number.
    template <class R> DEVICE float factor(const R &raw) {
        u32 e = raw.scale & 127;
        return e == 127 ? 0.0f : f16_to_f32((u16)(e << 7)) * 128.0f;
    }
};
