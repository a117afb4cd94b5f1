// Fragment of mat_tile.glsl for dot products of bytes: each invocation multiplies TM rows by TN columns of quantised weights
// and activations in 8 bits (int8.glsl), which were rounded before (mul_mat_round_int8.comp).
//
// A step is 32 elements of k, eight words of a row. Shared memory has them word by word, with all rows of a word adjacent, so
// that 16 bytes are a word of four rows: with 8 x 4, three such reads for 32 dot products. The products of a group with one
// factor (32 elements, for some types 16) are summed as integers, then scaled: two operations for eight dot products, one more
// if weights have a minimum, which is multiplied by the sum of the activations. Offsets of integers are subtracted on their way
// to shared memory.
//
// No instruction converts the integers to floats. They start with the bits of BEGIN = 1.5 * 2^23, whose unit in the last place
// is 1, so the bits of a sum s represent the float BEGIN + s. This float times the factor of the weights, minus BEGIN times the
// factor (exact: factors have at most 19 bits), is s times the factor; if products are rounded before they are added, within
// 3/4 of the factor. The factors of MXFP4 are powers of two of any size and need a conversion.
//
// An invocation has TM / 4 groups of four rows, and TN / 4 of four columns. A work-group has SLICES times (BM / TM) * (BN / TN)
// invocations.
// Shared memory: the words, with eight more rows than there are for each, which puts adjacent elements along k on other banks;
// factors.
#ifndef FRAGMENT_INT8_GLSL
#define FRAGMENT_INT8_GLSL

#define QUADS 4
#include "int8.glsl"

const bool AHEAD = true;
// A branch would copy the loaded data, and wait for it.
const bool FETCH_LAST = true;
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

const uint LINE_A = BM + 8;
const uint LINE_B = BN + 8;
const uint TILES = BUFFERS * SLICES;
shared uint tile_a[TILES * WORDS * LINE_A];
shared uint tile_b[TILES * WORDS * LINE_B];
shared float factors_a[TILES * GROUPS_OF_STEP * BM];
#ifndef A_MXFP4
#define AS_FLOATS
const float BEGIN = 12582912.0;
const int FIRST = 0x4b400000;
// -BEGIN times the factors.
shared float begins_a[TILES * GROUPS_OF_STEP * BM];
#else
const int FIRST = 0;
#endif
shared float factors_b[TILES * BN];
#ifdef HAS_MINIMUM
shared float minima_a[TILES * GROUPS_OF_STEP * BM];
shared float sums_b[TILES * GROUPS_OF_STEP * BN];
#endif

#define ROW_OF(lane, i) ((lane) % TR * 4 + (i) / 4 * (4 * TR) + (i) % 4)
#define COLUMN_OF(lane, j) ((lane) / TR * 4 + (j) / 4 * (4 * TC) + (j) % 4)
#include "lane_sums.glsl"

// Four adjacent elements, with one read.
#define FOUR(type, from, at) type(from[at], from[(at) + 1], from[(at) + 2], from[(at) + 3])

#define too_large(turn) false

// Four weights as signed bytes. No borrow leaves a byte: its top bit is set before and inverted afterwards.
uint signed_bytes(Piece w, uint j) {
#if defined(A_IQ4_XS)
    return from_pairs(bytes(w, 0, j), 0);
#else
    const uint q = bytes(w, 0, j);
    return PIECE_OFFSET == 0.0 ? q : (q | 0x80808080u) - uint(-PIECE_OFFSET) * ONES ^ 0x80808080u;
#endif
}

// An invocation loads groups of sixteen activations. The first invocations also load the data of a block of one column, the
// last ones a piece for its factor, that of a group of one row: so each factor is unpacked once, and by another wavefront.
// Unused parts of a piece are not loaded.
const uint LOADS_B = BN * 2 / WG;
const uint FACTORS_A = BM * GROUPS_OF_STEP;
uvec4 v[LOADS_B];
vec4 block;
Piece of_group;

uint rounded_columns();

// Values that do not change along k, because Mesa's compiler would compute them in every step. Here: the starts of rows and
// columns, including those of the block and the group.
uint rows_a[LOADS_A];
uint columns_b[LOADS_B];
uint block_at;
uint group_row;
uint group_piece;
// Places of the first piece and of the first sixteen activations in shared memory.
uint place_a;
uint place_b;
// First row and column of the tile that the invocation multiplies.
uint tile_row;
uint tile_column;

#define row_of_piece(lane, j) rows_a[j]

