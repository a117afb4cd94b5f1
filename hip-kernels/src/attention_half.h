// FLASH_ATTN_EXT for many query rows by dot products of pairs of F16 (v_dot2_f32_f16), for rows of up to DIM elements of F16
// and processors that use no matrix units. The soft-max, the sums and the result are F32.
//
// A work-group of 256 threads takes 64 query rows (32 if DIM is 256) and steps through the positions 64 at a time. Thread
// (x, y) of 16 x 16 has the scores of rows 4y .. 4y + 4 and positions x, x + 16, x + 32, x + 48, and the results of the same
// rows for columns x, x + 16 ... So factors for rescaling never leave the registers.
//
//   * An instruction multiplies two pairs: half of the instructions of F32. For scores, pairs are along a row. For results they
//     are two positions that are 16 apart, because a thread has the weights of both. v is paired on its way into LDS: one
//     v_perm for two elements, for all rows of the work-group.
//   * LDS holds units of 16 bytes, in which adjacent rows, positions or columns are adjacent. Reads of 16 lanes have no bank
//     conflicts, without padding, and offsets are constants. 4 + 4 units make 64 instructions for scores, 4 + 8 make 128 for
//     results, so LDS keeps up with the arithmetic. (attention_tile.h needs 6 reads for 32.)
//   * Queries pass into LDS once, multiplied by a power of two as for matrix units. Keys pass 64 elements of a row at a time,
//     values 8 KiB at a time. Meanwhile the next such piece is loaded into registers.
//   * Weights, multiplied by 2^15, are cut to F16. Their sum is that of the cut weights, so the cuts largely cancel: together
//     with the rounding of queries, a relative error of about 3e-4 in the results.
//   * As with matrix units (attention_matrix.h): scores are in base 2; results are rescaled only if a score is far above the
//     others; positions at both ends that the mask hides are skipped; a result that is not finite is computed again, carefully.
//
// LDS: 32 KiB with rows of 128, 28 with 256, 24 with 64. So two work-groups share 64 KiB: two wavefronts on each SIMD, as many
// as the registers allow.
#pragma once
#include "arguments.h"
#include "attention_wave.h"

#if HAS_DOT2

#define HALF_THREADS 256u
#define HALF_POSITIONS 64u

// Index of the thread. Values that depend on it are computed at each use: kept throughout the loop, they would occupy
// registers.
DEVICE u32 half_thread() { return offset_here(thread_id()); }

// Lanes of scores, for attention_wave.h: 16 lanes have 16 positions or columns, each of them of ROWS adjacent query rows.
template <u32 ROWS_> struct AttentionLanes {
    static constexpr u32 LANES = 64, ROWS = ROWS_, SUMS = ROWS_, RUN = 1;
    typedef float Sums __attribute__((ext_vector_type(SUMS)));
    DEVICE u32 row(u32 i) { return i; }
    DEVICE u32 place(u32, u32 lane) { return lane % 16; }
    DEVICE bool leads() { return thread_id() % 16 == 0; }
    template <class OP> DEVICE float reduce(float x) { return lanes_reduce<OP, 16>(x); }
};

struct HalfOperands {
    const float *q;
    const u8 *k, *v;
    const void *mask;
    const float *sinks;
    float *out, *stats;
};
typedef Arguments<HalfOperands, FlashAttnPieces> HalfArguments;

template <class K> struct HalfShared {
    __attribute__((aligned(16))) u16 q[K::DIM * K::ROWS];
    // Before the first step: a value for each query row.
    union {
        __attribute__((aligned(16))) u16 weights[HALF_POSITIONS * K::ROWS];
        float rows[K::ROWS];
    };
    // A piece of k or v; before the first step and after the last, values of the wavefronts.
    union {
        __attribute__((aligned(16))) u16 piece[K::HALVES];
        float seen[2][HALF_THREADS / WAVE];
    };
};

