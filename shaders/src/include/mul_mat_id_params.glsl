// Parameters of MUL_MAT_ID.
#ifndef MUL_MAT_ID_PARAMS_GLSL
#define MUL_MAT_ID_PARAMS_GLSL

layout(push_constant, std430) uniform MulMatIdParams {
#include "mul_mat_id_fields.glsl"
} p;

#endif
