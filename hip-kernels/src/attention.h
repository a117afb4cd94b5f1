// Shared by the kernels of FLASH_ATTN_EXT.
//
// Query rows: heads that share a head of k and v belong together, because they read the same k and v. For each such head, the
// rows are numbered token by token and, within a token, head by head. A work-group takes consecutive rows. The positions may be
// divided into `splits` pieces for different work-groups. Each work-group then writes its unnormalised sums and their
// statistics (largest score, sum of exponentials) to scratch. The last work-group joins them or, for many query rows,
// `flash_attn_combine`. The lengths of rows of q, k and v are multiples of 8.
//
// A position is hidden if its mask is minus infinity. It does not count, whatever k and v contain there. Its score is minus
// infinity (as a score of k and q may be), and its weight a negative zero. The product of such a weight and an infinity or a
// NaN in v would be NaN, so hidden positions are skipped one by one where v has such values; elsewhere they are multiplied by
// 0. A NaN that is not hidden reaches the whole row through the sum of the weights, because maxima ignore it.
//
// A sink is a score without a value: the first piece starts with the sink as its largest score and with the sink's weight as
// its sum.
#pragma once
#include "blocks.h"
#include "index.h"
#include "mask.h"
#include "params.h"

// Meaning of group_z: a head of k and v in a batch.
struct Heads {
    u32 kv_head, batch, per_kv, rows;
};

DEVICE Heads heads(const FlashAttnParams &p) {
    Heads h;
    // A division takes some 20 instructions on AMD's processors, and most graphs have one batch. NVIDIA's lose more by the
    // branch (an H200 1.6 % of the speed of an 8B's decode steps).
    h.batch = 0;
    if (!DEVICE_AMD || p.ne[2] > 1) h.batch = group_z() / p.kv[1];
    h.kv_head = group_z() - h.batch * p.kv[1];
    h.per_kv = p.ne[1] / p.kv[1];
    h.rows = p.ne[0] * h.per_kv;
    return h;
}

struct Query {
    u32 token, head;
};

// Returns query row `row`; for a row after the last, the last one.
DEVICE Query query(const Heads &h, u32 row) {
    row = minimum(row, h.rows - 1);
    u32 token = row / h.per_kv;
    return {token, h.kv_head * h.per_kv + row - token * h.per_kv};
}

// Offset of a query row in q; offset of its mask from the start of the batch's mask (less than 2^32 elements, which the host
// checks); index of its row in the result.
DEVICE u64 query_offset(const FlashAttnParams &p, const Heads &h, Query q) {
    return row_offset(p.off[0], p.nbq, q.token, q.head, h.batch);
}
DEVICE u64 mask_of_batch(const FlashAttnParams &p, const Heads &h) {
    if (DEVICE_AMD && h.batch == 0) return p.off[3];
    return p.off[3] + (u64)(h.batch % p.mask_ne[1]) * p.nbm[2];
}
DEVICE u32 mask_of_row(const FlashAttnParams &p, Query q) {
    return q.token * p.nbm[0] + q.head % p.mask_ne[0] * p.nbm[1];
}
DEVICE u64 result_row(const FlashAttnParams &p, const Heads &h, Query q) {
    return ((u64)h.batch * p.ne[0] + q.token) * p.ne[1] + q.head;
}

#define TILE_ROWS 32u

// Parameters of the kernels for many query rows; `Pieces` in the host's flash_attn.rs.
struct FlashAttnPieces : FlashAttnParams {
    // Positions of a work-group: all of them, unless the query rows alone would leave compute units idle.
    u32 span;
};

// The part of a work-group that takes ROWS query rows and one of `splits` pieces of the positions.
template <u32 ROWS> struct AttentionWork {
    Heads h;
    u32 splits, row0, begin, end;
    INLINED explicit AttentionWork(const FlashAttnPieces &p) {
        h = heads(p);
        u32 span = p.span;
        splits = (p.kv[0] + span - 1) / span;
        row0 = group_y() * ROWS;
        begin = group_x() * span;
        end = minimum(begin + span, p.kv[0]);
    }
};

// Initial statistics of a query row: in the first piece of the positions the sink of its head; minus infinity if there is none,
// and in other pieces.
#define SINKS 4u
DEVICE float first_score(const FlashAttnParams &p, const float *sinks, u32 head, bool first_piece) {
    return first_piece && p.mask_type & SINKS ? sinks[p.off[4] + head] : -infinity();
}

// Converts products to scores, before the mask: scale * x, or cap * tanh(scale * x / cap) = cap - 2 cap / (e^(2 scale
// x / cap) + 1). The error of the latter, about 1e-7 cap, is relative to the score, not to its difference from the largest
// score.
struct Scores {
    float scale, cap, exponent;
    INLINED float of(float product) const {
        if (cap == 0.0f) return product * scale;
        return cap - 2.0f * cap * reciprocal_hw(exp2_hw(product * exponent) + 1.0f);
    }
};

DEVICE Scores scores(const FlashAttnParams &p) {
    float cap = p.logit_softcap;
    return {p.scale, cap, cap == 0.0f ? 0.0f : p.scale * (2.0f * LOG2_E) / cap};
}

// Returns eight elements of a row whose length is a multiple of 8; zeros after its end.
template <class W> DEVICE typename W::Raw fetch_eight(const u8 *row, u32 k, u32 end) {
    typename W::Raw raw = {};
    if (k < end) raw = W::fetch(row, k);
    return raw;
}

// Returns element `k` of a row.
template <class W> DEVICE float one_value(const u8 *row, u32 k) {
    if constexpr (W::BLOCK == 1) {
        return W::one(row, k);
    } else {
        typename W::Raw raw = W::fetch(row, k & ~7u);
        u32x2 q = W::bytes(raw);
        u32 byte = (k & 4 ? q[1] : q[0]) >> (k & 3) * 8;
        return ((W::SIGNED ? (float)(i8)byte : (float)(u8)byte) - W::BIAS) * W::factor(raw);
    }
}

// Moves k and v to the first row of a head.
template <class KV> DEVICE void to_head(const u8 *&k, const u8 *&v, const FlashAttnParams &p, const Heads &h) {
    k += row_offset(p.off[1], p.nbk, 0, h.kv_head, h.batch) * KV::BYTES;
    v += row_offset(p.off[2], p.nbv, 0, h.kv_head, h.batch) * KV::BYTES;
}

// Addresses and distances of the rows of k and v, for by_alignment().
template <class KV> DEVICE u64 places_of_rows(const u8 *k, const u8 *v, const FlashAttnParams &p) {
    u32 rows = p.off[1] | p.off[2] | p.nbk[0] | p.nbk[1] | p.nbk[2] | p.nbv[0] | p.nbv[1] | p.nbv[2];
    return (u64)rows * KV::BYTES | (u64)k | (u64)v;
}

// e^(s - max); NaN for a NaN; a negative zero for a score of minus infinity, whatever the maximum is.
DEVICE float weight(float s, float max) { return is_hidden(s) ? -0.0f : exp_fast(s - max); }
DEVICE bool is_weight_hidden(float weight) { return f32_bits(weight) >> 31; }

// Returns the final factor of the sums; `sum` is the sum of the weights.
DEVICE float normalizer(float sum) { return sum > 0.0f ? 1.0f / sum : sum; }
