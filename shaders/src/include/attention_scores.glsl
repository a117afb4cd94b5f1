// Mask and soft-max of flash_attn_matrix.comp, whose constants give the places: PARTS adjacent invocations share a row of
// scores.
#ifndef ATTENTION_SCORES_GLSL
#define ATTENTION_SCORES_GLSL

#include "attention_queries.glsl"

// Mask of the invocation's part of a row, multiplied by the slope; then the scores. Both are in base 2.
vec4 bias[QUADS];
// For its row: the largest score so far, and its part of the sum of weights.
float largest, sum;

// Issues the loads of the mask for part `part` of a row in the step from position `first` on, multiplied by the slope. The type
// of the mask is tested once.
void send_mask(uint first, uint part, uint row_mask, float slope) {
    const uint position = first + part * (4 * QUADS);
    if (MASK_TYPE == MASK_F32) {
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            bias[w] = mask4[(row_mask + min(position + 4 * w, p.kv_0 - 4)) / 4] * slope;
        }
    } else if (MASK_TYPE == NO_MASK) {
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            bias[w] = vec4(0.0);
        }
    } else {
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            bias[w] = from_halves(mask_pairs[(row_mask + min(position + 4 * w, p.kv_0 - 4)) / 4]) * slope;
        }
    }
    if (first + BC > p.kv_0) {
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            [[unroll]] for (uint j = 0; j < 4; j++) {
                bias[w][j] = position + 4 * w + j < p.kv_0 ? bias[w][j] : MINUS_INFINITY;
            }
        }
    }
}

// Returns the products of part `part` of a row of the work-group, summed over the shares.
void take_products(uint row, uint part, out vec4 s[QUADS]) {
    [[unroll]] for (uint w = 0; w < QUADS; w++) {
        s[w] = uintBitsToFloat(tiles[S0 + row * S_STRIDE + part * QUADS + w]);
        [[unroll]] for (uint other = 1; other < SHARES; other++) {
            s[w] += uintBitsToFloat(tiles[S0 + (other * BR + row) * S_STRIDE + part * QUADS + w]);
        }
    }
}

// Converts products to scores, in base 2; returns the largest. Hidden scores are minus infinity if the product is finite, or
// with `careful` always.
float scores_from(vec4 products[QUADS], float to_score, const bool careful, out vec4 s[QUADS]) {
    float most = LOWEST;
    [[unroll]] for (uint w = 0; w < QUADS; w++) {
        s[w] = bias[w] + products[w] * to_score;
        if (careful) {
            s[w] = mix(s[w], vec4(MINUS_INFINITY), equal(bias[w], vec4(MINUS_INFINITY)));
        }
        most = max(max(most, max(s[w].x, s[w].y)), max(s[w].z, s[w].w));
    }
    return max(largest, largest_of(most, PARTS));
}

// Converts scores to weights; `now` is the largest score so far. Returns their sum.
float weights_from(inout vec4 s[QUADS], float now) {
    float total = 0.0;
    [[unroll]] for (uint w = 0; w < QUADS; w++) {
        s[w] = exp2(s[w] - (now - WEIGHT_EXPONENT));
        total += (s[w].x + s[w].y) + (s[w].z + s[w].w);
    }
    return total;
}

// Stores weights in place of the products, as sums of two F16 numbers: the first of all positions, then the second.
void put_weights(uint row, uint part, vec4 weights[QUADS]) {
    uvec2 high[QUADS], rest[QUADS];
    [[unroll]] for (uint w = 0; w < QUADS; w++) {
        const vec4 cut = high_part(weights[w]);
        high[w] = halves_of(cut);
        rest[w] = halves_of(weights[w] - cut);
    }
    const uint at = S0 + row * S_STRIDE;
    if (QUADS % 2 == 0) {
        [[unroll]] for (uint w = 0; w < QUADS; w += 2) {
            const uint eight = at + (part * QUADS + w) / 2;
            tiles[eight] = uvec4(high[w], high[w + 1]);
            tiles[eight + BC / 8] = uvec4(rest[w], rest[w + 1]);
        }
    } else {
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            const uint eight = at + (part * QUADS + w) / 2, of_eight = (part * QUADS + w) % 2 * 2;
            tiles[eight][of_eight] = high[w].x;
            tiles[eight][of_eight + 1] = high[w].y;
            tiles[eight + BC / 8][of_eight] = rest[w].x;
            tiles[eight + BC / 8][of_eight + 1] = rest[w].y;
        }
    }
}

// Converts the products of a step to weights, and computes factors for the results so far. Scores are products times
// `to_score`, or with a soft cap times `inverse`. Only if a weight is NaN, the mask is tested again: NaNs at hidden positions
// are removed; any other makes the row NaN.
void weigh(uint row, uint part, float to_score, float inverse) {
    vec4 products[QUADS], s[QUADS];
    take_products(row, part, products);
    if (p.logit_softcap != 0.0) {
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            products[w] = scores_of(products[w] * inverse);
        }
    }
    float now = scores_from(products, to_score, false, s);
    float total = weights_from(s, now);
    if (isnan(sum_of(total, PARTS))) {
        now = scores_from(products, to_score, true, s);
        total = weights_from(s, now);
    }
    const float factor = exp2(largest - now);
    largest = now;
    sum = sum * factor + total;
    if (part == 0) {
        tiles[FACTORS + row / 4][row % 4] = floatBitsToUint(factor);
    }
    // All products of the row have been read.
    subgroup_done();
    put_weights(row, part, s);
}

// Returns a weight of a row of the work-group, the sum of both parts.
float weight_of(uint row, uint key) {
    const uint at = S0 + row * S_STRIDE + key / 8;
    const uint pair = key % 8 / 2, shift = key % 2 * 16;
    return unpackHalf2x16(tiles[at][pair] >> shift).x + unpackHalf2x16(tiles[at + BC / 8][pair] >> shift).x;
}

#endif
