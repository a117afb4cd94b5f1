// From products to scores for the 16 query rows of a wavefront, for any matrix unit (attention_fragment.h): the mask and its
// slopes, factors and caps, and which positions are not hidden from all rows.
#pragma once
#include "attention.h"
#include "attention_fragment.h"

// Wavefronts of a work-group that uses matrix units, its query rows, and its threads.
#define MATRIX_WAVES 4u
#define MATRIX_ROWS (16 * MATRIX_WAVES)
template <class A> struct MatrixGroup {
    static constexpr u32 THREADS = MATRIX_WAVES * A::LANES;
    DEVICE u32 wave() { return A::LANES == WAVE ? wave_id() : thread_id() / A::LANES; }
    // Index of the lane. Computed at each use: values that depend on it then occupy no registers throughout a loop.
    DEVICE u32 lane() { return offset_here(thread_id() % A::LANES); }
    // Row of the work-group for row `r` of a lane.
    DEVICE u32 row(u32 r, u32 lane) { return wave() * 16 + A::row_of_wave(r, lane); }
};

// RUN adjacent values of a mask, of F32 and of F16. On NVIDIA's processors they are aligned as a whole.
template <u32 RUN> struct RunOf {
    typedef u32 Words __attribute__((ext_vector_type(RUN), aligned(DEVICE_AMD ? 4 : 4 * RUN)));
    typedef u32 Pairs __attribute__((ext_vector_type(RUN / 2), aligned(DEVICE_AMD ? 2 : 2 * RUN)));
};

