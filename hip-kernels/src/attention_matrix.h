// FLASH_ATTN_EXT for many query rows on matrix units (fragment.h), k and v in F16, rows of up to DIM elements. The soft-max,
// the sums and the result are F32.
//
// A work-group of four wavefronts takes 64 query rows and goes through the positions 32 at a time. A wavefront has 16 of
// the rows: their queries stay in its registers, as sums of two F16 numbers each (times a power of two that brings the
// largest of a row to 2^14 .. 2^15), and so do its results. A lane has scores, weights and results of two rows, four
// lanes side by side share them.
//
//   * k and v go through LDS as they are stored; those of the next step are on their way meanwhile, and so is its mask.
//   * Scores come out of the units where weights go in: they never leave the registers. They are powers of two: the scale
//     and the mask bring log2(e) with them. Weights are sums of two F16 numbers, too, times 2^10, so that nothing is
//     rounded that F32 would keep.
//   * What is the same for all rows of a step is asked once for a fragment and not for each of its numbers: a branch for
//     each would take longer than the products. Results are rescaled where a maximum has changed.
//   * v is read turned: what a fragment wants along k are positions.
//
// Positions at the beginning and the end that the mask hides from all rows are left out (half of a causal prompt, all but
// the window of a sliding one); they are sought 128 at a time, a position for each thread.
//
// LDS: 40.6 KiB with rows of 256 elements, 24.6 with 128, 16.6 with 64.
#pragma once
#include "attention.h"
#include "fragment.h"

#if !DEVICE_AMD && HAS_MATRIX

#define MATRIX_THREADS 128u
#define MATRIX_ROWS 64u
#define MATRIX_POSITIONS 32u
#define SOUGHT 128u
// Factor of weights, 2^10.
#define WEIGHT_EXPONENT 10.0f
#define NO_STEP 0xffffffffu
// Maxima begin here, below all scores: a difference of two is always a number.
#define LOWEST -1.0e38f
#define LN_2 0.693147180559945309417f

typedef float f32_pair __attribute__((ext_vector_type(2), aligned(8)));

template <int DIM> struct MatrixShared {
    // Tiles of 64 elements of all positions. The queries pass through both, in tiles of 64 elements of all rows.
    __attribute__((aligned(16))) u16 k[MATRIX_POSITIONS * DIM], v[MATRIX_POSITIONS * DIM];
    float weights[MATRIX_ROWS][MATRIX_POSITIONS + 1];
    float seen[2][MATRIX_THREADS / WAVE];
    // The last step in whose values a wavefront found an infinity or a NaN.
    u32 special[MATRIX_THREADS / WAVE];
};

// Two numbers as F16.
DEVICE u32 half_pair(float a, float b) {
    u32 both;
    __asm__("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(both) : "f"(a), "f"(b));
    return both;
}
// What rounding them left.
DEVICE u32 rest_pair(float a, float b, u32 rounded) {
    return half_pair(a - f16_to_f32(rounded & 0xffff), b - f16_to_f32(rounded >> 16));
}
// The upper bit of a half is set where its exponent's bits all are: an infinity or a NaN.
DEVICE u32 special_halves(u32 pair) { return (pair & 0x7c007c00u) + 0x04000400u; }

// What a thread brings of k or v for a step: eights of rows.
template <int DIM> struct RowsOfStep {
    static constexpr u32 EIGHTS = DIM / 8, LOADS = MATRIX_POSITIONS * EIGHTS / MATRIX_THREADS;
    lds_u32x4 eight[LOADS];
    DEVICE u32 position(u32 i) { return (thread_id() + i * MATRIX_THREADS) / EIGHTS; }
    DEVICE u32 column(u32 i) { return (thread_id() + i * MATRIX_THREADS) % EIGHTS; }
    __attribute__((device, always_inline)) void load(const u16 *rows, u32 pitch, u32 base, u32 end, u32 length) {
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            const u16 *at = rows + (u64)minimum(base + position(i), end - 1) * pitch + column(i) * 8;
            eight[i] = (lds_u32x4){0, 0, 0, 0};
            if (column(i) * 8 < length) eight[i] = *(const lds_u32x4 *)at;
        }
    }
    // Gives whether there is an infinity or a NaN.
    __attribute__((device, always_inline)) bool store(u16 *tiles) {
        u32 special = 0;
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            u16 *tile = tiles + column(i) / 8 * (MATRIX_POSITIONS * TILE_K);
            *(lds_u32x4 *)(tile + eight_at(position(i), column(i) % 8)) = eight[i];
            UNROLL for (int j = 0; j < 4; j++) special |= special_halves(eight[i][j]);
        }
        return special & 0x80008000u;
    }
};

