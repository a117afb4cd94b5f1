#version 460
// GET_ROWS: rows of a matrix by index, converted to F32.
//
// The grid's x covers the columns of a row, y the indices, z the batches; one element for each invocation. Neighbouring
// invocations read neighbouring elements, of quantised types neighbouring bytes of a block. An index outside the matrix
// gives zeros and reads nothing. Nothing shared.
//
// A matrix larger than a window takes several dispatches, each with the rows first_row .. first_row + window_rows in its
// window: each writes the rows that it has, the first one also the zeros.
//
// Variants: the type of the matrix; w32 moves the bits of F32 and I32.

#include "common.glsl"
#include "convert.glsl"
#include "grid.glsl"

#extension GL_EXT_shader_16bit_storage : require

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform GetRowsWindow {
    uint ne_0, ne_1, ne_2, ne_3;
    uint rows;
    uint nb0_0, nb0_1, nb0_2;
    uint nb1_0, nb1_1, nb1_2;
    uint nbd_0, nbd_1, nbd_2;
    uint off0, off1, offd;
    uint first_row, window_rows;
} p;

#if defined(A_F16)
layout(set = 0, binding = 0, std430) readonly buffer A { float16_t a[]; };
#elif defined(A_W32)
layout(set = 0, binding = 0, std430) readonly buffer A { uint a[]; };
#elif defined(A_BF16)
layout(set = 0, binding = 0, std430) readonly buffer A { uint16_t a[]; };
#else
// Blocks as their 16-bit halves, the largest unit to which they are aligned; the scale comes first.
layout(set = 0, binding = 0, std430) readonly buffer A { uint16_t a[]; };
layout(set = 0, binding = 0, std430) readonly buffer Scales { float16_t scales[]; };
#endif
layout(set = 0, binding = 1, std430) readonly buffer Ids { int ids[]; };
#if defined(A_W32)
layout(set = 0, binding = 2, std430) writeonly buffer D { uint d[]; };
#define ZERO 0u
#else
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };
#define ZERO 0.0
#endif

// Element i0 of the row that begins at block (element for plain types) `row`.
#if defined(A_W32)
uint element(uint row, uint i0) {
    return a[row + i0];
}
#elif defined(A_F16)
float element(uint row, uint i0) {
    return float(a[row + i0]);
}
#elif defined(A_BF16)
float element(uint row, uint i0) {
    return bf16_value(uint(a[row + i0]));
}
#elif defined(A_Q8_0)
float element(uint row, uint i0) {
    const uint block = (row + i0 / 32) * 17;
    const uint j = i0 % 32;
    const int pair = int(uint(a[block + 1 + j / 2]));
    return float(scales[block]) * float(bitfieldExtract(pair, int(j % 2) * 8, 8));
}
#elif defined(A_Q6_K)
float element(uint row, uint i0) {
    // 64 half-words of lower nibbles, 32 of upper pairs of bits, 8 of scales for 16 elements, and the factor of all.
    const uint block = (row + i0 / 256) * 105;
    const uint n = i0 % 256 / 128, j = i0 % 128 / 32, l = i0 % 32;
    const uint low = uint(a[block + n * 32 + j % 2 * 16 + l / 2]) >> (l % 2 * 8 + j / 2 * 4) & 15u;
    const uint high = uint(a[block + 64 + n * 16 + l / 2]) >> (l % 2 * 8 + j * 2) & 3u;
    const uint pair = uint(a[block + 96 + 4 * n + j]);
    const float scale = float(scales[block + 104]) * float(bitfieldExtract(int(pair), int(l / 16) * 8, 8));
    return scale * (float(low | high << 4) - 32.0);
}
#elif defined(A_Q4_0)
float element(uint row, uint i0) {
    const uint block = (row + i0 / 32) * 9;
    const uint j = i0 % 32;
    const uint pair = uint(a[block + 1 + j % 16 / 2]);
    const uint nibble = (pair >> (j % 2 * 8 + j / 16 * 4)) & 15u;
    return float(scales[block]) * (float(nibble) - 8.0);
}
#endif

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const int id = ids[p.off1 + i1 * p.nb1_0 + i2 * p.nb1_1 + i3 * p.nb1_2];
        const bool valid = id >= 0 && uint(id) < p.rows;
        const uint row = uint(id) - p.first_row;
        // Rows of other dispatches have no columns here.
        const bool skipped = valid ? row >= p.window_rows : p.first_row != 0;
        const uint row_a = p.off0 + row * p.nb0_0 + i2 * p.nb0_1 + i3 * p.nb0_2;
        const uint row_d = p.offd + i1 * p.nbd_0 + i2 * p.nbd_1 + i3 * p.nbd_2;
        FOR_EACH_COLUMN(i0, skipped ? 0 : p.ne_0)
            if (valid) {
                d[row_d + i0] = element(row_a, i0);
            } else {
                d[row_d + i0] = ZERO;
            }
        END_EACH_COLUMN
    END_EACH_ROW
}
