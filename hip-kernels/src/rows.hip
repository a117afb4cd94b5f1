// GET_ROWS and SET_ROWS: rows of a matrix by index.
//
// Memory-bound. A thread moves eight adjacent elements of one row: 8 to 32 bytes in, 16 to 32 bytes out, decoded or rounded on
// the way. An index outside the matrix is never followed: GET_ROWS returns zeros, SET_ROWS writes nothing. No LDS.
#include "blocks_iq.h"
#include "blocks_low.h"
#include "index.h"
#include "params.h"
#include "put.h"

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
// I32 rows are moved as F32: no arithmetic is applied, so no bit changes.
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
GET_ROWS(q1_0, WeightQ1_0)
GET_ROWS(q2_0, WeightQ2_0)
GET_ROWS(nvfp4, WeightNVFP4)
GET_ROWS(tq1_0, WeightTQ1_0)
GET_ROWS(tq2_0, WeightTQ2_0)
GET_ROWS(iq1_s, WeightIQ1_S)
GET_ROWS(iq1_m, WeightIQ1_M)
GET_ROWS(iq2_xxs, WeightIQ2_XXS)
GET_ROWS(iq2_xs, WeightIQ2_XS)
GET_ROWS(iq2_s, WeightIQ2_S)
GET_ROWS(iq3_xxs, WeightIQ3_XXS)
GET_ROWS(iq3_s, WeightIQ3_S)

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
