// FLASH_ATTN_EXT for many query rows on matrix units (attention_fragment.h), k and v in F16 or in blocks, rows of up to DIM
// elements. The soft-max, the sums and the result are F32.
//
// A work-group of four wavefronts takes 64 query rows and goes through the positions 32 at a time. A wavefront has 16 of
// the rows: their queries stay in its registers, as sums of two F16 numbers each (times a power of two that brings the
// largest of a row to 2^14 .. 2^15), and so do its results. A lane has scores, weights and results of two rows, four
// lanes side by side share them; on AMD's processors of one row, which two or four lanes 16 apart share.
//
//   * k and v go through LDS as F16; those of the next step are on their way meanwhile, as they are stored, and so is its
//     mask (attention_cells.h, attention_rows.h).
//   * Of blocks k is whole numbers: the products of a block of 32 have a sum of their own, which is multiplied by the scale
//     of the block. v is the sum of two F16 numbers, which both are multiplied by weights.
//   * Scores come out of the units where weights go in: they never leave the registers. They are powers of two: the scale
//     and the mask bring log2(e) with them. Weights are sums of two F16 numbers, too, times 2^15, so that nothing is
//     rounded that F32 would keep, nor is where a unit takes numbers below 2^-14 for zeros.
//   * What is the same for all rows of a step is asked once for a fragment and not for each of its numbers: a branch for
//     each would take longer than the products. Results are rescaled where a maximum has changed.
//   * What a fragment of v wants along k are positions. NVIDIA's units read v turned; for AMD's it is turned on its way
//     into LDS.
//
// Positions at the beginning and the end that the mask hides from all rows are left out (half of a causal prompt, all but
// the window of a sliding one); they are sought a position for each thread at a time.
//
// RDNA3's operands are twice as large as others', because both halves of a wavefront hold them whole. For rows of 128
// elements a step loads its k and v itself, and a quarter of what rounding left of the queries stays in LDS; of blocks a step
// has the scores of its first 16 positions before the products of the others begin.
//
// LDS of F16: 40.3 KiB with rows of 256 elements, 24.3 with 128 (28.3 on RDNA3), 16.3 with 64. Of blocks, whose v has two
// tiles and whose k gives its place to the weights that leave the registers: 24.8 KiB with 128 (28.8 on RDNA3), 16.6 with 64.
#pragma once
#include "attention_cells.h"
#include "attention_rows.h"

// Factor of weights, 2^15.
#define WEIGHT_EXPONENT 15.0f
#define NO_STEP 0xffffffffu
// Maxima begin here, below all scores: a difference of two is always a number.
#define LOWEST -1.0e38f
#define LN_2 0.693147180559945309417f

// What is the same in all lanes of a wavefront, of which the compiler knows no more.
DEVICE u32 unknown(u32 x) {
#if DEVICE_AMD
    x = uniform(x);
    __asm__ volatile("" : "+s"(x));
#endif
    return x;
}

