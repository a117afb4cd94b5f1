// What the kernels of MUL_MAT and, with MUL_MAT_ID, of MUL_MAT_ID share: parameters, operands b and d.
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
layout(push_constant, std430) uniform MulMatParams {
    uint m, n, k;
    uint ne2, ne3;
    uint r2, r3;
    uint nb0_0, nb0_1, nb0_2;
    uint nb1_0, nb1_1, nb1_2;
    uint nbd_0, nbd_1, nbd_2;
    uint off0, off1, offd;
    uint first_row;
} p;
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
