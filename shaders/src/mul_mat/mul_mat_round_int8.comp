#version 460
// Activations of a matrix product in 8 bits (int8.glsl), for tiles of dot products (operand_b.glsl has the layout).
//
// A work-group rounds one column (the grid's x: columns, y: batches). Two adjacent invocations share a block of 32; each reads
// and writes 16 elements of it.
//
// Specialisation: work-group size, ALIGNED (columns allow loads of 16 bytes).

#include "common.glsl"
#define QUADS 4
#include "int8.glsl"
#include "mul_mat_params.glsl"

layout(constant_id = 1) const uint ALIGNED = 0;

layout(set = 0, binding = 0, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 0, std430) readonly buffer B4 { vec4 b4[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Rounded { uvec4 rounded[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Blocks { vec4 blocks[]; };

void main() {
    const uint i3 = gl_WorkGroupID.y / p.ne2;
    const uint i2 = gl_WorkGroupID.y - i3 * p.ne2;
    const uint at = p.off1 + gl_WorkGroupID.x * p.nb1_0 + i2 * p.nb1_1 + i3 * p.nb1_2;
    const uint column = gl_WorkGroupID.y * p.n + gl_WorkGroupID.x;
    const uint pitch = p.k / 16;
    const uint end = p.n * p.ne2 * p.ne3 * pitch;
    // Columns are whole blocks.
    for (uint i = gl_LocalInvocationIndex; i < pitch; i += gl_WorkGroupSize.x) {
        vec4 x[4];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const uint first = at + 16 * i + 4 * j;
            x[j] = ALIGNED != 0 ? b4[first / 4] : vec4(b[first], b[first + 1], b[first + 2], b[first + 3]);
        }
        const uint bits = largest_of_block(x);
        const float factor = to_scale(bits);
        uvec4 words;
        int sum = 0;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            words[j] = to_bytes(x[j], factor);
            sum = dot4(words[j], ONES, sum);
        }
        rounded[column * pitch + i] = words;
        const int other = subgroupShuffleXor(sum, 1);
        if (i % 2 == 0) {
            const float scale = scale_of(bits);
            blocks[end + column * (p.k / 32) + i / 2] = vec4(scale, scale * float(sum), scale * float(other), 0.0);
        }
    }
}