// Tiles of all positions. The queries pass through k and v, in tiles of all rows.
template <class K, bool IN_BLOCKS = K::IN_BLOCKS> struct MatrixShared {
    static constexpr u32 THREADS = K::THREADS;
    __attribute__((aligned(16))) u16 k[MATRIX_POSITIONS * K::DIM], v[MATRIX_POSITIONS * K::DIM];
    // What rounding left of the last tile of the queries, where it stays here.
    __attribute__((aligned(16))) u16 rest[K::RESTS < K::FRAGMENTS ? MATRIX_ROWS * TILE_K : 1];
    float weights[MATRIX_ROWS][MATRIX_POSITIONS + 1];
    float seen[2][THREADS / WAVE];
    // The last step in whose values a wavefront found an infinity or a NaN.
    u32 special[THREADS / WAVE];
    // A number of a row of the queries, while they pass through.
    __attribute__((device, always_inline)) float &of_row(u32 row) { return weights[row][0]; }
};
// Of blocks v is the sum of both its tiles, and k has scales: of each block of a row those of all positions. Weights take the
// place of k.
template <class K> struct MatrixShared<K, true> {
    static constexpr u32 THREADS = K::THREADS;
    union {
        __attribute__((aligned(16))) u16 k[MATRIX_POSITIONS * K::DIM];
        float weights[MATRIX_ROWS][MATRIX_POSITIONS + 1];
    };
    __attribute__((aligned(16))) u16 v[MATRIX_POSITIONS * K::DIM], v_rest[MATRIX_POSITIONS * K::DIM];
    __attribute__((aligned(16))) float scales[K::BLOCKS * MATRIX_POSITIONS];
    __attribute__((aligned(16))) u16 rest[K::RESTS < K::FRAGMENTS ? MATRIX_ROWS * TILE_K : 1];
    float seen[2][THREADS / WAVE];
    u32 special[THREADS / WAVE];
    static_assert(K::BLOCKS * MATRIX_POSITIONS >= MATRIX_ROWS, "");
    __attribute__((device, always_inline)) float &of_row(u32 row) { return scales[row]; }
};
// What the parts of a kernel have in common: an attention fragment, the type of k and v, the longest row.
template <class A_, class KV_, int DIM_> struct MatrixKernel {
    typedef A_ A;
    typedef KV_ KV;
    typedef typename A::Operand Operand;
    typedef typename A::Sums Sums;
    static constexpr u32 DIM = DIM_, THREADS = MatrixGroup<A>::THREADS;
    // Fragments of a row, and of the positions of a step.
    static constexpr u32 FRAGMENTS = DIM / 16, KEYS = MATRIX_POSITIONS / 16;
    // Blocks of a row, where k and v are in blocks.
    static constexpr bool IN_BLOCKS = KV::BLOCK > 1;
    static constexpr u32 BLOCKS = DIM / KV::BLOCK;
    // Whether registers do not suffice for the rows of the next step.
    static constexpr bool SPARING = DIM > A::LONGEST_AHEAD;
    // Fragments of the queries whose rest is in registers: all, or all but the last tile's.
    static constexpr u32 RESTS = FRAGMENTS - (DIM > A::LONGEST_HELD ? TILE_K / 16 : 0);
    // Keys' sixteens whose products are computed together.
    static constexpr u32 AT_ONCE = SPARING && IN_BLOCKS ? 1 : KEYS;
    typedef MatrixShared<MatrixKernel> Shared;
    typedef RowsOfStep<KV, DIM, THREADS, A::PIECE, false> Keys;
    typedef RowsOfStep<KV, DIM, THREADS, A::PIECE, A::VALUES_TURNED> Values;
    // Fragment `f` of a row: its tile, of so many rows, and where it begins there.
    DEVICE u32 tile(u32 f, u32 rows) { return f * 16 / TILE_K * (rows * TILE_K); }
    DEVICE u32 in_tile(u32 f) { return f * 16 % TILE_K; }
};

