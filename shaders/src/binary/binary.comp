#version 460
// ADD and MUL: d[i] = a[i] op b[i mod extents of b].
//
// One element in each invocation; adjacent invocations have adjacent elements in memory. 8 bytes read and 4 written for each,
// nothing shared. The host merges dimensions that are contiguous in all operands, so that a sum of contiguous tensors is one
// long row. Remainders are computed only if b is really repeated.

#include "common.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform BinaryParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint ne1_0, ne1_1, ne1_2, ne1_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nb1_0, nb1_1, nb1_2, nb1_3;
    uint nbd_0, nbd_1, nbd_2, nbd_3;
    uint off0, off1, offd;
    uint op;
} p;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };

uint wrapped(uint i, uint ne, uint ne1) {
    return ne1 == ne ? i : i % ne1;
}

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_a = p.off0 + i1 * p.nb0_1 + i2 * p.nb0_2 + i3 * p.nb0_3;
        const uint row_b = p.off1 + wrapped(i1, p.ne_1, p.ne1_1) * p.nb1_1 + wrapped(i2, p.ne_2, p.ne1_2) * p.nb1_2
            + wrapped(i3, p.ne_3, p.ne1_3) * p.nb1_3;
        const uint row_d = p.offd + i1 * p.nbd_1 + i2 * p.nbd_2 + i3 * p.nbd_3;
        FOR_EACH_COLUMN(i0, p.ne_0)
            const float x = a[row_a + i0 * p.nb0_0];
            const float y = b[row_b + wrapped(i0, p.ne_0, p.ne1_0) * p.nb1_0];
            d[row_d + i0 * p.nbd_0] = p.op == 0 ? x + y : x * y;
        END_EACH_COLUMN
    END_EACH_ROW
}
