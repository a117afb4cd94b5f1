// FLASH_ATTN_EXT for rows of any length, with values of up to ANY_COLUMNS elements: for everything that the other kernels do
// not support.
//
// A work-group of 128 threads takes one query row and steps through the positions 128 at a time, with a running maximum and
// sum. For the scores, a thread has one position; for the sums of v, it has columns that are 128 apart.
#pragma once
#include "attention.h"

#define ANY_THREADS 128u
#define ANY_COLUMNS 1024u

template <class KV>
DEVICE void attention_any(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out,
                          const FlashAttnParams &p, float *weights, float *scratch) {
    constexpr u32 COLUMNS = ANY_COLUMNS / ANY_THREADS;
    Heads h = heads(p);
    Query at = query(h, group_y());
    u32 thread = thread_id(), positions = p.kv[0], d = p.d[0], dv = p.d[1];
    q += query_offset(p, h, at);
    to_head<KV>(k, v, p, h);
    u64 mask_row = mask_of_batch(p, h) + mask_of_row(p, at);
    float slope = alibi_slope(p.max_bias, at.head, p.heads_log2);
    Scores to_score = scores(p);

    float max = first_score(p, sinks, at.head, true), sum = thread == 0 ? weight(max, max) : 0.0f, total[COLUMNS];
    UNROLL for (u32 c = 0; c < COLUMNS; c++) total[c] = 0.0f;
    NO_UNROLL for (u32 base = 0; base < positions; base += ANY_THREADS) {
        u32 position = base + thread;
        float s = -infinity();
        if (position < positions) s = slope * mask_at(mask, p.mask_type, mask_row + position);
        if (!is_hidden(s)) {
            const u8 *row = k + (u64)position * p.nbk[0] * KV::BYTES;
            float product = 0.0f;
            for (u32 e = 0; e < d; e++) product = mad(q[e], one_value<KV>(row, e), product);
            s += to_score.of(product);
        }
        float top = larger(max, group_reduce<Max, ANY_THREADS>(s, scratch));
        float factor = weight(max, top), w = weight(s, top);
        max = top;
        sum = mad(sum, factor, w);
        weights[thread] = w;
        barrier();
        UNROLL for (u32 c = 0; c < COLUMNS; c++) {
            u32 column = thread + c * ANY_THREADS;
            if (column >= dv) continue;
            float x = total[c] * factor;
            u32 count = minimum(positions - base, ANY_THREADS);
            for (u32 j = 0; j < count; j++) {
                float y = one_value<KV>(v + (u64)(base + j) * p.nbv[0] * KV::BYTES, column);
                if (!is_weight_hidden(weights[j])) x = mad(weights[j], y, x);
            }
            total[c] = x;
        }
        barrier();
    }

    sum = group_reduce<Sum, ANY_THREADS>(sum, scratch);
    float factor = normalizer(sum);
    out += p.off[5] + result_row(p, h, at) * dv;
    UNROLL for (u32 c = 0; c < COLUMNS; c++) {
        u32 column = thread + c * ANY_THREADS;
        if (column < dv) out[column] = total[c] * factor;
    }
}
