#version 460
// FLASH_ATTN_EXT for many tokens on matrix units whose sums can become operands (matrix_rows.glsl): scores and weights stay in
// registers. What flash_attn_matrix.comp says of numbers holds here: keys, values and queries are F16, weights sums of two F16
// numbers, sums and soft-max F32; scores are in base 2, weights multiplied by 2^15.
//
// A work-group has 16 tokens of one head for each subgroup and steps through BC positions at a time. The queries of a subgroup
// stay in its registers, multiplied by a power of two that brings the largest of them to 2^14 .. 2^15; so do its results. In a
// step
//
//   * keys and values pass through shared memory; meanwhile those of the next step are loaded, as stored. With two stages,
//     those of the next step have a place of their own, and a step has one barrier;
//   * scores are queries times keys, with tokens as rows. Their sums become weights, and these operands;
//   * results are rescaled only if a maximum has changed.
//
// Most of a mask is zeros: a subgroup looks at its rows of the next step, and only if they are not all zeros adds them. The step
// with a mask has its own code.
//
// A result that is not finite may come from a position that is hidden from its row: then the rows of the subgroup are computed
// again, one by one, without the hidden positions.
//
// Without splits, work-groups with the last tokens start first, because they have the most positions under a causal mask.
//
// Specialisation: work-group size; KD and VD: rows of k and of v in groups of 16, rounded up; BC: positions of a step, a multiple
// of 16; SUBGROUPS; STAGES, 1 or 2. Rows of q, k, v and the mask are aligned as for flash_attn_matrix.comp.
// Variants: type of k and v; matrix, or emulated.

#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "common.glsl"

layout(constant_id = 1) const uint KD = 8;
layout(constant_id = 2) const uint VD = 8;
layout(constant_id = 3) const uint BC = 32;
layout(constant_id = 4) const uint SUBGROUPS = 4;
layout(constant_id = 5) const uint STAGES = 1;

#include "flash_attn.glsl"

// As in flash_attn_matrix.comp.
layout(set = 0, binding = 6, std430) coherent buffer Scratch { float scratch[]; };
layout(set = 0, binding = 6, std430) coherent buffer Scratch4 { vec4 scratch4[]; };
layout(set = 0, binding = 7, std430) coherent buffer Arrived { uint arrived[]; };

#include "arrival.glsl"

const uint WG = gl_WorkGroupSize.x;
const uint LANES = WG / SUBGROUPS;
const uint MATRIX_M = 16;
const uint MATRIX_N = 16;
const uint MATRIX_K = 16;

// Subgroups do not share rows.
const uint SHARES = 1;
// Tokens of a subgroup, and of the work-group.
const uint ROWS = MATRIX_M;
const uint BR = SUBGROUPS * ROWS;
const uint MOST_SPLITS = 8;
// Invocations that load a row of queries; groups of 16 positions.
const uint BRINGERS = LANES / ROWS;
const uint GROUPS = BC / MATRIX_N;

// In vectors of 16 bytes, as in flash_attn_matrix.comp.
const uint K_EIGHTS = 2 * KD;
const uint V_EIGHTS = 2 * VD;
const uint K_STRIDE = K_EIGHTS + 1;
const uint V_STRIDE = V_EIGHTS + 1;
const uint STRIP = MATRIX_M * MATRIX_N / 4;
#ifdef KV_BLOCKS
const uint SUMMANDS = 2;
#else
const uint SUMMANDS = 1;
#endif
const uint REST_V = BC * V_STRIDE;
const uint V0 = BC * K_STRIDE;
const uint STAGE = V0 + SUMMANDS * REST_V;
// Queries and strips of results also pass through here; if emulated, queries and weights have a place of their own.
const uint QUERIES = BR * K_STRIDE;
const uint STRIPS = SUBGROUPS * STRIP;
const uint STEPS = STAGES * STAGE > STRIPS ? STAGES * STAGE : STRIPS;
#ifdef EMULATED
const uint Q0 = STEPS;
const uint WEIGHTS = Q0 + QUERIES;
const uint END = WEIGHTS + SUBGROUPS * 2 * GROUPS * MATRIX_M * 2;
#else
const uint Q0 = 0;
const uint WEIGHTS = 0;
const uint END = STEPS > QUERIES ? STEPS : QUERIES;
#endif
shared uvec4 tiles[END];
shared uint found;

