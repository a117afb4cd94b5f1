// ADD and MUL: d[i] = a[i] op b[i mod ne1].
//
// Memory-bound: 12 bytes for each element, less if b is repeated. A thread computes four adjacent elements of a row. Where the
// rows of all three operands are dense, it moves them 16 bytes at a time, so that an access of a wavefront is one contiguous
// KiB (512 bytes with 32 lanes). No LDS.
#include "index.h"
#include "params.h"

DEVICE float apply(u32 op, float a, float b) { return op == 0 ? a + b : a * b; }

KERNEL(ROW_THREADS) binary(const float *a, const float *b, float *d, BinaryParams p) {
    Piece piece = row_piece((p.ne[0] + 3) / 4);
    u32 i0 = piece.unit * 4;
    if (i0 >= p.ne[0] || piece.row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(piece.row, p.ne);
    a += row_offset(p.off0, p.nb0 + 1, i.i1, i.i2, i.i3);
    b += row_offset(p.off1, p.nb1 + 1, wrap(i.i1, p.ne1[1], p.ne[1]), wrap(i.i2, p.ne1[2], p.ne[2]),
                    wrap(i.i3, p.ne1[3], p.ne[3]));
    d += row_offset(p.offd, p.nbd + 1, i.i1, i.i2, i.i3);

    bool repeated = p.ne1[0] == 1, dense = repeated || (p.ne1[0] == p.ne[0] && p.nb1[0] == 1);
    if (p.nb0[0] == 1 && p.nbd[0] == 1 && dense && i0 + 4 <= p.ne[0]) {
        f32x4 x = *(const f32x4 *)(a + i0);
        f32x4 y = repeated ? f32x4(b[0]) : *(const f32x4 *)(b + i0);
        *(f32x4 *)(d + i0) = p.op == 0 ? x + y : x * y;
        return;
    }
    u32 end = minimum(i0 + 4, p.ne[0]);
    NO_UNROLL for (; i0 < end; i0++) {
        float y = b[(u64)wrap(i0, p.ne1[0], p.ne[0]) * p.nb1[0]];
        d[(u64)i0 * p.nbd[0]] = apply(p.op, a[(u64)i0 * p.nb0[0]], y);
    }
}
