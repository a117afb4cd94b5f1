// FLASH_ATTN_EXT for few query rows (attention_split.h) on NVIDIA's matrix units, with rows of k and v of D elements of F16.
//
// A work-group takes `span` positions and G query rows that share a head of k and v. Each wavefront takes every eighth chunk
// of 16 positions (32 with rows of 64) and has its own largest scores, sums of weights and sums of v, so wavefronts wait for
// each other only at the beginning, for the queries, and after all positions. k and v do not pass through LDS: they are loaded
// in pieces of 16 bytes, as stored, into the registers in which the matrix units take them.
//
//   1. Scores: the queries, as F16 in LDS, are the rows of the first operand, positions the columns of the second. Lane l loads 16
//      bytes of rows l / 4 of k, at (l % 4) * 16 of each 64 bytes. A unit's elements along k are then not adjacent in memory,
//      but the queries are in the same order, and a sum has none.
//   2. Weights are sums of two F16 numbers (attention_matrix.h). A lane has the scores of row l / 4 and of positions
//      2 (l % 4) and the next: as the operands of the products with v want them.
//   3. Sums of v: columns of v are the rows of the first operand, positions are along k. Lane l loads 16 bytes of rows
//      2 (l % 4) and the next, at (l / 4) * 16 of each 128 bytes; a permutation of bytes pairs two rows. So a lane has eight
//      adjacent columns of the result.
//
// k and v are read once for all G rows. While a chunk is processed, the keys of the next are in flight, and the mask of the one
// after it: chunks that the mask hides from all rows are not read.
//
// A value that is not finite makes results NaN even in a hidden position, because its weight of zero is multiplied by it. Then
// the work-group processes its positions again, a query row at a time, with zeros for the values that this row does not see.
//
// Pieces of the positions are joined by `flash_attn_combine`: spread over the device, that takes 2 us on an H200 where the last
// work-group to finish took 8 for 33 pieces of 8 rows. (4 heads of k with rows of 128, 8 rows each, 16,640 positions: 16.4 us
// in all; 50 us with attention_split.h.)
#pragma once
#include "attention_wave.h"

#if HAS_MATRIX && !DEVICE_AMD
#define UNITS_WAVES 8

// Constants of a kernel.
template <int D_, int G_> struct UnitsKernel {
    static constexpr u32 D = D_, G = G_, WAVES = UNITS_WAVES, THREADS = WAVES * WAVE;
    // Groups of eight query rows. Pieces of 64 bytes of a row of k, of 128 bytes of a row of v.
    static constexpr u32 EIGHTS = G / 8, OF_KEY = D / 32, OF_VALUE = D / 64;
    // Groups of 16 positions of a chunk; its positions; those of all wavefronts.
    static constexpr u32 GROUPS = D == 64 ? 2 : 1, CHUNK = 16 * GROUPS, STEP = CHUNK * WAVES;
    // Pieces of a row of v that are loaded before the scores are computed.
    static constexpr u32 AHEAD = D > 128 ? 1 : OF_VALUE;
    // Query rows whose sums of v are added in LDS at a time.
    static constexpr u32 AT_ONCE = 8192 / D / WAVES < G ? 8192 / D / WAVES : G;
};

template <class S> struct UnitsShared {
    // The queries as operands: of each piece, 16 bytes for each lane. Factors of the products.
    __attribute__((aligned(16))) u32 q[S::OF_KEY * S::EIGHTS * WAVE * 4];
    float scale[S::G];
    // Sums of v of each wavefront, for AT_ONCE rows.
    __attribute__((aligned(16))) float part[S::WAVES * S::AT_ONCE * S::D];
    // Of each wavefront and row: largest score, sum of weights.
    float top[S::WAVES][S::G], sum[S::WAVES][S::G];
};

