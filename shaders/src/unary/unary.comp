#version 460
// Activations and SCALE: d[i] = f(a[i]).
//
// One element for each invocation, neighbours in memory for neighbouring invocations: 4 bytes read and 4 written each,
// nothing shared. Which function is a branch that all invocations take together.

#include "common.glsl"
#include "activation.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform UnaryParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nbd_0, nbd_1, nbd_2, nbd_3;
    uint off0, offd;
    uint op;
    float scale, bias;
} p;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) writeonly buffer D { float d[]; };

const uint SCALE = 100;

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_a = p.off0 + i1 * p.nb0_1 + i2 * p.nb0_2 + i3 * p.nb0_3;
        const uint row_d = p.offd + i1 * p.nbd_1 + i2 * p.nbd_2 + i3 * p.nbd_3;
        FOR_EACH_COLUMN(i0, p.ne_0)
            const float x = a[row_a + i0 * p.nb0_0];
            d[row_d + i0 * p.nbd_0] = p.op == SCALE ? x * p.scale + p.bias : activate(p.op, x);
        END_EACH_COLUMN
    END_EACH_ROW
}
