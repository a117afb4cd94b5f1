#version 460
// Products of one input with up to three matrices (products.glsl) for 2 to 64 columns, on matrix units. Every weight is read and
// decoded once for all columns, so a step of some tokens costs little more than a step of one.
//
// A tile is 16 rows (with a GLU eight of each matrix) times all columns. SPLIT subgroups, a team, share it: each of them takes
// every SPLIT-th step of the rows. Steps of weights pass through shared memory as stored, as in mat_vec_staged.glsl: the next
// one, also that of the next rows, is in flight while one is multiplied. Of a step, 64 weights of each row at a time are decoded to
// F16, with factors, in a tile in shared memory, which the units multiply by the columns. Stages and tiles belong to a subgroup,
// so subgroups wait for each other only when their sums are added.
//
// Columns were rounded to F16 by mul_mat_round.comp, which also computes the norm, and are read from memory (the first-level
// cache) where they are needed: matrices of 16 elements of a column, then the next columns. Of each four elements the two in the
// middle are exchanged, in columns and tiles: two bytes with one between them become a pair of F16 by one instruction.
//
// The grid's x and y are as in mul_mat_vec.comp, z is the matrix of a batch. A work-group has SUBGROUPS subgroups.
// Specialisation: work-group size, COLUMNS (a multiple of MATRIX_N), EVEN (rows start with whole words), SUBGROUPS, SPLIT,
// PASSES (tiles that a team computes in sequence), MATRIX_M, MATRIX_N, MATRIX_K (a shape that the device has: 16, 8 or 16, 16).
// Variants: type of the weights; matrix; emulated, in which invocations compute what the matrix units would.
// Shared memory: for each subgroup a step of 16 rows and a tile, 4.5 to 6 KiB.

#include "common.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require

layout(constant_id = 1) const uint COLUMNS = 8;
layout(constant_id = 2) const uint EVEN = 0;
layout(constant_id = 3) const uint SUBGROUPS = 4;
layout(constant_id = 4) const uint SPLIT = 4;
layout(constant_id = 5) const uint PASSES = 1;
layout(constant_id = 6) const uint MATRIX_M = 16;
layout(constant_id = 7) const uint MATRIX_N = 16;
layout(constant_id = 8) const uint MATRIX_K = 16;

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
#define COLUMNS_OF_B rounded
#include "matrix.glsl"

#ifdef EMULATED
#define FLAT [[dont_unroll]]
#else
#define FLAT [[unroll]]
#endif

// A turn takes two pieces of each row: one or two tiles of some of their groups. Turns of a step; tiles of a turn; groups of a
// piece in a tile; weights of a group; matrices along a tile; matrices of columns.
const uint TURNS = STEP / (2 * PIECE);
const uint TILES = 2 * PIECE / TILE_LENGTH;
const uint TILE_GROUPS = GROUPS / TILES;
const uint GROUP = 4 * GROUP_QUADS;
const uint ALONG = TILE_LENGTH / 16;
const uint SUMS = COLUMNS / MATRIX_N;

// Pieces that an invocation decodes in a turn.
const uint MINE = LANES < 2 * ROWS ? 2 * ROWS / LANES : 1;

// One of the two pieces of a turn. Where a piece is a block, they are half a step apart, which puts them on different banks.
uint piece_of_turn(uint turn, uint which) {
    return A_BLOCK == 32 ? which * TURNS + turn : 2 * turn + which;
}

// First group of 16 bytes of this subgroup's step, and of its tile.
uint stage_at() {
    return STAGE_AT + gl_SubgroupID * STAGE_PITCH;
}

uint tile_at() {
    return stage_at() + ROWS * ROW_PITCH;
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

// Reads this invocation's pieces of a turn of the step at element `at`: of row lane % ROWS.
void read_pieces(Rows rows, uint at, uint turn, out Piece w[MINE]) {
    const uint left = (LENGTH - at) / PIECE;
    FLAT for (uint n = 0; n < MINE; n++) {
        const uint lane = (n * LANES + gl_SubgroupInvocationID) % (2 * ROWS);
        const uint r = lane % ROWS;
        // After the end of a row columns are zeros; weights are the last ones again, which are numbers.
        const uint i = min(piece_of_turn(turn, lane / ROWS), left - 1);
        const uint begin = A_HALVES % 8 == 0 ? 0 : (start_of_row(rows, r) + at / A_BLOCK) * A_HALVES % 8;
        w[n] = load_piece((stage_at() + place_of(r)) * 8 + begin, i);
    }
}

// Decodes the groups of tile `tile` of a turn.
void decode(Piece w[MINE], uint tile) {
    FLAT for (uint n = 0; n < MINE; n++) {
        const uint lane = (n * LANES + gl_SubgroupInvocationID) % (2 * ROWS);
        const vec2 whole = of_piece(w[n]);
        const uint to = tile_at() + lane % ROWS * TILE_STRIDE + lane / ROWS * (TILE_LENGTH / 16);
        [[unroll]] for (uint k = 0; k < TILE_GROUPS; k++) {
            const uint g = tile * TILE_GROUPS + k;
            const float16_t by = float16_t(whole.x * factor(w[n], g));
#ifdef HAS_MINIMUM
            const float16_t low = float16_t(whole.y * minimum(w[n], g));
#else
            const float16_t low = float16_t(0.0);
#endif
            [[unroll]] for (uint j = 0; j < GROUP_QUADS; j += 2) {
                uvec4 eight;
                [[unroll]] for (uint e = 0; e < 4; e++) {
                    eight[e] = f16_pair(bytes(w[n], g, j + e / 2), e % 2, by, low);
                }
                words4[to + k * (GROUP / 8) + j / 2] = eight;
            }
        }
    }
}

MATRIX_SUMS sums[SUMS];

// First group of 16 bytes of the columns' matrix that belongs to matrix i along a tile.
uint columns_at(uint at, uint turn, uint tile, uint i) {
    const uint group = i * 16 / GROUP, which = group / TILE_GROUPS;
    const uint in_step = quad_at(piece_of_turn(turn, which), tile * TILE_GROUPS + group % TILE_GROUPS, i * 16 % GROUP / 4);
    return (gl_WorkGroupID.z * ((LENGTH + 255) / 256 * 16) + (at + in_step) / 16) * (2 * COLUMNS);
}

void multiply_step(Rows rows, uint at) {
    FLAT for (uint turn = 0; turn < TURNS; turn++) {
        Piece w[MINE];
        read_pieces(rows, at, turn, w);
        FLAT for (uint tile = 0; tile < TILES; tile++) {
            decode(w, tile);
            subgroupBarrier();
            FLAT for (uint i = 0; i < ALONG; i++) {
                MATRIX_A x;
                LOAD_A(x, tile_at() + 2 * i, TILE_STRIDE);
                FLAT for (uint j = 0; j < SUMS; j++) {
                    MATRIX_B y;
                    LOAD_B(y, columns_at(at, turn, tile, i) + j * (2 * MATRIX_N), 2);
                    MULTIPLY_ADD(x, y, sums[j]);
                }
            }
            subgroupBarrier();
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
        const uint factors_at = p.ne2 * ((LENGTH + 255) / 256 * 16) * (8 * COLUMNS);
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
        }
        store_results(now);
    }
}