#include "matrix_rows.glsl"
#include "attention_rows.glsl"
#include "attention_queries.glsl"
#include "attention_splits.glsl"

// The work-group's first token, head and batch; the subgroup's first row; starts of the head's keys and values, and of the mask's
// row of token 0; the slope of the mask; the factor from products to scores.
uint token0, head, batch, row0, base_k, base_v, mask0;
float slope, to_score;
// Queries and results of the subgroup. In all columns: the largest score so far; by columns: sums of weights.
MATRIX_A queries[KD];
MATRIX_SUMS results[VD], largest, sums;

// Loads a part of the mask for the subgroup's rows in the step from position `first` on.
const uint LOOKS = ROWS * (BC / 4) / LANES;
uvec2 seen_ahead[LOOKS];

bool may_look(uint first) {
    return MASK_TYPE != NO_MASK && MASK_TYPE != MASK_F32 && first + BC <= p.kv_0;
}

uint mask_of(uint row) {
    return mask0 + min(token0 + row0 + row, p.ne_0 - 1) * p.nbm_0;
}

void look(uint first) {
    if (may_look(first)) {
        [[unroll]] for (uint n = 0; n < LOOKS; n++) {
            const uint i = n * LANES + gl_SubgroupInvocationID;
            seen_ahead[n] = mask_pairs[(mask_of(i / (BC / 4)) + first) / 4 + i % (BC / 4)];
        }
    }
}

// Returns true if the mask of that step is known to be all zeros.
bool is_clear(uint first) {
    uvec2 bits = uvec2(0);
    [[unroll]] for (uint n = 0; n < LOOKS; n++) {
        bits |= seen_ahead[n];
    }
    return may_look(first) ? subgroupBallot((bits.x | bits.y) != 0) == uvec4(0) : MASK_TYPE == NO_MASK && first + BC <= p.kv_0;
}

// Score of a position with its mask. Hidden ones are minus infinity, whatever their score.
float masked(const in uint row, const in uint column, const in float s, const in uint first) {
    const uint key = first + column;
    const float bias = mask_at(mask_of(row) + min(key, p.kv_0 - 1)) * slope;
    return key >= p.kv_0 || bias == MINUS_INFINITY ? MINUS_INFINITY : s + bias;
}

