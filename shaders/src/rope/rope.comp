#version 460
// ROPE: rotates pairs of each row by angles that grow with the position.
//
// One pair (or one element that is only copied) for each invocation, heads after each other along the grid's x, tokens
// along y, batches along z: 8 bytes read, 8 written, and the sine and cosine of one angle. Nothing shared. Both elements
// of a pair are read before either is written, so the result may lie in the operand's place.
//
// The angle is position * frequency. The table holds turns (angle / 2 pi) per position as the sum of two F32 numbers,
// and everything that follows is exact up to the fraction of a turn: products are split into parts that F32 holds
// without rounding, because a driver may or may not round inside fma(). Sine and cosine are polynomials, because
// Vulkan's own need be right to 2^-11 only.

#include "common.glsl"
#include "grid.glsl"

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

// The upper 12 of the 24 bits of a number; the rest has no more than 12 either.
float upper(float v) {
    return uintBitsToFloat(floatBitsToUint(v) & 0xfffff000u);
}

// What is missing in the rounded product a * b. All four partial products are exact (Dekker 1971).
float product_error(float a, float b, float rounded) {
    precise const float ah = upper(a), bh = upper(b);
    precise const float al = a - ah, bl = b - bh;
    precise float e = ah * bh - rounded;
    e = e + ah * bl;
    e = e + al * bh;
    e = e + al * bl;
    return e;
}

// Fraction of a turn of a pair, in [-0.5, 0.5] plus a little.
float fraction_of_turn(float position, uint pair) {
    precise float hi = table[2 * pair];
    precise float lo = table[2 * pair + 1];
    if (p.has_factors != 0) {
        const float f = factors[p.off2 + pair];
        precise const float q = hi / f;
        precise const float qf = q * f;
        precise const float rest = (hi - qf) - product_error(q, f, qf);
        lo = (rest + lo) / f;
        hi = q;
    }
    precise const float turns = position * hi;
    precise const float low = product_error(position, hi, turns) + position * lo;
    precise const float fraction = (turns - round(turns)) + low;
    return fraction;
}

// Cosine and sine of a number of turns in [-0.75, 0.75], right to about 1e-7: reduced to an eighth of a turn either way,
// then the minimax polynomials of Cephes' sinf and cosf.
vec2 cos_sin(float turn) {
    const float quarter = round(turn * 4.0);
    const float a = (turn - quarter * 0.25) * 6.28318530717958648;
    const float z = a * a;
    const float s = a + a * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    const float c = 1.0 - 0.5 * z
        + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    const int q = int(quarter) & 3;
    const vec2 cs = (q & 1) == 0 ? vec2(c, s) : vec2(-s, c);
    return (q & 2) == 0 ? cs : -cs;
}

void main() {
    const uint pairs = p.n_dims / 2;
    // Invocations for a row: pairs, then single elements.
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
                const float turn = fraction_of_turn(float(positions[p.off1 + i2]), unit);
                const vec2 cs = cos_sin(turn) * p.magnitude;
                d[row_d + e0] = x0 * cs.x - x1 * cs.y;
                d[row_d + e1] = x0 * cs.y + x1 * cs.x;
            }
        END_EACH_COLUMN
    END_EACH_ROW
}
