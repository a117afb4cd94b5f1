// FLASH_ATTN_EXT for few query rows (attention_split.h) by dot products of pairs of F16, with rows of k and v of D elements of
// F16.
//
// A work-group takes `span` positions and G query rows that share a head of k and v; their queries are in LDS as F16, as in
// attention_half.h. Each wavefront takes every WAVES-th chunk of as many positions as it has lanes. It has its own largest
// scores, sums of weights and sums of v, so wavefronts wait for each other only after all positions. A row is read in units of
// eight elements.
//
//   1. Scores: LANES lanes share a row of k; lane l multiplies units l, l + LANES ... LANES sums, of G query rows and LANES / G
//      positions, are added over the lanes at a time, and each lane is left with one of them: no score is computed twice. All
//      scores of a lane are of the same query row.
//   2. Weights, multiplied by 2^15, are cut to F16 and pass through LDS: two of a lane are a pair. As with matrix units,
//      results are rescaled only if a score is far above the others.
//   3. Sums of v: D / 8 lanes share a row of v. Two rows are paired (one v_perm for two elements), then an instruction adds a
//      pair for a query row. For a single query row that would take as many instructions as F32: there weights are F32, and
//      v_fma_mix takes the elements as they are.
//
// Sums are stored and joined as in attention_split.h.
#pragma once
#include "attention_half.h"
#include "attention_split.h"

#if HAS_DOT2
#define SPLIT_WAVES (SPLIT_THREADS / WAVE)

struct SplitOperands {
    const float *q;
    const u8 *k, *v;
    const void *mask;
    const float *sinks;
    float *sums, *stats;
    u32 *counters;
    float *out;
};
typedef Arguments<SplitOperands, FlashAttnPieces> SplitArguments;

template <int D_, int G_> struct SplitHalf {
    static constexpr u32 D = D_, G = G_;
    // Lanes of a row of k; units of a lane; rows that the lanes of a wavefront read at a time.
    static constexpr u32 LANES = G * D / 128 > 4 ? G * D / 128 : 4;
    static constexpr u32 UNITS = D / 8 / LANES, SETS = WAVE / LANES;
    // Positions of a lane whose sums are added together; positions of a lane in a chunk, whose keys are loaded AT_ONCE at a
    // time.
    static constexpr u32 TOGETHER = LANES / G, POSITIONS = LANES, FIT = (G == 1 && D < 256 ? 16 : 8) / UNITS;
    static constexpr u32 AT_ONCE = FIT < 1 ? 1 : FIT < POSITIONS ? FIT : POSITIONS;
    // Scores of a lane; distance of their positions.
    static constexpr u32 SCORES = G, APART = WAVE / G;
    static constexpr bool IN_PAIRS = G > 1;
    // Lanes of a row of v, and rows that the lanes of a wavefront read at a time.
    static constexpr u32 VALUE_LANES = D / 8, VALUE_SETS = WAVE / VALUE_LANES;
    static_assert(SETS * POSITIONS == WAVE && SCORES * TOGETHER == POSITIONS, "");
};

template <class S> struct SplitHalfShared : AttentionShared<S::D, S::G> {
    __attribute__((aligned(16))) u16 q[S::G * S::D];
    // Weights of each wavefront: pairs, or F32.
    u32 weights[SPLIT_WAVES][WAVE / 2 * (S::IN_PAIRS ? S::G : 2)];
    // Of each wavefront: the largest score of each row, the sum of weights, and the factor in the sums of v.
    float top[SPLIT_WAVES][S::G], sum[SPLIT_WAVES][S::G], factor[SPLIT_WAVES][S::G];
    // Of each query row: the row of the result, the offset of its mask in that of the batch, the slope of the mask,
    // multiplied by log2(e), and the factor of the products. They are read where they are needed: registers are scarce.
    u64 rows[S::G];
    u32 mask[S::G];
    float slope[S::G], scale[S::G];
};
#define NO_ROW ~0ull

