// MUL_MAT with weights in blocks of 256 and activations of 8 bits (mul_mat_int8.h).
#include "mul_mat_int8.h"

#if HAS_DOT4
MAT_VECS(q4_k, WeightQ4_K)
MAT_VECS(q5_k, WeightQ5_K)
MAT_VECS(q6_k, WeightQ6_K)
MAT_VECS_FEW(q2_k, WeightQ2_K)
MAT_VECS_FEW(q3_k, WeightQ3_K)
MAT_VECS_FEW(iq4_xs, WeightIQ4_XS)
MAT_VEC_RING(q4_k, WeightQ4_K)
MAT_VEC_RING(q5_k, WeightQ5_K)
MAT_VEC_RING(q6_k, WeightQ6_K)
MAT_VEC_RING(q2_k, WeightQ2_K)
MAT_VEC_RING(q3_k, WeightQ3_K)
MAT_VEC_RING(iq4_xs, WeightIQ4_XS)
MAT_TILES_K(q4_k, WeightQ4_K)
MAT_TILES_K(q5_k, WeightQ5_K)
MAT_TILES(q6_k, WeightQ6_K)
MAT_TILES_FEW(q2_k, WeightQ2_K)
MAT_TILES_FEW(q3_k, WeightQ3_K)
MAT_TILES_FEW(iq4_xs, WeightIQ4_XS)
#endif
