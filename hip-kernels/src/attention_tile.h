// FLASH_ATTN_EXT for many query rows (prompts): limited by arithmetic.
//
// A work-group of 128 threads takes 32 query rows and steps through the positions 32 at a time, with a running maximum and sum
// for each row. Thread (x, y) of 16 x 8 has the scores of rows 4y .. 4y + 4 and positions x, x + 16, and the sums of the same
// four rows for columns 4x .. 4x + 4 of each 64. So the maximum of a row is a DPP reduction over 16 lanes, and factors for
// rescaling never leave the registers.
//
//   * q and k pass through LDS in pieces of 32 x 32 F32, v in pieces of 32 x 64. Rows are padded by 4, so that 16-byte reads of
//     16 adjacent rows have no bank conflicts. Four elements of 4 + 2 rows make 32 products.
//   * The weights are written to LDS transposed, over the piece of q; a position then takes 2 reads for 16 products.
//   * A tile that the mask hides entirely is skipped (half of the work under a causal mask).
//
// LDS: 13 KiB for any row length and type, so four work-groups fit a compute unit of 64 KiB: two wavefronts on each SIMD, as
// many as the registers allow.
#pragma once
#include "attention.h"

#define TILE_THREADS 128
#define TILE_POSITIONS 32u
#define PIECE 64u
#define PITCH 68u
// The same for q and k; the weights replace q.
#define KEY_PIECE 32u
#define KEY_PITCH 36u
// Not the number of any piece. The number of a piece is its first position plus its index in the row.
#define NOTHING 0xffffffffu

struct TileShared {
    __attribute__((aligned(16))) float q[TILE_ROWS * KEY_PITCH];
    __attribute__((aligned(16))) float kv[TILE_POSITIONS * PITCH];
    float seen[2][TILE_THREADS / WAVE];
    // For each wavefront, the number of the last piece of v with an infinity or a NaN.
    u32 special[TILE_THREADS / WAVE];
};

// Groups of eight elements of a row of a piece: from column `from` on, and from `from` + 32 on.
template <class W, int EIGHTS> struct PieceOfRow {
    typename W::Raw raw[EIGHTS];
    INLINED void load(const u8 *row, u32 from, u32 end) {
        UNROLL for (int i = 0; i < EIGHTS; i++) raw[i] = fetch_eight<W>(row, from + i * 32, end);
    }
    // Returns the sum of the stored elements, which is not finite if one of them is not.
    INLINED float store(float *to) {
        float sum = 0.0f;
        UNROLL for (int i = 0; i < EIGHTS; i++) {
            float x[8];
            decode_values<W>(raw[i], x);
            UNROLL for (int e = 0; e < 8; e++) sum += x[e];
            *(lds_f32x4 *)(to + i * 32) = (lds_f32x4){x[0], x[1], x[2], x[3]};
            *(lds_f32x4 *)(to + i * 32 + 4) = (lds_f32x4){x[4], x[5], x[6], x[7]};
        }
        return sum;
    }
};

// Adds position `j` of a piece of v, multiplied by the weights of the thread's rows, to its sums. EACH skips hidden positions;
// otherwise they are multiplied by 0.
template <bool EACH> DEVICE void add_values(const TileShared *shared, u32 j, u32 x, u32 y, float (*total)[4]) {
    lds_f32x4 w = *(const lds_f32x4 *)(shared->q + j * KEY_PITCH + y * 4);
    lds_f32x4 n = *(const lds_f32x4 *)(shared->kv + j * PITCH + x * 4);
    UNROLL for (int i = 0; i < 4; i++) {
        if (EACH && is_weight_hidden(w[i])) continue;
        UNROLL for (int e = 0; e < 4; e++) total[i][e] = mad(w[i], n[e], total[i][e]);
    }
}