// Query rows of a wavefront: rounded, and what that left.
template <int DIM> struct QueriesOfWave {
    static constexpr u32 FRAGMENTS = DIM / 16;
    Fragment::Operand rounded[FRAGMENTS], rest[FRAGMENTS];
    // The inverse of the factors of a lane's two rows.
    float inverse[2];

    // Two threads bring a row, which is `length` long.
    __attribute__((device, always_inline)) void bring(const float *row, u32 length, MatrixShared<DIM> *shared) {
        float most = 0.0f;
        for (u32 i = thread_id() % 2 * 8; i < length; i += 16) {
            UNROLL for (u32 j = 0; j < 8; j++) most = larger(most, is_finite(row[i + j]) ? __builtin_fabsf(row[i + j]) : 0.0f);
        }
        float factor = half_factor(lanes_reduce<Max, 2>(most));
        shared->weights[thread_id() / 2][0] = inverse_power(factor);
        put<false>(row, length, factor, shared->k);
        barrier();
        UNROLL for (u32 r = 0; r < 2; r++) inverse[r] = shared->weights[wave_id() * 16 + lane_id() / 4 + r * 8][0];
        take(shared->k, rounded);
        barrier();
        put<true>(row, length, factor, shared->k);
        barrier();
        take(shared->k, rest);
    }
    template <bool REST> DEVICE void put(const float *row, u32 length, float factor, u16 *tiles) {
        for (u32 e = thread_id() % 2; e < DIM / 8; e += 2) {
            lds_u32x4 out = {0, 0, 0, 0};
            if (e * 8 < length) {
                UNROLL for (u32 j = 0; j < 4; j++) {
                    float a = row[e * 8 + j * 2] * factor, b = row[e * 8 + j * 2 + 1] * factor;
                    out[j] = half_pair(a, b);
                    if (REST) out[j] = rest_pair(a, b, out[j]);
                }
            }
            *(lds_u32x4 *)(tiles + e / 8 * (MATRIX_ROWS * TILE_K) + eight_at(thread_id() / 2, e % 8)) = out;
        }
    }
    DEVICE void take(const u16 *tiles, Fragment::Operand *into) {
        UNROLL for (u32 f = 0; f < FRAGMENTS; f++) {
            into[f] = Fragment::columns(tiles + f / 4 * (MATRIX_ROWS * TILE_K), wave_id() * 16, f % 4 * 16);
        }
    }
};

// The mask of a wavefront's rows.
struct MaskOfRows {
    const void *mask;
    u32 type;
    // Of a lane's two rows.
    u64 at[2];
    // Times log2(e).
    float slope[2];
    // Whether pairs of positions can be loaded at a time.
    bool pairs;

    __attribute__((device, always_inline)) void begin(const void *all, const FlashAttnParams &p, const Heads &h, u32 row0) {
        mask = all;
        type = p.mask_type & 3;
        UNROLL for (u32 r = 0; r < 2; r++) {
            Query q = query(h, row0 + wave_id() * 16 + lane_id() / 4 + r * 8);
            at[r] = mask_of_batch(p, h) + mask_of_row(p, q);
            slope[r] = alibi_slope(p.max_bias, q.head, p.heads_log2) * LOG2_E;
        }
        pairs = ((p.off[3] | p.nbm[0] | p.nbm[1] | p.nbm[2] | p.kv[0]) & 1) == 0;
    }
    // What is added to the scores of a fragment of 16 positions.
    __attribute__((device, always_inline)) void load(u32 first, u32 end, Fragment::Sums &bias) const {
        if (first + 16 > end || !pairs) return load_some(first, end, bias);
        if (type == 1) {
            UNROLL for (u32 i = 0; i < 8; i += 2) {
                auto two = *(const f32_pair *)((const float *)mask + at[i / 2 % 2] + first + Fragment::m(i));
                UNROLL for (u32 j = 0; j < 2; j++) bias[i + j] = slope[i / 2 % 2] * two[j];
            }
        } else if (type == 2) {
            UNROLL for (u32 i = 0; i < 8; i += 2) {
                u32 two = *(const u32 *)((const u16 *)mask + at[i / 2 % 2] + first + Fragment::m(i));
                bias[i] = slope[i / 2 % 2] * f16_to_f32(two & 0xffff);
                bias[i + 1] = slope[i / 2 % 2] * f16_to_f32(two >> 16);
            }
        } else {
            bias = 0.0f;
        }
    }
    // The same at the end of the positions, and where pairs do not lie at multiples of their size.
    __attribute__((device, always_inline)) void load_some(u32 first, u32 end, Fragment::Sums &bias) const {
        UNROLL for (u32 i = 0; i < 8; i++) {
            u32 position = first + Fragment::m(i), r = i / 2 % 2;
            float one = mask_at(mask, type, at[r] + minimum(position, end - 1));
            bias[i] = position < end ? slope[r] * one : -infinity();
        }
    }
};

