// MUL_MAT_ID (mul_mat_id.h): sorting, and products with weights that are plain numbers.
#include "index.h"
#include "mul_mat_id.h"

#define GATHER_THREADS 256u

// Experts of GATHERED pairs of a thread, from `begin` on; adjacent threads have adjacent pairs. `none` for pairs after the end.
// All indices are loaded before the first is used.
#define GATHERED 4u
DEVICE void experts_of(const MulMatIdParams &p, const i32 *ids, u32 begin, u32 none, u32 *experts) {
    u32 pairs = p.used * p.tokens;
    UNROLL for (u32 j = 0; j < GATHERED; j++) {
        u32 pair = begin + j * GATHER_THREADS + thread_id();
        u32 expert = expert_of(p, ids, place(p, minimum(pair, pairs - 1)));
        experts[j] = pair < pairs ? expert : none;
    }
}

// group_x: experts, plus one for the pairs that have none. Each work-group finds the pairs of its expert, and the number of
// pairs of the experts before it. In the list of tiles an expert starts at entry first / ID_COLUMNS + expert: those before it
// cannot have more tiles, because each has at most one that is not full. Entries in between are empty. Pairs are in the same
// order in each run: by thread, then by pair. LDS: 2 KiB.
KERNEL(GATHER_THREADS) gather_pairs(const i32 *ids, u32 *sorted, TileOfPairs *tiles, MulMatIdParams p) {
    LDS u32 before[GATHER_THREADS], here[GATHER_THREADS];
    constexpr u32 STEP = GATHERED * GATHER_THREADS;
    u32 expert = group_x(), thread = thread_id(), pairs = p.used * p.tokens, experts[GATHERED];
    u32 lower = 0, mine = 0;
    NO_UNROLL for (u32 begin = 0; begin < pairs; begin += STEP) {
        experts_of(p, ids, begin, p.experts + 1, experts);
        UNROLL for (u32 j = 0; j < GATHERED; j++) {
            lower += experts[j] < expert;
            mine += experts[j] == expert;
        }
    }
    before[thread] = lower;
    here[thread] = mine;
    barrier();
    u32 first = 0, at = 0, count = 0;
    _Pragma("unroll 8") for (u32 i = 0; i < GATHER_THREADS; i++) {
        first += before[i];
        count += here[i];
        at += i < thread ? here[i] : 0;
    }
    NO_UNROLL for (u32 begin = 0; begin < pairs && count > 0; begin += STEP) {
        experts_of(p, ids, begin, p.experts + 1, experts);
        UNROLL for (u32 j = 0; j < GATHERED; j++) {
            if (experts[j] == expert) sorted[first + at++] = begin + j * GATHER_THREADS + thread;
        }
    }
    u32 tile = first / ID_COLUMNS + expert, next = (first + count) / ID_COLUMNS + expert + 1;
    for (u32 i = thread; tile + i < next; i += GATHER_THREADS) {
        u32 done = minimum(i * ID_COLUMNS, count);
        tiles[tile + i] = {expert, first + done, minimum(count - done, ID_COLUMNS)};
    }
}

// The sum over a token's experts after their products in tiles: d[i, t] = sum over u of w[u, t] * a[i, u, t], plus a residual
// in one of two kernels. One element in each thread; group_x covers the elements, group_y the tokens.
// Memory-bound: SUMMED loads are in flight. No LDS.
#define SUMMED 4u
template <bool RESIDUAL>
DEVICE void expert_sum(const float *a, const float *w, const float *residual, float *d, const ExpertSumParams &p) {
    u32 i = group_x() * ROW_THREADS + thread_id(), token = group_y();
    if (i >= p.m) return;
    a += (u64)token * p.nb0 + i;
    w += p.offf + (u64)token * p.nbf[1];
    float sum = 0.0f;
    NO_UNROLL for (u32 first = 0; first < p.used; first += SUMMED) {
        float x[SUMMED];
        UNROLL for (u32 j = 0; j < SUMMED; j++) x[j] = a[(u64)minimum(first + j, p.used - 1) * p.m];
        UNROLL for (u32 j = 0; j < SUMMED; j++) {
            if (first + j < p.used) sum = mad(w[(u64)(first + j) * p.nbf[0]], x[j], sum);
        }
    }
    if (RESIDUAL) sum += residual[p.offr + (u64)token * p.nbr + i];
    d[p.offd + (u64)token * p.nbd + i] = sum;
}

KERNEL(ROW_THREADS) expert_sum_plain(const float *a, const float *w, float *d, ExpertSumParams p) {
    expert_sum<false>(a, w, w, d, p);
}

KERNEL(ROW_THREADS)
expert_sum_residual(const float *a, const float *w, const float *residual, float *d, ExpertSumParams p) {
    expert_sum<true>(a, w, residual, d, p);
}

MUL_MAT_ID(f32, WeightF32)
MUL_MAT_ID(f16, WeightF16)
MUL_MAT_ID(bf16, WeightBF16)
#if HAS_MATRIX || HAS_DOT2
MAT_TILE_ID_HALF(f16, WeightF16)
#endif
