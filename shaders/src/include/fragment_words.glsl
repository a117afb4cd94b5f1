// Words of mat_tile.glsl: NEIGHBOURS adjacent elements along k in 32 bits, for fragments in the registers of single invocations.
// Each multiplies TM rows by TN columns of quantised weights and rounded activations.
//
// A step is 32 elements of k. Shared memory has it word by word, with all rows of a word adjacent, so that 16 bytes are a word
// of four rows: with 8 x 4, three such reads for 32 products of words. The products of a group with one factor (32 elements, for
// some types 16) are summed as the form does, then scaled.
//
// An invocation has TM / 4 groups of four rows, and TN / 4 of four columns. A work-group has SLICES times (BM / TM) * (BN / TN)
// invocations.
// Shared memory: the words, with eight more rows than there are for each, which puts adjacent elements along k on other banks;
// factors.
//
// Before, the form (fragment_int8.glsl, fragment_packed.glsl) defines NEIGHBOURS; LOADERS, the invocations that load the 16-byte
// vectors of a column for a step; PRODUCT, the type of the sums of a group, and product_of, which adds the product of two words
// to one. Then it defines
//
//     word(w, i)                    word i of a piece
//     put_factor(at, w)             writes the factor of a group, which belongs to a piece
//
// and includes word_products.glsl.
#ifndef FRAGMENT_WORDS_GLSL
#define FRAGMENT_WORDS_GLSL

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
const uint WORDS = BK / NEIGHBOURS;

const uint LINE_A = BM + 8;
const uint LINE_B = BN + 8;
const uint TILES = BUFFERS * SLICES;
shared uint tile_a[TILES * WORDS * LINE_A];
shared uint tile_b[TILES * WORDS * LINE_B];
shared float factors_a[TILES * GROUPS_OF_STEP * BM];
#ifdef HAS_MINIMUM
shared float minima_a[TILES * GROUPS_OF_STEP * BM];
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
    return PIECE_OFFSET == 0.0 ? q : (q | 0x80808080u) - uint(-PIECE_OFFSET) * 0x01010101u ^ 0x80808080u;
#endif
}

// The last invocations load a piece for its factor, that of a group of one row: so each factor is unpacked once. Unused parts of
// a piece are not loaded.
const uint LOADS_B = BN * LOADERS / WG;
const uint FACTORS_A = BM * GROUPS_OF_STEP;
uvec4 v[LOADS_B];
Piece of_group;

uint rounded_columns();
uint word(Piece w, uint i);
void put_factor(uint at, Piece w);


// Values that do not change along k, because Mesa's compiler would compute them in every step. Here: the starts of rows and
// columns, including those of the group.
uint rows_a[LOADS_A];
uint columns_b[LOADS_B];
uint group_row;
uint group_piece;
// Places of the first piece and of the first activations in shared memory.
uint place_a;
uint place_b;
// First row and column of the tile that the invocation multiplies.
uint tile_row;
uint tile_column;

#define row_of_piece(lane, j) rows_a[j]

// Words of a quad of weights, and of 16 bytes of a column.
const uint OF_QUAD = 4 / NEIGHBOURS;

void begin_words(uint lane, uint slice) {
    no_sums();
    [[unroll]] for (uint j = 0; j < LOADS_A; j++) {
        rows_a[j] = row_of_a(place_of_piece(lane, j));
    }
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        columns_b[j] = row_of_b(lane / LOADERS + j * (WG / LOADERS)) + lane % LOADERS;
    }
    const uint group = lane - (WG - FACTORS_A);
    group_row = row_of_a(group % BM);
    group_piece = group / BM * (4 / GROUPS_OF_STEP);
    // Steps are whole blocks of 32, so places within a step do not depend on its index.
    place_a = (slice * WORDS + quad_at(lane % PIECES, 0, 0) / NEIGHBOURS) * LINE_A + lane / PIECES;
    place_b = (slice * WORDS + lane % LOADERS * 4) * LINE_B + lane / LOADERS;
    tile_row = lane % TR * 4;
    tile_column = lane / TR * 4;
}

void put_piece(uint lane, uint j, uint tile, uint turn, uint k0, Piece w) {
    [[unroll]] for (uint i = 0; i < 2 * OF_QUAD; i++) {
        const uint at = turn * SLICES * WORDS + quad_at(0, 0, i / OF_QUAD) / NEIGHBOURS + i % OF_QUAD;
        tile_a[place_a + at * LINE_A + place_of_piece(0, j)] = word(w, i);
    }
}

void fetch_words(uint lane, uint k0) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        v[j] = rounded[columns_b[j] + k0 / (32 / LOADERS)];
    }
}

void fetch_group(uint lane, uint k0) {
    if (lane >= WG - FACTORS_A) {
        of_group = load_piece(group_row, k0 / 8, group_piece);
    }
}

void put_words(uint lane, uint tile, uint turn) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        [[unroll]] for (uint l = 0; l < 4; l++) {
            const uint at = turn * SLICES * WORDS + l;
            tile_b[place_b + at * LINE_B + j * (WG / LOADERS)] = v[j][l];
        }
    }
}

void put_group(uint lane, uint tile) {
    if (lane >= WG - FACTORS_A) {
        const uint at = tile * FACTORS_A + lane - (WG - FACTORS_A);
        put_factor(at, of_group);
#ifdef HAS_MINIMUM
        minima_a[at] = of_piece(of_group).y * minimum(of_group, 0);
#endif
    }
}

#endif
