// Tiles of words (mat_tile.h): the operands pass through LDS as words of NEIGHBOURS adjacent elements along k, a quarter or half
// of the space of F32. A 16-byte read has four words.
//
// A step is 32 elements of k. Its products are summed over GROUP elements as the form computes them, then scaled and added to
// F32 sums. An offset of the weights takes one more operation, with the sum of the activations, which the loading threads
// store in LDS. A form has
//
//   NEIGHBOURS, Column    elements of a word; a column of rounded activations, which `fetch` loads
//   weights, activations  word `i` of the elements that a thread loads
//   sum<COUNT>            the sum of the activations of a thread, added over COUNT adjacent threads
//   Word, begin, step     sum of products: its initial value, and with the products of two words
//   Scales                scales of the columns in LDS, if they differ along k
//   Factors, add          factors of the rows of a group in LDS; adds the scaled sums of a group
//
// Forms: Quads (mat_tile_int8.h), Halves (mat_tile_packed.h).
#pragma once
#include "mat_tile.h"

template <class W, class FORM, int BM_, int BN_, int TM_, int TN_> struct TileWords : TileParts<BM_, BN_, 32, TM_, TN_> {
    typedef TileParts<BM_, BN_, 32, TM_, TN_> Parts;
    using Parts::BK;
    using Parts::BM;
    using Parts::BN;
    using Parts::TM;
    using Parts::TN;
    // Two threads load a row or a column, sixteen adjacent elements each. If a tile has as many columns as rows, half of the
    // wavefronts load the rows and the others the columns; otherwise some load both.
    static constexpr u32 EACH = 16, SHARERS = BK / EACH;
    static constexpr bool APART = BM == BN;
    static_assert(Parts::THREADS == (APART ? BM + BN : BM) * SHARERS && BN <= BM && BN * SHARERS % WAVE == 0, "a load each");
    // Words of a row in a step, and of the elements that a thread loads.
    static constexpr u32 WORDS = BK / FORM::NEIGHBOURS, OF_EACH = EACH / FORM::NEIGHBOURS;
    // The words that a thread loads are followed by a gap of this many words in LDS, which puts threads that share a row on
    // different banks.
    static constexpr u32 GAP = 32 / SHARERS, GROUPS = BK / W::GROUP;
    static constexpr u32 A_LOADS = 1, B_LOADS = 1;
    // A thread's part while loading (TileParts); true if its wavefront loads rows, or columns.
    DEVICE u32 row(u32 = 0) { return thread_id() / SHARERS % BM; }
    DEVICE u32 k() { return thread_id() % SHARERS * EACH; }
    u32 wave = wave_id();
    INLINED bool has_row() const { return !APART || wave < BM * SHARERS / WAVE; }
    INLINED bool has_column() const {
        return APART ? !has_row() : wave < BN * SHARERS / WAVE;
    }
    typedef typename FORM::Column Column;
    typedef typename FORM::template Factors<W, GROUPS, BM> Factors;

    struct Shared {
        __attribute__((aligned(16))) u32 a[WORDS * BM + SHARERS * GAP];
        __attribute__((aligned(16))) u32 b[WORDS * BN + SHARERS * GAP];
        Factors a_factors;
        typename FORM::template Scales<BN> b_scales;
        // For weights with an offset: the offset, and the sums of activations.
        __attribute__((aligned(16))) float a_offset[W::OFFSET ? GROUPS : 1][W::OFFSET ? BM : 4];
        __attribute__((aligned(16))) float b_sum[W::OFFSET ? GROUPS : 1][W::OFFSET ? BN : 4];
    };

    static constexpr u32 STEPS_IN_LDS = 1;
    typedef float Sums[TM][TN];

    const u8 *a[1];
    Column b[1];
    typename W::template Raws<EACH> next_a;
    typename Column::template Raw<EACH> next_b;

    static INLINED u32 line(u32 word, u32 width) {
        return word * width + word / OF_EACH * GAP;
    }

    // Issues the loads of elements base + k .. base + k + EACH; `base` is the same for all threads.
    INLINED void load(u32 base, u32 k, u32) {
        u64 skip = (u64)(base / W::BLOCK) * W::BYTES;
        if (has_row()) next_a = W::template fetch<EACH>(a[0] + skip, base % W::BLOCK + k);
        if (has_column()) next_b = b[0].template fetch<EACH>(base, k);
    }

    // Stores the loaded values in LDS; `row` and `k` are this thread's part.
    INLINED void store(Shared *shared, u32 row, u32 k) {
        if (has_row()) {
            u32 at = line(k / FORM::NEIGHBOURS, BM) + row;
            auto q = W::bytes(next_a);
            UNROLL for (u32 i = 0; i < OF_EACH; i++) shared->a[at + i * BM] = FORM::template weights<W>(q, i);
            if (k % W::GROUP == 0) {
                shared->a_factors.store(k / W::GROUP, row, W::factor(next_a));
                if constexpr (W::OFFSET) shared->a_offset[k / W::GROUP][row] = W::offset(next_a);
            }
        }
        if (has_column()) {
            u32 at = line(k / FORM::NEIGHBOURS, BN) + row;
            UNROLL for (u32 i = 0; i < OF_EACH; i++) shared->b[at + i * BN] = FORM::activations(next_b, i);
            if (k == 0) shared->b_scales.store(row, next_b);
            if constexpr (W::OFFSET) {
                float sum = FORM::template sum<W::GROUP / EACH>(next_b);
                if (k % W::GROUP == 0) shared->b_sum[k / W::GROUP][row] = sum;
            }
        }
    }

    DEVICE void clear(Sums &sum) {
        UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) sum[i][j] = 0.0f;
    }

    // Adds the products of a step; m0 and n0 are this thread's part.
    DEVICE void multiply(const Shared *shared, u32 m0, u32 n0, Sums &sum) {
        UNROLL for (u32 g = 0; g < GROUPS; g++) multiply_group(shared, g, m0, n0, sum);
    }

    // Adds the products of group `g` of a step. A thread's rows are TM / 4 groups of four, which are BM / (TM / 4) apart; the
    // same for columns.
    static constexpr u32 M_APART = BM * 4 / TM, N_APART = BN * 4 / TN;
    static INLINED void multiply_group(const Shared *shared, u32 g, u32 m0, u32 n0, Sums &sum) {
        // The reads of the next group, moved up to here, would take registers.
        ONE_BY_ONE();
        typename FORM::Word whole[TM][TN];
        constexpr u32 COUNT = W::GROUP / FORM::NEIGHBOURS;
        UNROLL for (u32 w = 0; w < COUNT; w++) {
            u32 word = g * COUNT + w;
            lds_u32x4 x[TM / 4], y[TN / 4];
            const u32 *a = shared->a + line(word, BM) + m0, *b = shared->b + line(word, BN) + n0;
            UNROLL for (u32 i = 0; i < TM / 4; i++) x[i] = *(const lds_u32x4 *)(a + i * M_APART);
            UNROLL for (u32 i = 0; i < TN / 4; i++) y[i] = *(const lds_u32x4 *)(b + i * N_APART);
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                u32 of_a = x[i / 4][i % 4], of_b = y[j / 4][j % 4];
                whole[i][j] = w == 0 ? FORM::template begin<W>(of_a, of_b) : FORM::step(of_a, of_b, whole[i][j]);
            }
        }
        FORM::template add<W, TileWords>(shared, g, m0, n0, whole, sum);
        if constexpr (W::OFFSET) {
            lds_f32x4 x[TM / 4], y[TN / 4];
            read_floats(shared->a_offset[g] + m0, shared->b_sum[g] + n0, x, y);
            UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) {
                sum[i][j] = mad(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j]);
            }
        }
    }

    // Reads one number for each row and column of a thread.
    static INLINED void read_floats(const float *a, const float *b, lds_f32x4 *x,
                                                                   lds_f32x4 *y) {
        UNROLL for (u32 i = 0; i < TM / 4; i++) x[i] = *(const lds_f32x4 *)(a + i * M_APART);
        UNROLL for (u32 i = 0; i < TN / 4; i++) y[i] = *(const lds_f32x4 *)(b + i * N_APART);
    }
};
