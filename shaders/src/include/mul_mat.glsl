// Shared by the kernels of MUL_MAT and, with MUL_MAT_ID, of MUL_MAT_ID: parameters, operands b and d.
#ifndef MUL_MAT_GLSL
#define MUL_MAT_GLSL

#ifdef MUL_MAT_ID
#include "mul_mat_id_params.glsl"
#else
#include "mul_mat_params.glsl"
#endif

#if defined(MUL_MAT_ID) || defined(MATRIX)
// The lists, or the two buffers of stream.glsl, are before it.
#define TABLE_BINDING 5
#else
#define TABLE_BINDING 3
#endif
#include "weights.glsl"
#include "operand_b.glsl"

#ifdef MUL_MAT_ID
layout(set = 0, binding = 2, std430) readonly buffer Sorted { uint sorted[]; };
layout(set = 0, binding = 3, std430) readonly buffer Tiles { uvec4 tiles_of_pairs[]; };
layout(set = 0, binding = 4, std430) writeonly buffer D { float d[]; };
#else
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };
#endif

#endif
