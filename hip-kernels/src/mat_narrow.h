// Products of quantised weights with 2 to 16 columns, on the matrix units of NVIDIA's processors with 227 KiB of LDS for a
// work-group (sm_90). Every weight is read and decoded once for all columns, so a step of few columns costs little more than a
// step of one. More columns are sets of 16, each of which reads the weights.
//
// A work-group of 16 wavefronts computes tiles of 16 rows times N columns, two tiles in a pass (for a GLU the same rows of gate
// and `up`); 1 << split wavefronts, a team, share them. Each of these takes every so many steps of 256 elements along k:
//
//   * Weights pass through a ring in LDS (mat_vec_ring.h): each wavefront has STAGES units, 16 rows times a step (half a step
//     if blocks have 32 elements), as stored. While it multiplies, others arrive, those of the next rows too: 70 to 140 KiB
//     are in flight on a multiprocessor.
//   * They are decoded to F16 with their scales, so that sums stay in the accumulators of the matrix units over all of k:
//     further columns cost nothing else. (Integers would need three instructions for each sum and 32 elements.) Lane l has
//     rows l / 4 and l / 4 + 8 and, of each group of four spans of SPAN adjacent elements, span l % 4, so that one lane decodes
//     a block's head for many elements. A unit's elements along k are then not adjacent, but the columns are in the same order,
//     and a sum has none.
//   * Columns were rounded to F16 and stored in the order of the units' operands (mat_narrow_columns.h), so that a wavefront
//     loads 512 adjacent bytes at a time. Up to 8 columns of a step stay in registers; if each wavefront of a team has one
//     step, they are loaded once for all rows.
//
// The sums of a team are added in LDS, followed by bias, GLU and residual as in mat_vec.h.
//
// What was tried on an H200 and is not faster: columns rounded by the first work-groups of the same launch, for which the
// others wait (1 % of a layer faster); nibbles decoded by lop3 alone (2 % faster with 8 columns, 15 % slower with 16).
#pragma once
#include "copies.h"
#include "fragment.h"
#include "mat_narrow_columns.h"
#include "mat_vec.h"

#if HAS_COPIES && HAS_MATRIX

#define NARROW_WAVES 16
#define NARROW_THREADS (NARROW_WAVES * WAVE)
// LDS of a launch; the host's mat_narrow.rs has the same number.
#define NARROW_LDS (225u << 10)

// The wavefront's number. The compiler sees that it is the same in all lanes: what depends on it takes uniform registers.
DEVICE u32 uniform_wave() { return (u32)__nvvm_shfl_sync_idx_i32(0xffffffffu, (i32)wave_id(), 0, 0x1f); }

template <class W, int N> struct NarrowKernel {
    static constexpr u32 EIGHTS = N / 8, ROWS = 16, STEP = NARROW_STEP;
    // Adjacent elements of a lane; parts of a step; bytes of a row in a part.
    static constexpr u32 SPAN = W::BLOCK == 32 ? 32 : 64, UNIT = 4 * SPAN, PARTS = STEP / UNIT;
    static constexpr u32 OF_UNIT = UNIT / W::BLOCK * W::BYTES;
    // Pieces of 16 bytes that contain them: an odd number, so that eight rows start in different banks.
    static constexpr u32 PIECES = (OF_UNIT + (W::BYTES % 16 == 0 ? 0 : 15) + 15) / 16 | 1, PITCH = PIECES * 16;
    // Floats of a column of a wavefront's sums: with this distance, lanes are in different banks. Bytes of all sums.
    static constexpr u32 SUMS = 2 * ROWS + 4, OF_SUMS = 2 * NARROW_WAVES * N * SUMS * 4;
    static constexpr u32 STAGE = ROWS * PITCH, FITTING = (NARROW_LDS - OF_SUMS) / (NARROW_WAVES * STAGE);
    static constexpr u32 STAGES = FITTING < 4 ? FITTING : 4, COPIES = (ROWS * PIECES + WAVE - 1) / WAVE;
    // Tiles that are multiplied at a time. With 16 columns, which take too many registers to be held, both tiles of a pass, so
    // that the columns are loaded once for both.
    static constexpr u32 TILES = N == 8 ? 1 : 2;
    static_assert(STAGES >= 2, "");
    DEVICE u32 in_line(u64 at) { return W::BYTES % 16 == 0 ? 0 : (u32)at % 16; }
};

