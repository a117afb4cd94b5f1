#version 460
// Activations of a matrix product as F16, for tiles of matrix units or packed F16 (operand_b.glsl has the layout).
//
// A work-group rounds one column (the grid's x: columns, y: batches), which it reads twice: for its largest magnitude, and to
// multiply it by the power of two that brings this to 2^14 .. 2^15, or SMALLER powers less. So nothing overflows, and values that
// are 2^28 times smaller (2^16 with 12 powers less) still have all bits. Infinities and NaNs are preserved. Each invocation takes groups of eight adjacent elements;
// after the end of the column are zeros up to a multiple of 128.
//
// Specialisation: work-group size, ALIGNED (columns allow loads of 16 bytes), SMALLER.
// Variants: lds and subgroup, the way in which the maximum is found. Shared memory: reduce.glsl.

#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "common.glsl"
#include "reduce.glsl"
#include "mul_mat_params.glsl"

layout(constant_id = 1) const uint ALIGNED = 0;
layout(constant_id = 2) const uint SMALLER = 0;

layout(set = 0, binding = 0, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 0, std430) readonly buffer B4 { vec4 b4[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Rounded { uvec4 rounded[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Factors { float factors[]; };

// Four adjacent elements from k on of the column that starts at `at`.
vec4 load(uint at, uint k) {
    if (ALIGNED != 0 && k + 4 <= p.k) {
        return b4[(at + k) / 4];
    }
    vec4 v;
    [[unroll]] for (uint l = 0; l < 4; l++) {
        v[l] = k + l < p.k ? b[at + min(k + l, p.k - 1)] : 0.0;
    }
    return v;
}

// The larger of `most` and the finite magnitudes of v.
float larger(float most, vec4 v) {
    const uvec4 sizes = floatBitsToUint(abs(v));
    [[unroll]] for (uint l = 0; l < 4; l++) {
        most = sizes[l] < 0x7f800000u ? max(most, abs(v[l])) : most;
    }
    return most;
}

void main() {
    const uint i3 = gl_WorkGroupID.y / p.ne2;
    const uint i2 = gl_WorkGroupID.y - i3 * p.ne2;
    const uint at = p.off1 + gl_WorkGroupID.x * p.nb1_0 + i2 * p.nb1_1 + i3 * p.nb1_2;
    const uint column = gl_WorkGroupID.y * p.n + gl_WorkGroupID.x;
    const uint pitch = (p.k + 127) / 128 * 16;

    float most = 0.0;
    for (uint k = 8 * gl_LocalInvocationIndex; k < p.k; k += 8 * gl_WorkGroupSize.x) {
        const vec4 lo = load(at, k), hi = load(at, k + 4);
        most = larger(larger(most, lo), hi);
    }
    // Exponents, and that of the factor's inverse: 127 + 14 + 127.
    const uint exponent = min(268 - (floatBitsToUint(workgroup_max(most)) >> 23), 253) - SMALLER;
    const float factor = uintBitsToFloat(exponent << 23);
    for (uint i = gl_LocalInvocationIndex; i < pitch; i += gl_WorkGroupSize.x) {
        const vec4 lo = load(at, 8 * i) * factor, hi = load(at, 8 * i + 4) * factor;
        rounded[column * pitch + i] = uvec4(
            packFloat2x16(f16vec2(lo.xy)), packFloat2x16(f16vec2(lo.zw)),
            packFloat2x16(f16vec2(hi.xy)), packFloat2x16(f16vec2(hi.zw)));
    }
    if (gl_LocalInvocationIndex == 0) {
        factors[p.n * p.ne2 * p.ne3 * pitch * 4 + column] = uintBitsToFloat((254 - exponent) << 23);
    }
}
