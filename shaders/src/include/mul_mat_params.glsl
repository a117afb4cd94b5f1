// Parameters of a matrix product, and of the rounding before it.
#ifndef MUL_MAT_PARAMS_GLSL
#define MUL_MAT_PARAMS_GLSL

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
