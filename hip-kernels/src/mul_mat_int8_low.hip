// MUL_MAT with weights of the types in blocks_low.h and blocks_iq.h, and activations of 8 bits (mul_mat_int8.h).
#include "mul_mat_int8.h"
#include "blocks_iq.h"
#include "blocks_low.h"

#if HAS_DOT4
MAT_VECS_FEW(q1_0, WeightQ1_0)
MAT_VECS_FEW(q2_0, WeightQ2_0)
MAT_VECS_FEW(nvfp4, WeightNVFP4)
MAT_VECS_FEW(tq1_0, WeightTQ1_0)
MAT_VECS_FEW(tq2_0, WeightTQ2_0)
MAT_VECS_FEW(iq1_s, WeightIQ1_S)
MAT_VECS_FEW(iq1_m, WeightIQ1_M)
MAT_VECS_FEW(iq2_xxs, WeightIQ2_XXS)
MAT_VECS_FEW(iq2_xs, WeightIQ2_XS)
MAT_VECS_FEW(iq2_s, WeightIQ2_S)
MAT_VECS_FEW(iq3_xxs, WeightIQ3_XXS)
MAT_VECS_FEW(iq3_s, WeightIQ3_S)
#endif
