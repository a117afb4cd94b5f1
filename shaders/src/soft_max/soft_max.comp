#version 460
// SOFT_MAX: soft_max(scale * x + slope * mask) of each row.
//
// One work-group for each row of any length. First pass: each invocation takes every gl_WorkGroupSize.x-th element, four at a
// time, and keeps a running maximum and the sum of exponentials relative to it; the work-group then combines both. Second pass:
// elements are read again, from cache if the row fits, and written. An invocation writes only elements that no other one reads
// in the second pass, so the result may replace the operand.
//
// The maximum starts at a finite number below all scores: minus infinity minus minus infinity never occurs, and a row without
// any finite score ends with sum 0 and zeros. max() may lose a NaN, the sum of exponentials does not: such a row becomes NaN.
//
// Variants: lds and subgroup, the way in which the work-group combines. Shared memory: 4 bytes for each invocation.

#include "common.glsl"
#include "alibi.glsl"
#include "grid.glsl"
#include "reduce.glsl"

#extension GL_EXT_shader_16bit_storage : require

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform SoftMaxParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2;
    uint nb1_0, nb1_1, nb1_2;
    uint nbd_0, nbd_1, nbd_2;
    uint mask_ne_0, mask_ne_1;
    uint off0, off1, offd;
    uint mask_type;
    float scale;
    float max_bias;
    uint heads_log2;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Mask { float mask[]; };
layout(set = 0, binding = 1, std430) readonly buffer Mask16 { float16_t mask16[]; };
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };

const uint WG = gl_WorkGroupSize.x;
const float LOWEST = -1.0e38;

// Four scores from column i on, WG apart; minus infinity for those after the row, and for hidden elements, whatever they are.
vec4 scores(uint row_x, uint row_mask, uint i, float slope) {
    vec4 v;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        v[j] = x[row_x + min(i + j * WG, p.ne_0 - 1)];
    }
    vec4 bias = vec4(0.0);
    if (p.mask_type == 1) {
        [[unroll]] for (uint j = 0; j < 4; j++) {
            bias[j] = mask[row_mask + min(i + j * WG, p.ne_0 - 1)];
        }
    } else if (p.mask_type == 2) {
        [[unroll]] for (uint j = 0; j < 4; j++) {
            bias[j] = float(mask16[row_mask + min(i + j * WG, p.ne_0 - 1)]);
        }
    }
    v = v * p.scale + slope * bias;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        v[j] = i + j * WG < p.ne_0 && bias[j] != MINUS_INFINITY ? v[j] : MINUS_INFINITY;
    }
    return v;
}

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_x = p.off0 + i1 * p.nb0_0 + i2 * p.nb0_1 + i3 * p.nb0_2;
        const uint row_mask = p.off1 + i1 * p.nb1_0 + i2 % p.mask_ne_0 * p.nb1_1 + i3 % p.mask_ne_1 * p.nb1_2;
        const uint row_d = p.offd + i1 * p.nbd_0 + i2 * p.nbd_1 + i3 * p.nbd_2;
        const float slope = alibi_slope(p.max_bias, i2, p.heads_log2);

        float largest = LOWEST;
        float sum = 0.0;
        for (uint i = gl_LocalInvocationIndex; i < p.ne_0; i += 4 * WG) {
            const vec4 v = scores(row_x, row_mask, i, slope);
            const float now = max(max(largest, max(v.x, v.y)), max(v.z, v.w));
            const vec4 e = exp(v - now);
            sum = sum * exp(largest - now) + (e.x + e.y) + (e.z + e.w);
            largest = now;
        }
        const float row_max = workgroup_max(largest);
        sum = workgroup_sum(sum * exp(largest - row_max));
        const float factor = sum == 0.0 ? 0.0 : 1.0 / sum;
        for (uint i = gl_LocalInvocationIndex; i < p.ne_0; i += 4 * WG) {
            const vec4 e = exp(scores(row_x, row_mask, i, slope) - row_max) * factor;
            [[unroll]] for (uint j = 0; j < 4; j++) {
                if (i + j * WG < p.ne_0) {
                    d[row_d + i + j * WG] = e[j];
                }
            }
        }
    END_EACH_ROW
}
