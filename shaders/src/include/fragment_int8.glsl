// Fragment of mat_tile.glsl for dot products of bytes: each invocation multiplies TM rows with TN columns of quantised weights
// and activations in 8 bits (int8.glsl), which were rounded before (mul_mat_round_int8.comp).
//
// A step is 32 elements of k, eight words of a row. Shared memory has them word after word, all rows of a word side by side,
// so that 16 bytes are a word of four rows: with 8 x 4 three such reads for 32 dot products. The products of a group that
// has one factor (32 elements, of some types 16) are summed as integers, then scaled: three operations for eight dot products,
// one more where weights have a minimum, which takes the sum of the activations. Numbers that count from an offset lose it
// on their way to shared memory.
//
// An invocation has TM / 4 runs of four rows, and TN / 4 of four columns. A work-group has SLICES times
// (BM / TM) * (BN / TN) invocations. UNROLL: words of a step that are written out.
// Shared memory: the words, eight rows more than there are for each, which puts neighbours along k on other banks; factors.
#ifndef FRAGMENT_INT8_GLSL
#define FRAGMENT_INT8_GLSL

#define QUADS 4
#include "int8.glsl"

const bool AHEAD = true;
const uint TR = BM / TM;
const uint TC = BN / TN;

// Groups of a step with a factor of their own.
#if defined(A_Q2_K) || defined(A_Q3_K) || defined(A_Q6_K)
const uint GROUPS_OF_STEP = 2;
#else
const uint GROUPS_OF_STEP = 1;
#endif
const uint GROUP = 32 / GROUPS_OF_STEP;
const uint WORDS = BK / 4;

// Vectors of four rows or columns.
const uint LINE_A = (BM + 8) / 4;
const uint LINE_B = (BN + 8) / 4;
const uint TILES = BUFFERS * SLICES;
shared uvec4 tile_a[TILES * WORDS * LINE_A];
shared uvec4 tile_b[TILES * WORDS * LINE_B];
shared vec4 factors_a[TILES * GROUPS_OF_STEP * BM / 4];
shared vec4 factors_b[TILES * BN / 4];
#ifdef HAS_MINIMUM
shared vec4 minima_a[TILES * GROUPS_OF_STEP * BM / 4];
shared vec4 sums_b[TILES * GROUPS_OF_STEP * BN / 4];
#endif

#define ROW_OF(lane, i) ((lane) % TR * 4 + (i) / 4 * (4 * TR) + (i) % 4)
#define COLUMN_OF(lane, j) ((lane) / TR * 4 + (j) / 4 * (4 * TC) + (j) % 4)
#include "lane_sums.glsl"

void clear_sums() {
    no_sums();
}

#define too_large(turn) false

// Four weights as signed bytes. No borrow leaves a byte: its top bit is set before and turned after.
uint signed_bytes(Piece w, uint j) {
#if defined(A_IQ4_XS)
    return from_pairs(bytes(w, 0, j), 0);
#else
    const uint q = bytes(w, 0, j);
    return PIECE_OFFSET == 0.0 ? q : (q | 0x80808080u) - uint(-PIECE_OFFSET) * ONES ^ 0x80808080u;
#endif
}

void put_piece(uint row, uint piece, uint k0, Piece w) {
    const uint tile = row / BM;
    const uint r = row % BM;
    [[unroll]] for (uint j = 0; j < 2; j++) {
        const uint word = (quad_at(piece, 0, j) - k0) / 4;
        tile_a[(tile * WORDS + word) * LINE_A + r / 4][r % 4] = signed_bytes(w, j);
    }
    const uint first = quad_at(piece, 0, 0) - k0;
    if (first % GROUP == 0) {
        const uint at = (tile * GROUPS_OF_STEP + first / GROUP) * BM + r;
        factors_a[at / 4][at % 4] = of_piece(w).x * factor(w, 0);
#ifdef HAS_MINIMUM
        minima_a[at / 4][at % 4] = of_piece(w).y * minimum(w, 0);
#endif
    }
}

