#version 460
// Products of one input with up to three matrices (products.glsl) for 2 to 64 columns, on matrix units. Every weight is read
// and decoded once for all columns, so a step of some tokens costs little more than a step of one.
//
// A tile is 16 rows (with a GLU eight of each matrix) times all columns. SPLIT subgroups, a team, share it: each of them takes
// every SPLIT-th step of the rows. Steps of weights pass through shared memory as stored, as in mat_vec_staged.glsl: the next
// one, also that of the next rows, is in flight while one is multiplied. A stage belongs to a subgroup, so subgroups wait for
// each other only when their sums are added.
//
// Weights are decoded to F16, with factors, in the registers of matrices, and columns are loaded there: nothing else passes
// through shared memory. So the kernel knows which lane has which elements of a matrix: lane l has those of rows l / 4 and
// l / 4 + 8 of the weights, and of column l / 4, each four of the 16 along k. Which four of a row does not matter as long as
// weights and columns agree, so they are adjacent: lane l decodes piece l % 4 of the rows, whose head is read once, and a
// product takes a quad of it. Columns were rounded to F16 by mul_mat_round.comp, with the norm, and stored in this order: a
// subgroup loads 512 adjacent bytes at a time. Of each four elements the two in the middle are exchanged: two bytes with one
// between them become a pair of F16 by one instruction.
//
// A driver's own loads of matrices from memory read 16 bits at a time on an H200: with them, and the weights in shared memory,
// 16 columns took twice as long.
//
// The grid's x and y are as in mul_mat_vec.comp, z is the matrix of a batch. A work-group has SUBGROUPS subgroups.
// Specialisation: work-group size, COLUMNS (a multiple of 8), EVEN (rows start with whole words), SUBGROUPS, SPLIT, PASSES
// (tiles that a team computes in sequence). Matrices are 16 x 8 x 16.
// Variants: type of the weights; matrix; emulated, in which invocations compute what the matrix units would.
// Shared memory: for each subgroup a step of 16 rows, 2.3 to 3.8 KiB, or its sums.

#include "common.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require

layout(constant_id = 1) const uint COLUMNS = 8;
layout(constant_id = 2) const uint EVEN = 0;
layout(constant_id = 3) const uint SUBGROUPS = 4;
layout(constant_id = 4) const uint SPLIT = 4;
layout(constant_id = 5) const uint PASSES = 1;

const uint MATRIX_M = 16;
const uint MATRIX_N = 8;
const uint MATRIX_K = 16;

#define EVEN_ROWS (EVEN != 0)
#define NARROW
#define STAGED

const uint ALIGNED = 1;
const uint ROWS = 16;
const uint TEAMS = SUBGROUPS / SPLIT;

#include "products.glsl"

const uint RESULTS = HAS_GLU ? ROWS / 2 : ROWS;

uint team() {
    return gl_SubgroupID / SPLIT;
}

#include "product_rows.glsl"
#include "stage_loads.glsl"

#define tiles words4
#include "matrix.glsl"

#ifdef EMULATED
#define FLAT [[dont_unroll]]
#else
#define FLAT [[unroll]]
#endif

// A turn takes four pieces of each row, one for each lane of those that share a row. Turns of a step; matrices of columns.
const uint TURNS = STEP / (4 * PIECE);
const uint SUMS = COLUMNS / MATRIX_N;

// Lanes of a matrix, and how many of them an invocation is.
const uint MATRIX_LANES = 32;
const uint MINE = LANES < MATRIX_LANES ? MATRIX_LANES / LANES : 1;

uint lane_of(uint n) {
    return (n * LANES + gl_SubgroupInvocationID) % MATRIX_LANES;
}

// First group of 16 bytes of this subgroup's stage.
uint stage_at() {
    return STAGE_AT + gl_SubgroupID * STAGE_PITCH;
}

uint start_of_row(Rows rows, uint r) {
    return place_of_row(rows, r) + (gl_WorkGroupID.z == 0 ? 0 : gl_WorkGroupID.z / p.r2 * p.nb0_1);
}

// Sources of an invocation's loads: the half-word at which the first step of load n of matrix `use` starts.
void begin_loads(Rows rows, out uint from[ALL_LOADS]) {
    [[unroll]] for (uint use = 0; use < USES; use++) {
        [[unroll]] for (uint n = 0; n < LOADS; n++) {
            const uint i = n * LANES + gl_SubgroupInvocationID;
            const uint row = min(i / ROW_SIXTEENS, ALIKE - 1) * USES + use;
            from[use * LOADS + n] = start_of_row(rows, row) * A_HALVES + 8 * (i % ROW_SIXTEENS);
        }
    }
}