// Adds N pairs of sums over lanes whose indices differ in a bit. `upper`: true if the lane has it set; it then gets the second
// half of the sums.
template <u32 N, class MOVE> DEVICE void halve_sums(float *x, bool upper, const MOVE &move) {
    UNROLL for (u32 i = 0; i < N; i++) {
        // Copies: the compiler would choose between elements of the array by comparing indices.
        float low = x[i], high = x[i + N];
        x[i] = (upper ? high : low) + move(upper ? low : high);
    }
}
// Adds LANES sums over LANES lanes; lane l gets sum l.
template <u32 LANES> DEVICE float sum_of_lanes(float *x) {
    u32 lane = lane_id();
    if constexpr (LANES >= 8) halve_sums<4>(x, lane & 4, [] INLINED(float y) { return LANES_HALF_MIRROR(y); });
    halve_sums<2>(x, lane & 2, [] INLINED(float y) { return LANES_XOR_2(y); });
    halve_sums<1>(x, lane & 1, [] INLINED(float y) { return LANES_XOR_1(y); });
    return x[0];
}
// Reduces over the lanes of a wavefront whose index modulo G is the same; each of them gets the result.
template <class OP, u32 G> DEVICE float rows_of_wave(float x) {
    if constexpr (G < 2) x = OP::of(x, LANES_XOR_1(x));
    if constexpr (G < 4) x = OP::of(x, LANES_XOR_2(x));
    x = OP::of(x, LANES_ROTATE_4(x));
    x = OP::of(x, LANES_ROTATE_8(x));
    x = OP::of(x, lanes_xor_16(x));
    return WAVE == 64 ? OP::of(x, number_xor_32(x)) : x;
}

// Copies the queries to LDS as F16, with what else is known of their rows.
template <class S>
DEVICE void split_queries(const float *q, const FlashAttnParams &p, const Heads &h, u32 row0, SplitHalfShared<S> *shared) {
    Scores plain = scores(p);
    float scale = plain.cap == 0.0f ? plain.scale * LOG2_E : plain.exponent;
    constexpr u32 OF_ROW = SPLIT_THREADS / S::G < 16 ? SPLIT_THREADS / S::G : 16;
    u32 g = thread_id() / OF_ROW;
    if (g < S::G) {
        Query at = query(h, row0 + g);
        const float *row = q + query_offset(p, h, at);
        float factor = factor_of_query<OF_ROW>(row, S::D);
        for (u32 e = thread_id() % OF_ROW; e < S::D / 8; e += OF_ROW) {
            *(lds_u32x4 *)(shared->q + (g * (S::D / 8) + e) * 8) = eight_of_query(row, e * 8, S::D, factor);
        }
        if (thread_id() % OF_ROW == 0) {
            shared->scale[g] = inverse_power(factor) * scale;
            shared->rows[g] = row0 + g < h.rows ? result_row(p, h, at) : NO_ROW;
            shared->mask[g] = mask_of_row(p, at);
            shared->slope[g] = alibi_slope(p.max_bias, at.head, p.heads_log2) * LOG2_E;
        }
    }
    barrier();
}

// Rows of k and v of a work-group, and their mask. Offsets within a chunk fit 32 bits, which the host ensures.
struct SplitRows {
    const u8 *k, *v;
    u32 stride[2];
    const void *mask;
    u32 type;
    // Offset of the batch.
    u64 batch;
};

