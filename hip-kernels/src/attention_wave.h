// Computations of a wavefront on its fragments (attention_fragment.h), independent of how k and v are loaded
// (attention_matrix.h, attention_latent.h): products with queries, the soft-max, products of weights with values. A kernel K
// has
//
//   A, Operand, Sums      the attention fragment, and its types
//   KEYS, AT_ONCE         groups of 16 keys in a step, and those whose products are computed together
//   RESULTS               fragments of the results of a wavefront, which start at column(c)
//   row(r, lane)          the row of the work-group for row `r` of a lane
//   leads()               true in one lane for each row of the work-group
//   IN_BLOCKS, SPARING    true if v has rests; true if registers are scarce
//   tile(f), in_tile(f)   place of fragment `f` in tiles of LDS; Values::place: place of an element of v
//   SEEN_AT_ONCE          groups of 16 keys whose weights fit LDS at a time, where weights are stored there
//   OVER_KEYS             true if these weights overwrite keys
//   Shared, meet()        LDS: weight(row, key), tiles of values() and rests_of_values(); a barrier for the threads that write
//                         or read weights
#pragma once
#include "attention_cells.h"
#include "attention_rows.h"

// Weights are multiplied by 2 to this power.
#define WEIGHT_EXPONENT 15.0f
// Weights of a new maximum are smaller by 2 to this power, which leaves room for scores that are larger still.
#define HEADROOM 8.0f
// Initial value of maxima, below all scores: the difference of two maxima is always a number.
#define LOWEST -1.0e38f
#define LN_2 0.693147180559945309417f

// Common to the kernels: groups of 16 positions in a step; for fragment `f` of a row, its tile (a tile has `rows` rows) and its
// start within the tile.
struct MatrixTiles {
    static constexpr u32 KEYS = MATRIX_POSITIONS / 16;
    DEVICE u32 tile(u32 f, u32 rows) { return f * 16 / TILE_K * (rows * TILE_K); }
    DEVICE u32 in_tile(u32 f) { return f * 16 % TILE_K; }
};

// Returns the power of two for a query row, which COUNT adjacent threads read.
template <u32 COUNT> DEVICE float factor_of_query(const float *row, u32 length) {
    float most = 0.0f;
    for (u32 i = thread_id() % COUNT * 8; i < length; i += 8 * COUNT) {
        UNROLL for (u32 j = 0; j < 8; j++) most = larger(most, is_finite(row[i + j]) ? __builtin_fabsf(row[i + j]) : 0.0f);
    }
    return half_factor(lanes_reduce<Max, COUNT>(most));
}
// Returns eight elements of the row as F16; zeros after its end.
DEVICE lds_u32x4 eight_of_query(const float *row, u32 first, u32 length, float factor) {
    lds_u32x4 out = {0, 0, 0, 0};
    if (first >= length) return out;
    UNROLL for (u32 j = 0; j < 4; j++) {
        out[j] = half_pair(row[first + j * 2] * factor, row[first + j * 2 + 1] * factor);
    }
    return out;
}

// Adds products of fragment `f` of the tiles `k` with the queries, for AT_ONCE groups of 16 keys from `first` on. Consecutive
// instructions add to different sums, because a matrix unit would wait for its own last result.
template <class K>
DEVICE void multiply_fragment(const u16 *k, u32 f, const typename K::Operand &queries, u32 first, typename K::Sums *s) {
    if (K::SPARING) ONE_BY_ONE();
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) {
        auto part = K::A::keys(k + K::tile(f, MATRIX_POSITIONS), (first + j) * 16, K::in_tile(f));
        K::A::multiply_keys(part, queries, s[j]);
    }
}

