// Weights as they lie in GGUF files: eight neighbours of a row at a time, of block types also sixteen.
//
// Every kernel that reads weights (products and GET_ROWS) does so through one of these structures:
//
//   Raw         what was loaded, so that loads can be issued long before their values are needed
//   fetch       loads elements k .. k + 8 of a row; k is a multiple of 8
//   fetch_some  the same where the row may end before k + 8: what is beyond gives zeros
//   decode      the eight values, up to a factor
//   one         one value of a plain type
//   BIAS        what has to be taken from each decoded value (a nibble counts from 8)
//
// and of block types, which have `Raws<E>` and fetch<E> for E = 8 and 16 neighbours (k a multiple of E; of Q4_K also 32, with
// OPEN where words behind the row can be read, as in LDS):
//
//   bytes       whole numbers below 128 in magnitude, one a byte; SIGNED where they are signed. `decode` is these
//   factor      the scale of the block
//   offset      what is added to each value after that, where the type has OFFSET
//   MOST        magnitude of a whole number, the bias taken off
//   settle      tells k again, where it is known to be the same throughout a loop: what decoding makes of it stays
//               outside. fetch gets it hidden (offset_here)
//   GROUP       neighbours that have factor and offset in common
//   APART       elements k and k + APART share the bytes that are loaded (k a multiple of 8, k / APART even). Both
//               are fetched where one is, for one price: the compiler sees that the loads are the same. 0 where no
//               two eights share bytes
//
// so value i is factor * (decode[i] - BIAS) + offset. In a product factor, bias and offset are applied to sums of
// eight instead of to each value: sum(w y) = factor * (sum(decode y) - BIAS * sum(y)) + offset * sum(y).
//
// Tensors begin at multiples of 16, so blocks are aligned as far as their size in bytes is; that decides how many
// instructions a load is for PTX. Rows are whole blocks, so eight elements are all there or not at all.
#pragma once
#include "device.h"

// ---- What decoders are made of ----

// E bytes in words.
template <int E> struct BytesOf { typedef u32 Type __attribute__((ext_vector_type(E / 4))); };
template <int E> using Bytes = typename BytesOf<E>::Type;