// Query rows of a wavefront: rounded, and what that left.
template <class K> struct QueriesOfWave {
    static constexpr u32 BRINGERS = K::THREADS / MATRIX_ROWS;
    typename K::Operand rounded[K::FRAGMENTS], rest[K::RESTS];
    // The inverse of the factors of a lane's rows.
    float inverse[K::A::ROWS];

    // BRINGERS threads bring a row, which is `length` long.
    __attribute__((device, always_inline)) void bring(const float *row, u32 length, typename K::Shared *shared) {
        float most = 0.0f;
        for (u32 i = thread_id() % BRINGERS * 8; i < length; i += 8 * BRINGERS) {
            UNROLL for (u32 j = 0; j < 8; j++) most = larger(most, is_finite(row[i + j]) ? __builtin_fabsf(row[i + j]) : 0.0f);
        }
        float factor = half_factor(lanes_reduce<Max, BRINGERS>(most));
        shared->of_row(thread_id() / BRINGERS) = inverse_power(factor);
        put<false>(row, length, factor, shared);
        barrier();
        u32 lane = MatrixGroup<typename K::A>::lane();
        UNROLL for (u32 r = 0; r < K::A::ROWS; r++) inverse[r] = shared->of_row(MatrixGroup<typename K::A>::row(r, lane));
        take<K::FRAGMENTS>(shared->k, rounded);
        barrier();
        put<true>(row, length, factor, shared);
        barrier();
        take<K::RESTS>(shared->k, rest);
    }
    template <bool REST> DEVICE void put(const float *row, u32 length, float factor, typename K::Shared *shared) {
        constexpr u32 EIGHTS = TILE_K / 8, HELD = REST ? K::RESTS * 2 : K::DIM / 8;
        for (u32 e = thread_id() % BRINGERS; e < K::DIM / 8; e += BRINGERS) {
            lds_u32x4 out = {0, 0, 0, 0};
            if (e * 8 < length) {
                UNROLL for (u32 j = 0; j < 4; j++) {
                    float a = row[e * 8 + j * 2] * factor, b = row[e * 8 + j * 2 + 1] * factor;
                    out[j] = half_pair(a, b);
                    if (REST) out[j] = rest_pair(a, b, out[j]);
                }
            }
            u16 *tile = e < HELD ? shared->k + e / EIGHTS * (MATRIX_ROWS * TILE_K) : shared->rest;
            *(lds_u32x4 *)(tile + eight_at(thread_id() / BRINGERS, e % EIGHTS)) = out;
        }
    }
    template <u32 COUNT> DEVICE void take(const u16 *tiles, typename K::Operand *into) {
        u32 row = MatrixGroup<typename K::A>::wave() * 16;
        UNROLL for (u32 f = 0; f < COUNT; f++) {
            into[f] = K::A::queries(tiles + K::tile(f, MATRIX_ROWS), row, K::in_tile(f));
        }
    }
    __attribute__((device, always_inline)) typename K::Operand rest_of(u32 f, const typename K::Shared *shared) const {
        if (f < K::RESTS) return rest[f];
        return K::A::queries(shared->rest, MatrixGroup<typename K::A>::wave() * 16, K::in_tile(f));
    }
};

// Puts k and v of a step into LDS. Gives whether v has an infinity or a NaN.
template <class K> DEVICE bool store_step(typename K::Keys &k, typename K::Values &v, typename K::Shared *shared) {
    if constexpr (K::IN_BLOCKS) {
        k.store_wholes(shared->k, shared->scales);
        return v.template store_sums<K::A::REST_EXPONENT>(shared->v, shared->v_rest);
    } else {
        k.store(shared->k);
        return v.store(shared->v);
    }
}

