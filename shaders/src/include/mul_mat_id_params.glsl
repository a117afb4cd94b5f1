// Parameters of MUL_MAT_ID.
#ifndef MUL_MAT_ID_PARAMS_GLSL
#define MUL_MAT_ID_PARAMS_GLSL

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

#endif