// Mask of a wavefront's rows. It is loaded as stored and converted where it is used: nothing waits for it before.
template <class K> struct MaskOfRows {
    typedef typename K::A A;
    // Mask of a fragment of 16 positions: a word for each value, or for two of F16.
    typedef u32 Bits __attribute__((ext_vector_type(A::SUMS)));
    const void *mask;
    u32 type;
    // Offsets for the lane's rows.
    u64 at[A::ROWS];
    // Preview of the mask of a step: groups of eight F16 values of the wavefront's rows, distributed over the lanes. For most
    // steps it shows that nothing is hidden.
    static constexpr u32 EIGHTS = MATRIX_POSITIONS / 8, SHARE = 16 * EIGHTS / A::LANES;
    typedef lds_u32x4 Look[SHARE];
    u64 looked_at[SHARE];
    // Multiplied by log2(e).
    float slope[A::ROWS];
    // True if RUN values can be loaded at once; true if a preview can be loaded.
    bool runs, looks;

    INLINED void begin(const void *all, const FlashAttnParams &p, const Heads &h, u32 row0) {
        mask = all;
        type = p.mask_type & 3;
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            Query q = query(h, row0 + K::row(r, lane));
            at[r] = mask_of_batch(p, h) + mask_of_row(p, q);
            slope[r] = alibi_slope(p.max_bias, q.head, p.heads_log2) * LOG2_E;
        }
        u32 places = p.off[3] | p.nbm[0] | p.nbm[1] | p.nbm[2] | p.kv[0];
        runs = DEVICE_AMD || (places % A::RUN == 0 && (u64)all % (4 * A::RUN) == 0);
        if constexpr (K::LOOKS) begin_looks(p, h, row0, places % 8 == 0 && (u64)all % 16 == 0);
    }
    INLINED void begin_looks(const FlashAttnParams &p, const Heads &h, u32 row0, bool aligned) {
        looks = type == 2 && aligned;
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 i = 0; i < SHARE; i++) {
            u32 row = MatrixGroup<A>::wave() * 16 + i * (16 / SHARE) + lane / EIGHTS;
            looked_at[i] = mask_of_batch(p, h) + mask_of_row(p, query(h, row0 + row)) + lane % EIGHTS * 8;
        }
    }
    // Loads the mask of positions from `first` on; for those from `end` on, that of the last position.
    INLINED void load(u32 first, u32 end, Bits &bits) const {
        typedef typename RunOf<A::RUN>::Words Words;
        typedef typename RunOf<A::RUN>::Pairs Pairs;
        u32 lane = MatrixGroup<A>::lane();
        if (type == 0) return;
        if (first + 16 > end || !runs) return load_some(first, end, lane, bits);
        if (type == 1) {
            UNROLL for (u32 i = 0; i < A::SUMS; i += A::RUN) {
                auto run = *(const Words *)((const u32 *)mask + at[A::row(i)] + first + A::place(i, lane));
                UNROLL for (u32 j = 0; j < A::RUN; j++) bits[i + j] = run[j];
            }
        } else {
            UNROLL for (u32 i = 0; i < A::SUMS; i += A::RUN) {
                auto run = *(const Pairs *)((const u16 *)mask + at[A::row(i)] + first + A::place(i, lane));
                UNROLL for (u32 j = 0; j < A::RUN / 2; j++) bits[i / 2 + j] = run[j];
            }
        }
    }
    // Loads the preview of a step, which may be after the end; sets all ones if the preview does not suffice.
    INLINED void look(u32 base, u32 end, Look &eights) const {
        typedef u32 Eight __attribute__((ext_vector_type(4), aligned(16)));
        UNROLL for (u32 i = 0; i < SHARE; i++) eights[i] = ~0u;
        if (!looks || base + MATRIX_POSITIONS > end) return;
        UNROLL for (u32 i = 0; i < SHARE; i++) eights[i] = *(const Eight *)((const u16 *)mask + looked_at[i] + base);
    }
    // True if all values of the preview are zeros.
    INLINED bool clear(const Look &eights) const {
        u32 any = 0;
        UNROLL for (u32 i = 0; i < SHARE; i++) UNROLL for (u32 j = 0; j < 4; j++) any |= eights[i][j];
        return in_all_lanes(any == 0);
    }
    // Loads the mask of all positions of a step.
    INLINED void load_step(u32 base, u32 end, Bits *bits) const {
        UNROLL for (u32 j = 0; j < K::KEYS; j++) load(base + j * 16, end, bits[j]);
    }
    // The same at the end of the positions, and where runs are not aligned to their size.
    INLINED void load_some(u32 first, u32 end, u32 lane, Bits &bits) const {
        UNROLL for (u32 i = 0; i < A::SUMS; i += 2) {
            u64 row = at[A::row(i)];
            u32 one = mask_bits(mask, type, row + minimum(first + A::place(i, lane), end - 1));
            u32 next = mask_bits(mask, type, row + minimum(first + A::place(i + 1, lane), end - 1));
            if (type == 1) {
                bits[i] = one;
                bits[i + 1] = next;
            } else {
                bits[i / 2] = one | next << 16;
            }
        }
    }
    // Computes the values that are added to the scores of these positions.
    INLINED void numbers(u32 first, u32 end, const Bits &bits, typename A::Sums &bias) const {
        bias = 0.0f;
        // Most masks of a wavefront are all zeros; then nothing is hidden.
        u32 any = 0;
        UNROLL for (u32 i = 0; i < A::SUMS; i++) any |= bits[i];
        if (first + 16 <= end && in_all_lanes(any == 0)) return;
        if (type == 1) {
            UNROLL for (u32 i = 0; i < A::SUMS; i++) bias[i] = slope[A::row(i)] * bits_f32(bits[i]);
        } else if (type == 2) {
            UNROLL for (u32 i = 0; i < A::SUMS; i++) {
                bias[i] = slope[A::row(i)] * f16_to_f32((u16)(bits[i / 2] >> i % 2 * 16));
            }
        }
        if (first + 16 <= end) return;
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 i = 0; i < A::SUMS; i++) {
            if (first + A::place(i, lane) >= end) bias[i] = -infinity();
        }
    }
};