// Adds the step from position `first` on, whose keys start at `keys` in shared memory.
void attend(uint first, uint keys, const bool with_mask) {
    MATRIX_SUMS s[GROUPS];
    [[unroll]] for (uint i = 0; i < GROUPS; i++) {
        CLEAR(s[i]);
    }
    [[unroll]] for (uint k = 0; k < KD; k++) {
        [[unroll]] for (uint i = 0; i < GROUPS; i++) {
            MATRIX_B part;
            LOAD_B(part, keys + i * MATRIX_N * K_STRIDE + 2 * k, K_STRIDE);
            MULTIPLY_ADD(queries[k], part, s[i]);
        }
    }
    MATRIX_SUMS most, now;
    [[unroll]] for (uint e = 0; e < ELEMENTS(most); e++) {
        ELEMENT(most, e) = ELEMENT(largest, e);
    }
    [[unroll]] for (uint i = 0; i < GROUPS; i++) {
        [[unroll]] for (uint e = 0; e < ELEMENTS(most); e++) {
            ELEMENT(s[i], e) *= to_score;
        }
        if (p.logit_softcap != 0.0) {
            [[unroll]] for (uint e = 0; e < ELEMENTS(most); e++) {
                ELEMENT(s[i], e) = capped(ELEMENT(s[i], e)) * LOG2_E;
            }
        }
        if (with_mask) {
            OF_ELEMENTS(s[i], masked, first + i * MATRIX_N);
        }
        [[unroll]] for (uint e = 0; e < ELEMENTS(most); e++) {
            ELEMENT(most, e) = max(ELEMENT(most, e), ELEMENT(s[i], e));
        }
    }
    LARGEST_OF_ROWS(now, most);
    bool same = true;
    [[unroll]] for (uint e = 0; e < ELEMENTS(now); e++) {
        same = same && ELEMENT(now, e) == ELEMENT(largest, e);
    }
    if (subgroupBallot(!same) != uvec4(0)) {
        MATRIX_SUMS factors;
        [[unroll]] for (uint e = 0; e < ELEMENTS(now); e++) {
            ELEMENT(factors, e) = exp2(ELEMENT(largest, e) - ELEMENT(now, e));
            ELEMENT(sums, e) *= ELEMENT(factors, e);
            ELEMENT(largest, e) = ELEMENT(now, e);
        }
        [[unroll]] for (uint j = 0; j < VD; j++) {
            [[unroll]] for (uint e = 0; e < ELEMENTS(now); e++) {
                ELEMENT(results[j], e) *= ELEMENT(factors, e);
            }
        }
    }
    MATRIX_A weights[GROUPS], rest[GROUPS];
    [[unroll]] for (uint i = 0; i < GROUPS; i++) {
        MATRIX_SUMS cut;
        [[unroll]] for (uint e = 0; e < ELEMENTS(cut); e++) {
            const float weight = exp2(ELEMENT(s[i], e) - (ELEMENT(largest, e) - WEIGHT_EXPONENT));
            ELEMENT(sums, e) += weight;
            // As high_part has it.
            ELEMENT(cut, e) = uintBitsToFloat(floatBitsToUint(weight) & 0xffffe000u);
            ELEMENT(s[i], e) = weight - ELEMENT(cut, e);
        }
        TO_A(weights[i], cut, WEIGHTS + (gl_SubgroupID * GROUPS + i) * 4 * MATRIX_M);
        TO_A(rest[i], s[i], WEIGHTS + (gl_SubgroupID * GROUPS + i) * 4 * MATRIX_M + 2 * MATRIX_M);
    }
    [[unroll]] for (uint i = 0; i < GROUPS; i++) {
        [[unroll]] for (uint j = 0; j < VD; j++) {
            const uint at = keys + V0 + i * MATRIX_K * V_STRIDE + 2 * j;
            MATRIX_B values;
            LOAD_B_TURNED(values, at, V_STRIDE);
            MULTIPLY_ADD_B_TURNED(weights[i], values, results[j]);
            MULTIPLY_ADD_B_TURNED(rest[i], values, results[j]);
            if (SUMMANDS > 1) {
                LOAD_B_TURNED(values, REST_V + at, V_STRIDE);
                MULTIPLY_ADD_B_TURNED(weights[i], values, results[j]);
            }
        }
    }
}

// Stores four columns of a row of the work-group, and in the first a split's largest score and sum of weights.
void store_quad(uint row, uint quad, vec4 values, Split of) {
    if (token0 + row < p.ne_0 && quad * 4 < p.d_1) {
        const uint result_row = (batch * p.ne_0 + token0 + row) * p.ne_1 + head;
        [[unroll]] for (uint e = 0; e < 4; e++) {
            if (of.count == 1) {
                d[p.off_5 + result_row * p.d_1 + quad * 4 + e] = values[e];
            } else {
                scratch[(result_row * of.count + of.index) * p.d_1 + quad * 4 + e] = values[e];
            }
        }
    }
}

void store_sums(uint row, Split of, float most, float total) {
    if (of.count > 1 && token0 + row < p.ne_0) {
        store_statistics((batch * p.ne_0 + token0 + row) * p.ne_1 + head, of, most, total);
    }
}

float inverse_of(float total) {
    return total == 0.0 ? 0.0 : 1.0 / total;
}

// Score of a position that its row sees, from operands in memory.
float score_of(uint row_q, uint row_mask, uint key) {
    float products = 0.0;
    for (uint piece = 0; piece < p.d_0 / 8; piece++) {
        vec4 lo, hi;
        numbers_of(k_piece(base_k + key * p.nbk_0, piece), piece, true, lo, hi);
        products += dot(lo, q4[row_q / 4 + 2 * piece]) + dot(hi, q4[row_q / 4 + 2 * piece + 1]);
    }
    return scores_of(vec4(products)).x * LOG2_E + mask_at(row_mask + key) * slope;
}

