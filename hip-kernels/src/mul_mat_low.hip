// MUL_MAT with weights of the types in blocks_low.h and blocks_iq.h (mul_mat.h).
#include "mul_mat.h"
#include "blocks_iq.h"
#include "blocks_low.h"

MUL_MAT_FEW(q1_0, WeightQ1_0)
MUL_MAT_FEW(q2_0, WeightQ2_0)
MUL_MAT_FEW(nvfp4, WeightNVFP4)
MUL_MAT_FEW(tq1_0, WeightTQ1_0)
MUL_MAT_FEW(tq2_0, WeightTQ2_0)
MUL_MAT_FEW(iq1_s, WeightIQ1_S)
MUL_MAT_FEW(iq1_m, WeightIQ1_M)
MUL_MAT_FEW(iq2_xxs, WeightIQ2_XXS)
MUL_MAT_FEW(iq2_xs, WeightIQ2_XS)
MUL_MAT_FEW(iq2_s, WeightIQ2_S)
MUL_MAT_FEW(iq3_xxs, WeightIQ3_XXS)
MUL_MAT_FEW(iq3_s, WeightIQ3_S)