// Products of a fragment of AT_ONCE keys' sixteens, from `first` on. Sums of all of them take turns: the units would wait for
// a sum that comes out of them.
template <class K>
DEVICE void multiply_fragment(const typename K::Shared *shared, const QueriesOfWave<K> &queries, u32 f, u32 first,
                              typename K::Sums *s) {
    if (K::SPARING) ONE_BY_ONE();
    typename K::Operand part[K::AT_ONCE];
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) {
        part[j] = K::A::keys(shared->k + K::tile(f, MATRIX_POSITIONS), (first + j) * 16, K::in_tile(f));
        K::A::multiply_keys(part[j], queries.rounded[f], s[j]);
    }
    auto rest = queries.rest_of(f, shared);
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) K::A::multiply_keys(part[j], rest, s[j]);
}
// Sums of products of a block, times its scales.
template <class K>
DEVICE void add_block(const typename K::Shared *shared, const QueriesOfWave<K> &queries, u32 b, u32 first, typename K::Sums *s) {
    typedef typename K::A A;
    typedef float Run __attribute__((ext_vector_type(A::RUN)));
    constexpr u32 OF_BLOCK = K::KV::BLOCK / 16;
    ONE_BY_ONE();
    typename K::Sums part[K::AT_ONCE];
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
        // Zeros that the compiler knows would have registers of their own throughout.
        part[j][i] = K::SPARING ? computed_here(0.0f) : 0.0f;
    }
    UNROLL for (u32 f = 0; f < OF_BLOCK; f++) multiply_fragment<K>(shared, queries, b * OF_BLOCK + f, first, part);
    const float *scales = shared->scales + b * MATRIX_POSITIONS + first * 16;
    u32 lane = MatrixGroup<A>::lane();
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) UNROLL for (u32 i = 0; i < A::SUMS; i += A::RUN) {
        Run scale = *(const Run *)(scales + j * 16 + A::place(i, lane));
        UNROLL for (u32 e = 0; e < A::RUN; e++) s[j][i + e] = computed_here(mad(part[j][i + e], scale[e], s[j][i + e]));
    }
}
// Products of AT_ONCE keys' sixteens of a step.
template <class K>
DEVICE void multiply_keys(const typename K::Shared *shared, const QueriesOfWave<K> &queries, u32 first, typename K::Sums *s) {
    UNROLL for (u32 j = 0; j < K::AT_ONCE; j++) s[j] = 0.0f;
    if constexpr (K::IN_BLOCKS) {
        UNROLL for (u32 b = 0; b < K::BLOCKS; b++) add_block<K>(shared, queries, b, first, s);
    } else {
        UNROLL for (u32 f = 0; f < K::FRAGMENTS; f++) multiply_fragment<K>(shared, queries, f, first, s);
    }
}

