// Mat-vec whose weights pass through shared memory, for one column of activations in 8 bits, on devices with enough registers
// to load them ahead. See mat_vec.glsl and mat_vec_int8.glsl; stage.glsl has the shared memory.
//
// A kernel that is limited by memory bandwidth needs many bytes in flight at all times: on an H200 about 26 KiB for each
// multiprocessor. Pieces that an invocation loads are in flight only until it needs them; while it computes, none are, and none
// are while activations are rounded. So a subgroup loads a step of all its rows as stored, 16 adjacent bytes in each
// invocation, into registers. It stores the step in shared memory when it has computed the step before, issues the loads of the
// next one, also that of the next rows, and only then multiplies. The first step is in flight while the work-group rounds
// activations, all of the column at once; after that subgroups do not wait for each other.
//
// Work split: a subgroup has ROWS rows at a time, and PASSES times as many in sequence. A step is STAGE_WEIGHTS weights of
// them, 2.2 KiB of Q8_0, 2.3 of Q4_K, 3.4 of Q6_K: five to seven groups of 16 bytes in an invocation. Blocks may start at any
// half-word: for each row the groups of 16 bytes that cover the step are loaded. LANES_OF_ROW invocations multiply a row, each
// a piece of 32 or 64 weights, whose scales are unpacked once for MINE rows. Activations are placed so that adjacent
// invocations read adjacent groups of 16 bytes (place_of_word): without that an H200 read 10 % less. Sums are added by
// shuffles.
//
// Shared memory: a step of each subgroup, and 9 bytes for 8 activations, with sums of them 9.5: 24 KiB (Q4_K, 4096 elements).
#ifndef MAT_VEC_STAGED_GLSL
#define MAT_VEC_STAGED_GLSL

#include "stage_loads.glsl"

// Sources of an invocation's loads: the half-word at which the first step of load n of matrix `use` starts.
void begin_loads(uint row_a[ROWS], out uint from[ALL_LOADS]) {
    [[unroll]] for (uint use = 0; use < USES; use++) {
        [[unroll]] for (uint n = 0; n < LOADS; n++) {
            const uint i = n * LANES + gl_SubgroupInvocationID;
            uint row = row_a[use];
            [[unroll]] for (uint r = 1; r < ALIKE; r++) {
                row = i >= r * ROW_SIXTEENS ? row_a[r * USES + use] : row;
            }
            from[use * LOADS + n] = row * A_HALVES + 8 * (i % ROW_SIXTEENS);
        }
    }
}

// Invocations of a row, and rows of an invocation.
const uint LANES_OF_ROW = LANES < STEP / PIECE ? LANES : STEP / PIECE;
const uint MINE = ROWS * LANES_OF_ROW / LANES;

// True if rows that belong together, of gate and up, belong to invocations LANES_OF_ROW apart.
const bool APART = MINE < USES;

// First row of an invocation.
uint first_row() {
    return gl_SubgroupInvocationID / LANES_OF_ROW * MINE;
}

// Computes values that are the same for all steps of the rows: the half-word of a group of 16 bytes at which an invocation's
// data start.
void begin_rows(uint row_a[ROWS], out uint within[MINE], out float sums[MINE]) {
    [[unroll]] for (uint r = 0; r < MINE; r++) {
        sums[r] = 0.0;
        within[r] = row_a[r] * A_HALVES % 8;
    }
    [[unroll]] for (uint r = MINE; r < ROWS; r++) {
        within[r % MINE] = first_row() == r / MINE * MINE ? row_a[r] * A_HALVES % 8 : within[r % MINE];
    }
}

// Advances to rows that are this many blocks away.
void skip_rows(uint blocks, inout uint row_a[ROWS], inout uint from[ALL_LOADS]) {
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        row_a[r] += blocks;
    }
    [[unroll]] for (uint n = 0; n < ALL_LOADS; n++) {
        from[n] += blocks * A_HALVES;
    }
}

// Adds sums over the invocations of a row.
void add_lanes(float factor, inout float sums[MINE]) {
    [[unroll]] for (uint r = 0; r < MINE; r++) {
        [[unroll]] for (uint lanes = 1; lanes < LANES_OF_ROW; lanes *= 2) {
            sums[r] += subgroupShuffleXor(sums[r], lanes);
        }
        sums[r] *= factor;
    }
}

// Products of a step, for rows that start at half-words `within` of a group of 16 bytes.
void multiply_step(uint within[MINE], uint at, inout float sums[MINE]) {
    const uint stage_at = STAGE_AT + gl_SubgroupID * STAGE_PITCH;
    [[unroll]] for (uint turn = 0; turn < STEP / (PIECE * LANES_OF_ROW); turn++) {
        // Invocations do not diverge: those after the end of the row take its last piece, which is not added to their sums.
        const uint lane = turn * LANES_OF_ROW + gl_SubgroupInvocationID % LANES_OF_ROW;
        const uint left = (LENGTH - at) / PIECE;
        const uint i = min(lane, left - 1);
        Piece w[MINE];
        [[unroll]] for (uint r = 0; r < MINE; r++) {
            const uint begin = A_HALVES % 8 == 0 ? 0 : (within[r] + at / A_BLOCK * A_HALVES) % 8;
            w[r] = load_piece((stage_at + place_of(first_row() + r)) * 8 + begin, i);
        }
        float factors[MINE];
        float minima[MINE];
        [[unroll]] for (uint r = 0; r < MINE; r++) {
            factors[r] = 0.0;
            minima[r] = 0.0;
        }
        [[unroll]] for (uint g = 0; g < GROUPS; g++) {
            uvec4 y[GROUP_QUADS / 4];
            int all = 0;
            [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {
                if (j % 4 == 0) {
                    y[j / 4] = words4[BYTES_AT + at / 16 + (g * GROUP_QUADS / 4 + j / 4) * (STEP / PIECE) + i];
                }
                all = dot4(y[j / 4][j % 4], ONES, all);
            }
            const float scale = CHUNK_SCALE(quad_at(at / PIECE + i, g, 0) / 32);
            [[unroll]] for (uint r = 0; r < MINE; r++) {
                int products = int(PIECE_OFFSET) * all;
                [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {
                    products = dot4(bytes(w[r], g, j), y[j / 4][j % 4], products);
                }
                ADD_GROUP(w[r], g, r, scale * float(products), SUM_OF(0, at / PIECE + i, g, scale * float(all)))
            }
        }
        [[unroll]] for (uint r = 0; r < MINE; r++) {
            const vec2 whole = of_piece(w[r]);
            sums[r] += lane < left ? whole.x * factors[r] + whole.y * minima[r] : 0.0;
        }
    }
}

#endif
