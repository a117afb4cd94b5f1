// ROPE: rotates pairs of each row by position times frequency. Operands: x, positions, table, factors, result.
//
// A thread rotates one pair: two loads, two stores and about 60 arithmetic instructions, which the memory latency hides.
// Adjacent lanes have adjacent pairs, from one contiguous part of memory (pairs of adjacent elements) or from two (halves). A
// thread after the last pair copies two elements. It reads its elements before it writes them, so the result may be in x.
#include "index.h"
#include "params.h"
#include "rope.h"

KERNEL(ROW_THREADS)
rope(const float *x, const i32 *positions, const float *table, const float *factors, float *d, RopeParams p) {
    Piece piece = row_piece((p.ne[0] + 1) / 2);
    u32 pair = piece.unit;
    if (pair * 2 >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    x += row_offset(p.off0, p.nb0 + 1, i.i1, i.i2, i.i3);
    d += row_offset(p.offd, p.nbd + 1, i.i1, i.i2, i.i3);

    if (pair * 2 >= p.n_dims) {
        u32 j = pair * 2;
        float first = x[j], second = j + 1 < p.ne[0] ? x[j + 1] : 0.0f;
        d[j] = first;
        if (j + 1 < p.ne[0]) d[j + 1] = second;
        return;
    }
    f32x2 turns = *(const f32x2 *)(table + pair * 2);
    if (p.has_factors) turns = divided(turns, factors[p.off2 + pair]);
    u32 j = p.neox ? pair : pair * 2, step = p.neox ? p.n_dims / 2 : 1;
    f32x2 y = turned((f32x2){x[j], x[j + step]}, (float)positions[p.off1 + i.i2], turns, p.magnitude);
    d[j] = y[0];
    d[j + step] = y[1];
}
