// MUL_MAT with weights in blocks of 32 and activations of 8 bits (mul_mat_int8.h).
#include "mul_mat_int8.h"

#if HAS_DOT4
MAT_VECS(q8_0, WeightQ8_0)
MAT_VECS(q4_0, WeightQ4_0)
MAT_VECS_FEW(q4_1, WeightQ4_1)
MAT_VECS_FEW(q5_0, WeightQ5_0)
MAT_VECS_FEW(q5_1, WeightQ5_1)
MAT_VECS_FEW(iq4_nl, WeightIQ4_NL)
MAT_VECS_FEW(mxfp4, WeightMXFP4)
MAT_VEC_RING(q8_0, WeightQ8_0)
MAT_VEC_RING(q4_0, WeightQ4_0)
MAT_VEC_RING(q4_1, WeightQ4_1)
MAT_VEC_RING(q5_0, WeightQ5_0)
MAT_VEC_RING(q5_1, WeightQ5_1)
MAT_VEC_RING(iq4_nl, WeightIQ4_NL)
MAT_VEC_RING(mxfp4, WeightMXFP4)
MAT_TILES(q8_0, WeightQ8_0)
MAT_TILES(q4_0, WeightQ4_0)
MAT_TILES_FEW(q4_1, WeightQ4_1)
MAT_TILES_FEW(q5_0, WeightQ5_0)
MAT_TILES_FEW(q5_1, WeightQ5_1)
MAT_TILES_FEW(iq4_nl, WeightIQ4_NL)
MAT_TILES_FEW(mxfp4, WeightMXFP4)
#endif