template <class K> struct AttentionOfWave {
    typedef typename K::A A;
    float max[A::ROWS], sum[A::ROWS];
    typename K::Sums total[K::FRAGMENTS];

    __attribute__((device, always_inline)) void begin(const FlashAttnParams &p, const Heads &h, const float *sinks, u32 row0,
                                                      bool first_piece) {
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            Query at = query(h, row0 + MatrixGroup<A>::row(r, lane));
            // One of the lanes of a row has the weight of the sink.
            float first = first_score(p, sinks, at.head, first_piece);
            max[r] = is_hidden(first) ? LOWEST : larger(first * LOG2_E, LOWEST);
            sum[r] = !A::leads() || is_hidden(first) ? 0.0f : exp2_hw(first * LOG2_E - max[r] + WEIGHT_EXPONENT);
        }
        UNROLL for (u32 c = 0; c < K::FRAGMENTS; c++) total[c] = 0.0f;
    }

    // The largest scores so far; what was summed before is rescaled where they have changed.
    __attribute__((device, always_inline)) void rescale(const typename K::Sums *s) {
        float factor[A::ROWS];
        bool same = true;
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            float top = max[r];
            UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 i = 0; i < A::SUMS; i += 2) {
                if (A::row(i) == r) top = larger(top, larger(s[j][i], s[j][i + 1]));
            }
            top = A::template reduce<Max>(top);
            factor[r] = exp2_hw(max[r] - top);
            same = same && factor[r] == 1.0f;
            max[r] = top;
            sum[r] *= factor[r];
        }
        if (in_all_lanes(same)) return;
        UNROLL for (u32 c = 0; c < K::FRAGMENTS; c++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
            total[c][i] *= factor[A::row(i)];
        }
    }

    // From scores to weights times 2^15. With MARK hidden positions have a negative zero.
    template <bool MARK> __attribute__((device, always_inline)) void weigh(typename K::Sums *s) {
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

    // Fragment `c` of v and positions `j`.
    DEVICE typename K::Operand values(const u16 *v, u32 j, u32 c) {
        if (A::VALUES_TURNED) return A::values(v, j * 16, c * 16);
        return A::values(v + K::tile(c, MATRIX_POSITIONS), j * 16, K::in_tile(c));
    }
    __attribute__((device, always_inline)) void add_values(const typename K::Sums *s, const typename K::Shared *shared) {
        UNROLL for (u32 j = 0; j < K::KEYS; j++) {
            typename K::Operand rounded, rest;
            A::weights(s[j], rounded, rest);
            auto for_rests = A::for_rests(rounded);
            UNROLL for (u32 c = 0; c < K::FRAGMENTS; c++) {
                if (K::SPARING) ONE_BY_ONE();
                auto of_v = values(shared->v, j, c);
                A::multiply_values(of_v, rounded, total[c]);
                A::multiply_values(of_v, rest, total[c]);
                if constexpr (K::IN_BLOCKS) {
                    if (K::SPARING) ONE_BY_ONE();
                    A::multiply_values(values(shared->v_rest, j, c), for_rests, total[c]);
                }
            }
        }
    }

    DEVICE float value_of(const typename K::Shared *shared, u32 place) {
        float value = f16_to_f32(shared->v[place]);
        if constexpr (K::IN_BLOCKS) {
            float rest = f16_to_f32(shared->v_rest[place]) * (1.0f / (1u << A::REST_EXPONENT));
            value = is_finite(value) ? value + rest : value;
        }
        return value;
    }
    // `add_values` one by one, without hidden positions.
    __attribute__((device, always_inline)) void add_values_seen(const typename K::Sums *s, typename K::Shared *shared) {
        u32 lane = MatrixGroup<A>::lane();
        // Others may still read k.
        if (K::IN_BLOCKS) barrier();
        UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 i = 0; i < A::SUMS; i++) {
            shared->weights[MatrixGroup<A>::row(A::row(i), lane)][j * 16 + A::place(i, lane)] = s[j][i];
        }
        barrier();
        NO_UNROLL for (u32 key = 0; key < MATRIX_POSITIONS; key++) {
            lane = MatrixGroup<A>::lane();
            UNROLL for (u32 r = 0; r < A::ROWS; r++) {
                float w = shared->weights[MatrixGroup<A>::row(r, lane)][key];
                UNROLL for (u32 c = 0; c < K::FRAGMENTS; c++) {
                    ONE_BY_ONE();
                    UNROLL for (u32 i = 0; i < A::SUMS; i++) {
                        if (A::row(i) != r) continue;
                        float value = value_of(shared, K::Values::place(key, c * 16 + A::place(i, lane)));
                        total[c][i] = mad(w, is_weight_hidden(w) ? 0.0f : value, total[c][i]);
                    }
                }
            }
        }
    }

    // The result, or the sums and statistics of a piece of the positions.
    __attribute__((device, always_inline)) void store(const FlashAttnParams &p, const Heads &h, u32 row0, u32 splits, float *out,
                                                      float *stats) const {
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            float all = A::template reduce<Sum>(sum[r]);
            u32 row = row0 + MatrixGroup<A>::row(r, lane);
            if (row >= h.rows) continue;
            u64 to = result_row(p, h, query(h, row)) * splits + group_x();
            // Both sums have the factor of the weights.
            float without = exp2_hw(-WEIGHT_EXPONENT), factor = splits > 1 ? without : normalizer(all);
            UNROLL for (u32 c = 0; c < K::FRAGMENTS; c++) UNROLL for (u32 i = 0; i < A::SUMS; i += A::RUN) {
                u32 column = c * 16 + A::place(i, lane);
                if (A::row(i) != r || column >= p.d[1]) continue;
                UNROLL for (u32 e = 0; e < A::RUN; e++) out[to * p.d[1] + column + e] = total[c][i + e] * factor;
            }
            if (splits > 1 && A::leads()) {
                stats[to * 2] = max[r] == LOWEST ? -infinity() : max[r] * LN_2;
                stats[to * 2 + 1] = all * without;
            }
        }
    }
};

