// MUL_MAT_ID (mul_mat_id.h): sorting, and products with weights that are plain numbers.
#include "mul_mat_id.h"

#define GATHER_THREADS 256u

// group_x: experts, plus one for the pairs that have none. Each work-group finds the pairs of its expert, and the number of
// pairs of the experts before it: thread t searches the t-th part of all pairs. In the list of tiles an expert starts at entry
// first / ID_COLUMNS + expert: those before it cannot have more tiles, because each has at most one that is not full. Entries
// in between are empty. LDS: 2 KiB.
KERNEL(GATHER_THREADS) gather_pairs(const i32 *ids, u32 *sorted, TileOfPairs *tiles, MulMatIdParams p) {
    LDS u32 before[GATHER_THREADS], here[GATHER_THREADS];
    u32 expert = group_x(), thread = thread_id(), pairs = p.used * p.tokens;
    u32 part = (pairs + GATHER_THREADS - 1) / GATHER_THREADS;
    u32 begin = minimum(thread * part, pairs), end = minimum(begin + part, pairs);
    u32 lower = 0, mine = 0;
    for (u32 i = begin; i < end; i++) {
        u32 e = expert_of(p, ids, place(p, i));
        lower += e < expert;
        mine += e == expert;
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
    for (u32 i = begin; i < end; i++) {
        if (expert_of(p, ids, place(p, i)) == expert) sorted[first + at++] = i;
    }
    u32 tile = first / ID_COLUMNS + expert, next = (first + count) / ID_COLUMNS + expert + 1;
    for (u32 i = thread; tile + i < next; i += GATHER_THREADS) {
        u32 done = minimum(i * ID_COLUMNS, count);
        tiles[tile + i] = {expert, first + done, minimum(count - done, ID_COLUMNS)};
    }
}

MUL_MAT_ID(f32, WeightF32)
MUL_MAT_ID(f16, WeightF16)
MUL_MAT_ID(bf16, WeightBF16)
#if HAS_MATRIX || HAS_DOT2
MAT_TILE_ID_HALF(f16, WeightF16)
#endif
