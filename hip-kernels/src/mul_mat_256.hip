// MUL_MAT with weights in blocks of 256 (mul_mat.h).
#include "mul_mat.h"

MUL_MAT(q4_k, WeightQ4_K)
MUL_MAT(q5_k, WeightQ5_K)
MUL_MAT(q6_k, WeightQ6_K)
MUL_MAT_FEW(q2_k, WeightQ2_K)
MUL_MAT_FEW(q3_k, WeightQ3_K)
MUL_MAT_FEW(iq4_xs, WeightIQ4_XS)
