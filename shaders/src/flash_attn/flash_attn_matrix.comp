#version 460
// FLASH_ATTN_EXT for many tokens on matrix units (matrix.glsl), which multiply keys and values in F16: one work-group for 64
// tokens of one head, in steps of 32 positions, of F16 with rows of up to 64 elements 64. Sums, soft-max and result are F32.
//
// Each of four subgroups has 16 tokens, in all steps the same: their queries stay in its registers, as sums of two F16
// numbers each (times a power of two that brings the largest of a row to 2^14 .. 2^15), and so do their results. In a step
//
//   * keys and values go through shared memory; those of the next step are on their way meanwhile, as they are stored. Blocks
//     become F16 numbers when they are put there, sums of two for each, because a scale times a byte has 18 bits: half as many
//     products again. What F16 does not hold is infinite, as in a cache of F16;
//   * scores are keys times queries, and go to shared memory a row for each token; they are powers of two, to which the
//     scale and the mask bring log2(e);
//   * soft-max: LANES / 16 invocations share a row; online normaliser. Weights take the place of their scores, times 2^10,
//     again as sums of two F16 numbers, so that nothing is rounded that F32 would keep;
//   * results are multiplied with what the normaliser changed, and get values times weights.
//
// Positions at the beginning and the end that the mask hides from all rows are left out: half of a causal prompt, all
// but the window of a sliding one. They are sought 128 at a time. From the first value on that is infinite or no number,
// products with values are computed one by one, and pass over the positions that are hidden from their row.
//
// Specialisation: work-group size (four subgroups), KD and VD: rows of k and of v in sixteens, rounded up.
// Rows of q, k and v are multiples of eight elements; those of F16 begin at such, those of q and the mask at multiples of four.
// Variants: type of k and v; matrix, or emulated, in which invocations do what the units do.
// Shared memory: with 64 elements 35.3 KiB, with 128 26.3, with 256 42.3; of blocks 27.3, 43.3; emulated 34 KiB more, for the
// queries.

#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "common.glsl"

layout(constant_id = 1) const uint KD = 8;
layout(constant_id = 2) const uint VD = 8;

#include "flash_attn.glsl"

layout(set = 0, binding = 3, std430) readonly buffer Mask4 { vec4 mask4[]; };
layout(set = 0, binding = 3, std430) readonly buffer MaskPairs { uvec2 mask_pairs[]; };
#ifdef KV_BLOCKS
layout(set = 0, binding = 1, std430) readonly buffer KWords { uint k_words[]; };
layout(set = 0, binding = 2, std430) readonly buffer VWords { uint v_words[]; };
#endif

const uint WG = gl_WorkGroupSize.x;
const uint SUBGROUPS = 4;
const uint LANES = WG / SUBGROUPS;
const uint MATRIX_M = 16;
const uint MATRIX_N = 16;
const uint MATRIX_K = 16;

// Tokens of a subgroup and of the work-group, positions of a step.
const uint ROWS = MATRIX_N;
const uint BR = SUBGROUPS * ROWS;
#if defined(EMULATED) || defined(KV_BLOCKS)
const uint BC = 32;
#else
const uint BC = KD <= 4 && VD <= 4 ? 64 : 32;
#endif
// Positions that are looked at together for whether any row sees them.
const uint SOUGHT = 128;

// In vectors of 16 bytes: rows of keys, values and scores, all an odd number of them, so that eight neighbouring rows lie
// on different banks; where each part begins. A strip of results takes the place of keys.
const uint K_STRIDE = 2 * KD + 1;
const uint V_STRIDE = 2 * VD + 1;
const uint S_STRIDE = BC / 4 + 1;
const uint STRIP = MATRIX_M * MATRIX_N / 4;
// Numbers that each of keys and values is the sum of: so many matrices of them, one after the other.
#ifdef KV_BLOCKS
const uint SUMMANDS = 2;
#else
const uint SUMMANDS = 1;
#endif
const uint REST_K = BC * K_STRIDE;
const uint REST_V = BC * V_STRIDE;
const uint KEYS = SUMMANDS * REST_K > SUBGROUPS * STRIP ? SUMMANDS * REST_K : SUBGROUPS * STRIP;
const uint V0 = KEYS;
const uint S0 = V0 + SUMMANDS * REST_V;
const uint FACTORS = S0 + BR * S_STRIDE;
// Queries pass through here, too: through all of it, or to a place of their own.
const uint END = FACTORS + BR / 4;
const uint QUERIES = BR * K_STRIDE;
#ifdef EMULATED
const uint Q0 = END;
const uint Q_APART = QUERIES;
#else
const uint Q0 = 0;
const uint Q_APART = 0;
#endif
shared uvec4 tiles[Q0 + Q_APART + (END - Q0 > QUERIES ? END - Q0 : QUERIES)];
shared uint found;
// Whether a value is not finite.
shared uint wild;