// Constants and types of a kernel: the type of k and v, the longest row. OF_LANE: query rows of a thread.
template <class KV_, int DIM_> struct HalfKernel {
    typedef KV_ KV;
    static constexpr u32 DIM = DIM_, OF_LANE = DIM > 128 ? 2 : 4, ROWS = HALF_THREADS / 16 * OF_LANE;
    typedef AttentionLanes<OF_LANE> A;
    typedef typename A::Sums Sums;
    typedef u32 Operand;
    static constexpr u32 KEYS = HALF_POSITIONS / 16, RESULTS = DIM / 16;
    // Halves of a piece; elements of k in it, and pairs of positions of v.
    static constexpr u32 HALVES = 4096, OF_KEY = HALVES / HALF_POSITIONS, PAIRS = HALVES / 2 / DIM;
    static constexpr u32 VALUE_PIECES = HALF_POSITIONS / 2 / PAIRS;
    typedef HalfShared<HalfKernel> Shared;
    DEVICE u32 row(u32 r, u32) { return half_thread() / 16 * OF_LANE + r; }
    DEVICE u32 column(u32 c) { return c * 16; }
    DEVICE bool leads() { return A::leads(); }
};

// Loads of the next piece of k or v, in registers of the thread. Positions after the last are the last one. Offsets within a
// step fit 32 bits, which the host ensures.
template <class K> struct HalfLoads {
    typedef u32 Eight __attribute__((ext_vector_type(4), aligned(2)));
    typedef u32 Two __attribute__((aligned(2)));
    // Threads that share four pairs of positions of v; positions of a key load.
    static constexpr u32 OF_PAIRS = K::DIM / 2, KEY_ROWS = HALF_THREADS / 8;
    const u8 *k, *v;
    u32 stride[2], length[2], end;
    u32 raw[8];

    // First of the two positions of pair `w` of a step; the other is 16 later.
    DEVICE u32 of_pair(u32 w) { return w / 16 * 32 + w % 16; }

    // Elements from `first` on of the keys from `base` on; missing ones are the last ones.
    INLINED void load_keys(u32 base, u32 first) {
        u32 thread = half_thread(), column = minimum(thread % 8 * 8, length[0] - first - 8) * 2;
        const u8 *from = k + ((u64)base * stride[0] + first * 2);
        UNROLL for (u32 i = 0; i < 2; i++) {
            u32 row = minimum(thread / 8 + i * KEY_ROWS, end - 1 - base);
            auto eight = *(const Eight *)(from + (row * stride[0] + column));
            UNROLL for (u32 e = 0; e < 4; e++) raw[i * 4 + e] = eight[e];
        }
    }
    // Missing elements become zeros.
    INLINED void store_keys(u16 *piece, u32 first) {
        u32 thread = half_thread();
        if (first + K::OF_KEY > length[0]) {
            bool there = first + thread % 8 * 8 < length[0];
            UNROLL for (u32 i = 0; i < 8; i++) raw[i] = there ? raw[i] : 0;
        }
        UNROLL for (u32 i = 0; i < 2; i++) {
            *(lds_u32x4 *)(piece + (thread % 8 * HALF_POSITIONS + thread / 8 + i * KEY_ROWS) * 8) =
                (lds_u32x4){raw[i * 4], raw[i * 4 + 1], raw[i * 4 + 2], raw[i * 4 + 3]};
        }
    }
    // Piece `n` of the values from `base` on: four pairs of positions, two columns. Missing columns are the last ones. The rows
    // of a wavefront are the same if it has enough columns.
    INLINED void load_values(u32 base, u32 n) {
        u32 thread = half_thread(), set = thread / OF_PAIRS, column = minimum(thread % OF_PAIRS * 2, length[1] - 2) * 2;
        if (OF_PAIRS % WAVE == 0) set = uniform(set);
        u32 row = of_pair(n * K::PAIRS) + of_pair(set * 4), last = end - 1 - base;
        const u8 *from = v + (u64)base * stride[1];
        UNROLL for (u32 i = 0; i < 8; i++) {
            u32 at = minimum(row + i % 4 + i / 4 * 16, last) * stride[1];
            raw[i] = *(const Two *)(from + at + column);
        }
    }
    INLINED void store_values(u16 *piece) const {
        u32 thread = half_thread(), unit = thread / OF_PAIRS * K::DIM + thread % OF_PAIRS * 2;
        UNROLL for (u32 c = 0; c < 2; c++) {
            lds_u32x4 pairs;
            UNROLL for (u32 i = 0; i < 4; i++) {
                pairs[i] = __builtin_amdgcn_perm(raw[i + 4], raw[i], c == 0 ? 0x05040100u : 0x07060302u);
            }
            *(lds_u32x4 *)(piece + (unit + c) * 8) = pairs;
        }
    }
};

