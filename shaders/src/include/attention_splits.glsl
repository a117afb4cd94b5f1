// Splits of the positions, for flash_attn_matrix.comp, whose constants give the places: the grid's x has the tiles of tokens of
// the first split, then those of the next ones.
#ifndef ATTENTION_SPLITS_GLSL
#define ATTENTION_SPLITS_GLSL

struct Split {
    // Number of splits, index of this one, and the tile of tokens.
    uint count, index, tile;
    // Its positions.
    uint begin, end;
};

Split this_split() {
    const uint tiles_of_all = (p.ne_0 + BR - 1) / BR;
    Split split;
    split.count = gl_NumWorkGroups.x / tiles_of_all;
    split.index = gl_WorkGroupID.x / tiles_of_all;
    split.tile = gl_WorkGroupID.x - split.index * tiles_of_all;
    const uint sought = (p.kv_0 + SOUGHT - 1) / SOUGHT;
    const uint each = (sought + split.count - 1) / split.count * SOUGHT;
    const uint all = (p.kv_0 + BC - 1) / BC * BC;
    split.begin = min(split.index * each, all);
    split.end = min(split.begin + each, all);
    return split;
}

// Place of a split's largest score and sum of weights, after the sums of values of all splits.
uint place_of_statistics(uint result_row, Split split, uint index) {
    return p.ne_0 * p.ne_1 * p.ne_2 * split.count * p.d_1 + 2 * (result_row * split.count + index);
}

void store_statistics(uint result_row, Split split, float largest_score, float sum_of_weights) {
    const uint at = place_of_statistics(result_row, split, split.index);
    scratch[at] = largest_score;
    scratch[at + 1] = sum_of_weights;
}

// Stores the factors of the splits' sums of a row in shared memory: two vectors for each row of the work-group.
void put_factors(uint row, uint result_row, Split split) {
    float maxima[MOST_SPLITS], sums[MOST_SPLITS];
    float most = LOWEST;
    [[unroll]] for (uint i = 0; i < MOST_SPLITS; i++) {
        const uint at = place_of_statistics(result_row, split, min(i, split.count - 1));
        maxima[i] = scratch[at];
        sums[i] = i < split.count ? scratch[at + 1] : 0.0;
        most = max(most, maxima[i]);
    }
    float total = 0.0;
    [[unroll]] for (uint i = 0; i < MOST_SPLITS; i++) {
        maxima[i] = exp2(maxima[i] - most);
        total += maxima[i] * sums[i];
    }
    const float factor = total == 0.0 ? 0.0 : 1.0 / total;
    [[unroll]] for (uint i = 0; i < MOST_SPLITS; i++) {
        tiles[row * (MOST_SPLITS / 4) + i / 4][i % 4] = floatBitsToUint(maxima[i] * factor);
    }
}

// The last work-group joins the splits of its rows: each invocation four columns at a time, of all splits together.
void join_splits(uint token0, uint head, uint batch, Split split) {
    const uint groups = gl_NumWorkGroups.x / split.count;
    const uint slot = (batch * p.ne_1 + head) * groups + split.tile;
    if (!is_last(slot, split.count)) {
        return;
    }
    const uint rows = min(BR, p.ne_0 - token0);
    for (uint row = gl_LocalInvocationIndex; row < rows; row += WG) {
        put_factors(row, (batch * p.ne_0 + token0 + row) * p.ne_1 + head, split);
    }
    barrier();
    const uint quads = p.d_1 / 4;
    for (uint i = gl_LocalInvocationIndex; i < rows * quads; i += WG) {
        const uint row = i / quads, quad = i - row * quads;
        const uint result_row = (batch * p.ne_0 + token0 + row) * p.ne_1 + head;
        vec4 sums[MOST_SPLITS];
        [[unroll]] for (uint n = 0; n < MOST_SPLITS; n++) {
            sums[n] = n < split.count ? scratch4[(result_row * split.count + n) * quads + quad] : vec4(0.0);
        }
        vec4 result = vec4(0.0);
        [[unroll]] for (uint n = 0; n < MOST_SPLITS; n++) {
            if (n < split.count) {
                result += sums[n] * uintBitsToFloat(tiles[row * (MOST_SPLITS / 4) + n / 4][n % 4]);
            }
        }
        [[unroll]] for (uint e = 0; e < 4; e++) {
            d[p.off_5 + result_row * p.d_1 + 4 * quad + e] = result[e];
        }
    }
    if (gl_LocalInvocationIndex == 0) {
        arrived[slot] = 0;
    }
}

#endif