template <class K>
DEVICE void attention_matrix(const float *q, const u8 *k, const u8 *v, const void *mask, const float *sinks, float *out,
                             float *stats, const FlashAttnParams &p, typename K::Shared *shared) {
    typedef typename K::A A;
    Heads h = heads(p);
    u32 span = tile_span(p, h.rows), splits = (p.kv[0] + span - 1) / span;
    u32 row0 = group_y() * MATRIX_ROWS, begin = group_x() * span, end = minimum(begin + span, p.kv[0]);
    if (splits == 1) out += p.off[5];
    k += row_offset(p.off[1], p.nbk, 0, h.kv_head, h.batch) * K::KV::BYTES;
    v += row_offset(p.off[2], p.nbv, 0, h.kv_head, h.batch) * K::KV::BYTES;

    AttentionOfWave<K> a;
    a.begin(p, h, sinks, row0, begin == 0);
    if (thread_id() < K::THREADS / WAVE) shared->special[thread_id()] = NO_STEP;
    QueriesOfWave<K> queries;
    u32 brought = row0 + thread_id() / QueriesOfWave<K>::BRINGERS;
    queries.bring(q + query_offset(p, h, query(h, brought)), p.d[0], shared);
    ScoresOfWave<A> to_score;
    to_score.begin(p, queries.inverse);
    skip_hidden<K::THREADS>(mask, p, h, row0, begin, end, shared->seen);

    // Long rows take all registers.
    constexpr bool AHEAD = !K::SPARING;
    MaskOfRows<A> rows;
    rows.begin(mask, p, h, row0);
    typename K::Keys next_k;
    typename K::Values next_v;
    typename MaskOfRows<A>::Bits bits[K::KEYS] = {};
    if (begin < end) {
        if (AHEAD) {
            next_k.load(k, p.nbk[0], begin, end, p.d[0]);
            next_v.load(v, p.nbv[0], begin, end, p.d[1]);
        }
        UNROLL for (u32 j = 0; j < K::KEYS; j++) rows.load(begin + j * 16, end, bits[j]);
    }
    NO_UNROLL for (u32 base = begin; base < end; base += MATRIX_POSITIONS) {
        if (!AHEAD) {
            next_k.load(k, p.nbk[0], base, end, p.d[0]);
            next_v.load(v, p.nbv[0], base, end, p.d[1]);
        }
        barrier();
        if (store_step<K>(next_k, next_v, shared)) shared->special[wave_id()] = base;
        barrier();
        typename K::Sums s[K::KEYS];
        u32 next = base + MATRIX_POSITIONS;
        if (AHEAD && next < end) {
            next_k.load(k, p.nbk[0], next, end, p.d[0]);
            next_v.load(v, p.nbv[0], next, end, p.d[1]);
        }
        UNROLL for (u32 j = 0; j < K::KEYS; j++) {
            if (j % K::AT_ONCE == 0) multiply_keys<K>(shared, queries, j, s + j);
            typename K::Sums bias;
            rows.numbers(base + j * 16, end, bits[j], bias);
            to_score.of(s[j], bias);
            if (K::AT_ONCE == 1) UNROLL for (u32 i = 0; i < A::SUMS; i++) s[j][i] = computed_here(s[j][i]);
        }
        UNROLL for (u32 j = 0; j < K::KEYS; j++) rows.load(next + j * 16, end, bits[j]);
        bool special = false;
        UNROLL for (u32 w = 0; w < K::THREADS / WAVE; w++) special |= uniform(shared->special[w]) == base;
        a.rescale(s);
        // Not one or the other: results of both would have registers of their own.
        if (special) {
            a.template weigh<true>(s);
            a.add_values_seen(s, shared);
        }
        if (!unknown(special)) {
            a.template weigh<false>(s);
            a.add_values(s, shared);
        }
    }
    a.store(p, h, row0, splits, out, stats);
}
