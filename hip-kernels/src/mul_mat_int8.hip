// Activations in 8 bits for MUL_MAT (int8.h).
#include "index.h"
#include "int8.h"
#include "params.h"

// A thread rounds eight neighbours of a row of b; rows follow each other in scratch.
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