// Halves 0 or 1 of two words.
DEVICE u32 low_halves(u32 a, u32 b) {
    u32 x;
    __asm__("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}
DEVICE u32 high_halves(u32 a, u32 b) {
    u32 x;
    __asm__("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

// Rows of k and v of a head, and their mask.
struct UnitsRows {
    const u8 *k, *v;
    // Bytes from row to row.
    u32 stride[2];
    const void *mask;
    u32 type, end;
    float cap;
};

// State of a wavefront. Scores, weights and statistics of a lane are those of query rows lane / 4 and lane / 4 + 8; sums of v
// those of rows 2 (lane % 4) and the next, and 8 later.
template <class S> struct UnitsWave {
    typedef u32 Eight __attribute__((ext_vector_type(4), aligned(16)));
    // Factors of the products; offsets of the mask; slopes, multiplied by log2(e).
    float scale[S::EIGHTS], slope[S::EIGHTS];
    u64 of_row[S::EIGHTS];
    float max[S::EIGHTS], sum[S::EIGHTS];
    // Of each piece of 128 bytes of a row: four fragments of 16 columns.
    float total[S::OF_VALUE * 4][S::EIGHTS][4];
    Eight keys[S::GROUPS][2][S::OF_KEY];
    // The mask of positions 2 (lane % 4) and the next of each eight: of this chunk, and of the next.
    struct Bits {
        u32 of[S::GROUPS][2][S::EIGHTS][2];
    } bits, ahead;

    DEVICE u32 row(u32 eight) { return lane_id() / 4 + eight * 8; }
    DEVICE u32 pair() { return lane_id() % 4 * 2; }

    INLINED void begin(const FlashAttnParams &p, const Heads &h, u32 row0) {
        UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
            Query at = query(h, row0 + row(b));
            of_row[b] = mask_of_batch(p, h) + mask_of_row(p, at);
            slope[b] = alibi_slope(p.max_bias, at.head, p.heads_log2) * LOG2_E;
        }
    }
    // Stores the queries of eight rows in LDS.
    INLINED void store_queries(const float *all, const FlashAttnParams &p, const Heads &h, u32 row0, u32 eight,
                               UnitsShared<S> *shared) {
        const float *from = all + query_offset(p, h, query(h, row0 + row(eight))) + lane_id() % 4 * 8;
        f32x4 x[S::OF_KEY][2];
        float most = 0.0f;
        UNROLL for (u32 i = 0; i < S::OF_KEY; i++) UNROLL for (u32 half = 0; half < 2; half++) {
            UNROLL for (u32 e = 0; e < 4; e++) {
                float y = x[i][half][e] = from[i * 32 + half * 4 + e];
                most = larger(most, is_finite(y) ? __builtin_fabsf(y) : 0.0f);
            }
        }
        float factor = half_factor(lanes_reduce<Max, 4>(most));
        UNROLL for (u32 i = 0; i < S::OF_KEY; i++) {
            lds_u32x4 q;
            UNROLL for (u32 w = 0; w < 4; w++) {
                const f32x4 &half = x[i][w / 2];
                q[w] = half_pair(half[w % 2 * 2] * factor, half[w % 2 * 2 + 1] * factor);
            }
            *(lds_u32x4 *)(shared->q + ((i * S::EIGHTS + eight) * WAVE + lane_id()) * 4) = q;
        }
        Scores plain = scores(p);
        float scale = plain.cap == 0.0f ? plain.scale * LOG2_E : plain.exponent;
        if (pair() == 0) shared->scale[row(eight)] = inverse_power(factor) * scale;
    }
    // `sinks`: null in all wavefronts but the first of the first positions.
    INLINED void clear(const FlashAttnParams &p, const Heads &h, const float *sinks, u32 row0) {
        UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
            float sink = first_score(p, sinks, query(h, row0 + row(b)).head, sinks != nullptr);
            max[b] = is_hidden(sink) ? LOWEST : larger(sink * LOG2_E, LOWEST);
            sum[b] = pair() > 0 || is_hidden(sink) ? 0.0f : exp2_hw(sink * LOG2_E - max[b] + WEIGHT_EXPONENT);
        }
        UNROLL for (u32 c = 0; c < S::OF_VALUE * 4; c++) UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
            UNROLL for (u32 i = 0; i < 4; i++) total[c][b][i] = 0.0f;
        }
    }

    template <class T> INLINED void load_bits(const T *mask, u32 base, u32 end) {
        UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
            UNROLL for (u32 b = 0; b < S::EIGHTS; b++) UNROLL for (u32 e = 0; e < 2; e++) {
                ahead.of[n][i][b][e] = mask[of_row[b] + minimum(base + n * 16 + i * 8 + pair() + e, end - 1)];
            }
        }
    }
    // Loads the mask of the next chunk.
    INLINED void load_mask(const UnitsRows &rows, u32 base) {
        if (rows.type == 2) {
            load_bits((const u16 *)rows.mask, base, rows.end);
        } else if (rows.type == 1) {
            load_bits((const u32 *)rows.mask, base, rows.end);
        } else {
            UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
                UNROLL for (u32 b = 0; b < S::EIGHTS; b++) UNROLL for (u32 e = 0; e < 2; e++) ahead.of[n][i][b][e] = 0;
            }
        }
    }
    // True if the mask hides the next chunk from all rows.
    INLINED bool hidden(const UnitsRows &rows) const {
        u32 lowest = rows.type == 1 ? 0xff800000u : 0xfc00u;
        bool all = rows.type != 0;
        UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
            UNROLL for (u32 b = 0; b < S::EIGHTS; b++) UNROLL for (u32 e = 0; e < 2; e++) {
                all = all && ahead.of[n][i][b][e] == lowest;
            }
        }
        return in_all_lanes(all);
    }
    INLINED void load_keys(const UnitsRows &rows, u32 base) {
        UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
            u32 at = minimum(base + n * 16 + i * 8 + lane_id() / 4, rows.end - 1);
            const u8 *row = rows.k + (u64)at * rows.stride[0] + lane_id() % 4 * 16;
            UNROLL for (u32 d = 0; d < S::OF_KEY; d++) keys[n][i][d] = *(const Eight *)(row + d * 64);
        }
    }
    // Loads piece `c` of the rows of v of 16 positions: of positions `pair` and the next, and of those eight later.
    INLINED void load_values(const UnitsRows &rows, u32 base, u32 c, Eight *values) {
        UNROLL for (u32 i = 0; i < 4; i++) {
            u32 at = minimum(base + i / 2 * 8 + pair() + i % 2, rows.end - 1);
            values[i] = *(const Eight *)(rows.v + (u64)at * rows.stride[1] + lane_id() / 4 * 16 + c * 128);
        }
    }

    // Computes the products of the queries with the keys: score[n][i] are those of eight positions.
    INLINED void multiply(const UnitsShared<S> *shared, float (*score)[2][4]) const {
        // Otherwise the compiler would keep the queries in registers.
        __asm__ volatile("" : : : "memory");
        UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
            UNROLL for (u32 e = 0; e < 4; e++) score[n][i][e] = 0.0f;
        }
        UNROLL for (u32 d = 0; d < S::OF_KEY; d++) {
            lds_u32x4 q[2] = {};
            UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
                q[b] = *(const lds_u32x4 *)(shared->q + ((d * S::EIGHTS + b) * WAVE + lane_id()) * 4);
            }
            UNROLL for (u32 w = 0; w < 4; w += 2) {
                Eight a = {q[0][w], q[1][w], q[0][w + 1], q[1][w + 1]};
                UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
                    Mma::multiply(a, keys[n][i][d][w], keys[n][i][d][w + 1], score[n][i]);
                }
            }
        }
    }
    // Converts products to scores in base 2; hides positions.
    INLINED void to_scores(const UnitsRows &rows, u32 base, float (*score)[2][4]) const {
        UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
            UNROLL for (u32 e = 0; e < 2 * S::EIGHTS; e++) {
                float s = score[n][i][e] * scale[e / 2];
                if (rows.cap != 0.0f) s = (rows.cap - 2.0f * rows.cap * reciprocal_hw(exp2_hw(s) + 1.0f)) * LOG2_E;
                s = masked(s, slope[e / 2] * mask_of_bits(rows.type, bits.of[n][i][e / 2][e % 2]));
                score[n][i][e] = base + n * 16 + i * 8 + pair() + e % 2 < rows.end ? s : -infinity();
            }
        }
    }
    // Updates the maxima; rescales the sums if a score is above its maximum.
    INLINED void rescale(const float (*score)[2][4]) {
        float top[S::EIGHTS];
        bool same = true;
        UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
            top[b] = max[b];
            UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 i = 0; i < 2; i++) {
                top[b] = larger(top[b], larger(score[n][i][b * 2], score[n][i][b * 2 + 1]));
            }
            same = same && top[b] == max[b];
        }
        if (in_all_lanes(same)) return;
        UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
            top[b] = lanes_reduce<Max, 4>(top[b]);
            if (top[b] > max[b]) top[b] += HEADROOM;
            float factor = exp2_hw(max[b] - top[b]);
            max[b] = top[b];
            sum[b] *= factor;
            UNROLL for (u32 e = 0; e < 2; e++) {
                float of_column = from_lane(factor, (pair() + e) * 4);
                UNROLL for (u32 c = 0; c < S::OF_VALUE * 4; c++) UNROLL for (u32 i = e; i < 4; i += 2) {
                    total[c][b][i] *= of_column;
                }
            }
        }
    }
    // Converts scores to weights, and those to operands: of 16 positions, their values and the rounding errors.
    INLINED void weigh(const float (*score)[4], u32 b, u32 *rounded, u32 *rest) {
        UNROLL for (u32 i = 0; i < 2; i++) {
            float from = max[b] - WEIGHT_EXPONENT;
            float x = exp2_hw(score[i][b * 2] - from), y = exp2_hw(score[i][b * 2 + 1] - from);
            sum[b] += x + y;
            rounded[i] = half_pair(x, y);
            rest[i] = rest_pair(x, y, rounded[i]);
        }
    }
    // Adds the products of piece `c` of v with the weights.
    INLINED void add_values(const Eight *values, u32 c, const u32 (*rounded)[2], const u32 (*rest)[2]) {
        UNROLL for (u32 t = 0; t < 4; t++) {
            Eight a = {low_halves(values[0][t], values[1][t]), high_halves(values[0][t], values[1][t]),
                       low_halves(values[2][t], values[3][t]), high_halves(values[2][t], values[3][t])};
            UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
                Mma::multiply(a, rounded[b][0], rounded[b][1], total[c * 4 + t][b]);
                Mma::multiply(a, rest[b][0], rest[b][1], total[c * 4 + t][b]);
            }
        }
    }
    // The same with zeros for hidden positions, a query row at a time. `score`: of the 16 positions.
    INLINED void add_values_seen(const Eight *values, u32 c, const u32 (*rounded)[2], const u32 (*rest)[2],
                                 const float (*score)[4]) {
        u32 hidden[S::EIGHTS];
        UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
            hidden[b] = 0;
            UNROLL for (u32 i = 0; i < 4; i++) hidden[b] |= (u32)is_hidden(score[i / 2][b * 2 + i % 2]) << i;
        }
        NO_UNROLL for (u32 row = 0; row < S::G; row++) {
            u32 of_lane = S::EIGHTS == 1 || row < 8 ? hidden[0] : hidden[S::EIGHTS - 1];
            u32 left_out = f32_bits(from_lane(bits_f32(of_lane), row % 8 * 4 + lane_id() % 4));
            Eight seen[4];
            UNROLL for (u32 i = 0; i < 4; i++) seen[i] = left_out >> i & 1 ? (Eight){0, 0, 0, 0} : values[i];
            float before[4][S::EIGHTS][4];
            UNROLL for (u32 t = 0; t < 4; t++) UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
                UNROLL for (u32 i = 0; i < 4; i++) before[t][b][i] = total[c * 4 + t][b][i];
            }
            add_values(seen, c, rounded, rest);
            UNROLL for (u32 t = 0; t < 4; t++) UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
                UNROLL for (u32 i = 0; i < 4; i++) {
                    float &x = total[c * 4 + t][b][i];
                    x = b * 8 + pair() + i % 2 == row ? x : before[t][b][i];
                }
            }
        }
    }
};

