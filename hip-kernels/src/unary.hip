// Activations and SCALE: d[i] = f(a[i]).
//
// Memory-bound: 8 bytes an element. Four neighbours a thread, 16 bytes at a time where they are neighbours in memory.
// No LDS.
#include "activation.h"
#include "index.h"
#include "params.h"

DEVICE float apply(const UnaryParams &p, float x) {
    return p.op == SCALE ? mad(x, p.scale, p.bias) : activation(p.op, x);
}

KERNEL(ROW_THREADS) unary(const float *a, float *d, UnaryParams p) {
    Piece piece = row_piece((p.ne[0] + 3) / 4);
    u32 i0 = piece.unit * 4;
    if (i0 >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    a += row_offset(p.off0, p.nb0 + 1, i.i1, i.i2, i.i3);
    d += row_offset(p.offd, p.nbd + 1, i.i1, i.i2, i.i3);

    // One text of the functions for both ways of access keeps the code small; only loads and stores differ.
    u32 count = minimum(p.ne[0] - i0, 4);
    bool dense = p.nb0[0] == 1 && p.nbd[0] == 1 && count == 4;
    f32x4 x = f32x4(0.0f);
    if (dense) {
        x = *(const f32x4 *)(a + i0);
    } else {
        UNROLL for (u32 j = 0; j < 4; j++) if (j < count) x[j] = a[(u64)(i0 + j) * p.nb0[0]];
    }
    UNROLL for (u32 j = 0; j < 4; j++) x[j] = apply(p, x[j]);
    if (dense) {
        *(f32x4 *)(d + i0) = x;
    } else {
        UNROLL for (u32 j = 0; j < 4; j++) if (j < count) d[(u64)(i0 + j) * p.nbd[0]] = x[j];
    }
}