// From products to scores, as powers of two.
struct ScoresOfWave {
    // What products of a lane's two rows are multiplied by; with a cap, which the scores have then, for the exponent.
    float factor[2], cap;

    __attribute__((device, always_inline)) void begin(const FlashAttnParams &p, const float *inverse) {
        Scores plain = scores(p);
        cap = plain.cap * LOG2_E;
        UNROLL for (u32 r = 0; r < 2; r++) factor[r] = inverse[r] * (cap == 0.0f ? plain.scale * LOG2_E : plain.exponent);
    }
    // Hidden ones are minus infinity.
    template <u32 KEYS>
    __attribute__((device, always_inline)) void of(Fragment::Sums (&s)[KEYS], const Fragment::Sums (&bias)[KEYS]) const {
        if (cap != 0.0f) {
            UNROLL for (u32 j = 0; j < KEYS; j++) UNROLL for (u32 i = 0; i < 8; i++) {
                float capped = cap - 2.0f * cap * reciprocal_hw(exp2_hw(s[j][i] * factor[i / 2 % 2]) + 1.0f);
                s[j][i] = masked(capped, bias[j][i]);
            }
        } else {
            UNROLL for (u32 j = 0; j < KEYS; j++) UNROLL for (u32 i = 0; i < 8; i++) {
                s[j][i] = is_hidden(bias[j][i]) ? -infinity() : mad(s[j][i], factor[i / 2 % 2], bias[j][i]);
            }
        }
    }
};

// Whether a row of the work-group sees one of SOUGHT positions from `first` on. Heads that share a mask are looked at once.
DEVICE bool is_seen(const void *mask, const FlashAttnParams &p, const Heads &h, u32 row0, u32 first, u32 end, float *scratch) {
    u32 step = p.mask_ne[0] == 1 ? h.per_kv : 1;
    u64 at = mask_of_batch(p, h) + minimum(first + thread_id(), end - 1);
    float most = -infinity();
    _Pragma("unroll 4") for (u32 r = 0; r < MATRIX_ROWS + step - 1; r += step) {
        float x = mask_at(mask, p.mask_type, at + mask_of_row(p, query(h, row0 + minimum(r, MATRIX_ROWS - 1))));
        // A NaN is seen.
        most = is_hidden(x) ? most : 0.0f;
    }
    return !is_hidden(group_reduce<Max, MATRIX_THREADS>(most, scratch));
}

// Products of the keys of a step. Sums of all keys take turns: the units would wait for a sum that comes out of them.
template <int DIM, u32 KEYS>
DEVICE void multiply_keys(const u16 *keys, const QueriesOfWave<DIM> &queries, Fragment::Sums (&s)[KEYS]) {
    UNROLL for (u32 j = 0; j < KEYS; j++) s[j] = 0.0f;
    UNROLL for (u32 f = 0; f < DIM / 16; f++) {
        Fragment::Operand part[KEYS];
        UNROLL for (u32 j = 0; j < KEYS; j++) {
            part[j] = Fragment::weights(keys + f / 4 * (MATRIX_POSITIONS * TILE_K), j * 16, f % 4 * 16);
            Fragment::multiply(part[j], queries.rounded[f], s[j]);
        }
        UNROLL for (u32 j = 0; j < KEYS; j++) Fragment::multiply(part[j], queries.rest[f], s[j]);
    }
}

