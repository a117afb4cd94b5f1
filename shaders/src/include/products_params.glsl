// Parameters of products of one input with up to three matrices (ProductsParams), and of the rounding before them.
#ifndef PRODUCTS_PARAMS_GLSL
#define PRODUCTS_PARAMS_GLSL

layout(push_constant, std430) uniform ProductsParams {
    uint k, n;
    uint m_0, m_1, m_2;
    uint rows_0, rows_1;
    uint ne2, r2;
    uint nb0_0, nb0_1;
    uint nb1_0, nb1_1;
    uint nbr;
    uint off0_0, off0_1, off0_2;
    uint off1;
    uint offd_0, offd_1, offd_2;
    uint offb_0, offb_1, offb_2;
    uint offr, offw;
    float eps;
    uint op;
    float alpha, limit;
    uint parts;
} p;

#endif
