// TOP_K: indices of the k largest elements of each row in descending order; among equals the lower index first, NaN last. With
// `weights` also their soft-max (SOFT_MAX without a mask), one value in each lane. A wavefront takes a row (pick.h).
//
// best: for long rows (logits), only the largest element, its index, and the sum of squares of the row, which is finite if all
// elements are.
#include "index.h"
#include "params.h"
#include "pick.h"

KERNEL(ROW_THREADS) top_k(const float *x, i32 *d, float *w, TopKParams p) {
    u32 row = group_x() * (ROW_THREADS / WAVE) + wave_id();
    if (row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(row, p.ne);
    u64 result = row_offset(0, p.nbd, i.i1, i.i2, i.i3);
    x += row_offset(p.off0, p.nb0, i.i1, i.i2, i.i3);
    Element own = pick_largest(x, p.ne[0], p.k, i.i1 * p.first, d + p.offd + result);
    if (!p.weights) return;
    float weight = weight_of_pick(value_of(own.place) * p.scale, p.k);
    if (lane_id() < p.k) w[p.offw + result + lane_id()] = weight;
}

#define BEST_THREADS 128
#define BEST_QUADS 4

struct Candidate {
    Element best;
    float sum;
};

struct BestShared {
    u32 places[BEST_THREADS / WAVE], behind[BEST_THREADS / WAVE];
    float sums[BEST_THREADS / WAVE];
};

// The first of all threads' candidates, and the sum of their sums; every thread gets both. A barrier must separate two uses.
DEVICE Candidate meet(Candidate c, BestShared *shared) {
    u32 place = wave_max(c.best.place);
    u32 behind = wave_max(c.best.place == place ? c.best.behind : 0);
    shared->places[wave_id()] = place;
    shared->behind[wave_id()] = behind;
    c.sum = group_reduce<Sum, BEST_THREADS>(c.sum, shared->sums);
    c.best = {place, behind};
    UNROLL for (u32 i = 0; i < BEST_THREADS / WAVE; i++) {
        Element e = {shared->places[i], shared->behind[i]};
        if (e.before(c.best)) c.best = e;
    }
    return c;
}

// group_x: a part of a row; group_y: rows. Each work-group leaves its result in scratch; the last one selects. A thread has
// BEST_QUADS quads in flight. The quad at the end of a row starts earlier, and elements that were already read do not count.
// LDS: 52 bytes, with wavefronts of 32 lanes 100.
KERNEL(BEST_THREADS)
best(const float *x, u32 *scratch, u32 *counters, i32 *d, float *e, float *s, i32 *next, BestParams p) {
    LDS BestShared shared[2];
    LDS u32 arrived;
    u32 part = group_x(), row = group_y(), thread = thread_id();
    u32 end = minimum((part + 1) * p.part, p.n);
    x += p.offx + (u64)row * p.n;
    Candidate found = {{0, 0}, 0.0f};
    NO_UNROLL for (u32 begin = part * p.part + thread * 4; begin < end; begin += BEST_QUADS * BEST_THREADS * 4) {
        f32x4 quads[BEST_QUADS];
        u32 at[BEST_QUADS];
        UNROLL for (u32 q = 0; q < BEST_QUADS; q++) {
            at[q] = begin + q * BEST_THREADS * 4;
            if (p.n >= 4) {
                quads[q] = *(const f32x4 *)(x + minimum(at[q], p.n - 4));
            } else {
                UNROLL for (u32 j = 0; j < 4; j++) quads[q][j] = x[minimum(j, p.n - 1)];
            }
        }
        LOADS_FIRST();
        UNROLL for (u32 q = 0; q < BEST_QUADS; q++) {
            u32 first = p.n >= 4 ? minimum(at[q], p.n - 4) : 0;
            UNROLL for (u32 j = 0; j < 4; j++) {
                u32 index = first + j;
                bool counts = index >= at[q] && index < end;
                float v = counts ? quads[q][j] : 0.0f;
                Element element = {place(v), ~index};
                if (counts && element.before(found.best)) found.best = element;
                found.sum = mad(v, v, found.sum);
            }
        }
    }
    found = meet(found, &shared[0]);
    scratch += (u64)row * p.parts * 3;
    if (thread == 0) {
        scratch[part] = found.best.place;
        scratch[p.parts + part] = found.best.behind;
        scratch[2 * p.parts + part] = f32_bits(found.sum);
    }
    if (!is_last_group(&counters[row], p.parts, &arrived)) return;
    found = {{0, 0}, 0.0f};
    for (u32 i = thread; i < p.parts; i += BEST_THREADS) {
        Element element = {scratch[i], scratch[p.parts + i]};
        if (element.before(found.best)) found.best = element;
        found.sum += bits_f32(scratch[2 * p.parts + i]);
    }
    found = meet(found, &shared[1]);
    if (thread != 0) return;
    i32 index = (i32)~found.best.behind;
    d[p.offd + row] = index;
    e[p.offe + row] = value_of(found.best.place);
    s[p.offs + row] = found.sum;
    if (p.next) next[p.offn + row] = index;
}
