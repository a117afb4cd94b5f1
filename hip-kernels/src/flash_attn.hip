// FLASH_ATTN_EXT: attention without the matrix of scores in memory. Operands: q, k, v, mask and sinks (q again where
// there are none), sums, statistics; the last two are scratch, or the result twice where the positions are not split.
//
// `flash_attn_split_*` for few query rows, `flash_attn_tile_*` for many, `flash_attn_any_*` for rows of lengths that
// these do not take; see the headers. `flash_attn_combine_*` joins what the pieces of the positions gave. Everything is
// F32: the soft-max, the products and their sums.
#include "attention_any.h"
#include "attention_split.h"
#include "attention_tile.h"

#define ATTENTION_OPERANDS \
    const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out, float *stats, \
        FlashAttnParams p

#define SPLIT(type, KV, D, G) \
    KERNEL(SPLIT_THREADS) flash_attn_split_##type##_d##D##_g##G(ATTENTION_OPERANDS) { \
        LDS AttentionShared<D, G> shared; \
        attention_split<KV, D, G>(q, k, v, mask, sinks, out, stats, p, &shared); \
    }
#define SPLITS(type, KV, D) SPLIT(type, KV, D, 1) SPLIT(type, KV, D, 4)
SPLITS(f32, WeightF32, 64)
SPLITS(f32, WeightF32, 128)
SPLITS(f32, WeightF32, 256)
SPLITS(f16, WeightF16, 64)
SPLITS(f16, WeightF16, 128)
SPLITS(f16, WeightF16, 256)
SPLIT(f16, WeightF16, 64, 8)
SPLIT(f16, WeightF16, 128, 8)
SPLIT(f16, WeightF16, 256, 8)
SPLITS(q8_0, WeightQ8_0, 64)
SPLITS(q8_0, WeightQ8_0, 128)
SPLITS(q8_0, WeightQ8_0, 256)
SPLITS(q4_0, WeightQ4_0, 64)
SPLITS(q4_0, WeightQ4_0, 128)
SPLITS(q4_0, WeightQ4_0, 256)

#define TILE(type, KV, DV) \
    KERNEL(TILE_THREADS) flash_attn_tile_##type##_d##DV(ATTENTION_OPERANDS) { \
        LDS TileShared shared; \
        attention_tile<KV, DV / 64>(q, k, v, mask, sinks, out, stats, p, &shared); \
    }
TILE(f32, WeightF32, 64)
TILE(f32, WeightF32, 128)
TILE(f32, WeightF32, 256)
TILE(f16, WeightF16, 64)
TILE(f16, WeightF16, 128)
TILE(f16, WeightF16, 256)
TILE(q8_0, WeightQ8_0, 64)
TILE(q8_0, WeightQ8_0, 128)
TILE(q8_0, WeightQ8_0, 256)
TILE(q4_0, WeightQ4_0, 64)
TILE(q4_0, WeightQ4_0, 128)
TILE(q4_0, WeightQ4_0, 256)

#define ANY(type, KV) \
    KERNEL(ANY_THREADS) flash_attn_any_##type(ATTENTION_OPERANDS) { \
        LDS float weights[ANY_THREADS], scratch[ANY_THREADS / WAVE]; \
        (void)stats; \
        attention_any<KV>(q, k, v, mask, sinks, out, p, weights, scratch); \
    }
ANY(f32, WeightF32)
ANY(f16, WeightF16)
ANY(q8_0, WeightQ8_0)
ANY(q4_0, WeightQ4_0)

#define COMBINE_THREADS 128
#define MAX_SPLITS 2048u

// group_x: a row of the result. One piece a thread for the weights, then one column a thread; 8 KiB of LDS.
DEVICE void combine(const float *sums, const float *stats, float *d, const FlashAttnParams &p, u32 span,
                    float *weights, float *scratch) {
    u32 thread = thread_id(), splits = (p.kv[0] + span - 1) / span;
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
    float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (u32 c = thread; c < p.d[1]; c += COMBINE_THREADS) {
        float total = 0.0f;
        const float *piece = sums + row * splits * p.d[1] + c;
        _Pragma("unroll 4") for (u32 i = 0; i < splits; i++) total = mad(weights[i], piece[(u64)i * p.d[1]], total);
        d[p.off[5] + row * p.d[1] + c] = total * factor;
    }
}

#define COMBINE(name, span) \
    KERNEL(COMBINE_THREADS) \
    flash_attn_combine_##name(const float *sums, const float *stats, float *d, FlashAttnParams p) { \
        LDS float weights[MAX_SPLITS], scratch[2 * COMBINE_THREADS / WAVE]; \
        combine(sums, stats, d, p, span, weights, scratch); \
    }
COMBINE(split, SPAN)
COMBINE(tile, tile_span(p, p.ne[0] * (p.ne[1] / p.kv[1])))