// Tiles of a team, the wavefronts that share them: number `first` and the following of matrix `which`.
struct NarrowRows {
    const u8 *a[2];
    u64 pitch;
    u32 which, m, first, count, passes;
    bool glu;

    template <class W> INLINED void begin(const VecArguments &known, const UseStart &z, u32 wave) {
        const VecParams &p = known.p;
        u32 group = group_x(), teams = NARROW_WAVES >> p.v.split;
        u32 begin = group < p.v.begin[0] ? 0 : group < p.v.begin[1] ? p.v.begin[0] : p.v.begin[1];
        which = group < p.v.begin[0] ? 0 : group < p.v.begin[1] ? 1 : 2;
        m = one_of(known, p.p.m, which);
        glu = p.p.parts & PART_GLU;
        first = ((group - begin) * teams + (wave >> p.v.split)) * p.v.passes;
        u32 tiles = (m + 15) / 16;
        count = first < tiles ? minimum(p.v.passes, tiles - first) : 0;
        passes = glu ? count : (count + 1) / 2;
        pitch = (u64)p.p.nb0[0] * W::BYTES;
        a[0] = one_of(known, known.o.a, which) + (one_of(known, p.p.off0, which) + z.matrix) * W::BYTES;
        a[1] = glu ? known.o.a[1] + (p.p.off0[1] + z.matrix) * W::BYTES : a[0];
    }
    // The tiles of a pass, and their first rows.
    INLINED u32 tiles(u32 pass) const { return glu || pass * 2 + 1 < count ? 2 : 1; }
    INLINED u32 row(u32 pass, u32 tile) const { return (first + (glu ? pass : pass * 2 + tile)) * 16; }
    INLINED const u8 *matrix(u32 tile) const { return tile == 0 ? a[0] : a[1]; }
};

// A wavefront's ring, and the next unit to copy. Lane l copies pieces l, l + 32 ... of the 16 rows' pieces.
template <class W, int N> struct NarrowRing {
    typedef NarrowKernel<W, N> S;
    u8 *stages;
    u32 k, first_step, stride;
    // The stages that are filled and multiplied next.
    u32 into, turn;
    u32 pass, step, part, tile, tiles;
    // The rows of the pass in memory, and the number of the last row of the matrix, at most 15, in each tile.
    const u8 *row[2];
    u32 within[2];
    // Offsets of this lane's pieces from the first row if the last row of the matrix is number `last` of the tile.
    u32 offset[S::COPIES], last;

    INLINED void start(const NarrowRows &rows, u32 length, u32 split, u32 wave) {
        stages = dynamic_lds + wave * (S::STAGES * S::STAGE);
        k = length;
        stride = 1u << split;
        first_step = step = wave % stride;
        into = turn = pass = part = tile = 0;
        last = ~0u;
        if (step * S::STEP >= k) pass = ~0u;
        enter(rows);
        NO_UNROLL for (u32 i = S::TILES == 1; i < S::STAGES; i++) feed(rows);
    }
    INLINED void enter(const NarrowRows &rows) {
        if (pass >= rows.passes) return;
        tiles = rows.tiles(pass);
        UNROLL for (u32 i = 0; i < 2; i++) {
            u32 first = rows.row(pass, i);
            row[i] = rows.matrix(i) + first * rows.pitch;
            within[i] = minimum(rows.m - 1 - first, S::ROWS - 1);
        }
    }
    // Starts to copy the next unit, if there is one.
    INLINED void feed(const NarrowRows &rows) {
        if (pass < rows.passes) {
            u32 at = step * S::STEP + part * S::UNIT, now = tile == 0 ? within[0] : within[1];
            if (now != last) {
                last = now;
                UNROLL for (u32 i = 0; i < S::COPIES; i++) {
                    u32 n = i * WAVE + lane_id();
                    offset[i] = minimum(n / S::PIECES, last) * (u32)rows.pitch + n % S::PIECES * 16;
                }
            }
            const u8 *begin = (tile == 0 ? row[0] : row[1]) + at / W::BLOCK * W::BYTES;
            u8 *to = stages + into * S::STAGE + lane_id() * 16;
            u32 bytes = minimum(k - at, S::UNIT) / W::BLOCK * W::BYTES;
            UNROLL for (u32 i = 0; i < S::COPIES; i++) {
                u32 n = i * WAVE + lane_id();
                u64 from = (u64)begin + offset[i];
                bool mine = (i + 1) * WAVE <= S::ROWS * S::PIECES || n < S::ROWS * S::PIECES;
                if (S::OF_UNIT != S::PITCH) {
                    mine = mine && n % S::PIECES * 16 < S::in_line(from) + bytes;
                    from &= ~15ull;
                }
                if (mine) begin_copy(to + i * WAVE * 16, (const u8 *)from);
            }
            into = into + 1 == S::STAGES ? 0 : into + 1;
            if (++tile == tiles) {
                tile = 0;
                if (++part == S::PARTS || at + S::UNIT >= k) {
                    part = 0;
                    step += stride;
                    if (step * S::STEP >= k) {
                        step = first_step;
                        pass++;
                        enter(rows);
                    }
                }
            }
        }
        end_group_of_copies();
    }
    // Waits for the next COUNT units. If one is multiplied at a time, all lanes have finished with the one before, whose stage
    // is filled again.
    template <u32 COUNT> INLINED void wait(const NarrowRows &rows) {
        wait_for_groups_before<S::STAGES - (S::TILES == 1 ? 2 : COUNT)>();
        __nvvm_bar_warp_sync(0xffffffffu);
        if (S::TILES == 1) feed(rows);
    }
    // Returns the next unit.
    INLINED const u8 *next() {
        const u8 *at = stages + turn * S::STAGE;
        turn = turn + 1 == S::STAGES ? 0 : turn + 1;
        return at;
    }
    // Fills the stages of COUNT units again, with which all lanes have finished.
    template <u32 COUNT> INLINED void release(const NarrowRows &rows) {
        if (S::TILES == 1) return;
        __nvvm_bar_warp_sync(0xffffffffu);
        UNROLL for (u32 i = 0; i < COUNT; i++) feed(rows);
    }
};

