// FLASH_ATTN_EXT for rows of up to 576 elements of k and 512 of v: latent attention (DeepSeek-V2, arXiv 2405.04434: one head of
// keys for all heads of q; its first 512 elements are the value), and other long rows.
//
// A work-group takes LONG_ROWS query rows, which share the loads of k and v, and one piece of the positions, whose length is
// `long_span`. A wavefront processes four positions at a time: each lane holds eight elements of each (with 32 lanes, 16), and
// its part of the elements from 512 on. q is in LDS. A wavefront waits for others only after all positions: each has its own
// largest score, sum, and sums of v, which are rescaled in each iteration.
//
//   1. The mask was loaded in the previous iteration: positions that are hidden from all rows are not read.
//   2. Products with q, added over the wavefront. Lane l then has the score, and later the weight, of position l % 4 and query
//      row l / 4 % 4.
//   3. Sums of v. Where v is the beginning of k (the same address and stride), it is already in registers.
//   4. The sums of the wavefronts are added through LDS, those of the pieces as in attention_split.h.
//
// LDS, with 128 threads: 9.1 KiB of q and 2 KiB of sums for each wavefront.
#pragma once
#include "attention_split.h"

#define LONG_ROWS 4
#define LONG_VALUES 512u
#define LONG_KEYS 576u
// Groups of four elements of a row of q in LDS: first the lower halves of all groups of eight, then the upper halves, so that
// adjacent lanes read adjacent elements.
#define LONG_EIGHTS (LONG_VALUES / 8)
// Groups of eight elements of a row in a lane, and elements after these groups.
#define LONG_PIECES (LONG_EIGHTS / WAVE)
#define LONG_REST ((LONG_KEYS - LONG_VALUES) / WAVE)
#define LONG_WAVES ((u32)SPLIT_THREADS / WAVE)

// Returns the number of positions of a work-group; `rows` query rows share a head of k and v. About 256 work-groups, of at
// least 32 positions, and at most 64 pieces to join. `long_span` in the host's flash_attn.rs is the same rule.
DEVICE u32 long_span(const FlashAttnParams &p, u32 rows) {
    u32 groups = (rows + LONG_ROWS - 1) / LONG_ROWS * p.kv[1] * p.ne[2];
    if (groups >= 256) return p.kv[0];
    u32 pieces = groups < 4 ? 64 : 256 / groups;
    return ((p.kv[0] + pieces - 1) / pieces + 31) / 32 * 32;
}

struct LongShared {
    lds_f32x4 q[LONG_ROWS][2 * LONG_EIGHTS];
    float rest[LONG_ROWS][LONG_KEYS - LONG_VALUES];
    float part[LONG_WAVES * LONG_VALUES];
    float stats[LONG_ROWS][2 * LONG_WAVES];
    float scratch[2 * LONG_WAVES];
    u32 arrived;
};

// Copies query rows to LDS, with zeros after their end.
DEVICE void long_queries(const float *q, const FlashAttnParams &p, const Heads &h, u32 row0, LongShared *shared) {
    UNROLL for (u32 g = 0; g < LONG_ROWS; g++) {
        const float *row = q + query_offset(p, h, query(h, row0 + g));
        UNROLL for (u32 i = thread_id(); i < 2 * LONG_EIGHTS; i += SPLIT_THREADS) {
            f32x4 x = {};
            if (i * 4 < p.d[0]) x = *(const f32x4 *)(row + i * 4);
            shared->q[g][i % 2 * LONG_EIGHTS + i / 2] = x;
        }
        u32 e = thread_id() + LONG_VALUES;
        if (e < LONG_KEYS) shared->rest[g][e - LONG_VALUES] = e < p.d[0] ? row[e] : 0.0f;
    }
}

// Computes the products of four keys with the query rows.
template <class KV>
DEVICE void long_products(const typename KV::Raw (*raw)[LONG_PIECES], const float (*rest)[LONG_REST], bool has_rest,
                          const LongShared *shared, float (*product)[4]) {
    u32 lane = lane_id();
    UNROLL for (u32 g = 0; g < LONG_ROWS; g++) UNROLL for (u32 i = 0; i < 4; i++) product[g][i] = 0.0f;
    if (has_rest) {
        UNROLL for (u32 g = 0; g < LONG_ROWS; g++) UNROLL for (u32 t = 0; t < LONG_REST; t++) {
            float x = shared->rest[g][lane * LONG_REST + t];
            UNROLL for (u32 i = 0; i < 4; i++) product[g][i] = mad(x, rest[i][t], product[g][i]);
        }
    }
    UNROLL for (u32 j = 0; j < LONG_PIECES; j++) UNROLL for (u32 half = 0; half < 2; half++) {
        // The compiler removes the decoding of the elements that this half does not use.
        float y[4][8];
        UNROLL for (u32 i = 0; i < 4; i++) decode_values<KV>(raw[i][j], y[i]);
        UNROLL for (u32 g = 0; g < LONG_ROWS; g++) {
            lds_f32x4 x = shared->q[g][half * LONG_EIGHTS + j * WAVE + lane];
            UNROLL for (u32 i = 0; i < 4; i++) UNROLL for (u32 e = 0; e < 4; e++) {
                product[g][i] = mad(x[e], y[i][half * 4 + e], product[g][i]);
            }
        }
        ONE_BY_ONE();
    }
}

