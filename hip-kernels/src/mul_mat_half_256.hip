// MUL_MAT with weights in blocks of 256 and activations in F16 (mul_mat_half.h).
#include "mul_mat_half.h"

#if HAS_MATRIX
MAT_TILES_HALF(q2_k, WeightQ2_K)
MAT_TILES_HALF(q3_k, WeightQ3_K)
MAT_TILES_HALF(q4_k, WeightQ4_K)
MAT_TILES_HALF(q5_k, WeightQ5_K)
MAT_TILES_HALF(q6_k, WeightQ6_K)
MAT_TILES_HALF(iq4_xs, WeightIQ4_XS)
MAT_NARROW(q2_k, WeightQ2_K)
MAT_NARROW(q3_k, WeightQ3_K)
MAT_NARROW(q4_k, WeightQ4_K)
MAT_NARROW(q5_k, WeightQ5_K)
MAT_NARROW(q6_k, WeightQ6_K)
MAT_NARROW(iq4_xs, WeightIQ4_XS)
#elif HAS_PACKED_HALVES
MAT_TILES_PACKED(q4_k, WeightQ4_K)
MAT_TILES_PACKED(q5_k, WeightQ5_K)
MAT_TILES_PACKED(q6_k, WeightQ6_K)
MAT_TILES_PACKED_FEW(q2_k, WeightQ2_K)
MAT_TILES_PACKED_FEW(q3_k, WeightQ3_K)
MAT_TILES_PACKED_FEW(iq4_xs, WeightIQ4_XS)
#endif
