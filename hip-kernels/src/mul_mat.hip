// MUL_MAT with weights that are plain numbers (mul_mat.h).
#include "mul_mat.h"

MUL_MAT(f32, WeightF32)
MUL_MAT(f16, WeightF16)
MUL_MAT(bf16, WeightBF16)
