// The kernels of MUL_MAT where rounding is allowed, by type: quantised weights times activations in blocks of 8 bits (int8.h).
// Products are summed exactly within a block, blocks in F32.
//
// `mat_vec_rounding_<type>_n<columns>_r<rows>` is for one or two columns, which it rounds itself; `mat_vec_ring_<type>` the
// same for one column, if there are copies to LDS; `mat_vec_int8_...` for few columns (mat_vec_int8.h);
// `mat_tile_int8_<type>_<rows>x<columns>` for many (mat_tile_int8.h). The last two read the results of `quantize_int8` or
// `normalize_int8` in scratch (mul_mat_int8.hip). If a target has dot4, the tiles of Q4_K and Q5_K are those of
// mat_tile_int8_k.h and read the results of `quantize_int8_k`.
//
// A target has only kernels that are faster there than those for F32; the host's tuning.rs has the counts.
#pragma once
#include "mat_tile_int8.h"
#include "mat_tile_int8_k.h"
#include "mat_vec_int8.h"
#include "mat_vec_ring.h"

#define INT8_OPERANDS const u8 *a, const u8 *q, const float *scale, float *d, MulMatParams p

// mat_vec.h.
#define MAT_VEC_ROUNDING(type, W, N, R) MAT_VEC(mat_vec_rounding_##type, W, N, R, FromLds<FormInt8, N>)
// One column, with copies of the weights to LDS (mat_vec_ring.h); the launch gives RING_BYTES.
#if HAS_COPIES
#define MAT_VEC_RING(type, W) \
    KERNEL_GROUPS(VEC_THREADS, 2) mat_vec_ring_##type(VEC_ARGUMENTS) { \
        typedef FromLds<FormInt8, 1> Source; \
        LDS VecShared<Source, 1, 4> shared; \
        mat_vec<W, Source, 1, 4, Ring<W, 4>>({VEC_OPERANDS, p}, &shared); \
    }
#else
#define MAT_VEC_RING(type, W)
#endif
#define MAT_VEC_INT8(type, W, N, R) MAT_VEC(mat_vec_int8_##type, W, N, R, FromMemoryInt8<N>)

#define MAT_TILE_INT8(type, W, BM, BN, TM, TN) \
    KERNEL(BM / TM * (BN / TN)) mat_tile_int8_##type##_##BM##x##BN(INT8_OPERANDS) { \
        typedef TileInt8<W, BM, BN, TM, TN> T; \
        LDS T::Shared shared; \
        mat_tile_int8<W, T>(a, q, scale, d, p, &shared); \
    }

// Blocks with HeadK, if a target has dot4.
#define MAT_TILE_INT8_K(type, W, BM, BN, TM, TN) \
    KERNEL(BM / TM * (BN / TN)) mat_tile_int8_##type##_##BM##x##BN(INT8_OPERANDS) { \
        typedef TileInt8K<W, BM, BN, TM, TN> T; \
        LDS T::Shared shared; \
        mat_tile_int8_k<W, T>(a, q, scale, d, p, &shared); \
    }
#define MAT_TILES_K(type, W) \
    MAT_TILE_INT8_K(type, W, 64, 32, 4, 4) \
    MAT_TILE_INT8_K(type, W, 64, 64, 4, 4) \
    MAT_TILE_INT8_K(type, W, 128, 64, 8, 4)

#if HAS_DOT4
#define MAT_VECS_FEW(type, W) \
    MAT_VEC_ROUNDING(type, W, 1, 4) \
    MAT_VEC_INT8(type, W, 4, 4)
#define MAT_VECS(type, W) \
    MAT_VECS_FEW(type, W) \
    MAT_VEC_ROUNDING(type, W, 2, 4) \
    MAT_VEC_INT8(type, W, 8, 2)
#else
#define MAT_VECS_FEW(type, W)
#define MAT_VECS(type, W)
#endif

#define MAT_TILES_FEW(type, W) \
    MAT_TILE_INT8(type, W, 64, 32, 4, 4) \
    MAT_TILE_INT8(type, W, 128, 64, 8, 4)
#define MAT_TILES(type, W) \
    MAT_TILES_FEW(type, W) \
    MAT_TILE_INT8(type, W, 64, 64, 4, 4)
