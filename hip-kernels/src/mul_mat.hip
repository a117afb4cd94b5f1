// MUL_MAT.
#include "mat_vec.h"
#include "mat_tile.h"

#define MAT_TILE(type, W, name, BM, BN, BK, TM, TN) \
    KERNEL(BM / TM * (BN / TN)) mat_tile_##type##_##name(const u8 *a, const float *b, float *d, MulMatParams p) { \
        typedef MatTile<W, BM, BN, BK, TM, TN> T; \
        __attribute__((aligned(16))) LDS float tile_a[T::A_FLOATS], tile_b[T::B_FLOATS]; \
        mat_tile<W, T>(a, b, d, p, tile_a, tile_b); \
    }
#define MUL_MAT(type, W) \
    MAT_TILE(type, W, 64x32, 64, 32, 32, 4, 4) \
    MAT_TILE(type, W, 64x64, 64, 64, 32, 4, 4) \
    MAT_TILE(type, W, 128x64, 128, 64, 32, 8, 4) \
    MAT_TILE(type, W, 128x128, 128, 128, 16, 8, 8)
MUL_MAT(f32, WeightF32)
MUL_MAT(f16, WeightF16)
MUL_MAT(bf16, WeightBF16)
MUL_MAT(q8_0, WeightQ8_0)
MUL_MAT(q4_0, WeightQ4_0)