// Mask of a thread's rows.
template <class K> struct HalfMask {
    const void *mask;
    u32 type, row0;
    // True if positions have weights of their own (ALiBi): then the slopes are computed where they are needed.
    bool has_slopes;
    // Offset of the batch, and those of the rows from it.
    u64 batch;
    u32 at[K::OF_LANE];

    INLINED void begin(const void *all, const FlashAttnParams &p, const Heads &h, u32 first) {
        mask = all;
        type = p.mask_type & 3;
        row0 = first;
        has_slopes = p.max_bias > 0.0f;
        batch = mask_of_batch(p, h);
        UNROLL for (u32 r = 0; r < K::OF_LANE; r++) at[r] = offset_here(mask_of_row(p, query(h, row0 + K::row(r, 0))));
    }
    // Loads the bits of positions x + 16 j from `base` on; those after the last are those of the last.
    typedef u32 Bits[K::KEYS][K::OF_LANE];
    template <class T> INLINED void load(u32 base, u32 last, Bits &bits) const {
        const T *from = (const T *)mask + (batch + base);
        u32 x = half_thread() % 16;
        UNROLL for (u32 j = 0; j < K::KEYS; j++) {
            u32 position = minimum(x + j * 16, last);
            UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
                bits[j][r] = *(const T *)((const u8 *)from + (at[r] + position) * (u32)sizeof(T));
            }
        }
    }
    // Adds the mask to the scores of the positions from `base` on; hides those from `end` on.
    INLINED void add(u32 base, u32 end, const HalfArguments &known, typename K::Sums *s) const {
        u32 last = end - 1 - base;
        if (last >= HALF_POSITIONS - 1 && type == 0) return;
        if (type > 0) {
            Bits bits;
            u32 any = 0;
            if (type == 1) {
                load<u32>(base, last, bits);
            } else {
                load<u16>(base, last, bits);
            }
            UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) any |= bits[j][r];
            // Most masks of a wavefront are all zeros; then nothing is hidden.
            if (!in_all_lanes(any == 0)) {
                float slopes[K::OF_LANE];
                UNROLL for (u32 r = 0; r < K::OF_LANE; r++) slopes[r] = LOG2_E;
                if (has_slopes) {
                    FlashAttnPieces p = arguments_here(known).p;
                    UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
                        slopes[r] *= alibi_slope(p.max_bias, query(heads(p), row0 + K::row(r, 0)).head, p.heads_log2);
                    }
                }
                UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
                    float slope = slopes[r];
                    UNROLL for (u32 j = 0; j < K::KEYS; j++) {
                        float bias = slope * (type == 2 ? f16_to_f32((u16)bits[j][r]) : bits_f32(bits[j][r]));
                        s[j][r] = masked(s[j][r], bias);
                    }
                }
            }
        }
        if (last >= HALF_POSITIONS - 1) return;
        u32 x = half_thread() % 16;
        UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
            s[j][r] = x + j * 16 > last ? -infinity() : s[j][r];
        }
    }
};

DEVICE float add_pair(u32 a, u32 b, float c) {
    return Dot2::of(__builtin_bit_cast(f16x2, a), __builtin_bit_cast(f16x2, b), c);
}

