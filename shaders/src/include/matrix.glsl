// Matrix units (cooperative matrices): products of F16 with F32 sums, by a subgroup. Including shaders have the shared array
// `tiles` of uvec4, with eight F16 numbers or four F32 sums each, because rows of matrices must start at multiples of 16 bytes,
// which no smaller type guarantees; and the constants MATRIX_M, MATRIX_N and MATRIX_K, a shape that the device has, and LANES,
// the invocations of a subgroup. Places and strides count such vectors.
//
//     MATRIX_A, MATRIX_B, MATRIX_SUMS   types: M x K, K x N, M x N
//     LOAD_A, LOAD_B(x, at, stride)     rows; columns that are contiguous along k
//     LOAD_A_TURNED(x, at, stride)      columns of A, contiguous along M; for MULTIPLY_ADD_TURNED
//     MULTIPLY_ADD(x, y, sums)
//     CLEAR(sums)
//     STORE_SUMS, LOAD_SUMS(sums, at, stride)   columns, contiguous along M
//     MATRIX_FACTORS                    type: a number for each column
//     LOAD_FACTORS(factors, at)         those from `at` on
//     SCALE_SUMS(sums, factors)         multiplies columns by their factors
//
// Variants: units, and emulated (matrix_emulated.glsl), in which the invocations compute the same.
#ifndef MATRIX_GLSL
#define MATRIX_GLSL

#ifdef EMULATED
#include "matrix_emulated.glsl"
#else
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB>
#define MATRIX_SUMS coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>
#define LOAD_A(x, at, stride) coopMatLoad(x, tiles, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_A_TURNED(x, at, stride) coopMatLoad(x, tiles, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_B(y, at, stride) coopMatLoad(y, tiles, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define CLEAR(sums) sums = MATRIX_SUMS(0.0)
#define MULTIPLY_ADD(x, y, sums) sums = coopMatMulAdd(x, y, sums)
#define MULTIPLY_ADD_TURNED(x, y, sums) MULTIPLY_ADD(x, y, sums)
#define STORE_SUMS(sums, at, stride) coopMatStore(sums, tiles, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_SUMS(sums, at, stride) coopMatLoad(sums, tiles, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
// Every row of the factors is the same.
#define MATRIX_FACTORS MATRIX_SUMS
#define LOAD_FACTORS(factors, at) coopMatLoad(factors, tiles, at, 0, gl_CooperativeMatrixLayoutRowMajor)
#define SCALE_SUMS(sums, factors) sums = sums * factors
#endif

#endif
