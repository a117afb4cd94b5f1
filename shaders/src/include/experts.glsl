// Parameters and operands of products of one input with one or two matrices of each expert (ExpertsParams), and the operations
// after each sum: bias, GLU, the weighted sum over a token's experts, residual.
#ifndef EXPERTS_GLSL
#define EXPERTS_GLSL

#define MATRICES 2

layout(push_constant, std430) uniform ExpertsParams {
#include "mul_mat_id_fields.glsl"
    uint off0_up;
    uint offb_0, offb_1;
    uint nbf_0, nbf_1;
    uint offf;
    uint nbr;
    uint offr;
    uint op;
    float alpha, limit;
} p;

// Operands that exist: a constant, so that absent ones cost nothing. Bits as in products.glsl, 64 for the weighted sum.
layout(constant_id = 9) const uint PARTS = 0;

const bool HAS_GLU = (PARTS & 32) != 0;
// True if the rows of a token's experts form one row, and their adjacent inputs one input.
const bool JOINED = (PARTS & 64) != 0;

#define TABLE_BINDING 7
#include "weights.glsl"
#include "operand_b.glsl"

layout(set = 0, binding = 2, std430) readonly buffer Ids { int ids[]; };
layout(set = 0, binding = 3, std430) readonly buffer Bias { float of[]; } bias[MATRICES];
layout(set = 0, binding = 4, std430) readonly buffer Factors { float of[]; } factors_of;
layout(set = 0, binding = 5, std430) readonly buffer Residual { float of[]; } residual;
layout(set = 0, binding = 6, std430) writeonly buffer D { float d[]; };

// Largest number of experts whose rows are joined.
const uint MOST_JOINED = 64;
const uint NO_EXPERT = 0xffffffffu;

shared uint joined_expert[JOINED ? MOST_JOINED : 1];
shared float joined_factor[JOINED ? MOST_JOINED : 1];

// Returns the expert with index u of a token.
uint expert_of(uint u, uint token) {
    const int id = ids[p.off2 + u * p.nb2_0 + token * p.nb2_1];
    return id < 0 || uint(id) >= p.experts ? NO_EXPERT : uint(id);
}

// All invocations read a token's experts and their weights.
void read_joined(uint token) {
    for (uint u = gl_LocalInvocationIndex; u < p.used; u += gl_WorkGroupSize.x) {
        joined_expert[u] = expert_of(u, token);
        joined_factor[u] = factors_of.of[p.offf + u * p.nbf_0 + token * p.nbf_1];
    }
    barrier();
}

// Required by mat_vec.glsl. Without an expert, the pieces of the first one are read and not used.
#define MATRIX_OF(r) (HAS_GLU ? (r) % 2 : 0)
#define LENGTH (JOINED ? p.used * p.k : p.k)
#define PLACE(first, i)                                                                                                \
    uint piece = i, begin = 0, expert = 0;                                                                             \
    float share = 1.0;                                                                                                 \
    if (JOINED) {                                                                                                      \
        const uint u = (first + i) / (p.k / PIECE);                                                                    \
        piece = first + i - u * (p.k / PIECE);                                                                         \
        expert = joined_expert[u];                                                                                     \
        share = joined_factor[u];                                                                                      \
        begin = expert == NO_EXPERT ? 0 : expert * p.nb0_1;                                                            \
    }
#define SHARE_OF(x) (JOINED ? expert == NO_EXPERT ? 0.0 : share * (x) : (x))
#define EPS 0.0
const bool HAS_NORM = false;

vec4 load_norm_weight(uint i) {
    return vec4(1.0);
}

float load_one_norm_weight(uint i) {
    return 1.0;
}

// Adds the bias of a row of matrix i of an expert, or the weighted sum of the biases of joined ones.
float with_bias(uint i, uint expert, uint row, float sum) {
    if ((PARTS & 1 << i) == 0) {
        return sum;
    }
    const uint at = (i == 0 ? p.offb_0 : p.offb_1) + row;
    if (!JOINED) {
        return sum + bias[i].of[at + expert * p.m];
    }
    for (uint u = 0; u < p.used; u++) {
        if (joined_expert[u] != NO_EXPERT) {
            sum += joined_factor[u] * bias[i].of[at + joined_expert[u] * p.m];
        }
    }
    return sum;
}

#endif
