#version 460
// ROPE: rotates pairs of each row by angles that increase with the position.
//
// One pair (or one element that is only copied) in each invocation, heads in sequence along the grid's x, tokens along y,
// batches along z: 8 bytes read, 8 written, and the sine and cosine of one angle. Nothing shared. Both elements of a pair are
// read before either is written, so the result may replace the operand.

#include "common.glsl"
#include "grid.glsl"
#include "rope.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform RopeParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nbd_0, nbd_1, nbd_2, nbd_3;
    uint off0, off1, off2, offd;
    uint n_dims;
    uint neox;
    uint has_factors;
    float magnitude;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Positions { int positions[]; };
layout(set = 0, binding = 2, std430) readonly buffer Table { float table[]; };
layout(set = 0, binding = 3, std430) readonly buffer Factors { float factors[]; };
layout(set = 0, binding = 4, std430) writeonly buffer D { float d[]; };

void main() {
    const uint pairs = p.n_dims / 2;
    // Invocations of a row: pairs, then single elements.
    const uint units = pairs + (p.ne_0 - p.n_dims);
    // Tokens along the grid's y, batches along its z.
    FOR_EACH_ROW(i2, i3, none, p.ne_2, p.ne_3, 1)
        FOR_EACH_COLUMN(i, units * p.ne_1)
            const uint i1 = i / units;
            const uint unit = i - i1 * units;
            const uint row_x = p.off0 + i1 * p.nb0_1 + i2 * p.nb0_2 + i3 * p.nb0_3;
            const uint row_d = p.offd + i1 * p.nbd_1 + i2 * p.nbd_2 + i3 * p.nbd_3;
            if (unit >= pairs) {
                d[row_d + unit + pairs] = x[row_x + unit + pairs];
            } else {
                const uint e0 = p.neox != 0 ? unit : 2 * unit;
                const uint e1 = p.neox != 0 ? unit + pairs : 2 * unit + 1;
                const float x0 = x[row_x + e0];
                const float x1 = x[row_x + e1];
                vec2 turns = vec2(table[2 * unit], table[2 * unit + 1]);
                if (p.has_factors != 0) {
                    turns = divided(turns, factors[p.off2 + unit]);
                }
                const vec2 cs = cos_sin(fraction_of_turn(float(positions[p.off1 + i2]), turns)) * p.magnitude;
                d[row_d + e0] = x0 * cs.x - x1 * cs.y;
                d[row_d + e1] = x0 * cs.y + x1 * cs.x;
            }
        END_EACH_COLUMN
    END_EACH_ROW
}
