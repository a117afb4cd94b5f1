// FLASH_ATTN_EXT for few query rows (decode steps): limited by the reading of k and v.
//
// A work-group takes SPAN positions, one for each thread (128, PTX 256), and G query rows that share a head of k and v. So a
// single token with a long context occupies the whole device, and k and v are read once for all G rows. D is the longer of the
// rows of k and v, rounded up. D / 8 lanes hold one row, eight elements each: 16 or 32 bytes a lane, and contiguous for a row.
//
//   1. If the mask hides all positions from all G rows, k and v are not read.
//   2. Scores: each set of lanes takes every (threads * 8 / D)-th position, four of them in flight. Products are summed over
//      the lanes by DPP and stored in LDS.
//   3. Soft-max: one position for each thread. All scores are known, so nothing is rescaled later.
//   4. Weighted sum of v: as in 2, with G x 8 sums in a lane, which are then added over the sets through LDS.
//   5. If there are more than SPAN positions, sums and statistics are stored in scratch, and the last work-group of these rows
//      joins all of them. It does so in the order of the positions, whichever work-group is last, so results have the same bits
//      each time.
//
// LDS, with 128 threads: 512 G bytes of scores and 4 to 8 KiB of sums.
#pragma once
#include "attention.h"

// 256 threads make decode steps on an H200 1 to 3 % faster: the usual first 256 positions are one piece, so nothing is joined.
#define SPLIT_THREADS (DEVICE_AMD ? 128 : 256)
#define SPAN ((u32)SPLIT_THREADS)
#define IN_FLIGHT 4

template <int D, int G> struct AttentionShared {
    static constexpr int AT_ONCE = G < 2 ? G : 2;
    float score[SPAN * G];
    float part[AT_ONCE * SPLIT_THREADS * 8];
    float scratch[3 * G * (SPLIT_THREADS / WAVE)];
    // For each wavefront, true if sums of v are NaN.
    u32 again[SPLIT_THREADS / WAVE];
    u32 arrived;
};

// Reduces one value for each query row over the work-group; `scratch` as for group_reduce.
template <class OP, int G> DEVICE void rows_reduce(float *x, float *scratch) {
    constexpr int WAVES = SPLIT_THREADS / WAVE;
    UNROLL for (int g = 0; g < G; g++) x[g] = wave_reduce<OP>(x[g]);
    if (lane_id() == 0) {
        UNROLL for (int g = 0; g < G; g++) scratch[wave_id() * G + g] = x[g];
    }
    barrier();
    UNROLL for (int g = 0; g < G; g++) {
        x[g] = scratch[g];
        UNROLL for (int w = 1; w < WAVES; w++) x[g] = OP::of(x[g], scratch[w * G + g]);
    }
}

// Reduces over THREADS adjacent threads of the work-group; each of them gets the result. `scratch` as for group_reduce.
template <class OP, int THREADS> DEVICE float threads_reduce(float x, float *scratch) {
    if constexpr (THREADS <= WAVE) {
        return lanes_reduce<OP, THREADS>(x);
    } else {
        static_assert(THREADS == SPLIT_THREADS, "");
        return group_reduce<OP, THREADS>(x, scratch);
    }
}

