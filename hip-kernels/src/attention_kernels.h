// The kernels of FLASH_ATTN_EXT, by type of k and v; see the headers. `flash_attn_split_*` are for few query rows and for long
// ones, `flash_attn_tile_*` for many. If products may be rounded, there are others: on targets that multiply pairs of F16
// `flash_attn_split_half_*` for few and `flash_attn_half_*` for many, with matrix units `flash_attn_matrix_*` for many
// (`flash_attn_matrix_*_long` for long rows) and, on NVIDIA's processors, `flash_attn_units_*` for few. `flash_attn_any_*` are
// for row lengths that the others do not support.
//
// Operands: q, k, v, mask and sinks (q again if there are none), sums, statistics. The last two are scratch, or the result twice
// if the positions are not split. The kernels with `split` in their names join the sums themselves: they also have counters,
// and always the result. Soft-max and sums are F32.
#pragma once
#include "attention_any.h"
#include "attention_half.h"
#include "attention_latent.h"
#include "attention_long.h"
#include "attention_matrix.h"
#include "attention_split_half.h"
#include "attention_tile.h"
#include "attention_units.h"

#define ATTENTION_OPERANDS \
    const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out, float *stats, \
        FlashAttnPieces p
#define SPLIT_OPERANDS \
    const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *sums, float *stats, \
        u32 *counters, float *out, FlashAttnParams p
#define SPLIT_HALF_OPERANDS \
    const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *sums, float *stats, \
        u32 *counters, float *out, FlashAttnPieces p

#define SPLIT(type, KV, D, G) \
    KERNEL(SPLIT_THREADS) flash_attn_split_##type##_d##D##_g##G(SPLIT_OPERANDS) { \
        LDS AttentionShared<D, G> shared; \
        by_alignment<KV>(places_of_rows<KV>(k, v, p), [&] INLINED(auto rows) { \
            attention_split<decltype(rows), D, G>(q, k, v, mask, sinks, sums, stats, counters, out, p, &shared); \
        }); \
    }
#define SPLITS(type, KV, D) SPLIT(type, KV, D, 1) SPLIT(type, KV, D, 4)

#define LONG(type, KV) \
    WAVES_PER_SIMD(2) KERNEL(SPLIT_THREADS) flash_attn_split_##type##_long(SPLIT_OPERANDS) { \
        LDS LongShared shared; \
        by_alignment<KV>(places_of_rows<KV>(k, v, p), [&] INLINED(auto rows) { \
            attention_long<decltype(rows)>(q, k, v, mask, sinks, sums, stats, counters, out, p, &shared); \
        }); \
    }

#define TILE(type, KV, DV, WAVES) \
    WAVES_PER_SIMD(WAVES) KERNEL(TILE_THREADS) flash_attn_tile_##type##_d##DV(ATTENTION_OPERANDS) { \
        LDS TileShared shared; \
        attention_tile<KV, DV / 64>(q, k, v, mask, sinks, out, stats, p, &shared); \
    }

#if HAS_DOT2
#define HALF(type, KV, D) \
    WAVES_PER_SIMD(WAVE == 64 ? 2 : 8) KERNEL(HALF_THREADS) flash_attn_half_##type##_d##D(ATTENTION_OPERANDS) { \
        typedef HalfKernel<KV, D> K; \
        LDS K::Shared shared; \
        attention_half<K>({{q, k, v, mask, sinks, out, stats}, p}, &shared); \
    }
#define SPLIT_HALF(type, KV, D, G) \
    WAVES_PER_SIMD(WAVE == 64 ? 2 : 4) KERNEL(SPLIT_THREADS) flash_attn_split_half_##type##_d##D##_g##G(SPLIT_HALF_OPERANDS) { \
        typedef SplitHalf<D, G> S; \
        LDS SplitHalfShared<S> shared; \
        attention_split_half<S>({{q, k, v, mask, sinks, sums, stats, counters, out}, p}, &shared); \
    }