// A pair of ones.
#define ONES 0x3c003c00u

// Adds the products of M units with N others.
template <u32 M, u32 N> DEVICE void multiply_units(const lds_u32x4 *a, const lds_u32x4 *b, float (*sums)[M]) {
    UNROLL for (u32 e = 0; e < 4; e++) UNROLL for (u32 n = 0; n < N; n++) UNROLL for (u32 m = 0; m < M; m++) {
        sums[n][m] = add_pair(a[m][e], b[n][e], sums[n][m]);
    }
}

// Converts products to scores, in base 2.
template <class K> struct HalfScores {
    // Factors of the products of the thread's rows; with a cap, those of the exponent.
    float factor[K::OF_LANE], cap;
    INLINED void begin(const FlashAttnParams &p, const float *inverse) {
        Scores plain = scores(p);
        cap = plain.cap;
        float of_all = cap == 0.0f ? plain.scale * LOG2_E : plain.exponent;
        UNROLL for (u32 r = 0; r < K::OF_LANE; r++) factor[r] = inverse[r] * of_all;
    }
    INLINED void of(typename K::Sums *s) const {
        UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) s[j][r] *= factor[r];
        if (cap == 0.0f) return;
        UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
            s[j][r] = (cap - 2.0f * cap * reciprocal_hw(exp2_hw(s[j][r]) + 1.0f)) * LOG2_E;
        }
    }
};

