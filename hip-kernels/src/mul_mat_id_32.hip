// MUL_MAT_ID with weights in blocks of 32 (mul_mat_id.h).
#include "mul_mat_id.h"

MUL_MAT_ID_BLOCKS(q8_0, WeightQ8_0)
MUL_MAT_ID_BLOCKS(q4_0, WeightQ4_0)
MUL_MAT_ID_BLOCKS(q4_1, WeightQ4_1)
MUL_MAT_ID_BLOCKS(q5_0, WeightQ5_0)
MUL_MAT_ID_BLOCKS(q5_1, WeightQ5_1)
MUL_MAT_ID_BLOCKS(iq4_nl, WeightIQ4_NL)
MUL_MAT_ID_BLOCKS(mxfp4, WeightMXFP4)

// The values of MXFP4 do not fit F16.
MUL_MAT_ID_HALF(q8_0, WeightQ8_0)
MUL_MAT_ID_HALF(q4_0, WeightQ4_0)
MUL_MAT_ID_HALF(q4_1, WeightQ4_1)
MUL_MAT_ID_HALF(q5_0, WeightQ5_0)
MUL_MAT_ID_HALF(q5_1, WeightQ5_1)
MUL_MAT_ID_HALF(iq4_nl, WeightIQ4_NL)