#include "matrix.glsl"

// Soft-max: invocations that share a row, and quads of scores of each.
const uint PARTS = LANES / ROWS;
const uint QUADS = BC / 4 / PARTS;

const float LOG2_E = 1.4426950408889634;

// Factor of weights.
const float WEIGHT = 1024.0;

// What F16 holds of numbers, cut off. Not a conversion to F16 and back, of which a compiler may think that nothing is left
// to be rounded: NVIDIA's does.
vec4 high_part(vec4 x) {
    return uintBitsToFloat(floatBitsToUint(x) & 0xffffe000u);
}

uvec2 halves_of(vec4 x) {
    return uvec2(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)));
}

// What an invocation brings of a row at a time, as it is stored (Stored): EIGHTS vectors of shared memory, of which
// eight_of(x, e, i) has the summands i. stored_k, stored_v: number i of those of the row that begins at `row` and has `length` elements.
#ifdef KV_BLOCKS
// A block, by the aligned words that cover it: `odd` if it begins with the upper half of the first. The second half of the
// last may be beyond its end.
const uint EIGHTS = 4;
const uint BLOCK_WORDS = (BLOCK_HALVES + 1) / 2;
struct Stored {
    uint words[BLOCK_WORDS];
    bool odd;
};

#define STORED_READER(name, words_of, eights)                                                                          \
    Stored name(uint row, uint i, uint length) {                                                                       \
        const uint half_word = (row + i) * BLOCK_HALVES;                                                               \
        Stored x;                                                                                                      \
        [[unroll]] for (uint w = 0; w < BLOCK_WORDS; w++) {                                                            \
            x.words[w] = words_of[half_word / 2 + w];                                                                  \
        }                                                                                                              \
        x.odd = (half_word & 1) != 0;                                                                                  \
        return x;                                                                                                      \
    }

// Half-words `at` and the next one, `at` being odd.
uint two_halves(Stored x, uint at) {
    const uint w = at / 2;
    return x.odd ? x.words[w + 1] : x.words[w] >> 16 | x.words[w + 1] << 16;
}

// What F16 holds of four numbers, or what that leaves; nothing where it holds infinity.
uvec2 summands(vec4 x, uint i) {
    const vec4 high = high_part(x);
    return halves_of(i == 0 ? high : mix(x - high, vec4(0.0), greaterThanEqual(abs(x), vec4(65536.0))));
}

uvec4 eight_of(Stored x, uint e, uint i) {
    const uint scale = x.odd ? x.words[0] >> 16 : x.words[0];
    const uint lo = two_halves(x, HALVES_OF(e)), hi = two_halves(x, HALVES_OF(e) + 2);
    return uvec4(
        summands(from_block(uvec2(lo, lo >> 16), e, scale), i), summands(from_block(uvec2(hi, hi >> 16), e, scale), i));
}
#else
const uint EIGHTS = 1;
#define Stored uvec4
#define eight_of(x, e, i) (x)
#define STORED_READER(name, words_of, eights)                                                                          \
    Stored name(uint row, uint i, uint length) {                                                                       \
        return i * 8 < length ? eights[row / 8 + i] : uvec4(0);                                                        \
    }
#endif
STORED_READER(stored_k, k_words, k8)
STORED_READER(stored_v, v_words, v8)

// Of a row of keys and of values, and what an invocation brings of a step.
const uint EACH_K = 2 * KD / EIGHTS;
const uint EACH_V = 2 * VD / EIGHTS;
const uint LOADS_K = (BC * EACH_K + WG - 1) / WG;
const uint LOADS_V = (BC * EACH_V + WG - 1) / WG;
Stored next_k[LOADS_K];
Stored next_v[LOADS_V];
// The mask of its part of a row, times the slope; then the scores. Both are powers of two.
vec4 bias[QUADS];