// Computes this thread's weighted sums of v, over every SETS-th of `count` positions from `set` on. EACH skips hidden positions
// one by one; otherwise they are multiplied by 0. AT_ONCE rows are in flight; positions after the last read its row. (With this
// loop and that of the scores in one function that calls a lambda, clang 19 gives the kernels of gfx803 hidden arguments.)
template <bool EACH, class KV, int D, int G>
DEVICE void sum_values(const u8 *v, u32 part, u32 set, u32 count, const FlashAttnParams &p, const float *weights,
                       float (*total)[8]) {
    constexpr u32 SETS = SPLIT_THREADS / (D / 8), AT_ONCE = EACH ? 1 : IN_FLIGHT;
    UNROLL for (int g = 0; g < G; g++) UNROLL for (int e = 0; e < 8; e++) total[g][e] = 0.0f;
    NO_UNROLL for (u32 j = set; j < SPAN; j += AT_ONCE * SETS) {
        typename KV::Raw raw[AT_ONCE];
        UNROLL for (u32 i = 0; i < AT_ONCE; i++) {
            const u8 *row = v + (u64)minimum(j + i * SETS, count - 1) * p.nbv[0] * KV::BYTES;
            raw[i] = fetch_eight<KV>(row, part * 8, p.d[1]);
        }
        LOADS_FIRST();
        UNROLL for (u32 i = 0; i < AT_ONCE; i++) {
            float y[8];
            decode_values<KV>(raw[i], y);
            UNROLL for (int g = 0; g < G; g++) {
                // Positions after the last are hidden.
                float w = weights[(j + i * SETS) * G + g];
                bool left_out = EACH && is_weight_hidden(w);
                UNROLL for (int e = 0; e < 8; e++) total[g][e] = mad(w, left_out ? 0.0f : y[e], total[g][e]);
            }
        }
    }
}

// Joins the pieces of the work-group's rows. The sets of lanes are divided among the rows, and the pieces of a row among its
// sets.
template <int D, int G, class SHARED>
DEVICE void join_pieces(const float *sums, const float *stats, float *out, const FlashAttnParams &p, const Heads &h,
                        u32 row0, u32 splits, SHARED *shared) {
    // Rows at a time: a wavefront has at most one; a row that needs several wavefronts gets all of them.
    constexpr u32 LANES = D / 8, SETS = SPLIT_THREADS / LANES, FEWEST = SPLIT_THREADS / WAVE;
    constexpr u32 MOST = LANES > WAVE ? 1 : G < SETS ? G : SETS, ROWS = MOST > 1 && MOST < FEWEST ? FEWEST : MOST;
    constexpr u32 ROW_SETS = SETS / ROWS, THREADS = SPLIT_THREADS / ROWS, AT_ONCE = ROWS > 1 || D > 256 ? IN_FLIGHT : 2;
    u32 thread = thread_id(), part = thread % LANES, set = thread / LANES % ROW_SETS;
    NO_UNROLL for (u32 first = row0; first < row0 + G; first += ROWS) {
        u64 pieces = result_row(p, h, query(h, first + thread / THREADS)) * splits;
        auto of_piece = (const f32x2 *)(stats + pieces * 2);
        float max = -infinity();
        NO_UNROLL for (u32 i = thread % THREADS; i < splits; i += THREADS) max = larger(max, of_piece[i][0]);
        max = threads_reduce<Max, THREADS>(max, shared->scratch);
        float sum = 0.0f, total[8];
        UNROLL for (int e = 0; e < 8; e++) total[e] = 0.0f;
        NO_UNROLL for (u32 j = set; j < splits; j += AT_ONCE * ROW_SETS) {
            WeightF32::Raw raw[AT_ONCE];
            f32x2 stat[AT_ONCE];
            UNROLL for (u32 i = 0; i < AT_ONCE; i++) {
                u32 piece = j + i * ROW_SETS, last = minimum(piece, splits - 1);
                // Zeros after the last piece.
                u32 end = piece < splits ? p.d[1] : 0;
                raw[i] = fetch_eight<WeightF32>((const u8 *)(sums + (pieces + last) * p.d[1]), part * 8, end);
                stat[i] = of_piece[last];
                if (piece > last) stat[i][1] = 0.0f;
            }
            LOADS_FIRST();
            UNROLL for (u32 i = 0; i < AT_ONCE; i++) {
                float y[8], w = weight(stat[i][0], max);
                WeightF32::decode(raw[i], y);
                sum = mad(w, stat[i][1], sum);
                UNROLL for (int e = 0; e < 8; e++) total[e] = mad(w, y[e], total[e]);
            }
        }
        // All lanes of a set have the same sum.
        sum = threads_reduce<Sum, THREADS>(sum, shared->scratch + SPLIT_THREADS / WAVE) * (1.0f / LANES);
        float factor = normalizer(sum);
        UNROLL for (int e = 0; e < 8; e++) shared->part[thread * 8 + e] = total[e] * factor;
        barrier();
        NO_UNROLL for (u32 r = 0; r < minimum(ROWS, G) && first + r < h.rows; r++) {
            float *to = out + result_row(p, h, query(h, first + r)) * p.d[1];
            for (u32 c = thread; c < p.d[1]; c += SPLIT_THREADS) {
                float s = 0.0f;
                UNROLL for (u32 i = 0; i < ROW_SETS; i++) s += shared->part[(r * ROW_SETS + i) * D + c];
                to[c] = s;
            }
        }
        barrier();
    }
}

