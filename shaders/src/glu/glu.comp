#version 460
// Gated linear units: d[i] = activation(gate[i]) * up[i], and SWIGLU_OAI, which clamps both and adds one to up.
//
// One element in each invocation; adjacent invocations have adjacent elements in memory. 8 bytes read and 4 written for each,
// nothing shared. With one operand both windows are the same, and the offsets select its halves.

#include "common.glsl"
#include "activation.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform GluParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nb1_0, nb1_1, nb1_2, nb1_3;
    uint nbd_0, nbd_1, nbd_2, nbd_3;
    uint off0, off1, offd;
    uint op;
    float alpha, limit;
} p;

layout(set = 0, binding = 0, std430) readonly buffer Gate { float gate[]; };
layout(set = 0, binding = 1, std430) readonly buffer Up { float up[]; };
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_gate = p.off0 + i1 * p.nb0_1 + i2 * p.nb0_2 + i3 * p.nb0_3;
        const uint row_up = p.off1 + i1 * p.nb1_1 + i2 * p.nb1_2 + i3 * p.nb1_3;
        const uint row_d = p.offd + i1 * p.nbd_1 + i2 * p.nbd_2 + i3 * p.nbd_3;
        FOR_EACH_COLUMN(i0, p.ne_0)
            const float x = gate[row_gate + i0 * p.nb0_0];
            const float y = up[row_up + i0 * p.nb1_0];
            d[row_d + i0 * p.nbd_0] = p.limit > 0.0 ? gated_in_bounds(p.alpha, p.limit, x, y) : activate(p.op, x) * y;
        END_EACH_COLUMN
    END_EACH_ROW
}