// Computes a row of the work-group without the positions that are hidden from it: an invocation has one position at a time,
// then some columns of all these positions.
void attend_row(uint row, uint begin, uint end, float sink, Split of) {
    const uint token = min(token0 + row, p.ne_0 - 1);
    const uint row_q = p.off_0 + head * p.nbq_1 + batch * p.nbq_2 + token * p.nbq_0;
    const uint row_mask = mask0 + token * p.nbm_0;
    const uint LONGEST = (4 * VD + LANES - 1) / LANES;
    vec4 values[LONGEST];
    [[unroll]] for (uint n = 0; n < LONGEST; n++) {
        values[n] = vec4(0.0);
    }
    float most = max(LOWEST, sink);
    float total = gl_SubgroupInvocationID == 0 ? exp2(sink - (most - WEIGHT_EXPONENT)) : 0.0;
    [[dont_unroll]] for (uint first = begin; first < end; first += LANES) {
        const uint key = first + gl_SubgroupInvocationID;
        const bool seen = key < end && !hides(row_mask, key);
        const float score = seen ? score_of(row_q, row_mask, key) : MINUS_INFINITY;
        const float now = max(most, largest_of(score, LANES));
        const float factor = exp2(most - now);
        const float weight = seen ? exp2(score - (now - WEIGHT_EXPONENT)) : HIDDEN;
        most = now;
        total = total * factor + weight;
        [[unroll]] for (uint n = 0; n < LONGEST; n++) {
            values[n] *= factor;
        }
        [[dont_unroll]] for (uint other = 0; other < LANES; other++) {
            const float of_other = subgroupShuffle(weight, other);
            if (!is_hidden(of_other)) {
                [[unroll]] for (uint n = 0; n < LONGEST; n++) {
                    const uint quad = min(gl_SubgroupInvocationID + n * LANES, p.d_1 / 4 - 1);
                    values[n] += of_other * numbers_of(v_quad(base_v + (first + other) * p.nbv_0, quad), quad, true);
                }
            }
        }
    }
    total = sum_of(total, LANES);
    [[unroll]] for (uint n = 0; n < LONGEST; n++) {
        store_quad(row, gl_SubgroupInvocationID + n * LANES, values[n] * (of.count == 1 ? inverse_of(total) : 1.0), of);
    }
    if (gl_SubgroupInvocationID == 0) {
        store_sums(row, of, most, total);
    }
}

// Returns a number of the strip's row, in which rows are contiguous.
float of_strip(uint strip, uint row, uint column) {
    return uintBitsToFloat(tiles[strip + column * (MATRIX_M / 4) + row / 4][row % 4]);
}

// Stores the results of the subgroup, divided by the sums of weights, or a split's sums. Returns false if one is not finite.
bool store_results(Split of) {
    const uint strip = gl_SubgroupID * STRIP;
    MATRIX_SUMS total, factors;
    SUM_OF_ROWS(total, sums);
    bool finite = true;
    [[unroll]] for (uint e = 0; e < ELEMENTS(total); e++) {
        finite = finite && !isnan(ELEMENT(total, e)) && !isinf(ELEMENT(total, e));
        ELEMENT(factors, e) = of.count == 1 ? inverse_of(ELEMENT(total, e)) : 1.0;
    }
    [[unroll]] for (uint j = 0; j < VD; j++) {
        [[unroll]] for (uint e = 0; e < ELEMENTS(total); e++) {
            finite = finite && !isnan(ELEMENT(results[j], e)) && !isinf(ELEMENT(results[j], e));
            ELEMENT(results[j], e) *= ELEMENT(factors, e);
        }
    }
    if (subgroupBallot(!finite) != uvec4(0)) {
        return false;
    }
    [[unroll]] for (uint j = 0; j < VD; j++) {
        STORE_SUMS(results[j], strip, MATRIX_M / 4);
        subgroup_done();
        for (uint i = gl_SubgroupInvocationID; i < ROWS * 4; i += LANES) {
            const uint row = i / 4, column = i % 4 * 4;
            const vec4 values = vec4(of_strip(strip, row, column), of_strip(strip, row, column + 1),
                                     of_strip(strip, row, column + 2), of_strip(strip, row, column + 3));
            store_quad(row0 + row, j * 4 + i % 4, values, of);
        }
        subgroup_done();
    }
    if (of.count > 1) {
        const uint row = gl_SubgroupInvocationID % ROWS;
        STORE_SUMS(largest, strip, MATRIX_M / 4);
        subgroup_done();
        const float most = of_strip(strip, row, 0);
        subgroup_done();
        STORE_SUMS(total, strip, MATRIX_M / 4);
        subgroup_done();
        if (gl_SubgroupInvocationID < ROWS) {
            store_sums(row0 + row, of, most, of_strip(strip, row, 0));
        }
    }
    return true;
}