// Converts products to scores, in base 2.
template <class A> struct ScoresOfWave {
    // Factors of the products of the lane's rows; with a cap, those of the exponent.
    float factor[A::ROWS], cap;

    INLINED void begin(const FlashAttnParams &p, const float *inverse) {
        Scores plain = scores(p);
        cap = plain.cap * LOG2_E;
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            factor[r] = inverse[r] * (cap == 0.0f ? plain.scale * LOG2_E : plain.exponent);
        }
    }
    // Scores of hidden positions become minus infinity, or NaN if the product is not finite. In that case `hide` must apply the
    // mask again.
    INLINED void of(typename A::Sums &s, const typename A::Sums &bias) const {
        if (cap != 0.0f) {
            UNROLL for (u32 i = 0; i < A::SUMS; i++) {
                s[i] = cap - 2.0f * cap * reciprocal_hw(exp2_hw(s[i] * factor[A::row(i)]) + 1.0f) + bias[i];
            }
        } else {
            UNROLL for (u32 i = 0; i < A::SUMS; i++) s[i] = mad(s[i], factor[A::row(i)], bias[i]);
        }
    }
    // For scores that were computed without a mask.
    DEVICE void add_mask(typename A::Sums &s, const typename A::Sums &bias) {
        UNROLL for (u32 i = 0; i < A::SUMS; i++) s[i] += bias[i];
    }
    DEVICE void hide(typename A::Sums &s, const typename A::Sums &bias) {
        UNROLL for (u32 i = 0; i < A::SUMS; i++) s[i] = is_hidden(bias[i]) ? -infinity() : s[i];
    }
};

// True if any of ROWS query rows from `row0` on sees a position. Heads that share a mask are checked once.
template <u32 ROWS> DEVICE bool is_seen(const void *mask, const FlashAttnParams &p, const Heads &h, u32 row0, u32 position) {
    u32 last = minimum(row0 + ROWS, h.rows) - 1, hidden = p.mask_type & 1 ? 0xff800000u : 0xfc00u, seen = 0;
    u32 first = row0, count = last - row0 + 1;
    u64 at = mask_of_batch(p, h) + position;
    bool shared = p.mask_ne[0] == 1;
    if (shared) {
        first = row0 / h.per_kv;
        count = last / h.per_kv - first + 1;
        at += (u64)first * p.nbm[0];
    }
    NO_UNROLL for (u32 i = 0; i < count; i++) {
        seen |= mask_bits(mask, p.mask_type, shared ? at : at + mask_of_row(p, query(h, first + i))) ^ hidden;
        if (shared) at += p.nbm[0];
    }
    return seen != 0;
}

// Excludes positions at the beginning and at the end that the mask hides from all rows, in steps of STEP positions from
// `begin` on. THREADS positions are checked at a time: from the beginning to the first that is seen, then from the end.
template <u32 THREADS, u32 ROWS, u32 STEP = MATRIX_POSITIONS>
DEVICE void skip_hidden(const void *mask, const FlashAttnParams &p, const Heads &h, u32 row0, u32 &begin, u32 &end,
                        float (*scratch)[THREADS / WAVE]) {
    if ((p.mask_type & 3) == 0) return;
    u32 from = begin, turn = 0;
    bool back = false;
    NO_UNROLL while (from < end) {
        u32 thread = thread_id(), number = back ? thread + 1 : THREADS - thread;
        bool seen = from + thread < end && is_seen<ROWS>(mask, p, h, row0, from + thread);
        u32 found = uniform((u32)group_reduce<Max, THREADS>(seen ? (float)number : 0.0f, scratch[turn ^= 1]));
        if (back && found > 0) {
            end = minimum(end, from + (found + STEP - 1) / STEP * STEP);
            return;
        }
        if (!back && found > 0) {
            back = true;
            begin = from + (THREADS - found) / STEP * STEP;
            from = begin + (end - begin - 1) / THREADS * THREADS;
        } else {
            from = back ? from - THREADS : from + THREADS;
        }
    }
    begin = end;
}