uint in_subgroup() {
    return gl_SubgroupInvocationID;
}

vec4 from_halves(uvec2 w) {
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
}

// The largest of the invocations that share a row, and their sum.
float largest_of_row(float x) {
    [[unroll]] for (uint lanes = 1; lanes < PARTS; lanes *= 2) {
        x = max(x, subgroupShuffleXor(x, lanes));
    }
    return x;
}

float sum_of_row(float x) {
    [[unroll]] for (uint lanes = 1; lanes < PARTS; lanes *= 2) {
        x += subgroupShuffleXor(x, lanes);
    }
    return x;
}

// Four elements of the mask from element `at` on.
vec4 mask_quad(uint at) {
    if (MASK_TYPE == MASK_F32) {
        return mask4[at / 4];
    }
    return from_halves(mask_pairs[at / 4]);
}

// Whether a row of the work-group sees one of SOUGHT positions from `first` on. For all invocations together.
bool is_seen(uint first, uint token0, uint head, uint batch) {
    barrier();
    if (gl_LocalInvocationIndex == 0) {
        found = 0;
    }
    barrier();
    bool seen = false;
    for (uint i = gl_LocalInvocationIndex; i < BR * SOUGHT / 4; i += WG) {
        const uint row = mask_row(min(token0 + i / (SOUGHT / 4), p.ne_0 - 1), head, batch);
        const uint position = first + i % (SOUGHT / 4) * 4;
        if (position < p.kv_0) {
            seen = seen || any(notEqual(mask_quad(row + position), vec4(MINUS_INFINITY)));
        }
    }
    if (seen) {
        atomicOr(found, 1u, gl_ScopeWorkgroup, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
    }
    barrier();
    return found != 0;
}

// Sends for the rows of the step from position `first` on. Positions beyond the end are the last ones, and hidden.
// Invocations that are too many send for what others do.
void send(uint first, uint base_k, uint base_v) {
    [[unroll]] for (uint n = 0; n < LOADS_K; n++) {
        const uint i = min(gl_LocalInvocationIndex + n * WG, BC * EACH_K - 1);
        const uint key = min(first + i / EACH_K, p.kv_0 - 1);
        next_k[n] = stored_k(base_k + key * p.nbk_0, i % EACH_K, p.d_0);
    }
    [[unroll]] for (uint n = 0; n < LOADS_V; n++) {
        const uint i = min(gl_LocalInvocationIndex + n * WG, BC * EACH_V - 1);
        const uint key = min(first + i / EACH_V, p.kv_0 - 1);
        next_v[n] = stored_v(base_v + key * p.nbv_0, i % EACH_V, p.d_1);
    }
}

// The same for the mask of this invocation's part of a row, times the slope. What it is made of is asked once.
void send_mask(uint first, uint row_mask, float slope) {
    const uint position = first + in_subgroup() % PARTS * (4 * QUADS);
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

// Whether one of eight F16 numbers is infinite or none.
bool has_wild(uvec4 w) {
    const uvec4 low = w & 0x7fffu;
    const uvec4 high = w >> 16 & 0x7fffu;
    return any(greaterThanEqual(max(low, high), uvec4(0x7c00u)));
}

// Puts what came into shared memory.
void receive() {
    [[unroll]] for (uint n = 0; n < LOADS_K; n++) {
        const uint i = gl_LocalInvocationIndex + n * WG;
        if (BC * EACH_K % WG == 0 || i < BC * EACH_K) {
            [[unroll]] for (uint e = 0; e < EIGHTS * SUMMANDS; e++) {
                const uint at = i / EACH_K * K_STRIDE + i % EACH_K * EIGHTS + e % EIGHTS;
                tiles[at + e / EIGHTS * REST_K] = eight_of(next_k[n], e % EIGHTS, e / EIGHTS);
            }
        }
    }
    bool is_wild = false;
    [[unroll]] for (uint n = 0; n < LOADS_V; n++) {
        const uint i = gl_LocalInvocationIndex + n * WG;
        if (BC * EACH_V % WG == 0 || i < BC * EACH_V) {
            [[unroll]] for (uint e = 0; e < EIGHTS * SUMMANDS; e++) {
                const uint at = V0 + i / EACH_V * V_STRIDE + i % EACH_V * EIGHTS + e % EIGHTS;
                const uvec4 eight = eight_of(next_v[n], e % EIGHTS, e / EIGHTS);
                tiles[at + e / EIGHTS * REST_V] = eight;
                is_wild = is_wild || has_wild(eight);
            }
        }
    }
    if (is_wild) {
        atomicOr(wild, 1u, gl_ScopeWorkgroup, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
    }
}

// Half of the queries of a subgroup: what F16 holds of them, or what that leaves. `at` is the row of q of this invocation.
void put_queries(uint at, float factor, bool rest) {
    const uint row = gl_SubgroupID * ROWS + in_subgroup() / PARTS;
    for (uint eight = in_subgroup() % PARTS; eight < 2 * KD; eight += PARTS) {
        vec4 lo = vec4(0.0), hi = vec4(0.0);
        if (eight * 8 < p.d_0) {
            lo = q4[at / 4 + 2 * eight] * factor;
            hi = q4[at / 4 + 2 * eight + 1] * factor;
        }
        const vec4 high_lo = high_part(lo), high_hi = high_part(hi);
        const vec4 put_lo = rest ? lo - high_lo : high_lo, put_hi = rest ? hi - high_hi : high_hi;
        tiles[Q0 + (rest ? Q_APART : 0) + row * K_STRIDE + eight] = uvec4(halves_of(put_lo), halves_of(put_hi));
    }
}

// The power of two for a row of q, as bits of its exponent.
uint exponent_of(uint at) {
    float most = 0.0;
    for (uint quad = in_subgroup() % PARTS; quad * 4 < p.d_0; quad += PARTS) {
        const vec4 x = abs(q4[at / 4 + quad]);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            most = floatBitsToUint(x[j]) < 0x7f800000u ? max(most, x[j]) : most;
        }
    }
    return min(268 - (floatBitsToUint(largest_of_row(most)) >> 23), 253);
}

// A weight of the subgroup's row, whole.
float weight_of(uint row, uint key) {
    const uint at = S0 + row * S_STRIDE + key / 8;
    const uint pair = key % 8 / 2;
    const uint shift = key % 2 * 16;
    const uint high = tiles[at][pair] >> shift & 0xffffu;
    const float rest = unpackHalf2x16(tiles[at + BC / 8][pair] >> shift).x;
    return high == 0x8000u ? HIDDEN : unpackHalf2x16(high).x + rest;
}

// Adds values times weights to a strip of results in shared memory, but for what is hidden. `column` is its first.
void add_values_seen(uint strip, uint column) {
    const uint lanes = in_subgroup();
    [[dont_unroll]] for (uint i = lanes; i < MATRIX_M * MATRIX_N; i += LANES) {
        const uint row = i / MATRIX_M;
        const uint c = i % MATRIX_M;
        float sum = uintBitsToFloat(tiles[strip + i / 4][i % 4]);
        [[dont_unroll]] for (uint key = 0; key < BC; key++) {
            const float weight = weight_of(gl_SubgroupID * ROWS + row, key);
            if (!is_hidden(weight)) {
                const uint at = V0 + key * V_STRIDE + (column + c) / 8;
                float value = 0.0;
                [[unroll]] for (uint n = 0; n < SUMMANDS; n++) {
                    value += unpackHalf2x16(tiles[at + n * REST_V][(column + c) % 8 / 2] >> c % 2 * 16).x;
                }
                sum += weight * value;
            }
        }
        tiles[strip + i / 4][i % 4] = floatBitsToUint(sum);
    }
}

// What a subgroup wrote to shared memory is there for all of it.
void subgroup_done() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

void main() {
    const uint head = gl_WorkGroupID.y;
    const uint batch = gl_WorkGroupID.z;
    const uint head_kv = head / (p.ne_1 / p.kv_1);
    const uint token0 = gl_WorkGroupID.x * BR;
    const uint base_k = p.off_1 + head_kv * p.nbk_1 + batch * p.nbk_2;
    const uint base_v = p.off_2 + head_kv * p.nbv_1 + batch * p.nbv_2;

    // The subgroup's first row, and this invocation's row and part of it.
    const uint row0 = gl_SubgroupID * ROWS;
    const uint row = row0 + in_subgroup() / PARTS;
    const uint part = in_subgroup() % PARTS;
    const uint token = min(token0 + row, p.ne_0 - 1);
    const uint row_mask = mask_row(token, head, batch);
    const float slope = alibi_slope(p.max_bias, head, p.heads_log2) * LOG2_E;

    const uint row_q = p.off_0 + head * p.nbq_1 + batch * p.nbq_2 + token * p.nbq_0;
    const uint exponent = exponent_of(row_q);
    const float inverse = uintBitsToFloat((254 - exponent) << 23);
    const float to_score = p.logit_softcap != 0.0 ? LOG2_E : inverse * p.scale * LOG2_E;
    MATRIX_B queries[KD];
    MATRIX_B rests[KD];
    put_queries(row_q, uintBitsToFloat(exponent << 23), false);
    subgroup_done();
    [[unroll]] for (uint k = 0; k < KD; k++) {
        LOAD_B(queries[k], Q0 + row0 * K_STRIDE + 2 * k, K_STRIDE);
    }
    subgroup_done();
    put_queries(row_q, uintBitsToFloat(exponent << 23), true);
    subgroup_done();
    [[unroll]] for (uint k = 0; k < KD; k++) {
        LOAD_B(rests[k], Q0 + Q_APART + row0 * K_STRIDE + 2 * k, K_STRIDE);
    }

    uint begin = 0;
    uint end = (p.kv_0 + BC - 1) / BC * BC;
    if (MASK_TYPE != NO_MASK) {
        while (begin < end && !is_seen(begin, token0, head, batch)) {
            begin += SOUGHT;
        }
        while (begin + SOUGHT < end && !is_seen(end - SOUGHT, token0, head, batch)) {
            end -= SOUGHT;
        }
    }
    if (gl_LocalInvocationIndex == 0) {
        wild = 0;
    }

    const float sink = sink_of(head) * LOG2_E;
    float largest = max(LOWEST, sink);
    float sum = part == 0 ? exp2(sink - largest) : 0.0;
    MATRIX_SUMS results[VD];
    [[unroll]] for (uint j = 0; j < VD; j++) {
        CLEAR(results[j]);
    }

    send(begin, base_k, base_v);
    send_mask(begin, row_mask, slope);
    [[dont_unroll]] for (uint first = begin; first < end; first += BC) {
        barrier();
        receive();
        barrier();
        if (first + BC < end) {
            send(first + BC, base_k, base_v);
        }

        [[unroll]] for (uint i = 0; i < BC; i += MATRIX_M) {
            MATRIX_SUMS scores;
            CLEAR(scores);
            [[unroll]] for (uint k = 0; k < KD; k++) {
                MATRIX_A keys;
                LOAD_A(keys, i * K_STRIDE + 2 * k, K_STRIDE);
                MULTIPLY_ADD(keys, queries[k], scores);
                MULTIPLY_ADD(keys, rests[k], scores);
                if (SUMMANDS > 1) {
                    LOAD_A(keys, REST_K + i * K_STRIDE + 2 * k, K_STRIDE);
                    MULTIPLY_ADD(keys, queries[k], scores);
                }
            }
            STORE_SUMS(scores, S0 + row0 * S_STRIDE + i / 4, S_STRIDE);
        }
        subgroup_done();

        vec4 s[QUADS];
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            s[w] = uintBitsToFloat(tiles[S0 + row * S_STRIDE + part * QUADS + w]);
        }
        if (p.logit_softcap != 0.0) {
            [[unroll]] for (uint w = 0; w < QUADS; w++) {
                s[w] = scores_of(s[w] * inverse);
            }
        }
        float most = LOWEST;
        [[unroll]] for (uint w = 0; w < QUADS; w++) {
            const bvec4 hidden = equal(bias[w], vec4(MINUS_INFINITY));
            s[w] = mix(bias[w] + s[w] * to_score, vec4(MINUS_INFINITY), hidden);
            most = max(max(most, max(s[w].x, s[w].y)), max(s[w].z, s[w].w));
        }
        const float now = max(largest, largest_of_row(most));
        const float factor = exp2(largest - now);
        largest = now;
        sum *= factor;
        if (part == 0) {
            tiles[FACTORS + row / 4][row % 4] = floatBitsToUint(factor);
        }
        // All scores of a row were read.
        subgroup_done();
        [[unroll]] for (uint w = 0; w < QUADS; w += 2) {
            uvec4 high, rest;
            [[unroll]] for (uint i = 0; i < 2; i++) {
                const vec4 e = exp2(s[w + i] - now);
                sum += (e.x + e.y) + (e.z + e.w);
                const vec4 scaled = mix(e * WEIGHT, vec4(HIDDEN), equal(bias[w + i], vec4(MINUS_INFINITY)));
                const vec4 cut = high_part(scaled);
                const uvec2 most_of = halves_of(cut), left = halves_of(scaled - cut);
                high[2 * i] = most_of.x;
                high[2 * i + 1] = most_of.y;
                rest[2 * i] = left.x;
                rest[2 * i + 1] = left.y;
            }
            const uint at = S0 + row * S_STRIDE + (part * QUADS + w) / 2;
            tiles[at] = high;
            tiles[at + BC / 8] = rest;
        }
        send_mask(first + BC, row_mask, slope);
        subgroup_done();

        MATRIX_FACTORS factors;
        LOAD_FACTORS(factors, FACTORS + row0 / 4);
        [[unroll]] for (uint j = 0; j < VD; j++) {
            SCALE_SUMS(results[j], factors);
        }
        if (wild == 0) {
            [[unroll]] for (uint i = 0; i < BC; i += MATRIX_K) {
                MATRIX_B weights, rest;
                LOAD_B(weights, S0 + row0 * S_STRIDE + i / 8, S_STRIDE);
                LOAD_B(rest, S0 + row0 * S_STRIDE + BC / 8 + i / 8, S_STRIDE);
                [[unroll]] for (uint j = 0; j < VD; j++) {
                    MATRIX_A values;
                    LOAD_A_TURNED(values, V0 + i * V_STRIDE + 2 * j, V_STRIDE);
                    MULTIPLY_ADD_TURNED(values, weights, results[j]);
                    MULTIPLY_ADD_TURNED(values, rest, results[j]);
                    if (SUMMANDS > 1) {
                        LOAD_A_TURNED(values, V0 + REST_V + i * V_STRIDE + 2 * j, V_STRIDE);
                        MULTIPLY_ADD_TURNED(values, weights, results[j]);
                    }
                }
            }
        } else {
            // Keys are read no more.
            barrier();
            const uint strip = gl_SubgroupID * STRIP;
            [[unroll]] for (uint j = 0; j < VD; j++) {
                STORE_SUMS(results[j], strip, MATRIX_M / 4);
                subgroup_done();
                add_values_seen(strip, j * MATRIX_M);
                subgroup_done();
                LOAD_SUMS(results[j], strip, MATRIX_M / 4);
                subgroup_done();
            }
        }
    }

    const float total = sum_of_row(sum);
    subgroup_done();
    if (part == 0) {
        tiles[FACTORS + row / 4][row % 4] = floatBitsToUint(total == 0.0 ? 0.0 : 1.0 / (WEIGHT * total));
    }
    barrier();
    const uint strip = gl_SubgroupID * STRIP;
    [[unroll]] for (uint j = 0; j < VD; j++) {
        STORE_SUMS(results[j], strip, MATRIX_M / 4);
        subgroup_done();
        for (uint i = in_subgroup(); i < MATRIX_M * MATRIX_N; i += LANES) {
            const uint r = row0 + i / MATRIX_M;
            const uint column = j * MATRIX_M + i % MATRIX_M;
            const float of_row = uintBitsToFloat(tiles[FACTORS + r / 4][r % 4]);
            if (token0 + r < p.ne_0 && column < p.d_1) {
                d[p.off_5 + ((batch * p.ne_0 + token0 + r) * p.ne_1 + head) * p.d_1 + column] =
                    uintBitsToFloat(tiles[strip + i / 4][i % 4]) * of_row;
            }
        }
        subgroup_done();
    }
}
