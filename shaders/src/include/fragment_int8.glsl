// Fragment of mat_tile.glsl for dot products of bytes: words (fragment_words.glsl) of four quantised weights and of activations in
// 8 bits (int8.glsl), which were rounded before (mul_mat_round_int8.comp).
//
// Products of a group are summed as integers, then scaled: two operations for eight dot products, one more if weights have a
// minimum, which is multiplied by the sum of the activations. Offsets of integers are subtracted on their way to shared memory.
//
// No instruction converts the integers to floats. They start with the bits of BEGIN = 1.5 * 2^23, whose unit in the last place
// is 1, so the bits of a sum s represent the float BEGIN + s. This float times the factor of the weights, minus BEGIN times the
// factor (exact: factors have at most 19 bits), is s times the factor; if products are rounded before they are added, within
// 3/4 of the factor. The factors of MXFP4 are powers of two of any size and need a conversion.
#ifndef FRAGMENT_INT8_GLSL
#define FRAGMENT_INT8_GLSL

#define QUADS 4
#include "int8.glsl"

const uint NEIGHBOURS = 4;
const uint LOADERS = 2;
#define PRODUCT int
#define product_of(x, y, sum) dot4(x, y, sum)
#ifndef A_MXFP4
#define AS_FLOATS
const float BEGIN = 12582912.0;
const int FIRST = 0x4b400000;
#else
const int FIRST = 0;
#endif

#include "fragment_words.glsl"

#ifdef AS_FLOATS
// -BEGIN times the factors.
shared float begins_a[TILES * GROUPS_OF_STEP * BM];
#endif
shared float factors_b[TILES * BN];
#ifdef HAS_MINIMUM
shared float sums_b[TILES * GROUPS_OF_STEP * BN];
#endif

// The first invocations also load the data of a block of one column; the place of the first one.
vec4 block;
uint block_at;

uint word(Piece w, uint i) {
    return signed_bytes(w, i);
}

void begin(uint lane, uint slice) {
    begin_words(lane, slice);
    block_at = rounded_columns() * rounded_pitch() + row_of_b(min(lane, BN - 1)) / 2;
}

void fetch_b(uint lane, uint k0, bool whole) {
    fetch_words(lane, k0);
    if (lane < BN) {
        block = blocks[block_at + k0 / 32];
    }
    fetch_group(lane, k0);
}

void put_factor(uint at, Piece w) {
    const float x = of_piece(w).x * factor(w, 0);
    factors_a[at] = x;
#ifdef AS_FLOATS
    begins_a[at] = x * -BEGIN;
#endif
}

void put_b(uint lane, uint tile, uint turn) {
    put_words(lane, tile, turn);
    if (lane < BN) {
        factors_b[tile * BN + lane] = block.x;
#ifdef HAS_MINIMUM
        [[unroll]] for (uint g = 0; g < GROUPS_OF_STEP; g++) {
            sums_b[(tile * GROUPS_OF_STEP + g) * BN + lane] = GROUPS_OF_STEP == 1 ? block.y + block.z : block[1 + g];
        }
#endif
    }
    put_group(lane, tile);
}

#define FACTORS_OF_COLUMNS(tile, columns) const vec4 y = FOUR(vec4, factors_b, tile * BN + columns);
#ifdef HAS_MINIMUM
vec4 sums_of_columns(uint tile, uint g, uint columns) {
    return FOUR(vec4, sums_b, (tile * GROUPS_OF_STEP + g) * BN + columns);
}
#endif
#ifdef AS_FLOATS
#define BEGINS_OF_ROWS(rows) const vec4 less = FOUR(vec4, begins_a, rows);
#define ADD_SCALED(at, row, column) sums[at] += y[column] * fma(intBitsToFloat(products[at]), x[row], less[row]);
#else
#define BEGINS_OF_ROWS(rows)
#define ADD_SCALED(at, row, column) sums[at] += x[row] * y[column] * float(products[at]);
#endif
#include "word_products.glsl"

#endif
