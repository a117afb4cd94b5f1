// What the scores of a wavefront's 16 query rows become, whichever matrix unit they come from (attention_fragment.h): the mask
// and its slopes, factors, caps; which positions are seen at all.
#pragma once
#include "attention.h"
#include "attention_fragment.h"

// Wavefronts of a work-group on matrix units, its query rows, and its threads.
#define MATRIX_WAVES 4u
#define MATRIX_ROWS (16 * MATRIX_WAVES)
template <class A> struct MatrixGroup {
    static constexpr u32 THREADS = MATRIX_WAVES * A::LANES;
    DEVICE u32 wave() { return A::LANES == WAVE ? wave_id() : thread_id() / A::LANES; }
    // The lane; told where it is used, in a loop it keeps what follows from it there, out of registers.
    DEVICE u32 lane() { return offset_here(thread_id() % A::LANES); }
    // The row of the work-group that is a lane's row `r`.
    DEVICE u32 row(u32 r, u32 lane) { return wave() * 16 + A::row_of_wave(r, lane); }
};

// Words of RUN neighbours of a mask of F32 and of F16. Those of NVIDIA's processors are aligned as a whole.
template <u32 RUN> struct RunOf {
    typedef u32 Words __attribute__((ext_vector_type(RUN), aligned(DEVICE_AMD ? 4 : 4 * RUN)));
    typedef u32 Pairs __attribute__((ext_vector_type(RUN / 2), aligned(DEVICE_AMD ? 2 : 2 * RUN)));
};

// The mask of a wavefront's rows. It is loaded as it is, and becomes numbers where these are wanted: until then nothing waits
// for it.
template <class K> struct MaskOfRows {
    typedef typename K::A A;
    // The mask of a fragment of 16 positions: a word for each number, or of F16 for each two.
    typedef u32 Bits __attribute__((ext_vector_type(A::SUMS)));
    const void *mask;
    u32 type;
    // Of a lane's rows.
    u64 at[A::ROWS];
    // A look at the mask of a step: eights of F16 of a wavefront's rows, dealt to the lanes. What it shows of most steps is
    // that nothing of them is hidden.
    static constexpr u32 EIGHTS = MATRIX_POSITIONS / 8, SHARE = 16 * EIGHTS / A::LANES;
    typedef lds_u32x4 Look[SHARE];
    u64 looked_at[SHARE];
    // Times log2(e).
    float slope[A::ROWS];
    // Whether runs can be loaded at a time; whether a look at them can.
    bool runs, looks;

    __attribute__((device, always_inline)) void begin(const void *all, const FlashAttnParams &p, const Heads &h, u32 row0) {
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
    __attribute__((device, always_inline)) void begin_looks(const FlashAttnParams &p, const Heads &h, u32 row0, bool aligned) {
        looks = type == 2 && aligned;
        u32 lane = MatrixGroup<A>::lane();
        UNROLL for (u32 i = 0; i < SHARE; i++) {
            u32 row = MatrixGroup<A>::wave() * 16 + i * (16 / SHARE) + lane / EIGHTS;
            looked_at[i] = mask_of_batch(p, h) + mask_of_row(p, query(h, row0 + row)) + lane % EIGHTS * 8;
        }
    }
    // Positions from `first` on; the last again for those from `end` on.
    __attribute__((device, always_inline)) void load(u32 first, u32 end, Bits &bits) const {
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
    // Looks at a step, which may be behind the end; all ones where there is more to it.
    __attribute__((device, always_inline)) void look(u32 base, u32 end, Look &eights) const {
        typedef u32 Eight __attribute__((ext_vector_type(4), aligned(16)));
        UNROLL for (u32 i = 0; i < SHARE; i++) eights[i] = ~0u;
        if (!looks || base + MATRIX_POSITIONS > end) return;
        UNROLL for (u32 i = 0; i < SHARE; i++) eights[i] = *(const Eight *)((const u16 *)mask + looked_at[i] + base);
    }
    // Whether what was looked at is zeros.
    __attribute__((device, always_inline)) bool clear(const Look &eights) const {
        u32 any = 0;
        UNROLL for (u32 i = 0; i < SHARE; i++) UNROLL for (u32 j = 0; j < 4; j++) any |= eights[i][j];
        return in_all_lanes(any == 0);
    }
    // Of all positions of a step.
    __attribute__((device, always_inline)) void load_step(u32 base, u32 end, Bits *bits) const {
        UNROLL for (u32 j = 0; j < K::KEYS; j++) load(base + j * 16, end, bits[j]);
    }
    // The same at the end of the positions, and where runs do not lie at multiples of their size.
    __attribute__((device, always_inline)) void load_some(u32 first, u32 end, u32 lane, Bits &bits) const {
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
    // What is added to the scores of these positions.
    __attribute__((device, always_inline)) void numbers(u32 first, u32 end, const Bits &bits, typename A::Sums &bias) const {
        bias = 0.0f;
        // Most masks of a wavefront are all zeros, behind which nothing is hidden.
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

// From products to scores, as powers of two.
template <class A> struct ScoresOfWave {
    // What products of a lane's rows are multiplied by; with a cap, which the scores have then, for the exponent.
    float factor[A::ROWS], cap;

    __attribute__((device, always_inline)) void begin(const FlashAttnParams &p, const float *inverse) {
        Scores plain = scores(p);
        cap = plain.cap * LOG2_E;
        UNROLL for (u32 r = 0; r < A::ROWS; r++) {
            factor[r] = inverse[r] * (cap == 0.0f ? plain.scale * LOG2_E : plain.exponent);
        }
    }
    // Hidden ones are minus infinity, or no number where products are not finite: then `hide` has to look at the mask again.
    __attribute__((device, always_inline)) void of(typename A::Sums &s, const typename A::Sums &bias) const {
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

// Whether a row of the work-group sees one of THREADS positions from `first` on. Heads that share a mask are looked at once.
template <u32 THREADS, u32 ROWS>
DEVICE bool is_seen(const void *mask, const FlashAttnParams &p, const Heads &h, u32 row0, u32 first, u32 end, float *scratch) {
    u32 step = p.mask_ne[0] == 1 ? h.per_kv : 1;
    u64 at = mask_of_batch(p, h) + minimum(first + thread_id(), end - 1);
    float most = -infinity();
    _Pragma("unroll 4") for (u32 r = 0; r < ROWS + step - 1; r += step) {
        float x = mask_at(mask, p.mask_type, at + mask_of_row(p, query(h, row0 + minimum(r, ROWS - 1))));
        // A NaN is seen.
        most = is_hidden(x) ? most : 0.0f;
    }
    return !is_hidden(group_reduce<Max, THREADS>(most, scratch));
}

// Leaves out what the mask hides from all rows at the beginning and the end of the positions.
template <u32 THREADS, u32 ROWS>
DEVICE void skip_hidden(const void *mask, const FlashAttnParams &p, const Heads &h, u32 row0, u32 &begin, u32 &end,
                        float (*scratch)[THREADS / WAVE]) {
    if ((p.mask_type & 3) == 0) return;
    u32 turn = 0;
    for (; begin < end && !is_seen<THREADS, ROWS>(mask, p, h, row0, begin, end, scratch[turn]); begin += THREADS) turn ^= 1;
    turn ^= 1;
    while (begin + THREADS < end && !is_seen<THREADS, ROWS>(mask, p, h, row0, end - THREADS, end, scratch[turn])) {
        end -= THREADS;
        turn ^= 1;
    }
}