template <int DIM> struct AttentionOfWave {
    static constexpr u32 FRAGMENTS = DIM / 16, KEYS = MATRIX_POSITIONS / 16;
    float max[2], sum[2];
    Fragment::Sums total[FRAGMENTS];

    // From scores to weights times 2^10; what was summed before is rescaled. With MARK hidden positions have a negative
    // zero.
    template <bool MARK> __attribute__((device, always_inline)) void soft_max(Fragment::Sums *s) {
        float factor[2];
        UNROLL for (u32 r = 0; r < 2; r++) {
            float top = max[r];
            UNROLL for (u32 j = 0; j < KEYS; j++) UNROLL for (u32 i = r * 2; i < 8; i += 4) {
                top = larger(top, larger(s[j][i], s[j][i + 1]));
            }
            top = lanes_reduce<Max, 4>(top);
            factor[r] = exp2_hw(max[r] - top);
            max[r] = top;
            sum[r] *= factor[r];
            float from = top - WEIGHT_EXPONENT;
            UNROLL for (u32 j = 0; j < KEYS; j++) UNROLL for (u32 i = r * 2; i < 8; i += 4) {
                UNROLL for (u32 e = i; e < i + 2; e++) {
                    float w = exp2_hw(s[j][e] - from);
                    sum[r] += w;
                    s[j][e] = MARK && is_hidden(s[j][e]) ? -0.0f : w;
                }
            }
        }
        if (__nvvm_vote_all_sync(0xffffffffu, factor[0] == 1.0f && factor[1] == 1.0f)) return;
        UNROLL for (u32 c = 0; c < FRAGMENTS; c++) UNROLL for (u32 i = 0; i < 8; i++) total[c][i] *= factor[i / 2 % 2];
    }

    __attribute__((device, always_inline)) void add_values(const Fragment::Sums *s, const u16 *v) {
        UNROLL for (u32 j = 0; j < KEYS; j++) {
            Fragment::Operand rounded, rest;
            UNROLL for (u32 i = 0; i < 4; i++) {
                rounded[i] = half_pair(s[j][2 * i], s[j][2 * i + 1]);
                rest[i] = rest_pair(s[j][2 * i], s[j][2 * i + 1], rounded[i]);
            }
            UNROLL for (u32 c = 0; c < FRAGMENTS; c++) {
                auto values = Fragment::weights_turned(v + c / 4 * (MATRIX_POSITIONS * TILE_K), j * 16, c % 4 * 16);
                Fragment::multiply(values, rounded, total[c]);
                Fragment::multiply(values, rest, total[c]);
            }
        }
    }

    // The same one by one, without hidden positions.
    __attribute__((device, always_inline)) void add_values_seen(const Fragment::Sums *s, MatrixShared<DIM> *shared) {
        u32 row = wave_id() * 16;
        UNROLL for (u32 j = 0; j < KEYS; j++) UNROLL for (u32 i = 0; i < 8; i++) {
            shared->weights[row + Fragment::n(i)][j * 16 + Fragment::m(i)] = s[j][i];
        }
        lanes_barrier();
        NO_UNROLL for (u32 key = 0; key < MATRIX_POSITIONS; key++) {
            UNROLL for (u32 i = 0; i < 8; i++) {
                float w = shared->weights[row + Fragment::n(i)][key];
                if (is_weight_hidden(w)) continue;
                UNROLL for (u32 c = 0; c < FRAGMENTS; c++) {
                    u32 column = c % 4 * 16 + Fragment::m(i);
                    const u16 *tile = shared->v + c / 4 * (MATRIX_POSITIONS * TILE_K);
                    total[c][i] = mad(w, f16_to_f32(tile[eight_at(key, column / 8) + column % 8]), total[c][i]);
                }
            }
        }
    }
};

