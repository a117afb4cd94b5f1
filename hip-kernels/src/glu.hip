// Gated linear units: d[i] = activation(gate[i]) * up[i]. With one operand both pointers are the same, and the offsets select
// its halves.
//
// Memory-bound: 12 bytes for each element. Rows are dense, so a thread moves four adjacent elements, 16 bytes at a time. No
// LDS.
#include "activation.h"
#include "index.h"
#include "params.h"

KERNEL(ROW_THREADS) glu(const float *gate, const float *up, float *d, GluParams p) {
    Piece piece = row_piece((p.ne[0] + 3) / 4);
    u32 i0 = piece.unit * 4;
    if (i0 >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    gate += row_offset(p.off0, p.nb0 + 1, i.i1, i.i2, i.i3) + i0;
    up += row_offset(p.off1, p.nb1 + 1, i.i1, i.i2, i.i3) + i0;
    d += row_offset(p.offd, p.nbd + 1, i.i1, i.i2, i.i3) + i0;

    u32 count = minimum(p.ne[0] - i0, 4);
    f32x4 x = f32x4(0.0f), y = f32x4(0.0f);
    if (count == 4) {
        x = *(const f32x4 *)gate;
        y = *(const f32x4 *)up;
    } else {
        UNROLL for (u32 j = 0; j < 3; j++) if (j < count) { x[j] = gate[j]; y[j] = up[j]; }
    }
    UNROLL for (u32 j = 0; j < 4; j++) x[j] = gated(p, x[j], y[j]);
    if (count == 4) {
        *(f32x4 *)d = x;
    } else {
        UNROLL for (u32 j = 0; j < 3; j++) if (j < count) d[j] = x[j];
    }
}