template <class K> struct HalfAttention : AttentionOfWave<K> {
    typedef AttentionOfWave<K> Base;
    // Copies the query rows to LDS, each by OF_ROW threads; `row` is the thread's. Returns the inverse factors of its results'
    // rows.
    INLINED static void bring(const float *row, u32 length, typename K::Shared *shared, float *inverse) {
        constexpr u32 OF_ROW = HALF_THREADS / K::ROWS;
        float factor = factor_of_query<OF_ROW>(row, length);
        u32 at = thread_id() / OF_ROW;
        shared->rows[at] = inverse_power(factor);
        for (u32 e = thread_id() % OF_ROW; e < K::DIM / 8; e += OF_ROW) {
            *(lds_u32x4 *)(shared->q + (e * K::ROWS + at) * 8) = eight_of_query(row, e * 8, length, factor);
        }
        barrier();
        UNROLL for (u32 r = 0; r < K::OF_LANE; r++) inverse[r] = shared->rows[K::row(r, 0)];
        barrier();
    }
    // Adds the products of a piece of the keys, from element `first` on.
    INLINED static void multiply_keys(const typename K::Shared *shared, u32 first, typename K::Sums *s) {
        u32 thread = half_thread();
        const u16 *of_q = shared->q + first * K::ROWS + K::row(0, 0) * 8, *of_k = shared->piece + thread % 16 * 8;
        float sums[K::KEYS][K::OF_LANE];
        UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) sums[j][r] = s[j][r];
        UNROLL for (u32 e = 0; e < K::OF_KEY / 8; e++) {
            lds_u32x4 a[K::OF_LANE], b[K::KEYS];
            UNROLL for (u32 r = 0; r < K::OF_LANE; r++) a[r] = *(const lds_u32x4 *)(of_q + (e * K::ROWS + r) * 8);
            UNROLL for (u32 j = 0; j < K::KEYS; j++) {
                b[j] = *(const lds_u32x4 *)(of_k + (e * HALF_POSITIONS + j * 16) * 8);
            }
            multiply_units<K::OF_LANE, K::KEYS>(a, b, sums);
            ONE_BY_ONE();
        }
        UNROLL for (u32 j = 0; j < K::KEYS; j++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) s[j][r] = sums[j][r];
    }
    // First word of the weights of the thread's rows and of its first pair of positions.
    DEVICE u32 first_weight() {
        u32 thread = half_thread();
        return thread % 16 / 4 * (K::ROWS * 4) + K::row(0, thread) * 4 + thread % 4;
    }
    // Converts scores to weights and stores them as pairs.
    INLINED void weigh(const typename K::Sums *s, typename K::Shared *shared) {
        u32 *to = (u32 *)shared->weights + first_weight();
        UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
            float from = Base::max[r] - WEIGHT_EXPONENT;
            UNROLL for (u32 j = 0; j < K::KEYS; j += 2) {
                auto both = __builtin_amdgcn_cvt_pkrtz(exp2_hw(s[j][r] - from), exp2_hw(s[j + 1][r] - from));
                u32 pair = __builtin_bit_cast(u32, both);
                Base::sum[r] = add_pair(pair, ONES, Base::sum[r]);
                to[(j / 2 * 4 * K::ROWS + r) * 4] = pair;
            }
        }
    }
    // Makes the weights of hidden positions negative zeros.
    INLINED static void mark(const typename K::Sums *s, typename K::Shared *shared) {
        u16 *to = shared->weights + first_weight() * 2;
        UNROLL for (u32 r = 0; r < K::OF_LANE; r++) UNROLL for (u32 j = 0; j < K::KEYS; j++) {
            if (is_hidden(s[j][r])) to[(j / 2 * 4 * K::ROWS + r) * 8 + j % 2] = 0x8000;
        }
    }
    // Adds piece `n` of the values, multiplied by their weights.
    INLINED void add_values(const typename K::Shared *shared, u32 n) {
        u32 thread = half_thread();
        const u16 *of_w = shared->weights + (n * (K::PAIRS / 4) * K::ROWS + K::row(0, 0)) * 8;
        const u16 *of_v = shared->piece + thread % 16 * 8;
        float sums[K::RESULTS][K::OF_LANE];
        UNROLL for (u32 c = 0; c < K::RESULTS; c++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
            sums[c][r] = Base::total[c][r];
        }
        UNROLL for (u32 e = 0; e < K::PAIRS / 4; e++) {
            lds_u32x4 a[K::OF_LANE], b[4];
            UNROLL for (u32 r = 0; r < K::OF_LANE; r++) a[r] = *(const lds_u32x4 *)(of_w + (e * K::ROWS + r) * 8);
            UNROLL for (u32 c = 0; c < K::RESULTS; c += 4) {
                UNROLL for (u32 i = 0; i < 4; i++) b[i] = *(const lds_u32x4 *)(of_v + (e * K::DIM + (c + i) * 16) * 8);
                multiply_units<K::OF_LANE, 4>(a, b, sums + c);
                ONE_BY_ONE();
            }
        }
        UNROLL for (u32 c = 0; c < K::RESULTS; c++) UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
            Base::total[c][r] = sums[c][r];
        }
    }
    // The same, one position after the other, without hidden ones.
    INLINED void add_values_seen(const typename K::Shared *shared, u32 n) {
        u32 thread = half_thread();
        NO_UNROLL for (u32 w = 0; w < K::PAIRS; w++) {
            u32 all = n * K::PAIRS + w;
            const u16 *of_w = shared->weights + (all / 4 * K::ROWS + K::row(0, 0)) * 8 + all % 4 * 2;
            const u16 *of_v = shared->piece + (w / 4 * K::DIM + thread % 16) * 8 + w % 4 * 2;
            UNROLL for (u32 i = 0; i < 2; i++) {
                float weights[K::OF_LANE];
                UNROLL for (u32 r = 0; r < K::OF_LANE; r++) weights[r] = f16_to_f32(of_w[r * 8 + i]);
                UNROLL for (u32 c = 0; c < K::RESULTS; c++) {
                    ONE_BY_ONE();
                    float value = f16_to_f32(of_v[c * 128 + i]);
                    UNROLL for (u32 r = 0; r < K::OF_LANE; r++) {
                        float seen = is_weight_hidden(weights[r]) ? 0.0f : value;
                        Base::total[c][r] = mad(weights[r], seen, Base::total[c][r]);
                    }
                }
            }
        }
    }
};

