#version 460
// Activations of a matrix product as F16, for tiles of matrix units or packed F16 (operand_b.glsl has the layout); with NARROW
// for mul_mat_narrow.comp, with the norm before the products if there is one.
//
// A work-group rounds one column (the grid's x: columns, y: batches), which it reads twice: for its largest magnitude, and to
// multiply it by the power of two that brings this to 2^14 .. 2^15, or SMALLER powers less. So nothing overflows, and values
// that are 2^28 times smaller (2^16 with 12 powers less) still have all bits. Infinities and NaNs are preserved. Each
// invocation takes groups of eight adjacent elements; after the end of the column are zeros up to a multiple of 128, or of
// 256 with NARROW.
//
// Specialisation: work-group size, ALIGNED (columns allow loads of 16 bytes), SMALLER; with NARROW COLUMNS (there is room for
// as many), NORM, SPAN (elements of a lane's piece), RUNS (1 if a piece is four runs of 16 elements, 32 apart).
// Variants: lds and subgroup, the way in which the maximum is found; narrow. Shared memory: reduce.glsl.

#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "common.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint ALIGNED = 0;
layout(constant_id = 2) const uint SMALLER = 0;

#ifdef NARROW
#include "products_params.glsl"
layout(constant_id = 3) const uint COLUMNS = 8;
layout(constant_id = 4) const uint NORM = 0;
layout(constant_id = 5) const uint SPAN = 32;
layout(constant_id = 6) const uint RUNS = 0;
const bool HAS_NORM = NORM != 0;
#define PADDED 256
#define OUTPUT 2
layout(set = 0, binding = 1, std430) readonly buffer W { float norm_weight[]; };
layout(set = 0, binding = 1, std430) readonly buffer W4 { vec4 norm_weight4[]; };
// Groups of eight elements whose loads are in flight together: all of a column of up to 16384 elements.
const uint TOGETHER = 4;
#else
#include "mul_mat_params.glsl"
const uint TOGETHER = 1;
#define PADDED 128
#define OUTPUT 1
#endif

layout(set = 0, binding = 0, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 0, std430) readonly buffer B4 { vec4 b4[]; };
layout(set = 0, binding = OUTPUT, std430) writeonly buffer Rounded { uvec4 rounded[]; };
layout(set = 0, binding = OUTPUT, std430) writeonly buffer Factors { float factors[]; };

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

#ifdef NARROW

// The weights of the norm for four adjacent elements from k on.
vec4 load_norm(uint k) {
    if (ALIGNED != 0 && k + 4 <= p.k) {
        return norm_weight4[(p.offw + k) / 4];
    }
    vec4 v;
    [[unroll]] for (uint l = 0; l < 4; l++) {
        v[l] = norm_weight[p.offw + min(k + l, p.k - 1)];
    }
    return v;
}

// Reads four elements, and adds their squares.
vec4 read(uint at, uint k, inout float squares) {
    const vec4 v = load(at, k);
    if (!HAS_NORM) {
        return v;
    }
    squares += dot(v, v);
    return v * load_norm(k);
}

// Place of eight elements from k on of a column, in groups of 16 bytes: the order of mul_mat_narrow.comp.
uint place_of(uint batch, uint k, uint column) {
    const uint unit = k / (4 * SPAN);
    const uint lane = RUNS == 0 ? k / SPAN % 4 : k / 128 % 2 * 2 + k % 32 / 16;
    const uint two = RUNS == 0 ? k % SPAN / 8 : k % 128 / 32 * 2 + k % 16 / 8;
    const uint before = (batch * ((p.k + PADDED - 1) / PADDED * PADDED) + unit * (4 * SPAN)) / 8 * COLUMNS;
    return before + (two * (COLUMNS / 8) + column / 8) * 32 + column % 8 * 4 + lane;
}

// Inverse of the root of the mean square.
float norm_of(float squares) {
    return HAS_NORM ? inversesqrt(workgroup_sum(squares) / float(p.k) + p.eps) : 1.0;
}

#else
#define read(at, k, squares) load(at, k)
#define norm_of(squares) 1.0
#endif

// The larger of `most` and the finite magnitudes of v.
float larger(float most, vec4 v) {
    const uvec4 sizes = floatBitsToUint(abs(v));
    [[unroll]] for (uint l = 0; l < 4; l++) {
        most = sizes[l] < 0x7f800000u ? max(most, abs(v[l])) : most;
    }
    return most;
}

void main() {
#ifdef NARROW
    const uint i2 = gl_WorkGroupID.y;
    const uint at = p.off1 + gl_WorkGroupID.x * p.nb1_0 + i2 * p.nb1_1;
#else
    const uint i3 = gl_WorkGroupID.y / p.ne2;
    const uint i2 = gl_WorkGroupID.y - i3 * p.ne2;
    const uint at = p.off1 + gl_WorkGroupID.x * p.nb1_0 + i2 * p.nb1_1 + i3 * p.nb1_2;
#endif
    const uint column = gl_WorkGroupID.y * p.n + gl_WorkGroupID.x;
    const uint pitch = (p.k + PADDED - 1) / PADDED * (PADDED / 8);

    float most = 0.0, squares = 0.0;
    const uint each = TOGETHER * gl_WorkGroupSize.x;
    for (uint first = gl_LocalInvocationIndex; 8 * first < p.k; first += each) {
        vec4 v[2 * TOGETHER];
        [[unroll]] for (uint j = 0; j < 2 * TOGETHER; j++) {
            v[j] = read(at, 8 * (first + j / 2 * gl_WorkGroupSize.x) + 4 * (j % 2), squares);
        }
        [[unroll]] for (uint j = 0; j < 2 * TOGETHER; j++) {
            most = larger(most, v[j]);
        }
    }
    const float norm = norm_of(squares);
    // Exponents, and that of the factor's inverse: 127 + 14 + 127.
    const uint exponent = min(268 - (floatBitsToUint(workgroup_max(most) * norm) >> 23), 253) - SMALLER;
    const float factor = uintBitsToFloat(exponent << 23) * norm;
    for (uint first = gl_LocalInvocationIndex; first < pitch; first += each) {
        vec4 v[2 * TOGETHER];
        [[unroll]] for (uint j = 0; j < 2 * TOGETHER; j++) {
            v[j] = read(at, 8 * (first + j / 2 * gl_WorkGroupSize.x) + 4 * (j % 2), squares) * factor;
        }
        [[unroll]] for (uint j = 0; j < TOGETHER; j++) {
            const uint i = first + j * gl_WorkGroupSize.x;
            if (TOGETHER > 1 && i >= pitch) {
                break;
            }
            const vec4 lo = v[2 * j], hi = v[2 * j + 1];
#ifdef NARROW
            rounded[place_of(i2, 8 * i, gl_WorkGroupID.x)] = uvec4(
                packFloat2x16(f16vec2(lo.xz)), packFloat2x16(f16vec2(lo.yw)),
                packFloat2x16(f16vec2(hi.xz)), packFloat2x16(f16vec2(hi.yw)));
#else
            rounded[column * pitch + i] = uvec4(
                packFloat2x16(f16vec2(lo.xy)), packFloat2x16(f16vec2(lo.zw)),
                packFloat2x16(f16vec2(hi.xy)), packFloat2x16(f16vec2(hi.zw)));
#endif
        }
    }
    if (gl_LocalInvocationIndex == 0) {
#ifdef NARROW
        const uint columns = p.ne2 * COLUMNS;
#else
        const uint columns = p.n * p.ne2 * p.ne3;
#endif
        factors[columns * pitch * 4 + column] = uintBitsToFloat((254 - exponent) << 23);
    }
}
