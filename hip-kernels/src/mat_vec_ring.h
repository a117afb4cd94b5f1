// Weights of mat-vec kernels pass through LDS, on NVIDIA's processors from sm_80 on (copies.h).
//
// A kernel that is limited by memory bandwidth needs many bytes in flight at all times: on an H200 about 26 KiB for each
// multiprocessor. Loads into registers are in flight only until the wavefront needs them; while it computes, none are, and none
// are before the activations are rounded. So each wavefront has a ring of STAGES steps in LDS. While it multiplies one, the
// others arrive, including those of the next rows and experts, and the first ones while the work-group rounds its activations.
//
// A step is STEP elements of each of R rows, as stored: for each row the whole memory lines that contain them or, if rows of
// the type start at multiples of 16 bytes, exactly these bytes. 32 / R adjacent lanes copy 16 bytes each. (Whole lines, because
// the second-level cache serves one line at a time: with parts of two lines for each row, an H200 reads 6 % less.) A lane then
// reads from LDS the data that mat_vec.h would read from memory. The last line of a row may extend beyond it: 16 bytes at a
// multiple of 16 are always within one allocation.
#pragma once
#include "copies.h"
#include "mat_vec.h"

#if HAS_COPIES

// The host's mat_vec.rs has the same number.
#define RING_BYTES (76u << 10)

