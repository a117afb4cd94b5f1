// Shared by the kernels of MUL_MAT and, with MUL_MAT_ID, of MUL_MAT_ID: parameters, operands b and d.
#ifndef MUL_MAT_GLSL
#define MUL_MAT_GLSL

#ifdef MUL_MAT_ID
layout(push_constant, std430) uniform MulMatIdParams {
    uint m, k;
    uint experts, used, tokens;
    uint nb0_0, nb0_1;
    uint nb1_0, nb1_1;
    uint nb2_0, nb2_1;
    uint nbd_0, nbd_1;
    uint off0, off1, off2, offd;
    uint first_expert, window_experts;
} p;
#else
#include "mul_mat_params.glsl"
#endif

#if defined(MUL_MAT_ID)
#define TABLE_BINDING 4
#elif defined(MATRIX)
// stream.glsl has two bindings before it.
#define TABLE_BINDING 5
#else
#define TABLE_BINDING 3
#endif
#include "weights.glsl"
#include "operand_b.glsl"

#ifdef MUL_MAT_ID
layout(set = 0, binding = 2, std430) readonly buffer Ids { int ids[]; };
layout(set = 0, binding = 3, std430) writeonly buffer D { float d[]; };
#else
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };
#endif

#endif