#if !DEVICE_AMD
// Four words of memory at a multiple of 16. (Told in C, the compiler would make one load of it and of one that is told to
// be anywhere, four.)
DEVICE u32x4 four_aligned(const void *at) {
    u32x4 x;
    __asm__("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(at));
    return x;
}
#endif

// What was loaded of E bytes.
template <int E, bool ALIGNED> struct Loaded {
    Bytes<E> all;
    __attribute__((device, always_inline)) Bytes<E> bytes() const { return all; }
};
#if !DEVICE_AMD
// At any address the words that hold them: PTX has no wide loads that are not aligned. They are put together where they
// are used, so that nothing waits for a load before that.
template <int E> struct Loaded<E, false> {
    u32 word[E / 4 + 1], shift;
    __attribute__((device, always_inline)) Bytes<E> bytes() const {
        Bytes<E> out;
        UNROLL for (u32 i = 0; i < E / 4; i++) out[i] = __nvvm_prmt(word[i], word[i + 1], 0x3210u + 0x1111u * shift);
        return out;
    }
};
#endif

// A word, or E bytes, at an address that is a multiple of ALIGN. (Structures, because an alignment that is part of a
// type's name is lost where the type is a template's argument.)
template <u32 ALIGN> struct Words {
    static constexpr bool ALIGNED = DEVICE_AMD || ALIGN >= 4;
    struct __attribute__((packed, aligned(ALIGN))) One { u32 value; };
    template <int E> struct __attribute__((packed, aligned(ALIGN))) Many { Bytes<E> value; };
    DEVICE u32 one(const u8 *at) { return ((const One *)at)->value; }
    template <int E> DEVICE Bytes<E> bytes(const u8 *at) { return load<E>(at).bytes(); }
    // The last word is read only where a byte of it is wanted, or with OPEN in any case: in LDS there is more behind it.
    template <int E, bool OPEN = false> DEVICE Loaded<E, ALIGNED> load(const u8 *at) {
        Loaded<E, ALIGNED> out;
        if constexpr (ALIGNED) {
            out.all = ((const Many<E> *)at)->value;
        } else {
            out.shift = (u32)(u64)at & 3;
            const u32 *words = (const u32 *)(at - out.shift);
            UNROLL for (u32 i = 0; i < E / 4; i++) out.word[i] = words[i];
            out.word[E / 4] = words[OPEN || out.shift ? E / 4 : E / 4 - 1];
        }
        return out;
    }
};

// The four bits of each byte from bit `shift` on, which is 0 or 4; the two bits from `shift` on.
template <class V> DEVICE V nibbles(V q, u32 shift) { return q >> shift & 0x0f0f0f0fu; }
template <class V> DEVICE V bit_pairs(V q, u32 shift) { return q >> shift & 0x03030303u; }
// Bit `from` of each byte (and the next, with a mask of two) moved to bit TO: bits that leave a byte are masked.
template <u32 TO, u32 MASK, class V> DEVICE V moved_bits(V q, u32 from) {
    constexpr u32 EACH = (MASK << TO) * 0x01010101u;
    u32 by = (from - TO) & 31;
    UNROLL for (u32 i = 0; i < sizeof(V) / 4; i++) q[i] = __builtin_rotateright32(q[i], by) & EACH;
    return q;
}

// Four of the bytes of two words, by their numbers: those of `low` are 0 .. 3, those of `high` 4 .. 7.
DEVICE u32 pick_bytes(u32 low, u32 high, u32 numbers) {
#if DEVICE_AMD
    return __builtin_amdgcn_perm(high, low, numbers);
#else
    // Here the numbers are nibbles.
    u32 pairs = (numbers | numbers >> 4) & 0x00ff00ffu;
    return __nvvm_prmt(low, high, (pairs | pairs >> 8) & 0xffff);
#endif
}

// Bits 0 .. 4 of a word, one a byte. The product of such small numbers is full rate.
DEVICE u32 spread_bits(u32 bits) { return (bits & 15) * 0x00204081u & 0x01010101u; }

// ---- Types ----

struct WeightF32 {
    static constexpr u32 BLOCK = 1, BYTES = 4, APART = 0;
    static constexpr float BIAS = 0.0f;
    static constexpr bool OFFSET = false;
    struct Raw { f32x4 low, high; };
    template <int E = 8> DEVICE Raw fetch(const u8 *row, u32 k) {
        static_assert(E == 8, "");
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
    DEVICE float one(const u8 *row, u32 k) { return ((const float *)row)[k]; }
};

// F16 and BF16 differ in the conversion only.
template <bool BRAIN> struct Weight16 {
    static constexpr u32 BLOCK = 1, BYTES = 2, APART = 0;
    static constexpr float BIAS = 0.0f;
    static constexpr bool OFFSET = false;
    struct Raw { u16x8 x; };
    template <int E = 8> DEVICE Raw fetch(const u8 *row, u32 k) {
        static_assert(E == 8, "");
        return {*(const u16x8 *)(row + k * 2)};
    }
    DEVICE Raw fetch_some(const u8 *row, u32 k, u32 end) {
        const u16 *at = (const u16 *)row;
        Raw raw = {u16x8(0)};
        UNROLL for (u32 j = 0; j < 8; j++) if (k + j < end) raw.x[j] = at[k + j];
        return raw;
    }
    DEVICE void decode(const Raw &raw, float *out) {
        UNROLL for (int j = 0; j < 8; j++) out[j] = BRAIN ? bf16_to_f32(raw.x[j]) : f16_to_f32(raw.x[j]);
    }
    DEVICE float one(const u8 *row, u32 k) {
        u16 x = ((const u16 *)row)[k];
        return BRAIN ? bf16_to_f32(x) : f16_to_f32(x);
    }
};
typedef Weight16<false> WeightF16;
typedef Weight16<true> WeightBF16;

#if !DEVICE_AMD
// Plain numbers whose rows begin at multiples of 16 bytes.
template <class W> struct Aligned : W {
    template <int E = 8> DEVICE typename W::Raw fetch(const u8 *row, u32 k) {
        const u8 *at = row + k * W::BYTES;
        if constexpr (W::BYTES == 2) {
            return {__builtin_bit_cast(u16x8, four_aligned(at))};
        } else {
            return {__builtin_bit_cast(f32x4, four_aligned(at)), __builtin_bit_cast(f32x4, four_aligned(at + 16))};
        }
    }
};
#endif

// What block types have in common.
template <class W, bool IS_SIGNED> struct Blocks {
    static constexpr float BIAS = 0.0f;
    static constexpr bool SIGNED = IS_SIGNED, OFFSET = false;
    template <class V = W> DEVICE typename V::Raw fetch_some(const u8 *row, u32 k, u32 end) {
        return k < end ? V::fetch(row, k) : typename V::Raw{};
    }
    template <class R> DEVICE void settle(R *, u32) {}
    template <class R> DEVICE void decode(const R &raw, float *out) {
        auto q = W::bytes(raw);
        UNROLL for (u32 i = 0; !SIGNED && i < sizeof(q) / 4; i++) q[i] = as_it_is(q[i]);
        UNROLL for (u32 j = 0; j < sizeof(q); j++) {
            out[j] = SIGNED ? i8_to_f32(q[j / 4], j % 4) : u8_to_f32(q[j / 4], j % 4);
        }
    }
};

// Those whose Raw has an F16 scale as `scale`; an F16 scale and an F16 minimum in a word, which `scales` gives.
template <class W, bool IS_SIGNED> struct BlocksWithScale : Blocks<W, IS_SIGNED> {
    template <class R> DEVICE float factor(const R &raw) { return f16_to_f32(raw.scale); }
};
template <class W> struct BlocksWithMinimum : Blocks<W, false> {
    static constexpr bool OFFSET = true;
    template <class R> DEVICE float factor(const R &raw) { return f16_to_f32((u16)W::scales(raw)); }
    template <class R> DEVICE float offset(const R &raw) { return f16_to_f32((u16)(W::scales(raw) >> 16)); }
};

#include "blocks_256.h"
#include "blocks_32.h"

// The eight values themselves.
template <class W> DEVICE void decode_values(const typename W::Raw &raw, float *out) {
    W::decode(raw, out);
    if constexpr (W::BLOCK > 1) {
        float factor = W::factor(raw), offset = -W::BIAS * factor;
        if constexpr (W::OFFSET) offset += W::offset(raw);
        if constexpr (W::BIAS != 0.0f || W::OFFSET) {
            UNROLL for (int j = 0; j < 8; j++) out[j] = mad(out[j], factor, offset);
        } else {
            UNROLL for (int j = 0; j < 8; j++) out[j] *= factor;
        }
    }
}

// The rest of a row of which `k` elements are before: fetched in eights wherever that many are left.
template <class W> DEVICE typename W::Raw fetch_any(const u8 *row, u32 k, u32 end) {
    return k + 8 <= end ? W::fetch(row, k) : W::fetch_some(row, k, end);
}

// Eight values to their place in a row, or as many as are left of it.
template <class T> DEVICE void store_any(T *d, const T *x, u32 left) {
    if (left >= 8) {
        typedef T T8 __attribute__((ext_vector_type(8), aligned(sizeof(T))));
        *(T8 *)d = (T8){x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
    } else {
        UNROLL for (u32 j = 0; j < 7; j++) if (j < left) d[j] = x[j];
    }
}
