#version 460
// Activations and SCALE, and one ADD or MUL with a row, up to four one after the other: d[i] = f(a[i]).
//
// One element for each invocation, neighbours in memory for neighbouring invocations: 4 bytes read and 4 written each,
// nothing shared. Which functions is a branch that all invocations take together.

#include "common.glsl"
#include "activation.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform UnaryParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nbd_0, nbd_1, nbd_2, nbd_3;
    uint off0;
    uint nb1, off1;
    uint offd;
    uint count;
    uint op_0, op_1, op_2, op_3;
    float scale_0, scale_1, scale_2, scale_3;
    float bias_0, bias_1, bias_2, bias_3;
} p;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
// The operand where there is no row: nobody reads it here, as the result may lie in its place.
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };

#define SCALE 100
#define ADD 101
#define MUL 102

#define NUMBER(f, name) ((f) < 2 ? (f) == 0 ? name##_0 : name##_1 : (f) == 2 ? name##_2 : name##_3)

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_a = p.off0 + i1 * p.nb0_1 + i2 * p.nb0_2 + i3 * p.nb0_3;
        const uint row_d = p.offd + i1 * p.nbd_1 + i2 * p.nbd_2 + i3 * p.nbd_3;
        FOR_EACH_COLUMN(i0, p.ne_0)
            float x = a[row_a + i0 * p.nb0_0];
            const float y = p.nb1 != 0 ? b[p.off1 + i0 * p.nb1] : 0.0;
            for (uint f = 0; f < p.count; f++) {
                const uint op = NUMBER(f, p.op);
                switch (op) {
                case SCALE: x = x * NUMBER(f, p.scale) + NUMBER(f, p.bias); break;
                case ADD: x += y; break;
                case MUL: x *= y; break;
                default: x = activate(op, x);
                }
            }
            d[row_d + i0 * p.nbd_0] = x;
        END_EACH_COLUMN
    END_EACH_ROW
}