#if defined(A_Q8_0)
const float16_t ZERO = float16_t(1152.0);
#else
const float16_t ZERO = float16_t(1024.0 - PIECE_OFFSET);
#endif

// Bytes 0 and 2 (1 and 3) of a quad, with factor and minimum. A byte x under a high byte of 0x64 is the number 1024 + x.
uint f16_pair(uint q, uint odd, float16_t by, float16_t low) {
#ifdef A_Q8_0
    q ^= 0x80808080u;
#endif
    const f16vec2 x = unpackFloat2x16(q >> 8 * odd & 0x00ff00ffu | 0x64006400u) - ZERO;
#ifdef HAS_MINIMUM
    return packFloat2x16(x * by + low);
#else
    return packFloat2x16(x * by);
#endif
}

// The pieces of a lane, those of its two rows, with the factors of all groups.
struct Pieces {
    Piece w[2];
    vec2 whole[2];
};

// Reads the pieces of lane `lane` for turn `turn` of the step at element `at`.
Pieces read_pieces(Rows rows, uint lane, uint at, uint turn) {
    // After the end of a row columns are zeros; weights are the last ones again, which are numbers.
    const uint i = min(4 * turn + lane % 4, (LENGTH - at) / PIECE - 1);
    Pieces both;
    [[unroll]] for (uint e = 0; e < 2; e++) {
        const uint r = lane / 4 + 8 * e;
        const uint begin = A_HALVES % 8 == 0 ? 0 : (start_of_row(rows, r) + at / A_BLOCK) * A_HALVES % 8;
        both.w[e] = load_piece((stage_at() + place_of(r)) * 8 + begin, i);
        both.whole[e] = of_piece(both.w[e]);
    }
    return both;
}

// A lane's part of a matrix of weights: quad s of its pieces, two pairs of each row.
uvec4 decoded(Pieces both, uint s) {
    uvec4 four;
    [[unroll]] for (uint e = 0; e < 2; e++) {
        const Piece w = both.w[e];
        const uint g = s / GROUP_QUADS, q = bytes(w, g, s % GROUP_QUADS);
        const float16_t by = float16_t(both.whole[e].x * factor(w, g));
#ifdef HAS_MINIMUM
        const float16_t low = float16_t(both.whole[e].y * minimum(w, g));
#else
        const float16_t low = float16_t(0.0);
#endif
        four[2 * e] = f16_pair(q, 0, by, low);
        four[2 * e + 1] = f16_pair(q, 1, by, low);
    }
    return four;
}

#ifdef EMULATED

// The matrices in shared memory: 16 rows of weights, then columns.
uint matrices_at() {
    return stage_at() + OF_STEP;
}

// Words l % 4 and l % 4 + 4 of a row.
void put_words(uint row, uint lane, uint first, uint second) {
    words[(matrices_at() + row * 2) * 4 + lane % 4] = first;
    words[(matrices_at() + row * 2) * 4 + lane % 4 + 4] = second;
}

#define PUT_A(m, lane, four)                                                                                           \
    {                                                                                                                  \
        put_words(lane / 4, lane, four.x, four.y);                                                                     \
        put_words(lane / 4 + 8, lane, four.z, four.w);                                                                 \
        m = Place(matrices_at(), 2);                                                                                   \
    }
#define PUT_B(m, lane, j, two)                                                                                         \
    {                                                                                                                  \
        put_words(ROWS + 8 * j + lane / 4, lane, two.x, two.y);                                                        \
        m = Place(matrices_at() + (ROWS + 8 * j) * 2, 2);                                                              \
    }
#define PUT_ALL subgroupBarrier();

#else

#define PUT_PAIR(m, i, pair)                                                                                           \
    {                                                                                                                  \
        const f16vec2 v = unpackFloat2x16(pair);                                                                       \
        m[2 * i] = v.x;                                                                                                \
        m[2 * i + 1] = v.y;                                                                                            \
    }
// Elements of a lane are in the order of rows: the four of row l / 4 come first.
#define PUT_A(m, lane, four)                                                                                           \
    PUT_PAIR(m, 0, four.x)                                                                                             \
    PUT_PAIR(m, 1, four.y)                                                                                             \
    PUT_PAIR(m, 2, four.z)                                                                                             \
    PUT_PAIR(m, 3, four.w)
#define PUT_B(m, lane, j, two)                                                                                         \
    PUT_PAIR(m, 0, two.x)                                                                                              \
    PUT_PAIR(m, 1, two.y)
#define PUT_ALL

#endif

MATRIX_SUMS sums[SUMS];

