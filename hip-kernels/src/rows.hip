// GET_ROWS and SET_ROWS: rows of a matrix by index.
//
// Memory-bound. A thread moves eight neighbours of one row: 8 to 32 bytes in, 16 to 32 bytes out, decoded or rounded
// on the way. An index outside the matrix is never followed: GET_ROWS gives zeros, SET_ROWS writes nothing. No LDS.
#include "blocks.h"
#include "index.h"
#include "params.h"

template <class T> DEVICE void store_some(T *d, const T *x, u32 count) {
    UNROLL for (u32 j = 0; j < 8; j++) if (j < count) d[j] = x[j];
}

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
    if (k + 8 <= p.ne[0]) {
        *(f32x4 *)d = (f32x4){x[0], x[1], x[2], x[3]};
        *(f32x4 *)(d + 4) = (f32x4){x[4], x[5], x[6], x[7]};
    } else {
        store_some(d, x, p.ne[0] - k);
    }
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
GET_ROWS(q6_k, WeightQ6_K)

DEVICE void round_into(float *y, float x) { *y = x; }
DEVICE void round_into(u16 *y, float x) { *y = f32_to_f16(x); }

template <class T> DEVICE void set_rows(const float *values, const i32 *ids, T *d, const SetRowsParams &p) {
    Piece piece = row_piece((p.ne[0] + 7) / 8);
    u32 k = piece.unit * 8;
    if (k >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    u32 i2 = wrap(i.i2, p.ids_ne[0], p.ne[2]), i3 = wrap(i.i3, p.ids_ne[1], p.ne[3]);
    u32 id = (u32)ids[row_offset(p.off1, p.nb1, i.i1, i2, i3)];
    if (id >= p.rows) return;
    const u8 *row = (const u8 *)(values + row_offset(p.off0, p.nb0, i.i1, i.i2, i.i3));
    d += row_offset(p.offd, p.nbd, id, i.i2, i.i3) + k;

    float x[8];
    WeightF32::decode(fetch_any<WeightF32>(row, k, p.ne[0]), x);
    T y[8];
    UNROLL for (int j = 0; j < 8; j++) round_into(&y[j], x[j]);
    if (k + 8 <= p.ne[0]) {
        typedef T T8 __attribute__((ext_vector_type(8), aligned(sizeof(T))));
        *(T8 *)d = (T8){y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7]};
    } else {
        store_some(d, y, p.ne[0] - k);
    }
}

KERNEL(ROW_THREADS) set_rows_f32(const float *values, const i32 *ids, float *d, SetRowsParams p) {
    set_rows(values, ids, d, p);
}
KERNEL(ROW_THREADS) set_rows_f16(const float *values, const i32 *ids, u16 *d, SetRowsParams p) {
    set_rows(values, ids, d, p);
}
