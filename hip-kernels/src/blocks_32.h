// Weights in blocks of 32 (blocks.h lists the members of a structure).
//
// Types of 4 and 5 bits have 16 bytes. Their low nibbles are elements 0 .. 16 of the block, their high nibbles elements
// 16 .. 32.
#pragma once

// F16 scale, 32 signed bytes.
struct WeightQ8_0 : BlocksWithScale<WeightQ8_0, true> {
    static constexpr u32 BLOCK = 32, BYTES = 34, GROUP = 32, APART = 0, MOST = 127;
    template <int E> struct Raws { Loaded<E, Words<2>::ALIGNED> q; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 32 * BYTES;
        return {Words<2>::load<E, OPEN>(row + 2 + (block + k % 32)), *(const u16 *)(row + block)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return raw.q.bytes(); }
};

// Bytes of nibbles, which start at byte HEAD of the block, and the place of a lane's eight in them.
template <class W, u32 HEAD, u32 ALIGN> struct Nibbles32 {
    template <int E> using Loads = Loaded<E, Words<ALIGN>::ALIGNED>;
    template <int E, bool OPEN> DEVICE Loads<E> load(const u8 *row, u32 k) {
        return Words<ALIGN>::template load<E, OPEN>(row + HEAD + (k / 32 * W::BYTES + k % 16));
    }
    DEVICE u32 shift(u32 k) { return (k & 16) / 4; }
};

// Combines nibbles with the fifth bits of a block; bit n belongs to element n.
template <class V> DEVICE V five_bits(V q, u32 fifth, u32 k) {
    fifth >>= k;
    V high;
    UNROLL for (u32 i = 0; i < sizeof(V) / 4; i++) high[i] = spread_bits(fifth >> 4 * i);
    return nibbles(q, (k & 16) / 4) | high << 4;
}
// Nibbles only.
struct FourBits {
    template <class R> DEVICE auto bytes(const R &raw) { return nibbles(raw.q.bytes(), raw.shift); }
};

// F16 scale, nibbles with an offset of 8.
struct WeightQ4_0 : BlocksWithScale<WeightQ4_0, false>, FourBits {
    static constexpr u32 BLOCK = 32, BYTES = 18, GROUP = 32, APART = 16, MOST = 8;
    static constexpr float BIAS = 8.0f;
    typedef Nibbles32<WeightQ4_0, 2, 2> Q;
    template <int E> struct Raws { Q::Loads<E> q; u32 shift; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        return {Q::load<E, OPEN>(row, k), Q::shift(k), *(const u16 *)(row + k / 32 * BYTES)};
    }
};

// F16 scale, F16 minimum, nibbles.
struct WeightQ4_1 : BlocksWithMinimum<WeightQ4_1>, FourBits {
    static constexpr u32 BLOCK = 32, BYTES = 20, GROUP = 32, APART = 16, MOST = 15;
    typedef Nibbles32<WeightQ4_1, 4, 4> Q;
    template <int E> struct Raws { Q::Loads<E> q; u32 shift, scales; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        return {Q::load<E, OPEN>(row, k), Q::shift(k), Words<4>::one(row + k / 32 * BYTES)};
    }
    template <class R> DEVICE u32 scales(const R &raw) { return raw.scales; }
};

// F16 scale, fifth bits, nibbles; offset of 16.
struct WeightQ5_0 : BlocksWithScale<WeightQ5_0, false> {
    static constexpr u32 BLOCK = 32, BYTES = 22, GROUP = 32, APART = 16, MOST = 16;
    static constexpr float BIAS = 16.0f;
    typedef Nibbles32<WeightQ5_0, 6, 2> Q;
    template <int E> struct Raws { Q::Loads<E> q; u32 fifth, k; u16 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        u32 block = k / 32 * BYTES;
        return {Q::load<E, OPEN>(row, k), Words<2>::one(row + 2 + block), k % 32, *(const u16 *)(row + block)};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return five_bits(raw.q.bytes(), raw.fifth, raw.k); }
};

// F16 scale, F16 minimum, fifth bits, nibbles.
struct WeightQ5_1 : BlocksWithMinimum<WeightQ5_1> {
    static constexpr u32 BLOCK = 32, BYTES = 24, GROUP = 32, APART = 16, MOST = 31;
    typedef Nibbles32<WeightQ5_1, 8, 8> Q;
    template <int E> struct Raws { Q::Loads<E> q; u32x2 head; u32 k; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) {
        return {Q::load<E, OPEN>(row, k), Words<8>::bytes<8>(row + k / 32 * BYTES), k % 32};
    }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return five_bits(raw.q.bytes(), raw.head[1], raw.k); }
    template <class R> DEVICE u32 scales(const R &raw) { return raw.head[0]; }
};

// Sixteen signed bytes, four in a word, which nibbles select.
template <u32 A, u32 B, u32 C, u32 D> struct Table {
    // Returns four entries: selected in the lower and the upper half of the table by three bits, then between these two by the
    // fourth.
    DEVICE u32 four(u32 numbers) {
        u32 within = numbers & 0x07070707u;
        u32 low = pick_bytes(A, B, within), high = pick_bytes(C, D, within);
        return pick_bytes(low, high, (numbers >> 1 & 0x04040404u) | 0x03020100u);
    }
    template <class V> DEVICE V all(V numbers) {
        UNROLL for (u32 i = 0; i < sizeof(V) / 4; i++) numbers[i] = four(numbers[i]);
        return numbers;
    }
};

// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
typedef Table<0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u> TableIQ4;
// Twice the E2M1 numbers: 0 1 2 3 4 6 8 12, and their negatives.
typedef Table<0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu> TableE2M1;

// F16 scale, nibbles that select from a table.
struct WeightIQ4_NL : BlocksWithScale<WeightIQ4_NL, true> {
    static constexpr u32 BLOCK = 32, BYTES = 18, GROUP = 32, APART = 16, MOST = 127;
    template <int E> using Raws = WeightQ4_0::Raws<E>;
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) { return WeightQ4_0::fetch<E, OPEN>(row, k); }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return TableIQ4::all(nibbles(raw.q.bytes(), raw.shift)); }
};

// E8M0 scale (2^(e - 127)), nibbles that are E2M1 numbers. Blocks of 17 bytes have no alignment.
struct WeightMXFP4 : Blocks<WeightMXFP4, true> {
    static constexpr u32 BLOCK = 32, BYTES = 17, GROUP = 32, APART = 16, MOST = 12;
    typedef Nibbles32<WeightMXFP4, 1, 1> Q;
    template <int E> struct Raws { Q::Loads<E> q; u32 shift; u8 scale; };
    typedef Raws<8> Raw;
    template <int E = 8, bool OPEN = false> DEVICE Raws<E> fetch(const u8 *row, u32 k) { return {Q::load<E, OPEN>(row, k), Q::shift(k), row[k / 32 * BYTES]}; }
    template <int E> DEVICE Bytes<E> bytes(const Raws<E> &raw) { return TableE2M1::all(nibbles(raw.q.bytes(), raw.shift)); }
    // 2^(e - 128), because the table is doubled; the two smallest are subnormal.
    template <class R> DEVICE float factor(const R &raw) {
        u32 e = raw.scale;
        return bits_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
};
