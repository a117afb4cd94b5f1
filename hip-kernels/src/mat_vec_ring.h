// Weights of mat-vec on their way through LDS, for NVIDIA's processors from sm_80 on (copies.h).
//
// What is limited by the bandwidth of memory needs many bytes under way at all times: on an H200 some 26 KiB for each
// multiprocessor. Loads into registers are under way only until the wavefront needs them, and then it computes while nothing
// is; and nothing is under way before the activations are rounded. So each wavefront has a ring of STAGES steps in LDS: while
// it multiplies one, the others arrive, those of the next rows and experts among them, and the first ones while the work-group
// rounds its activations.
//
// A step are STEP elements of each of R rows, as they lie in memory: of each row whole lines of memory that hold them, or
// where rows of the type begin at multiples of 16 bytes just these, 32 / R lanes side by side copying 16 bytes each. (Lines
// because the second-level cache is asked for one at a time: with parts of two for each an H200 reads 6 % less.) A lane then
// reads from LDS what mat_vec.h would read from memory. The last line of a row may be partly behind it: 16 bytes at a multiple
// of 16 are in one allocation as a whole.
#pragma once
#include "copies.h"
#include "mat_vec.h"

#if HAS_COPIES

// The same for the host: mat_vec.rs.
#define RING_BYTES (76u << 10)

template <class W, int R> struct Ring {
    // Neighbours that a lane takes at a time: as many as have one scale, up to 32, where what a block begins with is long.
    static constexpr int WIDE = W::APART == 32 && W::GROUP == 32 && W::BYTES <= 144 ? 32 : 16;
    // Two pieces of each lane.
    static constexpr u32 STEP = 2 * WIDE * WAVE, LANES = WAVE / R;
    static constexpr u32 LINE = W::BYTES % 16 == 0 ? 16 : 128;
    static constexpr u32 OF_STEP = STEP / W::BLOCK * W::BYTES;
    // Of a row in a stage, in whole sixteens: it may begin anywhere in a line.
    static constexpr u32 ROW = (OF_STEP + (LINE == 16 ? 0 : LINE - 1) + 15) / 16 * 16, STAGE = R * ROW;
    static constexpr u32 FITTING = RING_BYTES / (VEC_WAVES * STAGE), STAGES = FITTING < 4 ? FITTING : 4;
    static_assert(STEP % W::BLOCK == 0 && STAGES > 1, "");

    // What comes next: of a pass, an expert and a chunk of k elements `from` .. `from` + STEP of this lane's row.
    const u8 *row;
    u32 passes, pass, use, chunk, from, into, turn;
    u8 *stages;
    // Of the weights, where there are no experts.
    u64 plane;

    // As the loops of mat_vec go.
    __attribute__((device, always_inline)) void start(const VecArguments &known, u32 k_of_chunk) {
        stages = dynamic_lds + wave_id() * (STAGES * STAGE);
        passes = known.p.v.passes;
        pass = use = chunk = into = turn = 0;
        plane = known.p.v.experts ? 0 : plane_of_matrix(known.p, plane_of_use(known.o, known.p, 0));
        from = (wave_id() % (1u << known.p.v.split)) * STEP;
        enter(known);
        skip_what_is_empty(known, k_of_chunk);
        NO_UNROLL for (u32 i = 0; i < STAGES - 1; i++) feed(known, k_of_chunk);
    }

    // Finds this lane's row of a pass and an expert; of those that are none the next one.
    __attribute__((device, always_inline)) void enter(const VecArguments &known) {
        const VecOperands &o = known.o;
        const VecParams &p = known.p;
        u32 uses = p.v.summed ? p.v.summed : 1;
        NO_UNROLL for (; pass < passes; pass++, use = 0) {
            Rows rows = Rows::of_group(o, p, R, pass);
            if (rows.done()) break;
            NO_UNROLL for (; use < uses; use++) {
                u64 of_plane = plane;
                if (p.v.experts) {
                    Plane z = plane_of_use(o, p, use);
                    if (z.a2 == p.v.experts) continue;
                    of_plane = plane_of_matrix(p, z);
                }
                u32 r = lane_id() / LANES;
                bool second = (p.p.parts & PART_GLU) && r >= R / 2;
                u32 at = minimum(rows.row + (second ? r - R / 2 : r), rows.m - 1);
                u64 block = (u64)at * p.p.nb0[0] + of_plane + (second ? rows.off[1] : rows.off[0]);
                row = (second ? rows.a[1] : rows.a[0]) + block * W::BYTES;
                return;
            }
        }
        pass = passes;
    }

    // Goes on to the next chunk, expert or pass where nothing is left; a wavefront that shares its rows may have none of a chunk.
    __attribute__((device, always_inline)) void skip_what_is_empty(const VecArguments &known, u32 k_of_chunk) {
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

    // Begins to copy what comes next, if anything does.
    __attribute__((device, always_inline)) void feed(const VecArguments &known, u32 k_of_chunk) {
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

    // Products of the step that has come, or of `left` elements that a row still has: a whole number of WIDE.
    template <bool WHOLE, class T> __attribute__((device, always_inline)) void multiply(T &t, u32 base, u32 from, u32 left) {
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
        // One row after the other: where a byte holds parts of elements APART, it is loaded once.
        UNROLL for (u32 r = 0; r < R; r++) {
            const u8 *here = stages + turn * STAGE + r * ROW + in_line(t.row[r] + base / W::BLOCK * W::BYTES);
            UNROLL for (u32 i = 0; i < 2; i++) {
                if (!there[i]) continue;
                auto a = W::template fetch<WIDE, true>(here + skip[i] / W::BLOCK * W::BYTES, inner[i]);
                T::Column::template add<W>(a, b[i], bias[i], &t.sum[r][0]);
            }
        }
    }

    template <int, class T>
    __attribute__((device, always_inline)) void run(const VecArguments &known, T &t, const VecParams &p, u32 base,
                                                    u32 k_of_chunk, u32 count) {
        u32 split = p.v.split;
        NO_UNROLL for (u32 at = (wave_id() % (1u << split)) * STEP; at < count; at += STEP << split) {
            wait_for_groups_before<STAGES - 2>();
            // All lanes have what they copied, and are done with the stage that is filled now.
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