template <class KV, int PIECES>
DEVICE void attention_tile(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out,
                           float *stats, const FlashAttnPieces &p, TileShared *shared) {
    AttentionWork<TILE_ROWS> work(p);
    const Heads &h = work.h;
    u32 splits = work.splits, row0 = work.row0, begin = work.begin, end = work.end;
    u32 thread = thread_id(), x = thread % 16, y = thread / 16;
    if (splits == 1) out += p.off[5];
    // For loading: four threads for each row.
    u32 row = thread / 4, eight = thread % 4 * 8;
    const u8 *q_row = (const u8 *)(q + query_offset(p, h, query(h, row0 + row)));
    to_head<KV>(k, v, p, h);

    u64 mask0 = mask_of_batch(p, h);
    Scores to_score = scores(p);
    u32 mask_row[4];
    float slope[4], max[4], sum[4], total[PIECES][4][4];
    UNROLL for (int i = 0; i < 4; i++) {
        Query at = query(h, row0 + y * 4 + i);
        mask_row[i] = mask_of_row(p, at);
        slope[i] = alibi_slope(p.max_bias, at.head, p.heads_log2);
        // One of the 16 threads of a row has the weight of the sink.
        max[i] = first_score(p, sinks, at.head, begin == 0);
        sum[i] = x == 0 ? weight(max[i], max[i]) : 0.0f;
        UNROLL for (int c = 0; c < PIECES; c++) UNROLL for (int e = 0; e < 4; e++) total[c][i][e] = 0.0f;
    }

    u32 turn = 0;
    if (thread < TILE_THREADS / WAVE) shared->special[thread] = NOTHING;
    NO_UNROLL for (u32 base = begin; base < end; base += TILE_POSITIONS, turn ^= 1) {
        float bias[4][2], seen = -infinity();
        UNROLL for (u32 j = 0; j < 2; j++) {
            u32 position = base + x + j * 16;
            u64 at = mask0 + minimum(position, end - 1);
            UNROLL for (int i = 0; i < 4; i++) {
                bias[i][j] = slope[i] * mask_at(mask, p.mask_type, at + mask_row[i]);
                if (position >= end) bias[i][j] = -infinity();
                if (!is_hidden(bias[i][j])) seen = 0.0f;
            }
        }
        if (p.mask_type & 3) {
            seen = group_reduce<Max, TILE_THREADS>(seen, shared->seen[turn]);
            if (is_hidden(seen)) continue;
        }

        float s[4][2] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
        u32 position = minimum(base + row, end - 1);
        NO_UNROLL for (u32 d = 0; d < p.d[0]; d += KEY_PIECE) {
            PieceOfRow<WeightF32, 1> a;
            PieceOfRow<KV, 1> b;
            a.load(q_row, d + eight, p.d[0]);
            b.load(k + (u64)position * p.nbk[0] * KV::BYTES, d + eight, p.d[0]);
            barrier();
            a.store(shared->q + row * KEY_PITCH + eight);
            b.store(shared->kv + row * KEY_PITCH + eight);
            barrier();
            NO_UNROLL for (u32 e = 0; e < KEY_PIECE; e += 4) {
                lds_f32x4 m[4], n[2];
                UNROLL for (int i = 0; i < 4; i++) m[i] = *(const lds_f32x4 *)(shared->q + (y * 4 + i) * KEY_PITCH + e);
                UNROLL for (int j = 0; j < 2; j++) {
                    n[j] = *(const lds_f32x4 *)(shared->kv + (x + j * 16) * KEY_PITCH + e);
                }
                UNROLL for (int c = 0; c < 4; c++) {
                    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int j = 0; j < 2; j++) {
                        s[i][j] = mad(m[i][c], n[j][c], s[i][j]);
                    }
                }
            }
        }

        UNROLL for (int i = 0; i < 4; i++) {
            UNROLL for (int j = 0; j < 2; j++) s[i][j] = masked(to_score.of(s[i][j]), bias[i][j]);
            float top = larger(max[i], lanes_reduce<Max, 16>(larger(s[i][0], s[i][1])));
            float factor = weight(max[i], top);
            max[i] = top;
            sum[i] *= factor;
            UNROLL for (int c = 0; c < PIECES; c++) UNROLL for (int e = 0; e < 4; e++) total[c][i][e] *= factor;
            UNROLL for (int j = 0; j < 2; j++) {
                s[i][j] = weight(s[i][j], top);
                sum[i] += s[i][j];
            }
        }

        UNROLL for (int c = 0; c < PIECES; c++) {
            PieceOfRow<KV, 2> b;
            b.load(v + (u64)position * p.nbv[0] * KV::BYTES, c * PIECE + eight, p.d[1]);
            barrier();
            if (c == 0) {
                UNROLL for (int j = 0; j < 2; j++) {
                    lds_f32x4 w = {s[0][j], s[1][j], s[2][j], s[3][j]};
                    *(lds_f32x4 *)(shared->q + (x + j * 16) * KEY_PITCH + y * 4) = w;
                }
            }
            bool finite = is_finite(b.store(shared->kv + row * PITCH + eight));
            if (!finite) shared->special[wave_id()] = base + c;
            barrier();
            bool special = false;
            UNROLL for (u32 w = 0; w < TILE_THREADS / WAVE; w++) special |= uniform(shared->special[w]) == base + c;
            if (special) {
                NO_UNROLL for (u32 j = 0; j < TILE_POSITIONS; j++) add_values<true>(shared, j, x, y, total[c]);
            } else {
                _Pragma("unroll 2") for (u32 j = 0; j < TILE_POSITIONS; j++) {
                    add_values<false>(shared, j, x, y, total[c]);
                }
            }
        }
    }

    UNROLL for (int i = 0; i < 4; i++) {
        float all = lanes_reduce<Sum, 16>(sum[i]);
        if (row0 + y * 4 + i >= h.rows) continue;
        u64 to = result_row(p, h, query(h, row0 + y * 4 + i)) * splits + group_x();
        float factor = splits > 1 ? 1.0f : normalizer(all);
        UNROLL for (int c = 0; c < PIECES; c++) {
            u32 column = c * PIECE + x * 4;
            float *at = out + to * p.d[1] + column;
            UNROLL for (u32 e = 0; e < 4; e++) total[c][i][e] *= factor;
            if (column + 4 <= p.d[1]) {
                *(f32x4 *)at = (f32x4){total[c][i][0], total[c][i][1], total[c][i][2], total[c][i][3]};
            } else {
                UNROLL for (u32 e = 0; e < 4; e++) if (column + e < p.d[1]) at[e] = total[c][i][e];
            }
        }
        if (splits > 1 && x == 0) {
            stats[to * 2] = max[i];
            stats[to * 2 + 1] = all;
        }
    }
}