template <class K> struct AttentionOfWave {
    typedef typename K::A A;
    float max[A::ROWS], sum[A::ROWS];
    typename K::Sums total[K::RESULTS];

    INLINED void begin(const FlashAttnParams &p, const Heads &h, const float *sinks, u32 row0,
                                                      bool first_piece) {
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            Query at = query(h, row0 + K::row(r, lane));
            // One of the lanes of a row has the weight of the sink.
            float first = first_score(p, sinks, at.head, first_piece);
            max[r] = is_hidden(first) ? LOWEST : larger(first * LOG2_E, LOWEST);
            sum[r] = !A::leads() || is_hidden(first) ? 0.0f : exp2_hw(first * LOG2_E - max[r] + WEIGHT_EXPONENT);
        }
        UNROLL for (u32 c = 0; c < K::RESULTS; c++) total[c] = 0.0f;
    }

    // Updates the maxima and rescales the sums if a score is above a maximum. The new maximum is 2^HEADROOM times that of the
    // weights, so that most steps find no score above it.
    INLINED void rescale(const typename K::Sums *s) {
        float top[A::ROWS];
        bool same = true;
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            top[r] = max[r];
            UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 i = 0; i < A::SUMS; i += A::RUN == 1 ? 1 : 2) {
                if (A::row(i) != r) continue;
                top[r] = larger(top[r], A::RUN == 1 ? s[j][i] : larger(s[j][i], s[j][i + 1]));
            }
            same = same && top[r] == max[r];
        }
        if (in_all_lanes(same)) return;
        float factor[A::ROWS];
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            top[r] = A::template reduce<Max>(top[r]);
            if (top[r] > max[r]) top[r] += HEADROOM;
            factor[r] = exp2_hw(max[r] - top[r]);
            max[r] = top[r];
            sum[r] *= factor[r];
        }
        UNROLL for (u32 c = 0; c < K::RESULTS; c++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
            total[c][i] *= factor[A::row(i)];
        }
    }

    // Converts scores to weights, multiplied by 2^15. With MARK the weights of hidden positions are negative zeros.
    template <bool MARK> INLINED void weigh(typename K::Sums *s) {
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            float from = max[r] - WEIGHT_EXPONENT;
            UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
                if (A::row(i) != r) continue;
                float w = exp2_hw(s[j][i] - from);
                sum[r] += w;
                s[j][i] = MARK && is_hidden(s[j][i]) ? -0.0f : w;
            }
        }
    }

    // Returns fragment `c` of v in LDS, for group `j` of positions.
    DEVICE typename K::Operand values(const u16 *v, u32 j, u32 c) {
        if (A::VALUES_TURNED) return A::values(v, j * 16, c * 16);
        return A::values(v + K::tile(c, MATRIX_POSITIONS), j * 16, K::in_tile(c));
    }
    // Adds products of weights with COUNT fragments of v, to the results from FIRST on.
    template <u32 FIRST, u32 COUNT>
    INLINED void add_values(const typename K::Sums *s, const typename K::Shared *shared) {
        UNROLL for (u32 j = 0; j < K::KEYS; j++) {
            typename K::Operand rounded, rest;
            A::weights(s[j], rounded, rest);
            auto for_rests = A::for_rests(rounded);
            UNROLL for (u32 c = 0; c < COUNT; c++) {
                if (K::SPARING) ONE_BY_ONE();
                auto of_v = values(shared->values(), j, c);
                A::multiply_values(of_v, rounded, total[FIRST + c]);
                A::multiply_values(of_v, rest, total[FIRST + c]);
                if constexpr (K::IN_BLOCKS) {
                    if (K::SPARING) ONE_BY_ONE();
                    A::multiply_values(values(shared->rests_of_values(), j, c), for_rests, total[FIRST + c]);
                }
            }
        }
    }

    DEVICE float value_of(const typename K::Shared *shared, u32 place) {
        float value = f16_to_f32(shared->values()[place]);
        if constexpr (K::IN_BLOCKS) {
            float rest = f16_to_f32(shared->rests_of_values()[place]) * (1.0f / (1u << A::REST_EXPONENT));
            value = is_finite(value) ? value + rest : value;
        }
        return value;
    }
    // `add_values` one by one, without hidden positions.
    template <u32 FIRST, u32 COUNT>
    INLINED void add_values_seen(const typename K::Sums *s, typename K::Shared *shared) {
        UNROLL for (u32 j0 = 0; j0 < K::KEYS; j0 += K::SEEN_AT_ONCE) {
            u32 lane = MatrixGroup<A>::lane();
            // Other threads may still read the previous contents.
            if (K::OVER_KEYS || j0 > 0) K::meet();
            UNROLL for (u32 j = 0; j < K::SEEN_AT_ONCE; j++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
                shared->weight(K::row(A::row(i), lane), j * 16 + A::place(i, lane)) = s[j0 + j][i];
            }
            K::meet();
            NO_UNROLL for (u32 key = 0; key < K::SEEN_AT_ONCE * 16; key++) {
                add_value_seen<FIRST, COUNT>(j0 * 16 + key, key, shared);
            }
        }
    }
    // The same for one position, whose weights have index `key` in LDS.
    template <u32 FIRST, u32 COUNT>
    INLINED void add_value_seen(u32 position, u32 key, typename K::Shared *shared) {
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            float w = shared->weight(K::row(r, lane), key);
            UNROLL for (u32 c = 0; c < COUNT; c++) {
                ONE_BY_ONE();
                UNROLL for (u32 i = 0; i < A::SUMS; i++) {
                    if (A::row(i) != r) continue;
                    float value = value_of(shared, K::Values::place(position, c * 16 + A::place(i, lane)));
                    float seen = is_weight_hidden(w) ? 0.0f : value;
                    total[FIRST + c][i] = mad(w, seen, total[FIRST + c][i]);
                }
            }
        }
    }

    // True if all results of a wavefront are finite. Hidden positions have weights of zero unless their scores are NaN, so a
    // value that is not finite has made a result NaN even if it is in a cell that no row of the wavefront sees.
    INLINED bool finite() const {
        float all = 0.0f;
        UNROLL for (u32 r = 0; r < A::ROWS; r++) all = mad(sum[r], 0.0f, all);
        UNROLL for (u32 c = 0; c < K::RESULTS; c++) UNROLL for (u32 i = 0; i < A::SUMS; i++) all = mad(total[c][i], 0.0f, all);
        return in_all_lanes(all == 0.0f);
    }

    // Stores the result, or the sums and statistics of a piece of the positions.
    INLINED void store(const FlashAttnParams &p, const Heads &h, u32 row0, u32 splits, float *out,
                                                      float *stats) const {
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            float all = A::template reduce<Sum>(sum[r]);
            u32 row = row0 + K::row(r, lane);
            if (row >= h.rows) continue;
            u64 to = result_row(p, h, query(h, row)) * splits + group_x();
            // Both sums include the factor of the weights.
            float without = exp2_hw(-WEIGHT_EXPONENT), factor = splits > 1 ? without : normalizer(all);
            UNROLL for (u32 c = 0; c < K::RESULTS; c++) UNROLL for (u32 i = 0; i < A::SUMS; i += A::RUN) {
                u32 column = K::column(c) + A::place(i, lane);
                if (A::row(i) != r || column >= p.d[1]) continue;
                UNROLL for (u32 e = 0; e < A::RUN; e++) out[to * p.d[1] + column + e] = total[c][i + e] * factor;
            }
            if (splits > 1 && K::leads()) {
                stats[to * 2] = max[r] == LOWEST ? -infinity() : max[r] * LN_2;
                stats[to * 2 + 1] = all * without;
            }
        }
    }
};