// `sums`, `stats` and `counters` are scratch for rows in several pieces; the counters are zeros.
template <class KV, int D, int G>
DEVICE void attention_split(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *sums,
                            float *stats, u32 *counters, float *out, const FlashAttnParams &p,
                            AttentionShared<D, G> *shared) {
    constexpr u32 LANES = D / 8, SETS = SPLIT_THREADS / LANES;
    Heads h = heads(p);
    u32 thread = thread_id(), part = thread % LANES, set = thread / LANES;
    u32 begin = group_x() * SPAN, count = minimum(SPAN, p.kv[0] - begin), splits = (p.kv[0] + SPAN - 1) / SPAN;
    u32 row0 = group_y() * G;
    Query rows[G];
    UNROLL for (int g = 0; g < G; g++) rows[g] = query(h, row0 + g);

    // 1. The mask of this thread's position.
    float bias[G], seen[1] = {-infinity()};
    u64 mask0 = mask_of_batch(p, h) + begin + minimum(thread, count - 1);
    UNROLL for (int g = 0; g < G; g++) {
        float slope = alibi_slope(p.max_bias, rows[g].head, p.heads_log2);
        bias[g] = slope * mask_at(mask, p.mask_type, mask0 + mask_of_row(p, rows[g]));
        if (thread >= count) bias[g] = -infinity();
        // Written like this because the compiler would keep the results of is_hidden until they are needed below.
        seen[0] = larger(seen[0], bias[g] != bias[g] ? 0.0f : bias[g]);
    }
    if (thread < SPLIT_THREADS / WAVE) shared->again[thread] = 0;
    rows_reduce<Max, 1>(seen, shared->scratch);
    bool hidden = is_hidden(seen[0]);

    float max[G], sum[G];
    if (hidden) {
        UNROLL for (int g = 0; g < G; g++) {
            max[g] = first_score(p, sinks, rows[g].head, group_x() == 0);
            sum[g] = weight(max[g], max[g]);
        }
    } else {
        // 2. Scores.
        float x[G][8];
        UNROLL for (int g = 0; g < G; g++) {
            const u8 *row = (const u8 *)(q + query_offset(p, h, rows[g]));
            WeightF32::decode(fetch_eight<WeightF32>(row, part * 8, p.d[0]), x[g]);
        }
        k += row_offset(p.off[1], p.nbk, begin, h.kv_head, h.batch) * KV::BYTES;
        NO_UNROLL for (u32 j = set; j < SPAN; j += IN_FLIGHT * SETS) {
            typename KV::Raw raw[IN_FLIGHT];
            UNROLL for (u32 i = 0; i < IN_FLIGHT; i++) {
                const u8 *row = k + (u64)minimum(j + i * SETS, count - 1) * p.nbk[0] * KV::BYTES;
                raw[i] = fetch_eight<KV>(row, part * 8, p.d[0]);
            }
            LOADS_FIRST();
            UNROLL for (u32 i = 0; i < IN_FLIGHT; i++) {
                float y[8];
                decode_values<KV>(raw[i], y);
                UNROLL for (int g = 0; g < G; g++) {
                    float s = x[g][0] * y[0];
                    UNROLL for (int e = 1; e < 8; e++) s = mad(x[g][e], y[e], s);
                    s = lanes_reduce<Sum, LANES>(s);
                    if (part == 0) shared->score[(j + i * SETS) * G + g] = s;
                }
            }
        }
        barrier();

        // 3. Soft-max; the weights take the place of the scores.
        float s[G];
        UNROLL for (int g = 0; g < G; g++) {
            max[g] = s[g] = masked(scores(p).of(shared->score[thread * G + g]), bias[g]);
        }
        rows_reduce<Max, G>(max, shared->scratch + G * (SPLIT_THREADS / WAVE));
        UNROLL for (int g = 0; g < G; g++) {
            // The first thread adds the weight of the sink.
            float first = first_score(p, sinks, rows[g].head, group_x() == 0);
            max[g] = larger(max[g], first);
            shared->score[thread * G + g] = sum[g] = weight(s[g], max[g]);
            if (thread == 0) sum[g] += weight(first, max[g]);
        }
        rows_reduce<Sum, G>(sum, shared->scratch + 2 * G * (SPLIT_THREADS / WAVE));
    }

    // 4. Weighted sum of v.
    float total[G][8];
    if (hidden) {
        UNROLL for (int g = 0; g < G; g++) UNROLL for (int e = 0; e < 8; e++) total[g][e] = 0.0f;
    } else {
        v += row_offset(p.off[2], p.nbv, begin, h.kv_head, h.batch) * KV::BYTES;
        sum_values<false, KV, D, G>(v, part, set, count, p, shared->score, total);
        float all = 0.0f;
        UNROLL for (int g = 0; g < G; g++) UNROLL for (int e = 0; e < 8; e++) all += total[g][e];
        if (all != all) shared->again[wave_id()] = 1;
        barrier();
        u32 again = 0;
        UNROLL for (u32 w = 0; w < SPLIT_THREADS / WAVE; w++) again |= shared->again[w];
        if (uniform(again)) sum_values<true, KV, D, G>(v, part, set, count, p, shared->score, total);
    }

    // 5. The result, or one piece of it; the last work-group also joins all pieces.
    float *to = splits > 1 ? sums : out + p.off[5];
    // Recomputes the row: kept until here, the rows would need more scalar registers than there are.
    u32 first = uniform(offset_here(row0));
    constexpr int AT_ONCE = AttentionShared<D, G>::AT_ONCE;
    UNROLL for (int g0 = 0; g0 < G; g0 += AT_ONCE) {
        if (g0 > 0) barrier();
        UNROLL for (int g = 0; g < AT_ONCE; g++) UNROLL for (int e = 0; e < 8; e++) {
            shared->part[(g * SETS + set) * D + part * 8 + e] = total[g0 + g][e];
        }
        barrier();
        UNROLL for (int g = 0; g < AT_ONCE; g++) {
            if (first + g0 + g >= h.rows) continue;
            u64 row = result_row(p, h, query(h, first + g0 + g)) * splits + group_x();
            float factor = splits > 1 ? 1.0f : normalizer(sum[g0 + g]);
            for (u32 c = thread; c < p.d[1]; c += SPLIT_THREADS) {
                float s = 0.0f;
                UNROLL for (u32 i = 0; i < SETS; i++) s += shared->part[(g * SETS + i) * D + c];
                to[row * p.d[1] + c] = s * factor;
            }
            if (splits > 1 && thread == 0) {
                stats[row * 2] = max[g0 + g];
                stats[row * 2 + 1] = sum[g0 + g];
            }
        }
    }
    if (splits == 1) return;
    u32 groups = (h.rows + G - 1) / G;
    if (!is_last_group(&counters[group_z() * groups + first / G], splits, &shared->arrived)) return;
    join_pieces<D, G>(sums, stats, out + p.off[5], p, h, first, splits, shared);
}
