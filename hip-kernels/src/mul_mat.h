// The kernels of MUL_MAT, by type: d[m, n] = sum over k of a[k, m] * b[k, n], for every plane; weights `a`, activations `b` in
// F32. Products and sums are F32, weights as stored: no operand is rounded.
//
// `mat_vec_<type>_n<columns>_r<rows>` is for few columns (mat_vec.h), with the operations around products, and for those of
// MUL_MAT_ID; `mat_tile_<type>_<rows>x<columns>` for many (mat_tile.h).
#pragma once
#include "mat_tile.h"
#include "mat_vec.h"

// mat_vec.h.
#define MAT_VEC_LDS(type, W) MAT_VEC(mat_vec_##type, W, 1, 4, FromLds<FormF32, 1>)
#define MAT_VEC_MEMORY(type, W, N, R) MAT_VEC(mat_vec_##type, W, N, R, FromMemoryF32<N>)

#define MAT_TILE(type, W, BM, BN, BK, TM, TN) \
    KERNEL(BM / TM * (BN / TN)) mat_tile_##type##_##BM##x##BN(const u8 *a, const float *b, float *d, MulMatParams p) { \
        typedef MatTile<W, BM, BN, BK, TM, TN> T; \
        LDS T::Shared shared; \
        mat_tile<W, T>(a, b, d, p, &shared); \
    }

// Kernels of every type, which suffice for any shape.
#define MUL_MAT_FEW(type, W) \
    MAT_VEC_LDS(type, W) \
    MAT_VEC_MEMORY(type, W, 4, 4) \
    MAT_TILE(type, W, 64, 32, 32, 4, 4) \
    MAT_TILE(type, W, 128, 64, 32, 8, 4)

// Kernels of the types of most models.
#define MUL_MAT(type, W) \
    MUL_MAT_FEW(type, W) \
    MAT_VEC_MEMORY(type, W, 2, 2) \
    MAT_VEC_MEMORY(type, W, 8, 2) \
    MAT_TILE(type, W, 64, 64, 32, 4, 4) \
    MAT_TILE(type, W, 128, 128, 16, 8, 8)
