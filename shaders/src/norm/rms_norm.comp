#version 460
// RMS_NORM: x / sqrt(mean(x^2) + eps) for each row.
//
// One work-group for each row. Each invocation takes every gl_WorkGroupSize.x-th element, four at a time so that four
// loads are under way, sums their squares and, after the sum over the work-group, reads its elements again (16 KiB of a
// row of 4096 are in the first-level cache then) and writes them scaled. It writes only elements that it alone reads in
// the second pass, so the result may lie in the operand's place.
//
// Variants: lds and subgroup, how the sum over the work-group is made. Shared memory: 4 bytes for each invocation.

#include "common.glsl"
#include "grid.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform NormParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nbd_0, nbd_1, nbd_2, nbd_3;
    uint off0, offd;
    float eps;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer D { float d[]; };

const uint WG = gl_WorkGroupSize.x;

void main() {
    const uint n = p.ne_0;
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_x = p.off0 + i1 * p.nb0_1 + i2 * p.nb0_2 + i3 * p.nb0_3;
        const uint row_d = p.offd + i1 * p.nbd_1 + i2 * p.nbd_2 + i3 * p.nbd_3;
        float sum = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < n; i += 4 * WG) {
            // Loads beyond the end read the last element again, so that none is behind a branch.
            float v[4];
            [[unroll]] for (uint j = 0; j < 4; j++) {
                v[j] = x[row_x + min(i + j * WG, n - 1)];
            }
            [[unroll]] for (uint j = 0; j < 4; j++) {
                sum += i + j * WG < n ? v[j] * v[j] : 0.0;
            }
        }
        const float scale = inversesqrt(workgroup_sum(sum) / float(n) + p.eps);
        for (uint i = gl_LocalInvocationIndex; i < n; i += 4 * WG) {
            float v[4];
            [[unroll]] for (uint j = 0; j < 4; j++) {
                v[j] = x[row_x + min(i + j * WG, n - 1)];
            }
            [[unroll]] for (uint j = 0; j < 4; j++) {
                if (i + j * WG < n) {
                    d[row_d + i + j * WG] = v[j] * scale;
                }
            }
        }
    END_EACH_ROW
}