// Processes the wavefront's chunks of the positions. `look`: reads no chunk that the mask hides; the first would wait for it.
template <bool CAREFUL, class S>
DEVICE void units_chunks(const UnitsRows &rows, u32 base, bool look, UnitsShared<S> *shared, UnitsWave<S> &a) {
    typedef typename UnitsWave<S>::Eight Eight;
    bool seen = base < rows.end && (!look || !a.hidden(rows));
    if (seen) a.load_keys(rows, base);
    barrier();
    if (base >= rows.end) return;
    UNROLL for (u32 b = 0; b < S::EIGHTS; b++) a.scale[b] = shared->scale[a.row(b)];
    NO_UNROLL while (true) {
        u32 next = base + S::STEP;
        bool more = next < rows.end;
        a.bits = a.ahead;
        if (more) a.load_mask(rows, next);
        float score[S::GROUPS][2][4];
        Eight values[S::GROUPS][S::OF_VALUE][4];
        if (seen) {
            UNROLL for (u32 n = 0; n < S::GROUPS; n++) UNROLL for (u32 c = 0; c < S::AHEAD; c++) {
                a.load_values(rows, base + n * 16, c, values[n][c]);
            }
            a.multiply(shared, score);
        }
        bool seen_next = more && !a.hidden(rows);
        if (seen_next) a.load_keys(rows, next);
        if (seen) {
            a.to_scores(rows, base, score);
            a.rescale(score);
            UNROLL for (u32 n = 0; n < S::GROUPS; n++) {
                u32 rounded[S::EIGHTS][2], rest[S::EIGHTS][2];
                UNROLL for (u32 b = 0; b < S::EIGHTS; b++) a.weigh(score[n], b, rounded[b], rest[b]);
                UNROLL for (u32 c = 0; c < S::OF_VALUE; c++) {
                    if (c >= S::AHEAD) a.load_values(rows, base + n * 16, c, values[n][c]);
                    if (CAREFUL) a.add_values_seen(values[n][c], c, rounded, rest, score[n]);
                    if (!CAREFUL) a.add_values(values[n][c], c, rounded, rest);
                }
            }
        }
        if (!more) return;
        base = next;
        seen = seen_next;
    }
}

