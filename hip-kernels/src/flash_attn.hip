// FLASH_ATTN_EXT: attention without the matrix of scores in memory (attention_kernels.h), with k and v of plain numbers.
// `flash_attn_combine` joins the pieces of the tile and matrix kernels, for every type.
#include "attention_kernels.h"

SPLITS(f32, WeightF32, 64)
SPLITS(f32, WeightF32, 128)
SPLITS(f32, WeightF32, 256)
SPLITS(f16, WeightF16, 64)
SPLITS(f16, WeightF16, 128)
SPLITS(f16, WeightF16, 256)
SPLIT(f16, WeightF16, 64, 8)
SPLIT(f16, WeightF16, 128, 8)
SPLIT(f16, WeightF16, 256, 8)
TILE(f32, WeightF32, 64, 2)
TILE(f32, WeightF32, 128, 2)
TILE(f32, WeightF32, 256, 1)
TILE(f16, WeightF16, 64, 2)
TILE(f16, WeightF16, 128, 2)
TILE(f16, WeightF16, 256, 1)
LONG(f32, WeightF32)
LONG(f16, WeightF16)
ANY(f32, WeightF32)
ANY(f16, WeightF16)
HALVES(f16, WeightF16)
MATRICES(f16, WeightF16)
LONG_MATRIX(f16, WeightF16)
#if HAS_MATRIX
LATENT_MATRIX(f16, WeightF16)
#endif
#if HAS_MATRIX && !DEVICE_AMD
ALL_UNITS(f16, WeightF16)
#endif

#define COMBINE_THREADS 128
#define MAX_SPLITS 2048u

// group_x: a row of the result. Each thread computes the weight of one piece, then one column.
KERNEL(COMBINE_THREADS)
flash_attn_combine(const float *sums, const float *stats, float *d, FlashAttnPieces p) {
    LDS float weights[MAX_SPLITS], scratch[2 * COMBINE_THREADS / WAVE];
    u32 thread = thread_id(), splits = (p.kv[0] + p.span - 1) / p.span;
    u64 row = group_x();
    float max = -infinity();
    for (u32 i = thread; i < splits; i += COMBINE_THREADS) max = larger(max, stats[(row * splits + i) * 2]);
    max = group_reduce<Max, COMBINE_THREADS>(max, scratch);
    float sum = 0.0f;
    for (u32 i = thread; i < splits; i += COMBINE_THREADS) {
        float w = weight(stats[(row * splits + i) * 2], max);
        weights[i] = w;
        sum = mad(w, stats[(row * splits + i) * 2 + 1], sum);
    }
    sum = group_reduce<Sum, COMBINE_THREADS>(sum, scratch + COMBINE_THREADS / WAVE);
    float factor = normalizer(sum);
    for (u32 c = thread; c < p.d[1]; c += COMBINE_THREADS) {
        float total = 0.0f;
        const float *piece = sums + row * splits * p.d[1] + c;
        _Pragma("unroll 4") for (u32 i = 0; i < splits; i++) total = mad(weights[i], piece[(u64)i * p.d[1]], total);
        d[p.off[5] + row * p.d[1] + c] = total * factor;
    }
}
