// What the kernels of FLASH_ATTN_EXT share.
//
// Query rows: the heads that share one head of k and v belong together, because they read the same k and v. So for
// each such head the rows are numbered token by token, within a token head by head, and a work-group takes a run of
// them. `splits` pieces of the positions may be computed by different work-groups; each then writes its unnormalised
// sums and their statistics (largest score, sum of exponentials) to scratch, which the last of them or, of many query
// rows, `flash_attn_combine` joins. Rows of q, k and v are multiples of 8 long.
//
// A position whose mask is minus infinity is hidden: it counts for nothing, whatever k and v hold there. Its score is
// minus infinity (which a score is also where k and q say so) and its weight a negative zero. Times an infinity or a NaN
// of v that would be NaN, so where v has such numbers hidden positions are left out one by one; elsewhere they count 0
// times. A NaN that is seen comes to the whole row through the sum of the weights: maxima pass over it.
//
// A sink is a score without a value: the first piece begins with it as its largest score, and with its weight as its
// sum.
#pragma once
#include "blocks.h"
#include "index.h"
#include "mask.h"
#include "params.h"

// What group_z stands for: a head of k and v in a batch.
struct Heads {
    u32 kv_head, batch, per_kv, rows;
};

DEVICE Heads heads(const FlashAttnParams &p) {
    Heads h;
    h.batch = group_z() / p.kv[1];
    h.kv_head = group_z() - h.batch * p.kv[1];
    h.per_kv = p.ne[1] / p.kv[1];
    h.rows = p.ne[0] * h.per_kv;
    return h;
}

struct Query {
    u32 token, head;
};

// Query row `row`; rows beyond the last are the last.
DEVICE Query query(const Heads &h, u32 row) {
    row = minimum(row, h.rows - 1);
    u32 token = row / h.per_kv;
    return {token, h.kv_head * h.per_kv + row - token * h.per_kv};
}

// Where a query row begins in q, where its mask does after the beginning of the batch's mask (less than 2^32 elements:
// the host checks that), and the number of its row in the result.
DEVICE u64 query_offset(const FlashAttnParams &p, const Heads &h, Query q) {
    return row_offset(p.off[0], p.nbq, q.token, q.head, h.batch);
}
DEVICE u64 mask_of_batch(const FlashAttnParams &p, const Heads &h) {
    return p.off[3] + (u64)(h.batch % p.mask_ne[1]) * p.nbm[2];
}
DEVICE u32 mask_of_row(const FlashAttnParams &p, Query q) {
    return q.token * p.nbm[0] + q.head % p.mask_ne[0] * p.nbm[1];
}
DEVICE u64 result_row(const FlashAttnParams &p, const Heads &h, Query q) {
    return ((u64)h.batch * p.ne[0] + q.token) * p.ne[1] + q.head;
}

#define TILE_ROWS 32u

// What the kernels for many query rows are told: in the host's flash_attn.rs `Pieces`.
struct FlashAttnPieces : FlashAttnParams {
    // Positions of a work-group: all of them, unless the query rows alone would leave processors idle.
    u32 span;
};

// What the statistics of a query row begin with in the first piece of the positions: the sink of its head, minus
// infinity where there is none.
#define SINKS 4u
DEVICE float first_score(const FlashAttnParams &p, const float *sinks, u32 head, bool first_piece) {
    return first_piece && p.mask_type & SINKS ? sinks[p.off[4] + head] : -infinity();
}

// From products to scores, before the mask: scale * x, or cap * tanh(scale * x / cap) = cap - 2 cap / (e^(2 scale x /
// cap) + 1), whose error of some 1e-7 cap is one of the scores, not of their differences from the largest.
struct Scores {
    float scale, cap, exponent;
    __attribute__((device, always_inline)) float of(float product) const {
        if (cap == 0.0f) return product * scale;
        return cap - 2.0f * cap * reciprocal_hw(exp2_hw(product * exponent) + 1.0f);
    }
};

DEVICE Scores scores(const FlashAttnParams &p) {
    float cap = p.logit_softcap;
    return {p.scale, cap, cap == 0.0f ? 0.0f : p.scale * (2.0f * LOG2_E) / cap};
}

// Eight elements of a row whose length is a multiple of 8; zeros behind its end.
template <class W> DEVICE typename W::Raw fetch_eight(const u8 *row, u32 k, u32 end) {
    typename W::Raw raw = {};
    if (k < end) raw = W::fetch(row, k);
    return raw;
}

// Element `k` of a row.
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

// Whether all rows of plain numbers begin at multiples of 16 bytes.
template <class KV> DEVICE bool rows_are_aligned(const u8 *k, const u8 *v, const FlashAttnParams &p) {
    u32 rows = p.off[1] | p.off[2];
    UNROLL for (int i = 0; i < 3; i++) rows |= p.nbk[i] | p.nbv[i];
    return (((u64)rows * KV::BYTES | (u64)k | (u64)v) & 15) == 0;
}

// e^(s - max), NaN for a NaN, a negative zero for a score of minus infinity whatever the maximum is.
DEVICE float weight(float s, float max) { return is_hidden(s) ? -0.0f : exp_fast(s - max); }
DEVICE bool is_weight_hidden(float weight) { return f32_bits(weight) >> 31; }

// What sums are multiplied by at the end, `sum` being that of the weights.
DEVICE float normalizer(float sum) { return sum > 0.0f ? 1.0f / sum : sum; }