// Joins the sums of the wavefronts and stores them, with the statistics of a piece of the positions. Returns true if this
// thread's sums are finite.
template <class S>
DEVICE bool units_store(const UnitsWave<S> &a, const FlashAttnParams &p, const Heads &h, u32 row0, u32 splits, float *to,
                        float *stats, UnitsShared<S> *shared) {
    UNROLL for (u32 b = 0; b < S::EIGHTS; b++) {
        float sum = lanes_reduce<Sum, 4>(a.sum[b]);
        if (a.pair() > 0) continue;
        shared->top[wave_id()][a.row(b)] = a.max[b];
        shared->sum[wave_id()][a.row(b)] = sum;
    }
    // Sums of v and of weights include the factor of the weights.
    float special = 0.0f, without = exp2_hw(-WEIGHT_EXPONENT);
    UNROLL for (u32 first = 0; first < S::G; first += S::AT_ONCE) {
        if (first > 0) barrier();
        UNROLL for (u32 b = 0; b < S::EIGHTS; b++) UNROLL for (u32 e = 0; e < 2; e++) {
            u32 row = b * 8 + a.pair() + e - first;
            if (row >= S::AT_ONCE) continue;
            float *part = shared->part + (wave_id() * S::AT_ONCE + row) * S::D + lane_id() / 4 * 8;
            // Column 2t is in the first half of a fragment's rows, 2t + 1 in the second.
            UNROLL for (u32 c = 0; c < S::OF_VALUE; c++) UNROLL for (u32 t = 0; t < 4; t += 2) {
                const float (*x)[S::EIGHTS][4] = a.total + c * 4 + t;
                *(lds_f32x4 *)(part + c * 64 + t * 2) = (lds_f32x4){x[0][b][e], x[0][b][e + 2], x[1][b][e], x[1][b][e + 2]};
            }
        }
        barrier();
        constexpr u32 QUADS = S::D / 4;
        UNROLL for (u32 i = 0; i < S::AT_ONCE * QUADS; i += S::THREADS) {
            u32 at = (i + thread_id()) / QUADS, quad = (i + thread_id()) % QUADS, row = first + at;
            if (at >= S::AT_ONCE || row0 + row >= h.rows) continue;
            float top = LOWEST, all = 0.0f;
            UNROLL for (u32 w = 0; w < S::WAVES; w++) top = larger(top, shared->top[w][row]);
            lds_f32x4 sum = 0.0f;
            UNROLL for (u32 w = 0; w < S::WAVES; w++) {
                lds_f32x4 x = *(const lds_f32x4 *)(shared->part + (w * S::AT_ONCE + at) * S::D + quad * 4);
                float factor = exp2_hw(shared->top[w][row] - top);
                all = mad(factor, shared->sum[w][row], all);
                UNROLL for (u32 e = 0; e < 4; e++) sum[e] = mad(x[e], factor, sum[e]);
            }
            float factor = splits > 1 ? without : normalizer(all);
            u64 result = result_row(p, h, query(h, row0 + row)) * splits + group_x();
            UNROLL for (u32 e = 0; e < 4; e++) {
                to[result * S::D + quad * 4 + e] = sum[e] * factor;
                special = mad(sum[e] * factor, 0.0f, special);
            }
            if (splits > 1 && quad == 0) {
                stats[result * 2] = top == LOWEST ? -infinity() : top * LN_2;
                stats[result * 2 + 1] = all * without;
            }
        }
    }
    return special == 0.0f;
}

