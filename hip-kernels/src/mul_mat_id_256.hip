// MUL_MAT_ID with weights in blocks of 256 (mul_mat_id.h).
#include "mul_mat_id.h"

MUL_MAT_ID_BLOCKS(q2_k, WeightQ2_K)
MUL_MAT_ID_BLOCKS(q3_k, WeightQ3_K)
MUL_MAT_ID_BLOCKS_K(q4_k, WeightQ4_K)
MUL_MAT_ID_BLOCKS_K(q5_k, WeightQ5_K)
MUL_MAT_ID_BLOCKS(q6_k, WeightQ6_K)
MUL_MAT_ID_BLOCKS(iq4_xs, WeightIQ4_XS)

MUL_MAT_ID_HALF(q2_k, WeightQ2_K)
MUL_MAT_ID_HALF(q3_k, WeightQ3_K)
MUL_MAT_ID_HALF(q4_k, WeightQ4_K)
MUL_MAT_ID_HALF(q5_k, WeightQ5_K)
MUL_MAT_ID_HALF(q6_k, WeightQ6_K)
MUL_MAT_ID_HALF(iq4_xs, WeightIQ4_XS)
