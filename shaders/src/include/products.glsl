// Parameters and operands of products of one input with up to three matrices (ProductsParams), and the operations after each
// sum: bias, residual, GLU.
#ifndef PRODUCTS_GLSL
#define PRODUCTS_GLSL

#define MATRICES 3

#include "products_params.glsl"

// Operands that exist (`parts`), and the number of matrices: constants, so that absent ones cost nothing.
layout(constant_id = 9) const uint PARTS = 0;
layout(constant_id = 10) const uint USED = 1;

const bool HAS_NORM = (PARTS & 16) != 0;
const bool HAS_GLU = (PARTS & 32) != 0;

// Required by mat_vec.glsl.
#define MATRIX_OF(r) (HAS_GLU ? (r) % 2 : chosen)
#define LENGTH p.k
#define EPS p.eps
#define PLACE(first, i) const uint piece = i, begin = 0;
#define SHARE_OF(x) x
const bool JOINED = false;

#define TABLE_BINDING 6
#include "weights.glsl"
#include "operand_b.glsl"

layout(set = 0, binding = 2, std430) readonly buffer W { float of[]; } norm_weight;
layout(set = 0, binding = 2, std430) readonly buffer W4 { vec4 of[]; } norm_weight4;
layout(set = 0, binding = 3, std430) readonly buffer Bias { float of[]; } bias[MATRICES];
layout(set = 0, binding = 4, std430) readonly buffer Residual { float of[]; } residual;
layout(set = 0, binding = 5, std430) writeonly buffer D { float of[]; } d[MATRICES];

// The matrix of the work-group; for a GLU the first one.
uint chosen = 0;

uint of_chosen(uint x0, uint x1, uint x2) {
    return chosen == 0 ? x0 : chosen == 1 ? x1 : x2;
}

float load_one_norm_weight(uint i) {
    return norm_weight.of[p.offw + i];
}

// Four adjacent elements of the norm's weight, from element i on.
vec4 load_norm_weight(uint i) {
    if (ALIGNED != 0) {
        return norm_weight4.of[(p.offw + i) / 4];
    }
    return vec4(
        load_one_norm_weight(i), load_one_norm_weight(i + 1), load_one_norm_weight(i + 2), load_one_norm_weight(i + 3));
}

float with_bias(uint i, uint row, float sum) {
    if ((PARTS & 1 << i) == 0) {
        return sum;
    }
    const uint off = i == 0 ? p.offb_0 : i == 1 ? p.offb_1 : p.offb_2;
    return sum + bias[i].of[off + row];
}

#endif
