// Element-wise functions, up to four in sequence: d[i] = f(a[i], ...). Sums, products and gated units have another operand
// each, which may be repeated: its stride is then 0.
//
// Memory-bound: 8 bytes for each element, and 4 for each other operand that is not repeated. A thread has four adjacent
// elements, 16 bytes at a time if they are dense. No LDS.
#include "activation.h"
#include "index.h"
#include "params.h"

enum { ADD = 101, MUL = 102, GATED = 128, GATE = 192 };

// Returns four adjacent elements of a row with any stride, from i0 on; those after the end are 0.
DEVICE f32x4 neighbours(const float *row, u32 stride, u32 i0, u32 count) {
    if (stride == 1 && count == 4) return *(const f32x4 *)(row + i0);
    if (stride == 0) return f32x4(row[0]);
    f32x4 x = f32x4(0.0f);
    UNROLL for (u32 j = 0; j < 4; j++) if (j < count) x[j] = row[(u64)(i0 + j) * stride];
    return x;
}

KERNEL(ROW_THREADS) unary(const float *a, const float *b, const float *c, const float *e, float *d, UnaryParams p) {
    Piece piece = row_piece((p.ne[0] + 3) / 4);
    u32 i0 = piece.unit * 4;
    if (i0 >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    u32 count = minimum(p.ne[0] - i0, 4), others = p.count >> 8;
    f32x4 x = neighbours(a + row_offset(p.off0, p.nb0 + 1, i.i1, i.i2, i.i3), p.nb0[0], i0, count);
    // The next other operand is always `y`; the last one moves up.
    f32x4 y = f32x4(0.0f), y1 = f32x4(0.0f), y2 = f32x4(0.0f);
    if (others > 0) y = neighbours(b + row_offset(p.off[0], p.nb[0] + 1, i.i1, i.i2, i.i3), p.nb[0][0], i0, count);
    if (others > 1) y1 = neighbours(c + row_offset(p.off[1], p.nb[1] + 1, i.i1, i.i2, i.i3), p.nb[1][0], i0, count);
    if (others > 2) y2 = neighbours(e + row_offset(p.off[2], p.nb[2] + 1, i.i1, i.i2, i.i3), p.nb[2][0], i0, count);

    float scale = p.scale[0][0], bias = p.scale[0][1];
    u32 ops = p.op;
    NO_UNROLL for (u32 f = 0; f < (p.count & 255); f++, ops >>= 8) {
        u32 op = ops & 255;
        if (op <= SCALE) {
            UNROLL for (u32 j = 0; j < 4; j++) x[j] = op == SCALE ? mad(x[j], scale, bias) : activation(op, x[j]);
            if (op == SCALE) {
                scale = p.scale[1][0];
                bias = p.scale[1][1];
            }
            continue;
        }
        if (op >= GATED) {
            f32x4 gate = op >= GATE ? x : y, up = op >= GATE ? y : x;
            UNROLL for (u32 j = 0; j < 4; j++) x[j] = activation(op & 63, gate[j]) * up[j];
        } else {
            x = op == ADD ? x + y : x * y;
        }
        y = y1;
        y1 = y2;
    }
    store_quad(d + p.offd + (u64)piece.row * p.ne[0], i0, p.ne[0], x);
}