// Returns q & mask | bits in one instruction.
DEVICE u32 masked_or(u32 q, u32 mask, u32 bits) {
    u32 x;
    __asm__("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(x) : "r"(q), "r"(mask), "r"(bits));
    return x;
}

// Decodes 16 elements to F16, in the order 0, 2, 1, 3 of each four: two bytes with one between them are a pair of F16 after one
// instruction. A byte x under a high byte of 0x64 is the number 1024 + x.
template <class W> struct NarrowDecoder {
    INLINED static void decode(const typename W::template Raws<16> &raw, lds_u32x4 *out) {
        auto q = W::bytes(raw);
        f16 factor = (f16)W::factor(raw), offset = 0, bias = W::SIGNED ? 1152.0f : 1024.0f + W::BIAS;
        if constexpr (W::OFFSET) offset = (f16)W::offset(raw);
        UNROLL for (u32 i = 0; i < 4; i++) {
            u32 four = W::SIGNED ? q[i] ^ 0x80808080u : q[i];
            u32 pairs[2] = {masked_or(four, 0x00ff00ffu, 0x64006400u), pick_bytes(four, 0x64646464u, 0x04030401u)};
            UNROLL for (u32 j = 0; j < 2; j++) {
                f16x2 x = __builtin_bit_cast(f16x2, pairs[j]) - bias;
                x = W::OFFSET ? (f16x2)(x * factor + offset) : (f16x2)(x * factor);
                out[i / 2][i % 2 * 2 + j] = __builtin_bit_cast(u32, x);
            }
        }
    }
};
template <u32 VALUE_> struct Number { static constexpr u32 VALUE = VALUE_; };

// The columns of a step, and the sums of two tiles.
template <class W, int N> struct NarrowSums {
    typedef NarrowKernel<W, N> S;
    // Columns of a step, of eight columns held in registers, of more those of 16 elements of each lane.
    static constexpr u32 HELD = S::EIGHTS == 1 ? 8 : 2;
    lds_u32x4 b[S::EIGHTS][HELD];
    float sum[2][S::EIGHTS][4];

    INLINED void clear() {
        UNROLL for (u32 i = 0; i < 2; i++) UNROLL for (u32 c = 0; c < S::EIGHTS; c++) {
            UNROLL for (u32 e = 0; e < 4; e++) sum[i][c][e] = 0.0f;
        }
    }
    // Loads pieces of a step from `first` on. `columns`: this lane's part of the step.
    INLINED void load(const u8 *columns, u32 first) {
        UNROLL for (u32 c = 0; c < S::EIGHTS; c++) UNROLL for (u32 j = 0; j < HELD; j++) {
            b[c][j] = __builtin_bit_cast(lds_u32x4, four_aligned(columns + (c * 8 + first + j) * 512));
        }
    }
    // Multiplies units of TILES tiles. `unit`: this lane's first row in LDS.
    template <u32 PART, u32 FIRST, u32 TILES>
    INLINED void multiply(const u8 *columns, const u8 *const (*unit)[2], u32 left) {
        u32 first = lane_id() % 4 * S::SPAN;
        // After the end the columns are zeros.
        if (first >= left) first = 0;
        UNROLL for (u32 e = 0; e < S::SPAN; e += 16) {
            u32 piece = PART * (S::SPAN / 8) + e / 8;
            if (HELD < 8) load(columns, piece);
            UNROLL for (u32 tile = 0; tile < TILES; tile++) {
                lds_u32x4 w[2][2];
                UNROLL for (u32 i = 0; i < 2; i++) {
                    NarrowDecoder<W>::decode(W::template fetch<16, true>(unit[tile][i], first + e), w[i]);
                }
                UNROLL for (u32 h = 0; h < 2; h++) UNROLL for (u32 x = 0; x < 4; x += 2) {
                    lds_u32x4 four = {w[0][h][x], w[1][h][x], w[0][h][x + 1], w[1][h][x + 1]};
                    UNROLL for (u32 c = 0; c < S::EIGHTS; c++) {
                        const lds_u32x4 &y = b[c][HELD < 8 ? h : piece + h];
                        Mma::multiply(four, y[x], y[x + 1], sum[FIRST + tile][c]);
                    }
                }
            }
        }
    }
    // Lane l has rows l / 4 and l / 4 + 8 of a tile, columns 2 (l % 4) and the next of each eight.
    INLINED void store(float *to) const {
        UNROLL for (u32 i = 0; i < 2; i++) UNROLL for (u32 c = 0; c < S::EIGHTS; c++) UNROLL for (u32 e = 0; e < 4; e++) {
            u32 column = c * 8 + lane_id() % 4 * 2 + e % 2, row = i * 16 + lane_id() / 4 + e / 2 * 8;
            to[column * S::SUMS + row] = sum[i][c][e];
        }
    }
};

// Adds the sums of the wavefronts that share tiles, and stores the results of a pass. `first`: the first column; `scale`: of
// the column of this thread's first result.
template <class W, int N>
INLINED void narrow_store(const VecArguments &known, const NarrowRows &rows, u64 first, u32 pass, const float *sums,
                          float scale, u32 wave) {
    typedef NarrowKernel<W, N> S;
    const VecOperands &o = known.o;
    const VecParams &p = known.p;
    u32 split = p.v.split, team = wave >> split << split, of_pass = rows.glu ? 16 : rows.tiles(pass) * 16;
    u32 row0 = rows.row(pass, 0), columns_left = p.p.n - group_y() * N;
    NO_UNROLL for (u32 i = thread_id() - team * WAVE; i < N * 32; i += (u32)WAVE << split) {
        u32 column = i / 32, r = i % 32, row = row0 + r;
        if (r >= of_pass || row >= rows.m || column >= columns_left) continue;
        u64 columns = first + column;
        if (i >= (u32)WAVE << split) scale = o.w[columns];
        float added = 0.0f;
        if (p.p.parts & PART_RESIDUAL) added = o.residual[columns * p.p.nbr + row];
        const float *at = sums + (team * N + column) * S::SUMS + r;
        float y = 0.0f, up = 0.0f;
        auto add = [&] INLINED(u32 w) {
            y += at[w * (N * S::SUMS)];
            if (rows.glu) up += at[w * (N * S::SUMS) + 16];
        };
        if (split == 4) {
            UNROLL for (u32 w = 0; w < NARROW_WAVES; w++) add(w);
        } else {
            NO_UNROLL for (u32 w = 0; w < 1u << split; w++) add(w);
        }
        y *= scale;
        u32 parts = p.p.parts >> rows.which;
        if (parts & PART_BIAS) y += (one_of(known, o.bias, rows.which) + one_of(known, p.p.offb, rows.which))[row];
        if (rows.glu) {
            up *= scale;
            if (parts & PART_BIAS << 1) up += (o.bias[1] + p.p.offb[1])[row];
            y = gated_by_sigmoid(p.p, y, up);
        }
        one_of(known, o.d, rows.which)[columns * rows.m + row] = y + added;
    }
}

// group_x: rows; group_y: sets of N columns; group_z: planes.
template <class W, int N> DEVICE void mat_narrow(const VecArguments &known) {
    typedef NarrowKernel<W, N> S;
    const VecParams &p = known.p;
    u32 k = p.p.k, steps = (k + S::STEP - 1) / S::STEP;
    UseStart z = start_of_use(known.o, p, 0);
    NarrowRows rows;
    u32 wave = uniform_wave();
    rows.template begin<W>(known, z, wave);
    NarrowRing<W, N> ring;
    ring.start(rows, k, p.v.split, wave);
    u32 sets = (p.p.n + N - 1) / N, column = group_y() * N;
    const u8 *columns = known.o.b + (z.number * (u64)sets + group_y()) * narrow_bytes(k, p.p.n) + lane_id() * 16;
    float *sums = (float *)(dynamic_lds + NARROW_WAVES * S::STAGES * S::STAGE);
    u64 first = (u64)z.number * p.p.n + column;
    float scale = known.o.w[first + minimum((ring.first_step * WAVE + lane_id()) / 32, p.p.n - column - 1)];
    NarrowSums<W, N> t;
    u32 held = ~0u;
    // All threads take part in the barriers of all passes.
    u32 passes = rows.glu ? p.v.passes : (p.v.passes + 1) / 2;
    NO_UNROLL for (u32 pass = 0; pass < passes; pass++) {
        bool busy = pass < rows.passes;
        t.clear();
        u32 tiles = rows.tiles(pass);
        NO_UNROLL for (u32 step = ring.first_step; busy && step < steps; step += ring.stride) {
            const u8 *of_step = columns + step * (u64)(S::EIGHTS * NARROW_OF_STEP);
            if (t.HELD == 8 && step != held) t.load(of_step, 0);
            held = step;
            auto part = [&] INLINED(auto number) {
                constexpr u32 PART = decltype(number)::VALUE;
                u32 from = step * S::STEP + PART * S::UNIT;
                if (PART > 0 && from >= k) return;
                auto multiply = [&] INLINED(auto which, auto count) {
                    constexpr u32 FIRST = decltype(which)::VALUE, TILES = decltype(count)::VALUE;
                    ring.template wait<TILES>(rows);
                    const u8 *unit[TILES][2];
                    UNROLL for (u32 i = 0; i < TILES; i++) {
                        const u8 *at = ring.next();
                        u32 row0 = rows.row(pass, FIRST + i), last = rows.m - 1 - row0;
                        u64 low = (u64)rows.matrix(FIRST + i) + row0 * rows.pitch + from / W::BLOCK * W::BYTES;
                        UNROLL for (u32 j = 0; j < 2; j++) {
                            u32 row = lane_id() / 4 + j * 8;
                            unit[i][j] = at + row * S::PITCH + S::in_line(low + minimum(row, last) * rows.pitch);
                        }
                    }
                    t.template multiply<PART, FIRST, TILES>(of_step, unit, k - from);
                    ring.template release<TILES>(rows);
                };
                if (S::TILES == 2 && tiles > 1) {
                    multiply(Number<0>{}, Number<2>{});
                } else {
                    multiply(Number<0>{}, Number<1>{});
                    if (S::TILES == 1 && tiles > 1) multiply(Number<1>{}, Number<1>{});
                }
            };
            part(Number<0>{});
            if constexpr (S::PARTS > 1) part(Number<1>{});
        }
        // Passes alternate between two places for the sums: a thread stores those of a pass when all have added those of the
        // pass before the last.
        float *here = sums + pass % 2 * (NARROW_WAVES * N * S::SUMS);
        t.store(here + wave * (N * S::SUMS));
        barrier();
        if (busy) narrow_store<W, N>(known, rows, first, pass, here, scale, wave);
    }
}

#define MAT_NARROW_OF(type, W, N) \
    KERNEL_GROUPS(NARROW_THREADS, 1) mat_narrow_##type##_n##N(VEC_ARGUMENTS) { mat_narrow<W, N>({VEC_OPERANDS, p}); }
#define MAT_NARROW(type, W) MAT_NARROW_OF(type, W, 8) MAT_NARROW_OF(type, W, 16)
#else
#define MAT_NARROW(type, W)
#endif