template <class S>
DEVICE void attention_units(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out,
                            float *stats, const FlashAttnPieces &p, UnitsShared<S> *shared) {
    AttentionWork<S::G> work(p);
    const Heads &h = work.h;
    u32 splits = work.splits, row0 = work.row0;
    to_head<WeightF16>(k, v, p, h);
    UnitsRows rows = {k, v, {p.nbk[0] * 2, p.nbv[0] * 2}, mask, p.mask_type & 3, work.end, p.logit_softcap};
    const float *mine = group_x() == 0 && wave_id() == 0 && p.mask_type & SINKS ? sinks : nullptr;
    if (splits == 1) out += p.off[5];
    u32 base = work.begin + wave_id() * S::CHUNK;
    UnitsWave<S> a;
    a.begin(p, h, row0);
    a.load_mask(rows, base);
    a.clear(p, h, mine, row0);
    if (wave_id() < S::EIGHTS) a.store_queries(q, p, h, row0, wave_id(), shared);
    units_chunks<false, S>(rows, base, splits > 1, shared, a);
    bool finite = units_store<S>(a, p, h, row0, splits, out, stats, shared);
    if (__nvvm_bar0_or(!finite)) {
        a.clear(p, h, mine, row0);
        a.load_mask(rows, base);
        units_chunks<true, S>(rows, base, true, shared, a);
        units_store<S>(a, p, h, row0, splits, out, stats, shared);
    }
}
#endif
