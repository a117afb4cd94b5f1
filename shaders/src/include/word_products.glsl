// Products of the words of a step (fragment_words.glsl), and their scaled sums. The form has defined
//
//     FACTORS_OF_COLUMNS(tile, columns)  the factors y of four columns, if they differ along k
//     sums_of_columns(tile, g, columns)  the sums of the activations of group g
//     BEGINS_OF_ROWS(rows)               what else ADD_SCALED needs of four rows
//     ADD_SCALED(at, row, column)        adds products[at], scaled, to sums[at]
#ifndef WORD_PRODUCTS_GLSL
#define WORD_PRODUCTS_GLSL

void multiply(uint lane, uint slice, uint turn) {
    const uint tile = turn * SLICES + slice;
    [[unroll]] for (uint g = 0; g < GROUPS_OF_STEP; g++) {
        PRODUCT products[TM * TN];
        [[unroll]] for (uint w = 0; w < GROUP / NEIGHBOURS; w++) {
            const uint at = tile * WORDS + g * (GROUP / NEIGHBOURS) + w;
            uvec4 x[TM / 4];
            [[unroll]] for (uint i = 0; i < TM / 4; i++) {
                x[i] = FOUR(uvec4, tile_a, at * LINE_A + tile_row + i * (4 * TR));
            }
            [[unroll]] for (uint n = 0; n < TN / 4; n++) {
                const uvec4 y = FOUR(uvec4, tile_b, at * LINE_B + tile_column + n * (4 * TC));
                [[unroll]] for (uint e = 0; e < 4 * TM; e++) {
                    const uint i = n * 4 * TM + e;
                    products[i] = product_of(x[e % TM / 4][e % 4], y[e / TM], w == 0 ? FIRST : products[i]);
                }
            }
        }
        const uint rows = (tile * GROUPS_OF_STEP + g) * BM + tile_row;
        [[unroll]] for (uint n = 0; n < TN / 4; n++) {
            const uint columns = tile_column + n * (4 * TC);
            FACTORS_OF_COLUMNS(tile, columns)
#ifdef HAS_MINIMUM
            const vec4 all = sums_of_columns(tile, g, columns);
#endif
            [[unroll]] for (uint m = 0; m < TM / 4; m++) {
                const vec4 x = FOUR(vec4, factors_a, rows + m * (4 * TR));
                BEGINS_OF_ROWS(rows + m * (4 * TR))
#ifdef HAS_MINIMUM
                const vec4 low = FOUR(vec4, minima_a, rows + m * (4 * TR));
#endif
                [[unroll]] for (uint e = 0; e < 16; e++) {
                    const uint at = (n * 4 + e / 4) * TM + m * 4 + e % 4;
                    ADD_SCALED(at, e % 4, e / 4)
#ifdef HAS_MINIMUM
                    sums[at] += low[e % 4] * all[e / 4];
#endif
                }
            }
        }
    }
}

#endif