// Loads the subgroup's queries.
void load_queries() {
    const uint brought = row0 + gl_SubgroupInvocationID / BRINGERS;
    const uint bringer = gl_SubgroupInvocationID % BRINGERS;
    const uint row_q = p.off_0 + head * p.nbq_1 + batch * p.nbq_2 + min(token0 + brought, p.ne_0 - 1) * p.nbq_0;
    const uint exponent = exponent_of(row_q, bringer, LANES);
    put_queries(row_q, brought, bringer, uintBitsToFloat(exponent << 23));
    to_score = uintBitsToFloat((254 - exponent) << 23) * p.scale * (p.logit_softcap != 0.0 ? 1.0 : LOG2_E);
    subgroup_done();
    [[unroll]] for (uint k = 0; k < KD; k++) {
        LOAD_A(queries[k], Q0 + row0 * K_STRIDE + 2 * k, K_STRIDE);
    }
}

// In column 0 `x`, zeros in the others.
float first_column(const in uint row, const in uint column, const in float s, const in uint x) {
    return column == 0 ? uintBitsToFloat(x) : 0.0;
}

void main() {
    Split split = this_split();
    head = gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    if (split.count == 1) {
        const uint n = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
        head = n % p.ne_1;
        split.tile = gl_NumWorkGroups.x - 1 - n / p.ne_1;
    }
    const uint head_kv = head / (p.ne_1 / p.kv_1);
    token0 = split.tile * BR;
    row0 = gl_SubgroupID * ROWS;
    base_k = p.off_1 + head_kv * p.nbk_1 + batch * p.nbk_2;
    base_v = p.off_2 + head_kv * p.nbv_1 + batch * p.nbv_2;
    mask0 = mask_row(0, head, batch);
    slope = alibi_slope(p.max_bias, head, p.heads_log2) * LOG2_E;
    load_queries();

    uint begin = split.begin;
    uint end = split.end;
    skip_hidden(begin, end, token0, head, batch);
    const float sink = split.index == 0 ? sink_of(head) * LOG2_E : MINUS_INFINITY;
    const float most = max(LOWEST, sink);
    CLEAR(sums);
    OF_ELEMENTS(sums, first_column, floatBitsToUint(exp2(sink - (most - WEIGHT_EXPONENT))));
    [[unroll]] for (uint e = 0; e < ELEMENTS(largest); e++) {
        ELEMENT(largest, e) = most;
    }
    [[unroll]] for (uint j = 0; j < VD; j++) {
        CLEAR(results[j]);
    }

    send_k(begin, base_k);
    send_v(begin, base_v);
    look(begin);
    uint stage = 0;
    if (STAGES > 1) {
        // Queries have been read.
        barrier();
        receive_k(0);
        receive_v(V0);
    }
    [[dont_unroll]] for (uint first = begin; first < end; first += BC) {
        if (STAGES == 1) {
            barrier();
            receive_k(0);
            receive_v(V0);
        }
        barrier();
        const bool more = first + BC < end;
        if (more) {
            send_k(first + BC, base_k);
            send_v(first + BC, base_v);
        }
        const bool clear = is_clear(first);
        look(first + BC);
        if (clear) {
            attend(first, stage * STAGE, false);
        } else {
            attend(first, stage * STAGE, true);
        }
        if (STAGES > 1 && more) {
            stage = 1 - stage;
            receive_k(stage * STAGE);
            receive_v(stage * STAGE + V0);
        }
    }

    barrier();
    if (!store_results(split)) {
        [[dont_unroll]] for (uint row = row0; row < row0 + ROWS; row++) {
            attend_row(row, begin, end, sink, split);
        }
    }
    if (split.count > 1) {
        join_splits(token0, head, batch, split);
    }
}