void begin(uint lane, uint slice) {
    no_sums();
    [[unroll]] for (uint j = 0; j < LOADS_A; j++) {
        rows_a[j] = row_of_a(place_of_piece(lane, j));
    }
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        columns_b[j] = row_of_b(lane / 2 + j * (WG / 2)) + lane % 2;
    }
    block_at = rounded_columns() * rounded_pitch() + row_of_b(min(lane, BN - 1)) / 2;
    const uint group = lane - (WG - FACTORS_A);
    group_row = row_of_a(group % BM);
    group_piece = group / BM * (4 / GROUPS_OF_STEP);
    // Steps are whole blocks of 32, so places within a step do not depend on its index.
    place_a = (slice * WORDS + quad_at(lane % PIECES, 0, 0) / 4) * LINE_A + lane / PIECES;
    place_b = (slice * WORDS + lane % 2 * 4) * LINE_B + lane / 2;
    tile_row = lane % TR * 4;
    tile_column = lane / TR * 4;
}

void put_piece(uint lane, uint j, uint tile, uint turn, uint k0, Piece w) {
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uint word = turn * SLICES * WORDS + quad_at(0, 0, i) / 4;
        tile_a[place_a + word * LINE_A + place_of_piece(0, j)] = signed_bytes(w, i);
    }
}

void fetch_b(uint lane, uint k0, bool whole) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        v[j] = rounded[columns_b[j] + k0 / 16];
    }
    if (lane < BN) {
        block = blocks[block_at + k0 / 32];
    }
    if (lane >= WG - FACTORS_A) {
        of_group = load_piece(group_row, k0 / 8, group_piece);
    }
}

void put_factors(uint at, Piece w) {
    const float x = of_piece(w).x * factor(w, 0);
    factors_a[at] = x;
#ifdef AS_FLOATS
    begins_a[at] = x * -BEGIN;
#endif
#ifdef HAS_MINIMUM
    minima_a[at] = of_piece(w).y * minimum(w, 0);
#endif
}

void put_b(uint lane, uint tile, uint turn) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        [[unroll]] for (uint l = 0; l < 4; l++) {
            const uint word = turn * SLICES * WORDS + l;
            tile_b[place_b + word * LINE_B + j * (WG / 2)] = v[j][l];
        }
    }
    if (lane < BN) {
        factors_b[tile * BN + lane] = block.x;
#ifdef HAS_MINIMUM
        [[unroll]] for (uint g = 0; g < GROUPS_OF_STEP; g++) {
            sums_b[(tile * GROUPS_OF_STEP + g) * BN + lane] = GROUPS_OF_STEP == 1 ? block.y + block.z : block[1 + g];
        }
#endif
    }
    if (lane >= WG - FACTORS_A) {
        put_factors(tile * FACTORS_A + lane - (WG - FACTORS_A), of_group);
    }
}

void multiply(uint lane, uint slice, uint turn) {
    const uint tile = turn * SLICES + slice;
    const uint row = tile_row;
    const uint column = tile_column;
    [[unroll]] for (uint g = 0; g < GROUPS_OF_STEP; g++) {
        int products[TM * TN];
        [[unroll]] for (uint w = 0; w < GROUP / 4; w++) {
            const uint word = tile * WORDS + g * (GROUP / 4) + w;
            uvec4 x[TM / 4];
            [[unroll]] for (uint i = 0; i < TM / 4; i++) {
                x[i] = FOUR(uvec4, tile_a, word * LINE_A + row + i * (4 * TR));
            }
            [[unroll]] for (uint n = 0; n < TN / 4; n++) {
                const uvec4 y = FOUR(uvec4, tile_b, word * LINE_B + column + n * (4 * TC));
                [[unroll]] for (uint e = 0; e < 4 * TM; e++) {
                    const uint at = n * 4 * TM + e;
                    products[at] = dot4(x[e % TM / 4][e % 4], y[e / TM], w == 0 ? FIRST : products[at]);
                }
            }
        }
        const uint rows = (tile * GROUPS_OF_STEP + g) * BM + row;
        [[unroll]] for (uint n = 0; n < TN / 4; n++) {
            const vec4 y = FOUR(vec4, factors_b, tile * BN + column + n * (4 * TC));
#ifdef HAS_MINIMUM
            const vec4 all = FOUR(vec4, sums_b, (tile * GROUPS_OF_STEP + g) * BN + column + n * (4 * TC));
#endif
            [[unroll]] for (uint m = 0; m < TM / 4; m++) {
                const vec4 x = FOUR(vec4, factors_a, rows + m * (4 * TR));
#ifdef AS_FLOATS
                const vec4 less = FOUR(vec4, begins_a, rows + m * (4 * TR));
#endif
#ifdef HAS_MINIMUM
                const vec4 low = FOUR(vec4, minima_a, rows + m * (4 * TR));
#endif
                [[unroll]] for (uint e = 0; e < 16; e++) {
                    const uint at = (n * 4 + e / 4) * TM + m * 4 + e % 4;
#ifdef AS_FLOATS
                    sums[at] += y[e / 4] * fma(intBitsToFloat(products[at]), x[e % 4], less[e % 4]);
#else
                    sums[at] += x[e % 4] * y[e / 4] * float(products[at]);
#endif
#ifdef HAS_MINIMUM
                    sums[at] += low[e % 4] * all[e / 4];
#endif
                }
            }
        }
    }
}

#endif
