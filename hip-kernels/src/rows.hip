// GET_ROWS and SET_ROWS: rows of a matrix by index.
//
// Memory-bound. A thread moves eight neighbours of one row: 8 to 32 bytes in, 16 to 32 bytes out, decoded or rounded
// on the way. An index outside the matrix is never followed: GET_ROWS gives zeros, SET_ROWS writes nothing. No LDS.
#include "blocks.h"
#include "index.h"
#include "params.h"

template <class W> DEVICE void get_rows(const u8 *a, const i32 *ids, float *d, const GetRowsParams &p) {
    Piece piece = row_piece((p.ne[0] + 7) / 8);
    u32 k = piece.unit * 8;
    if (k >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    u32 id = (u32)ids[row_offset(p.off1, p.nb1, i.i1, i.i2, i.i3)];
    d += row_offset(p.offd, p.nbd, i.i1, i.i2, i.i3) + k;

    float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (id < p.rows) {
        const u8 *row = a + row_offset(p.off0, p.nb0, id, i.i2, i.i3) * W::BYTES;
        decode_values<W>(fetch_any<W>(row, k, p.ne[0]), x);
    }
    store_any(d, x, p.ne[0] - k);
}

#define GET_ROWS(name, W) \
    KERNEL(ROW_THREADS) get_rows_##name(const u8 *a, const i32 *ids, float *d, GetRowsParams p) { \
        get_rows<W>(a, ids, d, p); \
    }
// I32 rows are moved as F32: nothing is computed with them, so no bit changes.
GET_ROWS(f32, WeightF32)
GET_ROWS(f16, WeightF16)
GET_ROWS(bf16, WeightBF16)
GET_ROWS(q8_0, WeightQ8_0)
GET_ROWS(q4_0, WeightQ4_0)
GET_ROWS(q4_1, WeightQ4_1)
GET_ROWS(q5_0, WeightQ5_0)
GET_ROWS(q5_1, WeightQ5_1)
GET_ROWS(q2_k, WeightQ2_K)
GET_ROWS(q3_k, WeightQ3_K)
GET_ROWS(q4_k, WeightQ4_K)
GET_ROWS(q5_k, WeightQ5_K)
GET_ROWS(q6_k, WeightQ6_K)
GET_ROWS(iq4_nl, WeightIQ4_NL)
GET_ROWS(iq4_xs, WeightIQ4_XS)
GET_ROWS(mxfp4, WeightMXFP4)

// What rows are written as: put rounds elements k .. k + 8 of a row into their place, as far as the row goes.
template <class T> struct Plain {
    static constexpr u32 BYTES = sizeof(T);
    DEVICE void round(float *y, float x) { *y = x; }
    DEVICE void round(u16 *y, float x) { *y = f32_to_f16(x); }
    DEVICE void put(u8 *row, u32 k, const float *x, u32 end) {
        T y[8];
        UNROLL for (int j = 0; j < 8; j++) round(&y[j], x[j]);
        store_any((T *)row + k, y, end - k);
    }
};

// Blocks of 32 are rounded by four lanes side by side. The scale is F16 in the block, but numbers are for the scale
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
        // Nearest, halves away from zero.
        UNROLL for (int j = 0; j < 8; j++) q[j] = (u32)(i32)__builtin_roundf(x[j] * inverse);
        u8 *block = row + (u64)(k / 32) * BYTES;
        *(u32x2 *)(block + 2 + k % 32) = (u32x2){low_bytes(q[0], q[1], q[2], q[3]), low_bytes(q[4], q[5], q[6], q[7])};
        if (k % 32 == 0) *(u16 *)block = f32_to_f16(scale);
    }
};

// The word of the lane two further in each four.
template <int LANES> DEVICE u32 from_other_half(u32 x) { return f32_bits(LANES_XOR_2(bits_f32(x))); }

struct BlockQ4_0 {
    static constexpr u32 BYTES = 18;
    // The first element of the largest magnitude becomes -8: whether it is negative.
    DEVICE bool extreme_is_negative(u32 k, const float *x, float most) {
        u32 first = 0;
        // From the last to the first; a greater number for an earlier place, its lowest bit the sign.
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

template <class B> DEVICE void set_rows(const float *values, const i32 *ids, u8 *d, const SetRowsParams &p) {
    Piece piece = row_piece((p.ne[0] + 7) / 8);
    u32 k = piece.unit * 8;
    if (k >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    u32 i2 = wrap(i.i2, p.ids_ne[0], p.ne[2]), i3 = wrap(i.i3, p.ids_ne[1], p.ne[3]);
    u32 id = (u32)ids[row_offset(p.off1, p.nb1, i.i1, i2, i3)];
    if (id >= p.rows) return;
    const u8 *row = (const u8 *)(values + row_offset(p.off0, p.nb0, i.i1, i.i2, i.i3));
    float x[8];
    WeightF32::decode(fetch_any<WeightF32>(row, k, p.ne[0]), x);
    B::put(d + row_offset(p.offd, p.nbd, id, i.i2, i.i3) * B::BYTES, k, x, p.ne[0]);
}

#define SET_ROWS(name, B) \
    KERNEL(ROW_THREADS) set_rows_##name(const float *values, const i32 *ids, u8 *d, SetRowsParams p) { \
        set_rows<B>(values, ids, d, p); \
    }
SET_ROWS(f32, Plain<float>)
SET_ROWS(f16, Plain<u16>)
SET_ROWS(q8_0, BlockQ8_0)
SET_ROWS(q4_0, BlockQ4_0)
