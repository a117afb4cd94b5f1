// Activations in 8 bits for MUL_MAT (int8.h), with or without a norm.
#include "index.h"
#include "int8.h"
#include "params.h"

// A thread rounds eight adjacent elements of a row of b. Rows are contiguous in scratch.
KERNEL(ROW_THREADS) quantize_int8(const float *b, u8 *q, float *scale, MulMatParams p) {
    const u32 ne[4] = {p.k, p.n, p.ne2, p.ne3};
    Piece piece = row_piece(p.k / 8);
    if (piece.unit >= p.k / 8 || piece.row >= p.n * p.ne2 * p.ne3) return;
    Index i = row_index(piece.row, ne);
    b += row_offset(p.off1, p.nb1, i.i1, i.i2, i.i3);
    EightInt8 eight = quantize_eight(WeightF32::fetch((const u8 *)b, piece.unit * 8));
    *(lds_u32x2 *)(q + (u64)piece.row * p.k + piece.unit * 8) = eight.q;
    if (piece.unit % 4 == 0) scale[(u64)piece.row * (p.k / 32) + piece.unit / 4] = eight.scale;
}

// The same for tiles of weights that have HeadK: the data of 256 adjacent elements are stored together (RoundedK).
KERNEL(ROW_THREADS) quantize_int8_k(const float *b, u8 *q, float *blocks, MulMatParams p) {
    const u32 ne[4] = {p.k, p.n, p.ne2, p.ne3};
    Piece piece = row_piece(p.k / 8);
    if (piece.unit >= p.k / 8 || piece.row >= p.n * p.ne2 * p.ne3) return;
    Index i = row_index(piece.row, ne);
    b += row_offset(p.off1, p.nb1, i.i1, i.i2, i.i3);
    EightInt8 eight = quantize_eight(WeightF32::fetch((const u8 *)b, piece.unit * 8));
    *(lds_u32x2 *)(q + (u64)piece.row * p.k + piece.unit * 8) = eight.q;
    store_rounded_k((RoundedK *)blocks + (u64)piece.row * (p.k / 256) + piece.unit / 32, piece.unit % 32, eight);
}

// Destination of RMS_NORM(x) * w of column n, eight adjacent elements at a time; rows may end within them.
struct ToF32 {
    float *y;
    INLINED void take(u32 n, u32 k, u32 end, const WeightF32::Raw &raw) const {
        float eight[8];
        WeightF32::decode(raw, eight);
        store_any(y + (u64)n * end + k, eight, end - k);
    }
};
struct ToInt8 {
    u8 *q;
    float *scale;
    INLINED void take(u32 n, u32 k, u32 end, const WeightF32::Raw &raw) const {
        EightInt8 eight = quantize_eight(raw);
        u64 at = (u64)n * end + k;
        *(lds_u32x2 *)(q + at) = eight.q;
        if (k % 32 == 0) scale[at / 32] = eight.scale;
    }
};

// A work-group for each column, for products that do not compute the norm themselves.
template <class TO> DEVICE void normalize(const float *x, const float *w, const TO &to, const ProductsParams &p) {
    LDS float scratch[ROW_THREADS / WAVE];
    u32 n = group_x();
    const u8 *row = (const u8 *)(x + (u64)n * p.nb1[0]);
    float sum = 0.0f;
    for (u32 k = thread_id() * 8; k < p.k; k += ROW_THREADS * 8) {
        float y[8];
        WeightF32::decode(fetch_any<WeightF32>(row, k, p.k), y);
        UNROLL for (int j = 0; j < 8; j++) sum = mad(y[j], y[j], sum);
    }
    sum = group_reduce<Sum, ROW_THREADS>(sum, scratch);
    float scale = 1.0f / __builtin_sqrtf(sum / (float)p.k + p.eps);
    for (u32 k = thread_id() * 8; k < p.k; k += ROW_THREADS * 8) {
        WeightF32::Raw y = fetch_any<WeightF32>(row, k, p.k), by = fetch_any<WeightF32>((const u8 *)w, k, p.k);
        to.take(n, k, p.k, WeightF32::Raw{y.low * scale * by.low, y.high * scale * by.high});
    }
}

KERNEL(ROW_THREADS) normalize_f32(const float *x, const float *w, float *y, ProductsParams p) {
    normalize(x, w, ToF32{y}, p);
}

KERNEL(ROW_THREADS) normalize_int8(const float *x, const float *w, u8 *q, float *scale, ProductsParams p) {
    normalize(x, w, ToInt8{q, scale}, p);
}