// An invocation carries sixteens of activations, and what belongs to a block of one column.
const uint LOADS_B = BN * 2 / WG;
uvec4 v[LOADS_B];
vec4 block;

uint rounded_columns();

void fetch_b(uint lane, uint k0, bool whole) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        const uint i = lane + j * WG;
        v[j] = rounded[row_of_b(i / 2) + k0 / 16 + i % 2];
    }
    if (lane < BN) {
        block = blocks[rounded_columns() * rounded_pitch() + row_of_b(lane) / 2 + k0 / 32];
    }
}

void put_b(uint lane, uint tile, uint turn) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        const uint i = lane + j * WG;
        [[unroll]] for (uint l = 0; l < 4; l++) {
            tile_b[(tile * WORDS + i % 2 * 4 + l) * LINE_B + i / 8][i / 2 % 4] = v[j][l];
        }
    }
    if (lane < BN) {
        const uint at = tile * BN + lane;
        factors_b[at / 4][at % 4] = block.x;
#ifdef HAS_MINIMUM
        [[unroll]] for (uint g = 0; g < GROUPS_OF_STEP; g++) {
            const uint of_group = (tile * GROUPS_OF_STEP + g) * BN + lane;
            sums_b[of_group / 4][of_group % 4] = GROUPS_OF_STEP == 1 ? block.y + block.z : block[1 + g];
        }
#endif
    }
}

void multiply(uint lane, uint slice, uint turn) {
    const uint tile = turn * SLICES + slice;
    [[unroll]] for (uint g = 0; g < GROUPS_OF_STEP; g++) {
        int products[TM * TN];
        [[unroll]] for (uint i = 0; i < TM * TN; i++) {
            products[i] = 0;
        }
        const uint first = tile * WORDS + g * (GROUP / 4);
        [[dont_unroll]] for (uint w0 = 0; w0 < GROUP / 4; w0 += UNROLL) {
            [[unroll]] for (uint w1 = 0; w1 < UNROLL; w1++) {
                uvec4 x[TM / 4];
                [[unroll]] for (uint i = 0; i < TM / 4; i++) {
                    x[i] = tile_a[(first + w0 + w1) * LINE_A + lane % TR + i * TR];
                }
                [[unroll]] for (uint n = 0; n < TN / 4; n++) {
                    const uvec4 y = tile_b[(first + w0 + w1) * LINE_B + lane / TR + n * TC];
                    [[unroll]] for (uint j = 0; j < 4; j++) {
                        [[unroll]] for (uint i = 0; i < TM; i++) {
                            const uint at = (n * 4 + j) * TM + i;
                            products[at] = dot4(x[i / 4][i % 4], y[j], products[at]);
                        }
                    }
                }
            }
        }
        [[unroll]] for (uint n = 0; n < TN / 4; n++) {
            const vec4 y = factors_b[tile * (BN / 4) + lane / TR + n * TC];
            [[unroll]] for (uint m = 0; m < TM / 4; m++) {
                const vec4 x = factors_a[(tile * GROUPS_OF_STEP + g) * (BM / 4) + lane % TR + m * TR];
                [[unroll]] for (uint e = 0; e < 16; e++) {
                    const uint at = (n * 4 + e / 4) * TM + m * 4 + e % 4;
                    sums[at] += x[e % 4] * y[e / 4] * float(products[at]);
                }
            }
#ifdef HAS_MINIMUM
            const vec4 all = sums_b[(tile * GROUPS_OF_STEP + g) * (BN / 4) + lane / TR + n * TC];
            [[unroll]] for (uint m = 0; m < TM / 4; m++) {
                const vec4 low = minima_a[(tile * GROUPS_OF_STEP + g) * (BM / 4) + lane % TR + m * TR];
                [[unroll]] for (uint e = 0; e < 16; e++) {
                    sums[(n * 4 + e / 4) * TM + m * 4 + e % 4] += low[e % 4] * all[e / 4];
                }
            }
#endif
        }
    }
}

#endif