// State of a wavefront: largest score and sum of weights of the lane's row of scores, sums of v of all rows.
template <class S> struct SplitWave {
    typedef u32 Eight __attribute__((ext_vector_type(4), aligned(2)));
    float s[S::SCORES], max, sum, total[S::G][8];

    // `sink`: the score of the sink of the lane's row, if this wavefront has it.
    INLINED void begin(float sink) {
        max = is_hidden(sink) ? LOWEST : larger(sink * LOG2_E, LOWEST);
        sum = lane_id() >= S::G || is_hidden(sink) ? 0.0f : exp2_hw(sink * LOG2_E - max + WEIGHT_EXPONENT);
        UNROLL for (u32 g = 0; g < S::G; g++) UNROLL for (u32 e = 0; e < 8; e++) total[g][e] = 0.0f;
    }
    // Position of the lane's first score in the chunk; query row of all of them.
    DEVICE u32 place() {
        return lane_id() % S::LANES / S::G * S::SETS + lane_id() / S::LANES;
    }
    DEVICE u32 row() { return lane_id() % S::G; }

    // Computes the products of the queries with the keys of a chunk, from row `k` on.
    INLINED void multiply(const u8 *k, const SplitRows &rows, u32 last, const SplitHalfShared<S> *shared) {
        u32 part = lane_id() % S::LANES, set = lane_id() / S::LANES, stride = rows.stride[0];
        const u16 *q = shared->q + part * 8;
        float sums[S::POSITIONS * S::G];
        UNROLL for (u32 i = 0; i < S::POSITIONS * S::G; i++) sums[i] = 0.0f;
        UNROLL for (u32 t = 0; t < S::POSITIONS; t += S::AT_ONCE) {
            lds_u32x4 keys[S::AT_ONCE][S::UNITS];
            // Tested for each load: the compiler would move all of them to one place.
            if (unknown(last >= WAVE - 1)) {
                u32 at = offset_here(set * stride + part * 16);
                UNROLL for (u32 i = 0; i < S::AT_ONCE; i++) UNROLL for (u32 u = 0; u < S::UNITS; u++) {
                    keys[i][u] = *(const Eight *)(k + (u64)((t + i) * S::SETS) * stride + at + u * S::LANES * 16);
                }
            } else {
                UNROLL for (u32 i = 0; i < S::AT_ONCE; i++) {
                    u32 at = minimum((t + i) * S::SETS + offset_here(set), last) * stride + part * 16;
                    UNROLL for (u32 u = 0; u < S::UNITS; u++) keys[i][u] = *(const Eight *)(k + at + u * S::LANES * 16);
                }
            }
            LOADS_FIRST();
            UNROLL for (u32 u = 0; u < S::UNITS; u++) {
                lds_u32x4 of_q[S::G];
                UNROLL for (u32 g = 0; g < S::G; g++) {
                    of_q[g] = *(const lds_u32x4 *)(q + (g * (S::D / 8) + u * S::LANES) * 8);
                }
                UNROLL for (u32 e = 0; e < 4; e++) UNROLL for (u32 i = 0; i < S::AT_ONCE; i++) {
                    UNROLL for (u32 g = 0; g < S::G; g++) {
                        float &sum = sums[(t + i) * S::G + g];
                        sum = add_pair(of_q[g][e], keys[i][u][e], sum);
                    }
                }
                ONE_BY_ONE();
            }
            // Otherwise the compiler moves the products to the sums over lanes, and keeps all keys until then.
            UNROLL for (u32 i = 0; i < S::AT_ONCE * S::G; i++) sums[t * S::G + i] = computed_here(sums[t * S::G + i]);
            UNROLL for (u32 i = 0; i < S::AT_ONCE; i++) {
                u32 done = t + i + 1;
                if (done % S::TOGETHER) continue;
                s[done / S::TOGETHER - 1] = sum_of_lanes<S::LANES>(sums + (done - S::TOGETHER) * S::G);
            }
        }
    }
    // Adds the mask; hides positions after the last.
    template <class T> INLINED void load_mask(const SplitRows &rows, u32 base, u32 last, u32 of_row, u32 *bits) const {
        const T *from = (const T *)rows.mask + (rows.batch + base);
        u32 first = of_row + place();
        if (last >= WAVE - 1) {
            const u8 *at = (const u8 *)from + first * (u32)sizeof(T);
            UNROLL for (u32 n = 0; n < S::SCORES; n++) bits[n] = *(const T *)(at + n * S::APART * sizeof(T));
        } else {
            UNROLL for (u32 n = 0; n < S::SCORES; n++) {
                u32 at = minimum(first + n * S::APART, of_row + last);
                bits[n] = *(const T *)((const u8 *)from + at * (u32)sizeof(T));
            }
        }
    }
    INLINED void add_mask(const SplitRows &rows, u32 base, u32 last, const SplitHalfShared<S> *shared) {
        if (rows.type > 0) {
            u32 bits[S::SCORES], any = 0, of_row = shared->mask[row()];
            if (rows.type == 1) {
                load_mask<u32>(rows, base, last, of_row, bits);
            } else {
                load_mask<u16>(rows, base, last, of_row, bits);
            }
            UNROLL for (u32 n = 0; n < S::SCORES; n++) any |= bits[n];
            if (!in_all_lanes(any == 0)) {
                float slope = shared->slope[row()];
                UNROLL for (u32 n = 0; n < S::SCORES; n++) s[n] = masked(s[n], slope * mask_of_bits(rows.type, bits[n]));
            }
        }
        if (last >= WAVE - 1) return;
        u32 first = place();
        UNROLL for (u32 n = 0; n < S::SCORES; n++) s[n] = first + n * S::APART > last ? -infinity() : s[n];
    }
    // Updates the maximum of the lane's row; rescales all sums if a score is above it.
    INLINED void rescale() {
        float top = max;
        UNROLL for (u32 n = 0; n < S::SCORES; n++) top = larger(top, s[n]);
        if (in_all_lanes(top == max)) return;
        top = rows_of_wave<Max, S::G>(top);
        if (top > max) top += HEADROOM;
        float factor = exp2_hw(max - top);
        max = top;
        sum *= factor;
        UNROLL for (u32 g = 0; g < S::G; g++) {
            float of_row = from_lane(factor, g);
            UNROLL for (u32 e = 0; e < 8; e++) total[g][e] *= of_row;
        }
    }
    // Converts scores to weights and stores them.
    INLINED void weigh(u32 *weights) {
        float from = max - WEIGHT_EXPONENT;
        u32 *to = weights + (S::IN_PAIRS ? place() * S::G + row() : place());
        if constexpr (S::IN_PAIRS) {
            UNROLL for (u32 n = 0; n < S::SCORES; n += 2) {
                auto both = __builtin_amdgcn_cvt_pkrtz(exp2_hw(s[n] - from), exp2_hw(s[n + 1] - from));
                u32 pair = __builtin_bit_cast(u32, both);
                sum = add_pair(pair, ONES, sum);
                to[n / 2 * S::APART * S::G] = pair;
            }
        } else {
            float w = exp2_hw(s[0] - from);
            sum += w;
            *to = f32_bits(w);
        }
    }
    // Makes the weights of hidden positions negative zeros.
    INLINED void mark(u32 *weights) {
        u32 *to = weights + (S::IN_PAIRS ? place() * S::G + row() : place());
        UNROLL for (u32 n = 0; n < S::SCORES; n++) {
            if (!is_hidden(s[n])) continue;
            if constexpr (S::IN_PAIRS) {
                ((u16 *)(to + n / 2 * S::APART * S::G))[n % 2] = 0x8000;
            } else {
                *to = 0x80000000u;
            }
        }
    }
    // Adds the values of a chunk, from row `v` on. CAREFUL: leaves out hidden positions.
    template <bool CAREFUL> INLINED void add_values(const u8 *v, const SplitRows &rows, u32 last, const u32 *weights) {
        constexpr u32 PER = S::IN_PAIRS ? 2 : 1, READS = WAVE / PER / S::VALUE_SETS, FIT = CAREFUL ? 1 : 8 / PER;
        constexpr u32 AT_ONCE = READS < FIT ? READS : FIT;
        u32 stride = rows.stride[1], set = lane_id() / S::VALUE_LANES, column = lane_id() % S::VALUE_LANES * 16;
        NO_UNROLL for (u32 r = 0; r < READS; r += AT_ONCE) {
            lds_u32x4 raw[AT_ONCE][PER];
            UNROLL for (u32 i = 0; i < AT_ONCE; i++) UNROLL for (u32 second = 0; second < PER; second++) {
                u32 first = (r + i) * S::VALUE_SETS;
                if (S::IN_PAIRS) first = first / S::APART * 2 * S::APART + first % S::APART + second * S::APART;
                if (last >= WAVE - 1) {
                    raw[i][second] = *(const Eight *)(v + (u64)first * stride + offset_here(set * stride + column));
                } else {
                    raw[i][second] = *(const Eight *)(v + (minimum(first + offset_here(set), last) * stride + column));
                }
            }
            LOADS_FIRST();
            UNROLL for (u32 i = 0; i < AT_ONCE; i++) {
                const u32 *of_read = weights + ((r + i) * S::VALUE_SETS + set) * (S::IN_PAIRS ? S::G : 1);
                add_read<CAREFUL>(raw[i], of_read);
            }
        }
    }
    template <bool CAREFUL> INLINED void add_read(const lds_u32x4 *raw, const u32 *weights) {
        if constexpr (!S::IN_PAIRS) {
            float w = bits_f32(weights[0]);
            UNROLL for (u32 c = 0; c < 8; c++) {
                float value = f16_to_f32((u16)(raw[0][c / 2] >> c % 2 * 16));
                total[0][c] = mad(w, CAREFUL && is_weight_hidden(w) ? 0.0f : value, total[0][c]);
            }
        } else if constexpr (CAREFUL) {
            UNROLL for (u32 g = 0; g < S::G; g++) UNROLL for (u32 second = 0; second < 2; second++) {
                float w = f16_to_f32((u16)(weights[g] >> second * 16));
                UNROLL for (u32 c = 0; c < 8; c++) {
                    float value = f16_to_f32((u16)(raw[second][c / 2] >> c % 2 * 16));
                    total[g][c] = mad(w, is_weight_hidden(w) ? 0.0f : value, total[g][c]);
                }
            }
        } else {
            u32 of_row[S::G];
            UNROLL for (u32 g = 0; g < S::G; g++) of_row[g] = weights[g];
            UNROLL for (u32 c = 0; c < 8; c++) {
                u32 pair = __builtin_amdgcn_perm(raw[1][c / 2], raw[0][c / 2], c % 2 == 0 ? 0x05040100u : 0x07060302u);
                UNROLL for (u32 g = 0; g < S::G; g++) total[g][c] = add_pair(of_row[g], pair, total[g][c]);
            }
        }
    }
};

