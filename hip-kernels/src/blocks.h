// Weights as stored in GGUF files, read in groups of eight adjacent elements of a row; of block types also 16.
//
// Every kernel that reads weights (products and GET_ROWS) uses one of these structures:
//
//   Raw         loaded data, so that loads can be issued long before their values are needed
//   fetch       loads elements k .. k + 8 of a row; k is a multiple of 8
//   fetch_some  the same where the row may end before k + 8: elements after the end are zeros
//   decode      returns the eight values, up to a factor
//   one         returns one value of a plain type
//   BIAS        is subtracted from each decoded value (a nibble has an offset of 8)
//
// and for block types, which have `Raws<E>` and fetch<E> for E = 8 and 16 elements (k a multiple of E; Q4_K also 32, with OPEN
// where words after the row can be read, as in LDS):
//
//   bytes       integers below 128 in magnitude, one in each byte; SIGNED if they are signed. `decode` returns these
//   factor      the scale of the block
//   offset      is added to each value after that, if the type has OFFSET
//   MOST        largest magnitude of an integer, without the bias
//   settle      receives k again where the compiler can see that it is constant in a loop, so that values derived from it are
//               computed outside the loop. fetch receives it hidden (offset_here)
//   GROUP       number of adjacent elements with the same factor and offset
//   APART       elements k and k + APART share the loaded bytes (k a multiple of 8, k / APART even). Both are fetched at the
//               price of one: the compiler sees that the loads are equal. 0 if no two groups of eight share bytes
//
// so value i is factor * (decode[i] - BIAS) + offset. In a product, factor, bias and offset are applied to sums of eight
// instead of to each value: sum(w y) = factor * (sum(decode y) - BIAS * sum(y)) + offset * sum(y).
//
// Tensors start at multiples of 16, so the alignment of blocks follows from their size in bytes. It determines how many
// instructions a load takes on PTX. Rows are whole blocks, so eight elements are all present or all absent.
#pragma once
#include "device.h"

// ---- Parts of decoders ----

// E bytes as words.
template <int E> struct BytesOf { typedef u32 Type __attribute__((ext_vector_type(E / 4))); };
template <int E> using Bytes = typename BytesOf<E>::Type;

#if !DEVICE_AMD
// Four words of memory at a multiple of 16. (Written in C, the compiler would merge it with an unaligned load and issue four.)
DEVICE u32x4 four_aligned(const void *at) {
    u32x4 x;
    __asm__("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(at));
    return x;
}
#endif

// E loaded bytes.
template <int E, bool ALIGNED> struct Loaded {
    Bytes<E> all;
    INLINED Bytes<E> bytes() const { return all; }
};
#if !DEVICE_AMD
// At any address: the words that contain them, because PTX has no wide unaligned loads. They are combined where they are used,
// so that nothing waits for a load before that.
template <int E> struct Loaded<E, false> {
    u32 word[E / 4 + 1], shift;
    INLINED Bytes<E> bytes() const {
        Bytes<E> out;
        UNROLL for (u32 i = 0; i < E / 4; i++) out[i] = __nvvm_prmt(word[i], word[i + 1], 0x3210u + 0x1111u * shift);
        return out;
    }
};
#endif

// A word, or E bytes, at an address that is a multiple of ALIGN. (Structures, because an alignment in a typedef is lost where
// the type is a template argument.)
template <u32 ALIGN> struct Words {
    static constexpr bool ALIGNED = DEVICE_AMD || ALIGN >= 4;
    struct __attribute__((packed, aligned(ALIGN))) One { u32 value; };
    template <int E> struct __attribute__((packed, aligned(ALIGN))) Many { Bytes<E> value; };
    DEVICE u32 one(const u8 *at) { return ((const One *)at)->value; }
    template <int E> DEVICE Bytes<E> bytes(const u8 *at) { return load<E>(at).bytes(); }
    // The last word is read only if a byte of it is needed, or always with OPEN: in LDS there is more after it.
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

// Returns four bits of each byte from bit `shift` on, which is 0 or 4; two bits from `shift` on.
template <class V> DEVICE V nibbles(V q, u32 shift) { return q >> shift & 0x0f0f0f0fu; }
template <class V> DEVICE V bit_pairs(V q, u32 shift) { return q >> shift & 0x03030303u; }
// Moves bit `from` of each byte (and the next, with a mask of two bits) to bit TO; masks bits that leave their byte.
template <u32 TO, u32 MASK, class V> DEVICE V moved_bits(V q, u32 from) {
    constexpr u32 EACH = (MASK << TO) * 0x01010101u;
    u32 by = (from - TO) & 31;
    UNROLL for (u32 i = 0; i < sizeof(V) / 4; i++) q[i] = __builtin_rotateright32(q[i], by) & EACH;
    return q;
}

// Selects four of the bytes of two words by number: those of `low` are 0 .. 3, those of `high` 4 .. 7.
DEVICE u32 pick_bytes(u32 low, u32 high, u32 numbers) {
#if DEVICE_AMD
    return __builtin_amdgcn_perm(high, low, numbers);
#else
    // Here the numbers are nibbles.
    u32 pairs = (numbers | numbers >> 4) & 0x00ff00ffu;
    return __nvvm_prmt(low, high, (pairs | pairs >> 8) & 0xffff);
#endif
}

// Bits 0 .. 4 of a word, one in each byte. The product of such small numbers runs at full rate.
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

// F16 and BF16 differ only in the conversion.
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
// Plain numbers whose rows start at multiples of 16 bytes.
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

// Calls a lambda with W or, on NVIDIA's processors, with Aligned<W> if rows of plain numbers start at multiples of 16 bytes.
// `places`: addresses and distances of rows in bytes, combined by `|`.
template <class W, class CALL> DEVICE void by_alignment(u64 places, const CALL &call) {
#if !DEVICE_AMD
    if constexpr (W::BLOCK == 1) {
        if (places % 16 == 0) return call(Aligned<W>{});
    }
#endif
    (void)places;
    call(W{});
}

// Common to block types.
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

// Block types whose Raw has an F16 scale as `scale`; those with an F16 scale and an F16 minimum in a word, returned by
// `scales`.
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

// Computes the eight values.
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

// Loads the elements of a row from `k` on, up to eight; with `fetch` where eight are left.
template <class W> DEVICE typename W::Raw fetch_any(const u8 *row, u32 k, u32 end) {
    return k + 8 <= end ? W::fetch(row, k) : W::fetch_some(row, k, end);
}

// Stores eight values of a row, or as many as are left.
template <class T> DEVICE void store_any(T *d, const T *x, u32 left) {
    if (left >= 8) {
        typedef T T8 __attribute__((ext_vector_type(8), aligned(sizeof(T))));
        *(T8 *)d = (T8){x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
    } else {
        UNROLL for (u32 j = 0; j < 7; j++) if (j < left) d[j] = x[j];
    }
}
