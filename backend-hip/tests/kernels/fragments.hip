// Tiles of F16 with the fragments of every matrix unit.
#include "mul_mat_half.h"
#include "written.h"

#define TILES(name, F) \
    KERNEL(128) f16_##name(const u8 *a, const u16 *x, const float *scale, float *d, MulMatParams p) { \
        LDS SharedHalf<64, 64> shared[2]; \
        mat_tile_half<WeightF16, TileHalf<WeightF16, F, 64, 64, 128>>(a, x, scale, d, p, shared); \
    } \
    KERNEL(256) q4_k_##name(const u8 *a, const u16 *x, const float *scale, float *d, MulMatParams p) { \
        LDS SharedHalf<128, 128> shared[2]; \
        mat_tile_half<WeightQ4_K, TileHalf<WeightQ4_K, F, 128, 128, 256>>(a, x, scale, d, p, shared); \
    }

TILES(wmma11, FragmentWmma11)
TILES(wmma12, FragmentWmma12)
TILES(mfma, FragmentMfma)
TILES(mma, FragmentMma)
