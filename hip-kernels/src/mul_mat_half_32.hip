// MUL_MAT with weights in blocks of 32 and activations in F16 (mul_mat_half.h). The values of MXFP4 do not
// fit F16, its integers do.
#include "mul_mat_half.h"

#if HAS_MATRIX
MAT_TILES_HALF(q8_0, WeightQ8_0)
MAT_TILES_HALF(q4_0, WeightQ4_0)
MAT_TILES_HALF(q4_1, WeightQ4_1)
MAT_TILES_HALF(q5_0, WeightQ5_0)
MAT_TILES_HALF(q5_1, WeightQ5_1)
MAT_TILES_HALF(iq4_nl, WeightIQ4_NL)
MAT_NARROW(q8_0, WeightQ8_0)
MAT_NARROW(q4_0, WeightQ4_0)
MAT_NARROW(q4_1, WeightQ4_1)
MAT_NARROW(q5_0, WeightQ5_0)
MAT_NARROW(q5_1, WeightQ5_1)
MAT_NARROW(iq4_nl, WeightIQ4_NL)
#elif HAS_PACKED_HALVES
MAT_TILES_PACKED(q8_0, WeightQ8_0)
MAT_TILES_PACKED(q4_0, WeightQ4_0)
MAT_TILES_PACKED_FEW(q4_1, WeightQ4_1)
MAT_TILES_PACKED_FEW(q5_0, WeightQ5_0)
MAT_TILES_PACKED_FEW(q5_1, WeightQ5_1)
MAT_TILES_PACKED_FEW(iq4_nl, WeightIQ4_NL)
MAT_TILES_PACKED_FEW(mxfp4, WeightMXFP4)
#endif