// Adds four values multiplied by their weights, one weight in each lane; skips values that are hidden from a row. A weight is
// broadcast where it is used: all sixteen at once need more scalar registers than gfx90a has left.
template <class KV>
DEVICE void long_values(const typename KV::Raw (*raw)[LONG_PIECES], float weights, float (*total)[LONG_PIECES][8]) {
    UNROLL for (u32 i = 0; i < 4; i++) {
        float y[LONG_PIECES][8];
        UNROLL for (u32 j = 0; j < LONG_PIECES; j++) decode_values<KV>(raw[i][j], y[j]);
        UNROLL for (u32 g = 0; g < LONG_ROWS; g++) {
            float w = from_lane(weights, g * 4 + i);
            if (is_weight_hidden(w)) continue;
            UNROLL for (u32 j = 0; j < LONG_PIECES; j++) UNROLL for (u32 e = 0; e < 8; e++) {
                total[g][j][e] = mad(w, y[j][e], total[g][j][e]);
            }
        }
    }
}

// Results of a wavefront for its positions. The largest score and the sum of weights belong to the lane's query row; the latter
// covers every fourth position.
struct LongSums {
    float max, sum, total[LONG_ROWS][LONG_PIECES][8];
};

// Query row whose scores and weights this lane has.
DEVICE u32 long_row() { return lane_id() / 4 % LONG_ROWS; }

// Loads this lane's elements of four rows, from `base` on. Elements after the end of a row are its last ones; they are replaced
// by zeros where it matters.
template <class KV>
DEVICE void long_rows(const u8 *rows, u32 stride, u32 base, u32 end, u32 length, typename KV::Raw (*raw)[LONG_PIECES]) {
    UNROLL for (u32 j = 0; j < LONG_PIECES; j++) {
        u32 at = offset_here(minimum((lane_id() + j * WAVE) * 8, length - 8));
        UNROLL for (u32 i = 0; i < 4; i++) {
            raw[i][j] = KV::fetch(rows + (u64)minimum(base + i, end - 1) * stride * KV::BYTES, at);
        }
    }
}

// Returns this lane's score, of four positions, without the mask. raw: the keys.
template <class KV>
DEVICE float long_score(const u8 *k, u32 base, u32 end, const FlashAttnParams &p, const LongShared *shared,
                        typename KV::Raw (*raw)[LONG_PIECES]) {
    u32 lane = lane_id();
    float rest[4][LONG_REST], product[LONG_ROWS][4];
    long_rows<KV>(k, p.nbk[0], base, end, p.d[0], raw);
    bool has_rest = p.d[0] > LONG_VALUES;
    UNROLL for (u32 t = 0; t < LONG_REST; t++) {
        u32 e = offset_here(LONG_VALUES + lane * LONG_REST + t), at = minimum(e, p.d[0] - 1);
        UNROLL for (u32 i = 0; i < 4; i++) {
            rest[i][t] = 0.0f;
            if (!has_rest) continue;
            float x = one_value<KV>(k + (u64)minimum(base + i, end - 1) * p.nbk[0] * KV::BYTES, at);
            rest[i][t] = e < p.d[0] ? x : 0.0f;
        }
    }
    LOADS_FIRST();
    if (p.d[0] < LONG_VALUES) {
        UNROLL for (u32 i = 0; i < 4; i++) UNROLL for (u32 j = 0; j < LONG_PIECES; j++) {
            if ((lane + j * WAVE) * 8 >= p.d[0]) raw[i][j] = {};
        }
    }
    long_products<KV>(raw, rest, has_rest, shared, product);
    return scores(p).of(wave_sum_of_sixteen(product));
}

