// The kernels of MUL_MAT where rounding is allowed and the target multiplies F16, by type (mat_tile_half.h):
// `mat_tile_half_<type>_<rows>x<columns>`, `mat_tile_mma_...` for NVIDIA's processors, or `mat_tile_packed_...` for AMD's
// processors without dot products (mat_tile_packed.h). They read the activations that `round_half` wrote to scratch
// (mul_mat_half.hip). `mat_narrow_<type>_n<columns>` is for few columns on NVIDIA's processors (mat_narrow.h) and reads those
// of `round_narrow_<span>` or `normalize_narrow_<span>`.
#pragma once
#include "mat_narrow.h"
#include "mat_tile_half.h"
#include "mat_tile_mma.h"
#include "mat_tile_packed.h"

#define MAT_TILE_HALF(type, W, BM, BN, THREADS) \
    KERNEL(THREADS) \
    mat_tile_half_##type##_##BM##x##BN(const u8 *a, const u16 *x, const float *scale, float *d, MulMatParams p) { \
        LDS SharedHalf<BM, BN> shared[HALF_STEPS]; \
        by_alignment<W>(places_of_rows<W>(a, p), [&] INLINED(auto rows) { \
            typedef decltype(rows) Rows; \
            mat_tile_half<Rows, TileHalf<Rows, Fragment, BM, BN, THREADS>>(a, x, scale, d, p, shared); \
        }); \
    }

// The small tile is for products whose large tiles would leave compute units without work, and for targets on which a lane's
// share of a large one would take all registers.
#if HAS_MATRIX
#define LARGE_TILE_HALF(type, W) MAT_TILE_HALF(type, W, 128, 128, 256)
#else
#define LARGE_TILE_HALF(type, W)
#endif
// NVIDIA's processors have tiles of their own.
#if !DEVICE_AMD && HAS_MATRIX
#define MAT_TILES_HALF(type, W) \
    MAT_TILE_MMA(type, W, 64, 64) \
    MAT_TILE_MMA(type, W, 64, 128) \
    MAT_TILE_MMA(type, W, 128, 128)
#else
#define MAT_TILES_HALF(type, W) MAT_TILE_HALF(type, W, 64, 64, 128) LARGE_TILE_HALF(type, W)
#endif

#define MAT_TILE_PACKED(type, W, BM, BN, TM, TN) \
    KERNEL(BM / TM * (BN / TN)) \
    mat_tile_packed_##type##_##BM##x##BN(const u8 *a, const u16 *x, const float *scale, float *d, MulMatParams p) { \
        typedef TilePacked<W, BM, BN, TM, TN> T; \
        LDS T::Shared shared; \
        mat_tile_packed<W, T>(a, x, scale, d, p, &shared); \
    }
#define MAT_TILES_PACKED_FEW(type, W) \
    MAT_TILE_PACKED(type, W, 64, 32, 4, 4) \
    MAT_TILE_PACKED(type, W, 128, 64, 8, 4)
#define MAT_TILES_PACKED(type, W) \
    MAT_TILES_PACKED_FEW(type, W) \
    MAT_TILE_PACKED(type, W, 64, 64, 4, 4)