// Processes the wavefront's chunks of the positions.
template <bool CAREFUL, class S>
DEVICE void split_chunks(const SplitRows &rows, u32 begin, u32 end, float cap, SplitHalfShared<S> *shared,
                         SplitWave<S> &a) {
    u32 *weights = shared->weights[wave_id()];
    NO_UNROLL for (u32 base = begin + wave_id() * WAVE; base < end; base += SPLIT_THREADS) {
        u32 last = minimum(WAVE, end - base) - 1;
        a.multiply(rows.k + (u64)base * rows.stride[0], rows, last, shared);
        float of_row = shared->scale[a.row()];
        UNROLL for (u32 n = 0; n < S::SCORES; n++) a.s[n] *= of_row;
        if (cap != 0.0f) {
            UNROLL for (u32 n = 0; n < S::SCORES; n++) {
                a.s[n] = (cap - 2.0f * cap * reciprocal_hw(exp2_hw(a.s[n]) + 1.0f)) * LOG2_E;
            }
        }
        a.add_mask(rows, base, last, shared);
        a.rescale();
        a.weigh(weights);
        if (CAREFUL) a.mark(weights);
        wave_barrier();
        a.template add_values<CAREFUL>(rows.v + (u64)base * rows.stride[1], rows, last, weights);
        wave_barrier();
    }
}