template <class W, int R> struct Ring {
    // Adjacent elements that a lane takes at a time: as many as have one scale, up to 32, if the head of a block is long.
    static constexpr int WIDE = W::APART == 32 && W::GROUP == 32 && W::BYTES <= 144 ? 32 : 16;
    // Two pieces for each lane.
    static constexpr u32 STEP = 2 * WIDE * WAVE, LANES = WAVE / R;
    static constexpr u32 LINE = W::BYTES % 16 == 0 ? 16 : 128;
    static constexpr u32 OF_STEP = STEP / W::BLOCK * W::BYTES;
    // Bytes of a row in a stage, a multiple of 16: the row may start anywhere in a line.
    static constexpr u32 ROW = (OF_STEP + (LINE == 16 ? 0 : LINE - 1) + 15) / 16 * 16, STAGE = R * ROW;
    static constexpr u32 FITTING = RING_BYTES / (VEC_WAVES * STAGE), STAGES = FITTING < 4 ? FITTING : 4;
    static_assert(STEP % W::BLOCK == 0 && STAGES > 1, "");

    // Next data to copy: elements `from` .. `from` + STEP of this lane's row, in a pass, an expert and a chunk of k.
    const u8 *row;
    u32 passes, pass, use, chunk, from, into, turn;
    u8 *stages;
    // Plane of the weights, if there are no experts.
    u64 plane;

    // Same order as the loops of mat_vec.
    INLINED void start(const VecArguments &known, u32 k_of_chunk) {
        stages = dynamic_lds + wave_id() * (STAGES * STAGE);
        passes = known.p.v.passes;
        pass = use = chunk = into = turn = 0;
        plane = known.p.v.experts ? 0 : start_of_use(known.o, known.p, 0).matrix;
        from = (wave_id() % (1u << known.p.v.split)) * STEP;
        enter(known);
        skip_what_is_empty(known, k_of_chunk);
        NO_UNROLL for (u32 i = 0; i < STAGES - 1; i++) feed(known, k_of_chunk);
    }

    // Finds this lane's row in a pass for an expert; skips those that have none.
    INLINED void enter(const VecArguments &known) {
        const VecOperands &o = known.o;
        const VecParams &p = known.p;
        u32 uses = p.v.summed ? p.v.summed : 1;
        NO_UNROLL for (; pass < passes; pass++, use = 0) {
            Rows rows = Rows::of_group(known, R, pass);
            if (rows.done()) break;
            NO_UNROLL for (; use < uses; use++) {
                u64 of_plane = plane;
                if (p.v.experts) {
                    UseStart at = start_of_use(o, p, use);
                    if (at.absent) continue;
                    of_plane = at.matrix;
                }
                u32 r = lane_id() / LANES;
                bool second = (p.p.parts & PART_GLU) && r >= R / 2;
                u32 at = minimum(rows.row + (second ? r - R / 2 : r), rows.m - 1);
                u64 block = (u64)at * p.p.nb0[0] + of_plane + rows.offset(known, second);
                row = rows.memory(known, second) + block * W::BYTES;
                return;
            }
        }
        pass = passes;
    }

    // Advances to the next chunk, expert or pass if nothing is left; a wavefront that shares its rows may have nothing in a
    // chunk.
    INLINED void skip_what_is_empty(const VecArguments &known, u32 k_of_chunk) {
        u32 k = known.p.p.k;
        NO_UNROLL while (pass < passes && from >= minimum(k - chunk, k_of_chunk)) {
            from = (wave_id() % (1u << known.p.v.split)) * STEP;
            chunk += k_of_chunk;
            if (chunk < k) continue;
            chunk = 0;
            use++;
            enter(known);
        }
    }

    // Starts to copy the next data, if there are any.
    INLINED void feed(const VecArguments &known, u32 k_of_chunk) {
        if (pass < passes) {
            u32 k = known.p.p.k, at = chunk + from, count = minimum(k - at, minimum(k_of_chunk - from, STEP));
            const u8 *begin = row + at / W::BLOCK * W::BYTES;
            u32 before = in_line(begin), bytes = before + count / W::BLOCK * W::BYTES;
            u32 lane = lane_id() % LANES * 16;
            const u8 *here = begin - before + lane;
            u8 *to = stages + into * STAGE + lane_id() / LANES * ROW + lane;
            UNROLL for (u32 i = 0; i < (ROW + LANES * 16 - 1) / (LANES * 16); i++) {
                if (lane + i * LANES * 16 < bytes) begin_copy(to + i * LANES * 16, here + i * LANES * 16);
            }
            into = into + 1 == STAGES ? 0 : into + 1;
            from += STEP << known.p.v.split;
            skip_what_is_empty(known, k_of_chunk);
        }
        end_group_of_copies();
    }

    DEVICE u32 in_line(const u8 *at) { return LINE == 16 ? 0 : (u32)(u64)at % LINE; }

    // Multiplies the step that has arrived, or `left` elements that a row still has: a multiple of WIDE.
    template <bool WHOLE, class T> INLINED void multiply(T &t, u32 base, u32 from, u32 left) {
        constexpr bool PAIR = W::APART > 0;
        u32 k = lane_id() * WIDE;
        if (PAIR) k = (k / W::APART * 2 * W::APART) | k % W::APART;
        typename T::Column::template Raw<WIDE> b[2];
        decltype(T::Column::template bias<W>(b[0])) bias[2];
        u32 skip[2], inner[2];
        bool there[2];
        UNROLL for (u32 i = 0; i < 2; i++) {
            skip[i] = PAIR ? 0 : i * WIDE * WAVE;
            inner[i] = PAIR ? k + i * W::APART : k;
            there[i] = WHOLE || skip[i] + inner[i] < left;
            if (!there[i]) continue;
            b[i] = t.column[0].template fetch<WIDE>(from + skip[i], inner[i]);
            bias[i] = T::Column::template bias<W>(b[i]);
        }
        // One row after the other: if a byte holds parts of elements that are APART, it is loaded once.
        UNROLL for (u32 r = 0; r < R; r++) {
            const u8 *here = stages + turn * STAGE + r * ROW + in_line(t.row[r] + base / W::BLOCK * W::BYTES);
            UNROLL for (u32 i = 0; i < 2; i++) {
                if (!there[i]) continue;
                auto a = W::template fetch<WIDE, true>(here + skip[i] / W::BLOCK * W::BYTES, inner[i]);
                T::Column::template add<W>(a, b[i], bias[i], &t.sum[r][0]);
            }
        }
    }

    template <int, class T, class BRING>
    INLINED void run(const VecArguments &known, T &t, const VecParams &p, u32 base, u32 k_of_chunk, u32 count, bool wanted,
                     const BRING &bring) {
        u32 split = p.v.split;
        if (wanted) bring();
        NO_UNROLL for (u32 at = (wave_id() % (1u << split)) * STEP; at < count; at += STEP << split) {
            wait_for_groups_before<STAGES - 2>();
            // All lanes have their copies, and have finished with the stage that is filled next.
            __nvvm_bar_warp_sync(0xffffffffu);
            feed(known, k_of_chunk);
            if (at + STEP <= count) {
                multiply<true>(t, base + at, at, STEP);
            } else {
                multiply<false>(t, base + at, at, count - at);
            }
            turn = turn + 1 == STAGES ? 0 : turn + 1;
        }
    }
};
#endif