// Processes the positions. CAREFUL: leaves out hidden ones whatever their values are.
template <bool CAREFUL, class K>
DEVICE void half_positions(u32 begin, u32 end, const HalfArguments &known, const HalfScores<K> &to_score,
                           const HalfMask<K> &masks, HalfLoads<K> &loads, typename K::Shared *shared, HalfAttention<K> &a) {
    u32 length = loads.length[0];
    if (begin < end) loads.load_keys(begin, 0);
    NO_UNROLL for (u32 base = begin; base < end; base += HALF_POSITIONS) {
        typename K::Sums s[K::KEYS];
        UNROLL for (u32 j = 0; j < K::KEYS; j++) s[j] = 0.0f;
        NO_UNROLL for (u32 first = 0; first < length; first += K::OF_KEY) {
            barrier();
            loads.store_keys(shared->piece, first);
            barrier();
            if (first + K::OF_KEY < length) {
                loads.load_keys(base, first + K::OF_KEY);
            } else {
                loads.load_values(base, 0);
            }
            HalfAttention<K>::multiply_keys(shared, first, s);
        }
        to_score.of(s);
        masks.add(base, end, known, s);
        a.rescale(s);
        a.weigh(s, shared);
        if (CAREFUL) HalfAttention<K>::mark(s, shared);
        NO_UNROLL for (u32 n = 0; n < K::VALUE_PIECES; n++) {
            barrier();
            loads.store_values(shared->piece);
            barrier();
            if (n + 1 < K::VALUE_PIECES) {
                loads.load_values(base, n + 1);
            } else if (base + HALF_POSITIONS < end) {
                loads.load_keys(base + HALF_POSITIONS, 0);
            }
            if (CAREFUL) {
                a.add_values_seen(shared, n);
            } else {
                a.add_values(shared, n);
            }
        }
    }
    barrier();
}

template <class K> DEVICE void attention_half(const HalfArguments &known, typename K::Shared *shared) {
    AttentionWork<K::ROWS> work(known.p);
    u32 row0 = work.row0, begin = work.begin, end = work.end;
    HalfScores<K> to_score;
    HalfMask<K> masks;
    HalfLoads<K> loads;
    HalfAttention<K> a;
    {
        const FlashAttnPieces &p = known.p;
        HalfOperands o = known.o;
        to_head<typename K::KV>(o.k, o.v, p, work.h);
        loads = {o.k, o.v, {p.nbk[0] * 2, p.nbv[0] * 2}, {p.d[0], p.d[1]}, 0, {}};
        const float *row = o.q + query_offset(p, work.h, query(work.h, row0 + thread_id() / (HALF_THREADS / K::ROWS)));
        float inverse[K::OF_LANE];
        HalfAttention<K>::bring(row, p.d[0], shared, inverse);
        to_score.begin(p, inverse);
        masks.begin(o.mask, p, work.h, row0);
        a.begin(p, work.h, o.sinks, row0, group_x() == 0);
    }
    {
        HalfArguments here = arguments_here(known);
        skip_hidden<HALF_THREADS, K::ROWS, HALF_POSITIONS>(here.o.mask, here.p, heads(here.p), row0, begin, end, shared->seen);
        loads.end = end;
    }
    half_positions<false>(begin, end, known, to_score, masks, loads, shared, a);
    if (group_reduce<Max, HALF_THREADS>(a.finite() ? 0.0f : 1.0f, shared->seen[0]) != 0.0f) {
        HalfArguments here = arguments_here(known);
        a.begin(here.p, heads(here.p), here.o.sinks, row0, group_x() == 0);
        half_positions<true>(begin, end, known, to_score, masks, loads, shared, a);
    }
    HalfArguments here = arguments_here(known);
    u32 splits = AttentionWork<K::ROWS>(here.p).splits;
    float *out = here.o.out + (splits == 1 ? here.p.off[5] : 0);
    a.store(here.p, heads(here.p), row0, splits, out, here.o.stats);
}
#endif