// Stores the statistics of a piece of the positions, and in LDS the factor of each row in the sums of each wavefront.
template <class S> DEVICE void join_waves(const SplitWave<S> &a, u32 splits, float *stats, SplitHalfShared<S> *shared) {
    u32 lane = lane_id();
    float sum = rows_of_wave<Sum, S::G>(a.sum);
    if (lane < S::G) {
        shared->top[wave_id()][lane] = a.max;
        shared->sum[wave_id()][lane] = sum;
    }
    barrier();
    if (thread_id() >= S::G) return;
    float top = LOWEST, all = 0.0f, factor[SPLIT_WAVES];
    UNROLL for (u32 w = 0; w < SPLIT_WAVES; w++) top = larger(top, shared->top[w][lane]);
    UNROLL for (u32 w = 0; w < SPLIT_WAVES; w++) {
        factor[w] = exp2_hw(shared->top[w][lane] - top);
        all = mad(factor[w], shared->sum[w][lane], all);
    }
    // Sums of v and of weights include the factor of the weights.
    float without = exp2_hw(-WEIGHT_EXPONENT), of_all = splits > 1 ? without : normalizer(all);
    UNROLL for (u32 w = 0; w < SPLIT_WAVES; w++) shared->factor[w][lane] = factor[w] * of_all;
    u64 row = shared->rows[lane];
    if (splits == 1 || row == NO_ROW) return;
    row = row * splits + group_x();
    stats[row * 2] = top == LOWEST ? -infinity() : top * LN_2;
    stats[row * 2 + 1] = all * without;
}