#define HALVES_OF(type, KV, D) HALF(type, KV, D) SPLIT_HALF(type, KV, D, 1) SPLIT_HALF(type, KV, D, 4)
#define HALVES(type, KV) HALVES_OF(type, KV, 64) HALVES_OF(type, KV, 128) HALVES_OF(type, KV, 256)
#else
#define HALVES(type, KV)
#endif

// A SIMD that holds four wavefronts of 32 lanes has 256 registers for each. With fewer wavefronts they have no more, but the
// compiler then spilled three on gfx1102 and gfx1103.
#define MATRIX_PER_SIMD (Fragment::LANES == 32 ? 4 : 2)
// On NVIDIA's processors registers must allow two work-groups on a multiprocessor. With three or four, ptxas spills; latency is
// hidden by the many products of a wavefront that are in flight. (H100, 512 tokens over 4608 positions: 159 Tflop/s with rows
// of 128; with rows of 64, 106 with two work-groups, 85 with three and 80 with four.)
#define MATRIX_GROUPS 2
#if DEVICE_AMD
#define KERNEL_MATRIX KERNEL(MATRIX_WAVES * Fragment::LANES)
#else
#define KERNEL_MATRIX KERNEL_GROUPS(MATRIX_WAVES * Fragment::LANES, MATRIX_GROUPS)
#endif
#define MATRIX(type, KV, D) \
    WAVES_PER_SIMD(MATRIX_PER_SIMD) KERNEL_MATRIX flash_attn_matrix_##type##_d##D(ATTENTION_OPERANDS) { \
        typedef MatrixKernel<AttentionFragment<Fragment>, KV, D> K; \
        LDS K::Shared shared[K::STAGES]; \
        attention_matrix<K>(q, k, v, mask, sinks, out, stats, p, shared); \
    }
// Rows of 256 need as many registers as NVIDIA's processors have; in blocks they would need more LDS than there is.
#if HAS_MATRIX
#define MATRICES(type, KV) MATRIX(type, KV, 64) MATRIX(type, KV, 128)
#else
#define MATRICES(type, KV)
#endif
#if HAS_MATRIX && !DEVICE_AMD
#define LONG_MATRIX(type, KV) MATRIX(type, KV, 256)
#else
#define LONG_MATRIX(type, KV)
#endif

// One work-group on a multiprocessor: fewer registers would spill, and one has as many loads in flight as memory needs.
#define UNITS(type, KV, D, G) \
    KERNEL_GROUPS(UNITS_WAVES * WAVE, 1) flash_attn_units_##type##_d##D##_g##G(ATTENTION_OPERANDS) { \
        typedef UnitsKernel<D, G> S; \
        LDS UnitsShared<S> shared; \
        attention_units<S>(q, k, v, mask, sinks, out, stats, p, &shared); \
    }
#define ALL_UNITS(type, KV) UNITS(type, KV, 64, 8) UNITS(type, KV, 128, 8) UNITS(type, KV, 256, 8) UNITS(type, KV, 64, 16) \
    UNITS(type, KV, 128, 16)

#define LATENT_MATRIX(type, KV) \
    WAVES_PER_SIMD(MATRIX_PER_SIMD) KERNEL(MATRIX_WAVES * Fragment::LANES) flash_attn_matrix_##type##_long(ATTENTION_OPERANDS) { \
        typedef LatentKernel<AttentionFragment<Fragment>, KV> K; \
        LDS K::Shared shared; \
        attention_latent<K>(q, k, v, mask, sinks, out, stats, p, &shared); \
    }

#define ANY(type, KV) \
    KERNEL(ANY_THREADS) flash_attn_any_##type(ATTENTION_OPERANDS) { \
        LDS float weights[ANY_THREADS], scratch[ANY_THREADS / WAVE]; \
        (void)stats; \
        attention_any<KV>(q, k, v, mask, sinks, out, p, weights, scratch); \
    }