template <int DIM>
DEVICE void attention_matrix(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out,
                             float *stats, const FlashAttnParams &p, MatrixShared<DIM> *shared) {
    Heads h = heads(p);
    u32 span = tile_span(p, h.rows), splits = (p.kv[0] + span - 1) / span;
    u32 row0 = group_y() * MATRIX_ROWS, begin = group_x() * span, end = minimum(begin + span, p.kv[0]);
    if (splits == 1) out += p.off[5];
    const u16 *keys = (const u16 *)k + row_offset(p.off[1], p.nbk, 0, h.kv_head, h.batch);
    const u16 *values = (const u16 *)v + row_offset(p.off[2], p.nbv, 0, h.kv_head, h.batch);

    AttentionOfWave<DIM> a;
    UNROLL for (u32 r = 0; r < 2; r++) {
        Query at = query(h, row0 + wave_id() * 16 + lane_id() / 4 + r * 8);
        // One of the four lanes of a row has the weight of the sink.
        float first = first_score(p, sinks, at.head, begin == 0);
        a.max[r] = is_hidden(first) ? LOWEST : larger(first * LOG2_E, LOWEST);
        a.sum[r] = lane_id() % 4 > 0 || is_hidden(first) ? 0.0f : exp2_hw(first * LOG2_E - a.max[r] + WEIGHT_EXPONENT);
    }
    UNROLL for (u32 c = 0; c < a.FRAGMENTS; c++) a.total[c] = 0.0f;
    if (thread_id() < MATRIX_THREADS / WAVE) shared->special[thread_id()] = NO_STEP;
    QueriesOfWave<DIM> queries;
    queries.bring(q + query_offset(p, h, query(h, row0 + thread_id() / 2)), p.d[0], shared);
    ScoresOfWave to_score;
    to_score.begin(p, queries.inverse);

    if (p.mask_type & 3) {
        u32 turn = 0;
        for (; begin < end && !is_seen(mask, p, h, row0, begin, end, shared->seen[turn]); begin += SOUGHT) turn ^= 1;
        turn ^= 1;
        while (begin + SOUGHT < end && !is_seen(mask, p, h, row0, end - SOUGHT, end, shared->seen[turn])) {
            end -= SOUGHT;
            turn ^= 1;
        }
    }
    // Long rows take all registers.
    constexpr bool AHEAD = DIM <= 128;
    MaskOfRows rows;
    rows.begin(mask, p, h, row0);
    RowsOfStep<DIM> next_k, next_v;
    Fragment::Sums bias[a.KEYS];
    if (begin < end) {
        if (AHEAD) {
            next_k.load(keys, p.nbk[0], begin, end, p.d[0]);
            next_v.load(values, p.nbv[0], begin, end, p.d[1]);
        }
        UNROLL for (u32 j = 0; j < a.KEYS; j++) rows.load(begin + j * 16, end, bias[j]);
    }
    NO_UNROLL for (u32 base = begin; base < end; base += MATRIX_POSITIONS) {
        if (!AHEAD) {
            next_k.load(keys, p.nbk[0], base, end, p.d[0]);
            next_v.load(values, p.nbv[0], base, end, p.d[1]);
        }
        barrier();
        next_k.store(shared->k);
        if (next_v.store(shared->v)) shared->special[wave_id()] = base;
        barrier();
        Fragment::Sums s[a.KEYS];
        u32 next = base + MATRIX_POSITIONS;
        if (AHEAD && next < end) {
            next_k.load(keys, p.nbk[0], next, end, p.d[0]);
            next_v.load(values, p.nbv[0], next, end, p.d[1]);
        }
        multiply_keys(shared->k, queries, s);
        to_score.of(s, bias);
        // A step beyond the end is hidden.
        UNROLL for (u32 j = 0; j < a.KEYS; j++) rows.load(next + j * 16, end, bias[j]);
        bool special = false;
        UNROLL for (u32 w = 0; w < MATRIX_THREADS / WAVE; w++) special |= shared->special[w] == base;
        if (special) {
            a.template soft_max<true>(s);
            a.add_values_seen(s, shared);
        } else {
            a.template soft_max<false>(s);
            a.add_values(s, shared->v);
        }
    }

    UNROLL for (u32 r = 0; r < 2; r++) {
        float all = lanes_reduce<Sum, 4>(a.sum[r]);
        u32 row = row0 + wave_id() * 16 + lane_id() / 4 + r * 8;
        if (row >= h.rows) continue;
        u64 to = result_row(p, h, query(h, row)) * splits + group_x();
        // Both sums have the factor of the weights.
        float without = exp2_hw(-WEIGHT_EXPONENT), factor = splits > 1 ? without : normalizer(all);
        UNROLL for (u32 c = 0; c < a.FRAGMENTS; c++) UNROLL for (u32 i = r * 2; i < 8; i += 4) {
            u32 column = c * 16 + Fragment::m(i);
            if (column >= p.d[1]) continue;
            out[to * p.d[1] + column] = a.total[c][i] * factor;
            out[to * p.d[1] + column + 1] = a.total[c][i + 1] * factor;
        }
        if (splits > 1 && lane_id() % 4 == 0) {
            stats[to * 2] = a.max[r] == LOWEST ? -infinity() : a.max[r] * LN_2;
            stats[to * 2 + 1] = all * without;
        }
    }
}

#endif