// Adds the sums of v of the lanes of all wavefronts and stores them. Returns true if this thread's are finite.
template <class S> DEVICE bool store_rows(const SplitWave<S> &a, u32 splits, float *to, SplitHalfShared<S> *shared) {
    constexpr u32 D = S::D, SETS = S::VALUE_SETS, ROWS = S::G < 2 ? 1 : 2, OF_ROW = SPLIT_THREADS / ROWS;
    constexpr u32 COLUMNS = D > OF_ROW ? D / OF_ROW : 1;
    typedef float Run __attribute__((ext_vector_type(COLUMNS), aligned(4)));
    typedef float RunInLds __attribute__((ext_vector_type(COLUMNS), aligned(4 * COLUMNS)));
    u32 thread = thread_id(), set = thread / S::VALUE_LANES, part = thread % S::VALUE_LANES;
    u32 mine = uniform(thread / OF_ROW), column = thread % OF_ROW * COLUMNS;
    float special = 0.0f;
    UNROLL for (u32 g = 0; g < S::G; g += ROWS) {
        if (g > 0) barrier();
        UNROLL for (u32 r = 0; r < ROWS; r++) UNROLL for (u32 half = 0; half < 2; half++) {
            const float *x = a.total[g + r] + half * 4;
            *(lds_f32x4 *)(shared->part + (r * SPLIT_WAVES * SETS + set) * D + part * 8 + half * 4) =
                (lds_f32x4){x[0], x[1], x[2], x[3]};
        }
        barrier();
        u64 row = shared->rows[g + mine];
        row = (u64)uniform((u32)(row >> 32)) << 32 | uniform((u32)row);
        if (row == NO_ROW || column >= D) continue;
        Run sum = 0.0f;
        UNROLL for (u32 w = 0; w < SPLIT_WAVES; w++) {
            float factor = shared->factor[w][g + mine];
            UNROLL for (u32 i = 0; i < SETS; i++) {
                u32 at = (mine * SPLIT_WAVES * SETS + w * SETS + i) * D + column;
                Run x = *(const RunInLds *)(shared->part + at);
                UNROLL for (u32 c = 0; c < COLUMNS; c++) sum[c] = mad(x[c], factor, sum[c]);
            }
        }
        *(Run *)(to + (row * splits + group_x()) * D + column) = sum;
        UNROLL for (u32 c = 0; c < COLUMNS; c++) special = mad(sum[c], 0.0f, special);
    }
    return special == 0.0f;
}

// Computes the result of the work-group's positions, or stores it as a piece. Returns true if this thread's part is finite.
template <bool CAREFUL, class S>
DEVICE bool split_pass(const SplitArguments &known, u32 row0, u32 splits, SplitHalfShared<S> *shared) {
    SplitWave<S> a;
    {
        SplitArguments here = CAREFUL ? arguments_here(known) : known;
        const FlashAttnPieces &p = here.p;
        Heads h = heads(p);
        SplitRows rows = {here.o.k, here.o.v, {p.nbk[0] * 2, p.nbv[0] * 2}, here.o.mask, p.mask_type & 3, mask_of_batch(p, h)};
        to_head<WeightF16>(rows.k, rows.v, p, h);
        // The first lanes of the first wavefront have the weights of the sinks.
        float sink = -infinity();
        if (p.mask_type & SINKS && group_x() == 0 && wave_id() == 0) {
            sink = first_score(p, here.o.sinks, query(h, row0 + a.row()).head, true);
        }
        a.begin(sink);
        u32 begin = group_x() * p.span;
        split_chunks<CAREFUL>(rows, begin, minimum(begin + p.span, p.kv[0]), p.logit_softcap, shared, a);
    }
    SplitArguments here = arguments_here(known);
    join_waves(a, splits, here.o.stats, shared);
    return store_rows(a, splits, splits > 1 ? here.o.sums : here.o.out + here.p.off[5], shared);
}

template <class S> DEVICE void attention_split_half(const SplitArguments &known, SplitHalfShared<S> *shared) {
    u32 row0 = group_y() * S::G, splits = (known.p.kv[0] + known.p.span - 1) / known.p.span;
    split_queries<S>(known.o.q, known.p, heads(known.p), row0, shared);
    bool finite = in_all_lanes(split_pass<false>(known, row0, splits, shared));
    if (lane_id() == 0) shared->again[wave_id()] = !finite;
    barrier();
    u32 again = 0;
    UNROLL for (u32 w = 0; w < SPLIT_WAVES; w++) again |= shared->again[w];
    if (uniform(again)) split_pass<true>(known, row0, splits, shared);
    if (splits == 1) return;
    SplitArguments here = arguments_here(known);
    Heads h = heads(here.p);
    u32 groups = (h.rows + S::G - 1) / S::G, *counter = here.o.counters + group_z() * groups + group_y();
    if (!is_last_group(counter, splits, &shared->arrived)) return;
    join_pieces<S::D, S::G>(here.o.sums, here.o.stats, here.o.out + here.p.off[5], here.p, h, row0, splits, shared);
}
#endif
