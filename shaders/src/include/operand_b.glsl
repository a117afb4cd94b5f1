// Operand b of a matrix product, at binding 1. ALIGNED: its rows allow loads of 16 bytes.
#ifndef OPERAND_B_GLSL
#define OPERAND_B_GLSL

#if defined(MATRIX) || defined(TILE_PACKED)
#define HAS_COLUMN_FACTORS
#endif
#if defined(HAS_COLUMN_FACTORS) || defined(TILE_INT8)
#define ROUNDED
layout(set = 0, binding = 1, std430) readonly buffer Rounded { uvec4 rounded[]; };
#endif

#if defined(TILE_INT8)

// Rounded to 8 bits by mul_mat_round_int8.comp: columns in sequence, 16 numbers in a vector, then for each block of 32 its
// scale and the sums of its halves times the scale.
layout(set = 0, binding = 1, std430) readonly buffer Blocks { vec4 blocks[]; };

// Vectors of a column.
uint rounded_pitch() {
    return p.k / 16;
}

#elif defined(HAS_COLUMN_FACTORS)

// Rounded to F16 by mul_mat_round.comp: columns of whole steps of 128 in sequence, eight numbers in a vector, then the factor
// of each column's products.
layout(set = 0, binding = 1, std430) readonly buffer Factors { float factors[]; };

// Vectors of a column.
uint rounded_pitch() {
    return (p.k + 127) / 128 * 16;
}

#else

layout(set = 0, binding = 1, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 1, std430) readonly buffer B4 { vec4 b4[]; };

// Four adjacent elements of a row of b; `at` is a multiple of four if ALIGNED.
vec4 load_b(uint at) {
    if (ALIGNED != 0) {
        return b4[at / 4];
    }
    return vec4(b[at], b[at + 1], b[at + 2], b[at + 3]);
}

// Four adjacent elements: number `quad` of those of a row that starts at `row`.
vec4 load_b_quad(uint row, uint quad) {
    return ALIGNED != 0 ? b4[row / 4 + quad] : load_b(row + 4 * quad);
}

#endif

#endif