// Place of a lane's first group of 16 bytes of the columns, two quads of each, for turn `turn` of the step at element `at`.
uint columns_at(uint at, uint turn) {
    const uint first = (gl_WorkGroupID.z * ((LENGTH + 255) / 256 * 256) + at) / 8 + turn * (PIECE / 2);
    return first * COLUMNS;
}

void multiply_step(Rows rows, uint at) {
    FLAT for (uint turn = 0; turn < TURNS; turn++) {
        Pieces w[MINE];
        FLAT for (uint n = 0; n < MINE; n++) {
            w[n] = read_pieces(rows, lane_of(n), at, turn);
        }
        FLAT for (uint two = 0; two < PIECE / 8; two++) {
            uvec4 b[MINE * SUMS];
            FLAT for (uint n = 0; n < MINE; n++) {
                FLAT for (uint j = 0; j < SUMS; j++) {
                    b[n * SUMS + j] = rounded[columns_at(at, turn) + (two * SUMS + j) * MATRIX_LANES + lane_of(n)];
                }
            }
            FLAT for (uint h = 0; h < 2; h++) {
                MATRIX_A x;
                MATRIX_B y[SUMS];
                FLAT for (uint n = 0; n < MINE; n++) {
                    const uvec4 four = decoded(w[n], 2 * two + h);
                    PUT_A(x, lane_of(n), four)
                    FLAT for (uint j = 0; j < SUMS; j++) {
                        const uvec2 part = h == 0 ? b[n * SUMS + j].xy : b[n * SUMS + j].zw;
                        PUT_B(y[j], lane_of(n), j, part)
                    }
                }
                PUT_ALL
                FLAT for (uint j = 0; j < SUMS; j++) {
                    MULTIPLY_ADD(x, y[j], sums[j]);
                }
                PUT_ALL
            }
        }
    }
}

// Adds the sums of a team, and stores the results.
void store_results(Rows rows) {
    [[unroll]] for (uint j = 0; j < SUMS; j++) {
        STORE_SUMS(sums[j], stage_at() + j * (MATRIX_M * MATRIX_N / 4), MATRIX_M / 4);
    }
    barrier();
    const uint own = gl_SubgroupID % SPLIT * LANES + gl_SubgroupInvocationID;
    const uint first = (gl_SubgroupID - gl_SubgroupID % SPLIT) * (STAGE_PITCH * 4);
    for (uint v = own; v < RESULTS * COLUMNS; v += SPLIT * LANES) {
        const uint result = v % RESULTS, column = v / RESULTS;
        const uint row = rows.row0 + team() * RESULTS + result;
        if (row >= rows.end || column >= p.n) {
            continue;
        }
        float both[2];
        both[0] = 0.0;
        both[1] = 0.0;
        const uint at = first + column * ROWS + result * USES;
        for (uint s = 0; s < SPLIT; s++) {
            both[0] += floats[at + s * (STAGE_PITCH * 4)];
            both[1] += floats[at + s * (STAGE_PITCH * 4) + USES - 1];
        }
        const uint factors_at = p.ne2 * ((LENGTH + 255) / 256 * 128) * COLUMNS;
        const float by = factors[factors_at + gl_WorkGroupID.z * p.n + column];
        both[0] *= by;
        both[1] *= by;
        const uint m = of_chosen(p.m_0, p.m_1, p.m_2);
        const uint to = of_chosen(p.offd_0, p.offd_1, p.offd_2) + (gl_WorkGroupID.z * p.n + column) * m + row;
        d[chosen].of[to] = finished(row, column, both);
    }
    barrier();
}

void main() {
    Rows rows = first_rows(gl_WorkGroupID.x + gl_WorkGroupID.y * FOLD);
    if (rows.row0 >= rows.end) {
        return;
    }
    const uint begin = gl_SubgroupID % SPLIT * STEP;
    uint from[ALL_LOADS];
    uvec4 raw[ALL_LOADS];
    begin_loads(rows, from);
    load_step(from, begin < LENGTH ? begin : 0, raw);
    for (uint pass = 0; pass < PASSES && rows.row0 < rows.end; pass++) {
        [[unroll]] for (uint j = 0; j < SUMS; j++) {
            CLEAR(sums[j]);
        }
        const Rows now = rows;
        rows.row0 += ROWS_OF_PASS;
        for (uint at = begin; at < LENGTH; at += STEP * SPLIT) {
            store_step(raw);
            const bool is_last_step = at + STEP * SPLIT >= LENGTH;
            if (is_last_step && rows.row0 < rows.end) {
                begin_loads(rows, from);
            }
            if (!is_last_step || rows.row0 < rows.end) {
                load_step(from, is_last_step ? begin : at + STEP * SPLIT, raw);
            }
            subgroupBarrier();
            multiply_step(now, at);
            subgroupBarrier();
        }
        store_results(now);
    }
}
