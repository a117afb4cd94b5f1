#version 460
// Element-wise functions, up to four in sequence: d[i] = f(a[i], ...). Sums, products and gated units have another operand
// each, which may be repeated: its stride is then 0.
//
// One element in each invocation; adjacent invocations have adjacent elements in memory: 4 bytes read of each operand and 4
// written, nothing shared. The host merges dimensions that are contiguous in all operands. The selection of functions is a
// branch that all invocations take together.

#include "common.glsl"
#include "activation.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform UnaryParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nb1_0, nb1_1, nb1_2, nb1_3;
    uint nb2_0, nb2_1, nb2_2, nb2_3;
    uint nb3_0, nb3_1, nb3_2, nb3_3;
    uint off0, off1, off2, off3;
    uint offd;
    // From bit 8 on, the number of other operands.
    uint count;
    // 8 bits for each function.
    uint op;
    float scale_0, bias_0, scale_1, bias_1;
} p;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
// The first operand if there are fewer; not read then, as the result may replace it.
layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 2, std430) readonly buffer C { float c[]; };
layout(set = 0, binding = 3, std430) readonly buffer E { float e[]; };
layout(set = 0, binding = 4, std430) writeonly buffer D { float d[]; };

#define SCALE 100
#define ADD 101
#define MUL 102
#define GATED 128
#define GATE 192

#define ROW(off, nb) (off + i1 * nb##_1 + i2 * nb##_2 + i3 * nb##_3)

void main() {
    const uint others = p.count >> 8, functions = p.count & 255;
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_a = ROW(p.off0, p.nb0), row_b = ROW(p.off1, p.nb1);
        const uint row_c = ROW(p.off2, p.nb2), row_e = ROW(p.off3, p.nb3);
        const uint row_d = p.offd + ((i3 * p.ne_2 + i2) * p.ne_1 + i1) * p.ne_0;
        FOR_EACH_COLUMN(i0, p.ne_0)
            float x = a[row_a + i0 * p.nb0_0];
            // The next other operand is always `y`; the last one moves up.
            float y = others > 0 ? b[row_b + i0 * p.nb1_0] : 0.0;
            float y1 = others > 1 ? c[row_c + i0 * p.nb2_0] : 0.0;
            const float y2 = others > 2 ? e[row_e + i0 * p.nb3_0] : 0.0;
            float scale = p.scale_0, bias = p.bias_0;
            uint ops = p.op;
            for (uint f = 0; f < functions; f++, ops >>= 8) {
                const uint op = ops & 255;
                if (op == SCALE) {
                    x = x * scale + bias;
                    scale = p.scale_1;
                    bias = p.bias_1;
                } else if (op < SCALE) {
                    x = activate(op, x);
                } else {
                    if (op >= GATED) {
                        const bool gate = op >= GATE;
                        const float of = activate(op & 63, gate ? x : y);
                        x = of * (gate ? y : x);
                    } else {
                        x = op == ADD ? x + y : x * y;
                    }
                    y = y1;
                    y1 = y2;
                }
            }
            d[row_d + i0] = x;
        END_EACH_COLUMN
    END_EACH_ROW
}
