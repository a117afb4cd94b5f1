// Activations and SCALE, and one ADD or MUL with a row, up to four one after the other: d[i] = f(a[i]).
//
// Memory-bound: 8 bytes an element. Four neighbours a thread, 16 bytes at a time where they are neighbours in memory.
// No LDS.
#include "activation.h"
#include "index.h"
#include "params.h"

// One of four, by a number that all lanes have in common: parameters cannot be indexed.
template <class T> DEVICE T one_of(const T *all, u32 i) {
    return i < 2 ? (i == 0 ? all[0] : all[1]) : i == 2 ? all[2] : all[3];
}

enum { ADD = 101, MUL = 102 };

KERNEL(ROW_THREADS) unary(const float *a, const float *row, float *d, UnaryParams p) {
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
    f32x4 y = p.nb1 ? load_quad(row + p.off1, i0, p.ne[0]) : f32x4(0.0f);
    NO_UNROLL for (u32 f = 0; f < p.count; f++) {
        u32 op = one_of(p.op, f);
        float scale = one_of(p.scale, f), bias = one_of(p.bias, f);
        if (op == ADD) {
            x += y;
        } else if (op == MUL) {
            x *= y;
        } else {
            UNROLL for (u32 j = 0; j < 4; j++) x[j] = op == SCALE ? mad(x[j], scale, bias) : activation(op, x[j]);
        }
    }
    if (dense) {
        *(f32x4 *)(d + i0) = x;
    } else {
        UNROLL for (u32 j = 0; j < 4; j++) if (j < count) d[(u64)(i0 + j) * p.nbd[0]] = x[j];
    }
}
