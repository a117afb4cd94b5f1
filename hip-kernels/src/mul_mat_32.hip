// MUL_MAT with weights in blocks of 32 (mul_mat.h).
#include "mul_mat.h"

MUL_MAT(q8_0, WeightQ8_0)
MUL_MAT(q4_0, WeightQ4_0)
MUL_MAT_FEW(q4_1, WeightQ4_1)
MUL_MAT_FEW(q5_0, WeightQ5_0)
MUL_MAT_FEW(q5_1, WeightQ5_1)
MUL_MAT_FEW(iq4_nl, WeightIQ4_NL)
MUL_MAT_FEW(mxfp4, WeightMXFP4)