// Processes positions `first` + 4 i wavefronts up to `end`. `max` and `sum` are initialised.
template <class KV>
DEVICE void long_positions(const u8 *k, const u8 *v, const void *mask, u32 first, u32 end, const FlashAttnParams &p,
                           const Heads &h, u32 row0, const LongShared *shared, LongSums *a) {
    constexpr u32 STEP = 4 * LONG_WAVES;
    u32 lane = lane_id();
    Query row = query(h, row0 + long_row());
    float slope = alibi_slope(p.max_bias, row.head, p.heads_log2), bias = -infinity();
    u64 mask0 = mask_of_batch(p, h);
    u32 of_row = mask_of_row(p, row);
    to_head<KV>(k, v, p, h);
    bool same = k == v && p.nbk[0] == p.nbv[0] && p.d[1] <= p.d[0], hidden = true;
    UNROLL for (u32 g = 0; g < LONG_ROWS; g++) UNROLL for (u32 j = 0; j < LONG_PIECES; j++) {
        UNROLL for (u32 e = 0; e < 8; e++) a->total[g][j][e] = 0.0f;
    }
    // The first iteration only loads the mask for the second.
    NO_UNROLL for (u32 next = first;; next += STEP) {
        u32 position = next + lane % 4;
        u32 bits = mask_bits(mask, p.mask_type, mask0 + (of_row + minimum(position, end - 1)));
        if (!hidden) {
            typename KV::Raw raw[4][LONG_PIECES];
            float score = masked(long_score<KV>(k, next - STEP, end, p, shared, raw), bias);
            if (!same) long_rows<KV>(v, p.nbv[0], next - STEP, end, p.d[1], raw);
            LOADS_FIRST();
            float top = larger(a->max, lanes_reduce<Max, 4>(score));
            float factor = weight(a->max, top), mine = weight(score, top);
            a->max = top;
            a->sum = mad(a->sum, factor, mine);
            UNROLL for (u32 g = 0; g < LONG_ROWS; g++) {
                float f = from_lane(factor, g * 4);
                UNROLL for (u32 j = 0; j < LONG_PIECES; j++) UNROLL for (u32 e = 0; e < 8; e++) a->total[g][j][e] *= f;
            }
            long_values<KV>(raw, mine, a->total);
        }
        if (next >= end) break;
        bias = position < end ? slope * mask_of_bits(p.mask_type, bits) : -infinity();
        hidden = is_hidden(bits_f32(uniform(f32_bits(lanes_reduce<Max, 16>(bias != bias ? 0.0f : bias)))));
    }
}

template <class KV>
DEVICE void attention_long(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *sums,
                           float *stats, u32 *counters, float *out, const FlashAttnParams &p, LongShared *shared) {
    Heads h = heads(p);
    u32 thread = thread_id(), lane = lane_id(), wave = wave_id(), row0 = group_y() * LONG_ROWS;
    u32 span = long_span(p, h.rows), begin = group_x() * span, end = minimum(begin + span, p.kv[0]);
    long_queries(q, p, h, row0, shared);
    // The first lane of the first wavefront has the weight of the sink.
    LongSums a;
    a.max = first_score(p, sinks, query(h, row0 + long_row()).head, group_x() == 0 && wave == 0);
    a.sum = lane % 4 == 0 ? weight(a.max, a.max) : 0.0f;
    barrier();
    long_positions<KV>(k, v, mask, begin + 4 * wave, end, p, h, row0, shared, &a);

    // Statistics of the wavefronts, and the factor of each.
    a.sum = lanes_reduce<Sum, 4>(a.sum);
    if (lane < 16 && lane % 4 == 0) {
        shared->stats[long_row()][wave] = a.max;
        shared->stats[long_row()][LONG_WAVES + wave] = a.sum;
    }
    u32 splits = (p.kv[0] + span - 1) / span, first = uniform(offset_here(row0));
    float *to = splits > 1 ? sums : out + p.off[5];
    UNROLL for (u32 g = 0; g < LONG_ROWS; g++) {
        barrier();
        float max = -infinity(), sum = 0.0f;
        UNROLL for (u32 i = 0; i < LONG_WAVES; i++) max = larger(max, shared->stats[g][i]);
        UNROLL for (u32 i = 0; i < LONG_WAVES; i++) {
            sum = mad(weight(shared->stats[g][i], max), shared->stats[g][LONG_WAVES + i], sum);
        }
        float factor = weight(shared->stats[g][wave], max) * (splits > 1 ? 1.0f : normalizer(sum));
        UNROLL for (u32 j = 0; j < LONG_PIECES; j++) UNROLL for (u32 e = 0; e < 8; e++) {
            shared->part[wave * LONG_VALUES + (j * WAVE + lane) * 8 + e] = a.total[g][j][e] * factor;
        }
        barrier();
        if (first + g >= h.rows) continue;
        u64 row = result_row(p, h, query(h, first + g)) * splits + group_x();
        NO_UNROLL for (u32 c = thread; c < p.d[1]; c += SPLIT_THREADS) {
            float s = 0.0f;
            UNROLL for (u32 i = 0; i < LONG_WAVES; i++) s += shared->part[i * LONG_VALUES + c];
            to[row * p.d[1] + c] = s;
        }
        if (splits > 1 && thread == 0) {
            stats[row * 2] = max;
            stats[row * 2 + 1] = sum;
        }
    }
    if (splits == 1) return;
    u32 groups = (h.rows + LONG_ROWS - 1) / LONG_ROWS;
    if (!is_last_group(&counters[group_z() * groups + first / LONG_ROWS], splits, &shared->arrived)) return;
    join_pieces<LONG_VALUES, LONG_ROWS>(sums, stats, out + p.off[5], p, h, first, splits, shared);
}
