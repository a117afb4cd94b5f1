// Queries, mask and soft-max of flash_attn_matrix.comp, whose constants give the places: PARTS adjacent invocations share a row
// of scores, BRINGERS one of queries.
#ifndef ATTENTION_SCORES_GLSL
#define ATTENTION_SCORES_GLSL

layout(set = 0, binding = 3, std430) readonly buffer Mask4 { vec4 mask4[]; };
layout(set = 0, binding = 3, std430) readonly buffer MaskPairs { uvec2 mask_pairs[]; };

const float LOG2_E = 1.4426950408889634;

// Weights and their sum are multiplied by two to this power.
const float WEIGHT_EXPONENT = 15.0;

// Mask of the invocation's part of a row, multiplied by the slope; then the scores. Both are in base 2.
vec4 bias[QUADS];
// For its row: the largest score so far, and its part of the sum of weights.
float largest, sum;

vec4 from_halves(uvec2 w) {
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
}

// Maximum over `count` adjacent invocations; their sum.
float largest_of(float x, const uint count) {
    [[unroll]] for (uint lanes = 1; lanes < count; lanes *= 2) {
        x = max(x, subgroupShuffleXor(x, lanes));
    }
    return x;
}

float sum_of(float x, const uint count) {
    [[unroll]] for (uint lanes = 1; lanes < count; lanes *= 2) {
        x += subgroupShuffleXor(x, lanes);
    }
    return x;
}

// Four queries as F16.
uvec2 queries_of(vec4 x) {
    const bvec4 finite = lessThan(floatBitsToUint(x) & 0x7f800000u, uvec4(0x7f800000u));
    return halves_of(rounded(x, mix(uvec4(0), uvec4(HALF_STEP), finite)));
}

// Stores the queries of a row of the work-group. `at`: start of the row in q; `bringer`: index of this invocation among those
// that load the row.
void put_queries(uint at, uint row, uint bringer, float factor) {
    [[unroll]] for (uint n = 0; n < (K_EIGHTS + BRINGERS - 1) / BRINGERS; n++) {
        const uint eight = bringer + n * BRINGERS;
        vec4 lo = vec4(0.0), hi = vec4(0.0);
        if (eight * 8 < p.d_0) {
            lo = q4[at / 4 + 2 * eight] * factor;
            hi = q4[at / 4 + 2 * eight + 1] * factor;
        }
        if (eight < K_EIGHTS) {
            tiles[Q0 + row * K_STRIDE + eight] = uvec4(queries_of(lo), queries_of(hi));
        }
    }
}

// Returns the power of two for a row of q, as bits of its exponent.
uint exponent_of(uint at, uint bringer) {
    float most = 0.0;
    [[unroll]] for (uint n = 0; n < (2 * K_EIGHTS + BRINGERS - 1) / BRINGERS; n++) {
        const uint quad = bringer + n * BRINGERS;
        const vec4 x = quad * 4 < p.d_0 ? abs(q4[at / 4 + quad]) : vec4(0.0);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            most = floatBitsToUint(x[j]) < 0x7f800000u ? max(most, x[j]) : most;
        }
    }
    return min(268 - (floatBitsToUint(largest_of(most, BRINGERS)) >> 23), 253);
}

// Returns four elements of the mask from element `at` on.
vec4 mask_quad(uint at) {
    if (MASK_TYPE == MASK_F32) {
        return mask4[at / 4];
    }
    return from_halves(mask_pairs[at / 4]);
}

// Returns true if a row of the work-group sees one of SOUGHT positions from `first` on, or one of the last four. All
// invocations take part.
const uint AT_ONCE = 8;
bool is_seen(uint first, uint token0, uint head, uint batch) {
    barrier();
    if (gl_LocalInvocationIndex == 0) {
        found = 0;
    }
    barrier();
    bool seen = false;
    [[dont_unroll]] for (uint i0 = gl_LocalInvocationIndex; i0 < BR * SOUGHT / 4; i0 += AT_ONCE * WG) {
        // All loads are issued before the first is used.
        vec4 masks[AT_ONCE];
        [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
            const uint i = min(i0 + n * WG, BR * SOUGHT / 4 - 1);
            const uint row = mask_row(min(token0 + i / (SOUGHT / 4), p.ne_0 - 1), head, batch);
            masks[n] = mask_quad(row + min(first + i % (SOUGHT / 4) * 4, p.kv_0 - 4));
        }
        [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
            seen = seen || any(notEqual(masks[n], vec4(MINUS_INFINITY)));
        }
    }
    if (seen) {
        atomicOr(found, 1u, gl_ScopeWorkgroup, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
    }
    barrier();
    return found != 0;
}

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

// Makes the writes of a subgroup to shared memory visible to all of it.
void subgroup_done() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
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

// Returns true if position `key` is hidden from the row whose mask is at `row_mask`.
bool hides(uint row_mask, uint key) {
    return key >= p.kv_0 || mask_at(row_mask + min(key, p.kv_0 - 1)) == MINUS_INFINITY;
}

#endif
