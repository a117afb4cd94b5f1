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

void add_group(uint tile, uint g) {
    const uint rows = (tile * GROUPS_OF_STEP + g) * BM + tile_row;
    [[unroll]] for (uint n = 0; n < TN / 4; n++) {
        const vec4 y = FOUR(vec4, factors_b, tile * BN + tile_column + n * (4 * TC));
#ifdef HAS_MINIMUM
        const vec4 all = FOUR(vec4, sums_b, (tile * GROUPS_OF_STEP + g) * BN + tile_column + n * (4 * TC));
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

#endif
