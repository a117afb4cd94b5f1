#version 460
// The best of rows of logits: the index of the largest element (among equals the lower one, NaN last), that element, and the
// sum of squares of the row, which is finite if all elements are (and small enough: a NaN or an infinity is never lost).
//
// x: parts of a row; y: rows. A work-group finds the best of its part and stores it in scratch; the last one selects from all
// parts. All loads of QUADS quads come before the first comparison.
//
// WIDE: quads start at multiples of four elements and are one load each, except for the rest at the end of a row.
// Variants: lds and subgroup, the way in which candidates and sums are combined. Shared memory: that of pick.glsl and
// reduce.glsl.

#include "common.glsl"
#include "pick.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint QUADS = 1;
layout(constant_id = 2) const uint WIDE = 0;

layout(push_constant, std430) uniform BestParams {
    uint n, part, parts;
    uint offx, offd, offe, offs, offn;
    uint next;
} p;

// Another view of the same buffer.
layout(set = 0, binding = 0, std430) readonly buffer X4 { uvec4 x4[]; };
layout(set = 0, binding = 1, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2, std430) writeonly buffer D { uint d[]; };
layout(set = 0, binding = 3, std430) writeonly buffer E { float e[]; };
layout(set = 0, binding = 4, std430) writeonly buffer S { float s[]; };
layout(set = 0, binding = 5, std430) writeonly buffer N { uint next[]; };
// For each row, the keys of the best of all parts, then their indices, then the sums.
layout(set = 0, binding = 6, std430) coherent buffer Scratch { uint scratch[]; };
// Number of work-groups that have arrived, for each row.
layout(set = 0, binding = 7, std430) coherent buffer Arrived { uint arrived[]; };

#include "arrival.glsl"

// Four elements; those after the end of the row are its last one.
uvec4 quad_of(uint row, uint at) {
    if (WIDE != 0 && at + 4 <= p.n) {
        return x4[(row + at) / 4];
    }
    const uvec4 places = row + min(uvec4(at, at + 1, at + 2, at + 3), uvec4(p.n - 1));
    return uvec4(x[places.x], x[places.y], x[places.z], x[places.w]);
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint row = gl_WorkGroupID.y;
    const uint row_x = p.offx + row * p.n;
    const uint end = min((gl_WorkGroupID.x + 1) * p.part, p.n);
    uvec2 best = NONE;
    float sum = 0.0;
    for (uint begin = gl_WorkGroupID.x * p.part + 4 * lane; begin < end; begin += 4 * QUADS * WG) {
        uvec4 quads[QUADS];
        [[unroll]] for (uint q = 0; q < QUADS; q++) {
            quads[q] = quad_of(row_x, begin + 4 * q * WG);
        }
        [[unroll]] for (uint q = 0; q < QUADS; q++) {
            [[unroll]] for (uint j = 0; j < 4; j++) {
                const uint at = begin + 4 * q * WG + j;
                const uint key = at < end ? key_of(quads[q][j]) : 0;
                const float value = at < end ? uintBitsToFloat(quads[q][j]) : 0.0;
                best = key > best.x ? uvec2(key, at) : best;
                sum += value * value;
            }
        }
    }
    best = first_of_all(best);
    sum = workgroup_sum(sum);
    const uint of_row = row * 3 * p.parts;
    if (lane == 0) {
        const uint slot = of_row + gl_WorkGroupID.x;
        scratch[slot] = best.x;
        scratch[slot + p.parts] = best.y;
        scratch[slot + 2 * p.parts] = floatBitsToUint(sum);
    }
    if (!is_last(row, p.parts)) {
        return;
    }
    best = NONE;
    sum = 0.0;
    for (uint i = lane; i < p.parts; i += WG) {
        best = first_of(best, uvec2(scratch[of_row + i], scratch[of_row + p.parts + i]));
        sum += uintBitsToFloat(scratch[of_row + 2 * p.parts + i]);
    }
    best = first_of_all(best);
    sum = workgroup_sum(sum);
    if (lane == 0) {
        d[p.offd + row] = best.y;
        e[p.offe + row] = value_of(best.x);
        s[p.offs + row] = sum;
        if (p.next != 0) {
            next[p.offn + row] = best.y;
        }
        arrived[row] = 0;
    }
}
