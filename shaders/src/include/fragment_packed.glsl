// Fragment of mat_tile.glsl for devices that multiply pairs of F16 but have no dot products of bytes: words (fragment_words.glsl) of
// two numbers. Activations were rounded to F16 before (mul_mat_round.comp).
//
// Weights are the integers of their blocks, without a factor and an offset, which F16 holds exactly. One instruction multiplies
// and adds two pairs; for 32 products, three more (two on RDNA) add the sums of even and odd elements and the result, as F32,
// times the factor to the sum; one if weights have a minimum.
// A column of activations was multiplied by a power of two that brings its largest magnitude to 2^2 .. 2^3, and its results are
// multiplied by the inverse. So a sum of the 32 products of a group is below 32 * 128 * 8: nothing overflows, whatever the
// weights are.
#ifndef FRAGMENT_PACKED_GLSL
#define FRAGMENT_PACKED_GLSL

const uint NEIGHBOURS = 2;
const uint LOADERS = 4;
#define PRODUCT f16vec2
#define product_of(x, y, sum) fma(unpackFloat2x16(x), unpackFloat2x16(y), sum)
const f16vec2 FIRST = f16vec2(0.0);

#define SUM_FACTOR(column) factor_of(column)
float factor_of(uint column);

#include "fragment_words.glsl"

#ifdef HAS_MINIMUM
// Sums of eight adjacent activations of each column.
shared float sums_b[TILES * 4 * BN];
#endif

// A byte under a high byte of 0x64 is the number 1024 + byte.
uint word(Piece w, uint i) {
    const uint q = (signed_bytes(w, i / 2) ^ 0x80808080u) >> (i % 2 * 16);
    const f16vec2 x = unpackFloat2x16((q & 0xff) | (q & 0xff00) << 8 | 0x64006400u);
    return packFloat2x16(x - f16vec2(1152.0));
}

void begin(uint lane, uint slice) {
    begin_words(lane, slice);
}

void fetch_b(uint lane, uint k0, bool whole) {
    fetch_words(lane, k0);
    fetch_group(lane, k0);
}

void put_factor(uint at, Piece w) {
    factors_a[at] = of_piece(w).x * factor(w, 0);
}

void put_b(uint lane, uint tile, uint turn) {
    put_words(lane, tile, turn);
#ifdef HAS_MINIMUM
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        float sum = 0.0;
        [[unroll]] for (uint l = 0; l < 4; l++) {
            const vec2 x = vec2(unpackFloat2x16(v[j][l]));
            sum += x.x + x.y;
        }
        sums_b[(tile * 4 + lane % 4) * BN + lane / 4 + j * (WG / 4)] = sum;
    }
#endif
    put_group(lane, tile);
}

#define FACTORS_OF_COLUMNS(tile, columns)
#ifdef HAS_MINIMUM
vec4 sums_of_columns(uint tile, uint g, uint columns) {
    vec4 all = vec4(0.0);
    [[unroll]] for (uint part = 0; part < 4 / GROUPS_OF_STEP; part++) {
        all += FOUR(vec4, sums_b, (tile * 4 + g * (4 / GROUPS_OF_STEP) + part) * BN + columns);
    }
    return all;
}
#endif
#define BEGINS_OF_ROWS(rows)
#define ADD_SCALED(at, row, column) sums[at] = fma(float(products[at].x + products[at].y), x[row], sums[at]);
#include "word_products.glsl"

#endif
