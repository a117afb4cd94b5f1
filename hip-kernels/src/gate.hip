// Choice of experts for few tokens (decode steps), from the residual stream on: RMS_NORM with its weight, whose result (n) is
// also stored; the product with a row of w for each expert, and a bias; the choice by these scores (d) with weights (e), see
// choice.h. This replaces three or more launches, of which only the first has work for a whole device.
//
// group_x: an expert (several if there are more experts than work-groups); group_y: tokens. The factor of the norm is the same
// for all elements, so squares and products are summed in one pass over the row, the norm's weight and the expert's row. Each
// thread loads QUADS quads of each before the first sum (for 2048 elements and 128 threads, 192 bytes in a thread). Every
// work-group stores a piece of the normed row. The last work-group has all scores, and its first wavefront picks (pick.h). LDS:
// 5156 bytes.
#include "choice.h"
#include "index.h"

#define GATE_THREADS 128
#define QUADS 4
// Largest number of work-groups for a token, as in `gate.rs`.
#define MOST_GROUPS 512u

struct Sums {
    float squares, products;
};

// Sums over all threads; each of them gets the result.
DEVICE Sums sums_of(const float *x, const float *s, const float *w, u32 k, float *scratch) {
    Sums sums = {0.0f, 0.0f};
    NO_UNROLL for (u32 begin = thread_id() * 4; begin < k; begin += QUADS * GATE_THREADS * 4) {
        f32x4 of_x[QUADS], of_s[QUADS], of_w[QUADS];
        UNROLL for (u32 q = 0; q < QUADS; q++) {
            u32 at = minimum(begin + q * GATE_THREADS * 4, k - 4);
            of_x[q] = *(const f32x4 *)(x + at);
            of_s[q] = *(const f32x4 *)(s + at);
            of_w[q] = *(const f32x4 *)(w + at);
        }
        LOADS_FIRST();
        UNROLL for (u32 q = 0; q < QUADS; q++) {
            // After the end, the last quad was read again.
            bool counts = begin + q * GATE_THREADS * 4 < k;
            UNROLL for (int j = 0; j < 4; j++) {
                float v = counts ? of_x[q][j] : 0.0f, y = counts ? of_s[q][j] * of_w[q][j] : 0.0f;
                sums.squares = mad(v, v, sums.squares);
                sums.products = mad(v, y, sums.products);
            }
        }
    }
    sums.squares = group_reduce<Sum, GATE_THREADS>(sums.squares, scratch);
    sums.products = group_reduce<Sum, GATE_THREADS>(sums.products, scratch + GATE_THREADS / WAVE);
    return sums;
}

KERNEL(GATE_THREADS)
gate(const float *x, const float *s, const float *w, const float *b, const float *c, float *scores, u32 *counters, float *n,
     i32 *d, float *e, GateParams p) {
    LDS ChoiceShared<GATE_THREADS> shared;
    LDS float scratch[2 * GATE_THREADS / WAVE];
    LDS u32 arrived;
    u32 token = group_y(), thread = thread_id(), groups = minimum(p.experts, MOST_GROUPS);
    x += p.offx + (u64)token * p.nbx;
    s += p.offs;
    scores += (u64)token * p.experts;
    float factor = 0.0f;
    NO_UNROLL for (u32 expert = group_x(); expert < p.experts; expert += groups) {
        Sums sums = sums_of(x, s, w + p.offw + (u64)expert * p.nbw, p.k, scratch);
        factor = 1.0f / __builtin_sqrtf(sums.squares / (float)p.k + p.eps);
        if (thread == 0) scores[expert] = sums.products * factor + (p.bias ? b[p.offb + expert] : 0.0f);
        barrier();
    }
    u32 quads = p.k / 4, piece = (quads + groups - 1) / groups;
    u32 first = group_x() * piece, end = minimum(first + piece, quads);
    n += p.offn + (u64)token * p.nbn;
    for (u32 i = first + thread; i < end; i += GATE_THREADS) {
        *(f32x4 *)(n + i * 4) = *(const f32x4 *)(x + i * 4) * factor * *(const f32x4 *)(s + i * 4);
    }
    if (!is_last_group(&counters[token], groups, &arrived)) return;
    Normalizer all = {0.0f, 0.0f};
    if (p.probabilities == PROBABILITY_SOFT_MAX) all = normalizer_of<GATE_THREADS>(scores, p.experts, scratch);
    bool apart = has_candidates(p);
    if (apart) make_candidates(p, scores, c + p.offc, all, &shared);
    if (wave_id() != 0) return;
    d += p.offd + (u64)token * p.nbd;
    Element own;
    float score = 0.0f;
    if (apart) {
        own = pick_largest((const IN_LDS float *)shared.candidates, p.experts, p.used, 0, d);
        if (lane_id() < p.used) score = scores[~own.behind];
    } else {
        own = pick_largest(scores, p.experts, p.used, 0, d);
        score = value_of(own.place);
    }
    float weight = weight_by(p, score, all);
    if (lane_id() < p.used) e[p.offe + (u64)token * p.nbd + lane_id()] = weight;
}
