// MUL_MAT_ID with weights of the types in blocks_low.h and blocks_iq.h (mul_mat_id.h).
#include "mul_mat_id.h"
#include "blocks_iq.h"
#include "blocks_low.h"

MUL_MAT_ID(q1_0, WeightQ1_0)
MUL_MAT_ID(q2_0, WeightQ2_0)
MUL_MAT_ID(nvfp4, WeightNVFP4)
MUL_MAT_ID(tq1_0, WeightTQ1_0)
MUL_MAT_ID(tq2_0, WeightTQ2_0)
MUL_MAT_ID(iq1_s, WeightIQ1_S)
MUL_MAT_ID(iq1_m, WeightIQ1_M)
MUL_MAT_ID(iq2_xxs, WeightIQ2_XXS)
MUL_MAT_ID(iq2_xs, WeightIQ2_XS)
MUL_MAT_ID(iq2_s, WeightIQ2_S)
MUL_MAT_ID(iq3_xxs, WeightIQ3_XXS)
MUL_MAT_ID(iq3_s, WeightIQ3_S)
