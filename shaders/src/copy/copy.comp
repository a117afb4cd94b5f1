#version 460
// CPY and CONT: element n of the source, in the order of its indices, becomes element n of the destination.
//
// One element in each invocation; adjacent invocations have adjacent elements of the destination; nothing shared. If both sides
// have the same extents, they have the same indices; otherwise (RESHAPED) the number of an element is divided into indices for
// each side.
//
// Variants: types of source and destination; w32 and w16 move bits of any type of that width; w128 moves four words, for rows
// that are multiples of four words and start at such; extents, strides and offsets then count these.

#include "common.glsl"
#include "convert.glsl"
#include "grid.glsl"

#extension GL_EXT_shader_16bit_storage : require

layout(constant_id = 1) const uint RESHAPED = 0;
layout(constant_id = 2) const uint ONCE = 0;

layout(push_constant, std430) uniform CopyParams {
    uint ne0_0, ne0_1, ne0_2, ne0_3;
    uint ned_0, ned_1, ned_2, ned_3;
    uint nb0_0, nb0_1, nb0_2, nb0_3;
    uint nbd_0, nbd_1, nbd_2, nbd_3;
    uint off0, offd;
    uint count;
} p;

#if defined(FROM_F16)
layout(set = 0, binding = 0, std430) readonly buffer A { float16_t a[]; };
#elif defined(FROM_F32)
layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
#elif defined(FROM_W128)
layout(set = 0, binding = 0, std430) readonly buffer A { uvec4 a[]; };
#elif defined(FROM_W32)
layout(set = 0, binding = 0, std430) readonly buffer A { uint a[]; };
#else
layout(set = 0, binding = 0, std430) readonly buffer A { uint16_t a[]; };
#endif

#if defined(TO_F32)
layout(set = 0, binding = 1, std430) writeonly buffer D { float d[]; };
#elif defined(TO_W128)
layout(set = 0, binding = 1, std430) writeonly buffer D { uvec4 d[]; };
#elif defined(TO_W32)
layout(set = 0, binding = 1, std430) writeonly buffer D { uint d[]; };
#else
layout(set = 0, binding = 1, std430) writeonly buffer D { uint16_t d[]; };
#endif

void copy(uint to, uint from) {
#if defined(FROM_W128) || defined(FROM_W32) || defined(FROM_W16)
    d[to] = a[from];
#else
#if defined(FROM_BF16)
    const float value = bf16_value(uint(a[from]));
#else
    const float value = float(a[from]);
#endif
#if defined(TO_F16)
    d[to] = uint16_t(f16_bits(value));
#elif defined(TO_BF16)
    d[to] = uint16_t(bf16_bits(value));
#else
    d[to] = value;
#endif
#endif
}

void main() {
    if (RESHAPED == 0) {
        FOR_EACH_ROW(i1, i2, i3, p.ned_1, p.ned_2, p.ned_3)
            const uint row_a = p.off0 + i1 * p.nb0_1 + i2 * p.nb0_2 + i3 * p.nb0_3;
            const uint row_d = p.offd + i1 * p.nbd_1 + i2 * p.nbd_2 + i3 * p.nbd_3;
            FOR_EACH_COLUMN(i0, p.ned_0)
                copy(row_d + i0 * p.nbd_0, row_a + i0 * p.nb0_0);
            END_EACH_COLUMN
        END_EACH_ROW
    } else {
        FOR_EACH_COLUMN(n, p.count)
            const uint a1 = n / p.ne0_0, a2 = a1 / p.ne0_1, a3 = a2 / p.ne0_2;
            const uint from = p.off0 + (n - a1 * p.ne0_0) * p.nb0_0 + (a1 - a2 * p.ne0_1) * p.nb0_1
                + (a2 - a3 * p.ne0_2) * p.nb0_2 + a3 * p.nb0_3;
            const uint d1 = n / p.ned_0, d2 = d1 / p.ned_1, d3 = d2 / p.ned_2;
            const uint to = p.offd + (n - d1 * p.ned_0) * p.nbd_0 + (d1 - d2 * p.ned_1) * p.nbd_1
                + (d2 - d3 * p.ned_2) * p.nbd_2 + d3 * p.nbd_3;
            copy(to, from);
        END_EACH_COLUMN
    }
}
