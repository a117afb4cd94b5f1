#version 460
// Choice of experts for few tokens (decode steps), from the residual stream on: RMS_NORM with its weight, whose result is also
// stored; the product with a row for each expert, and a bias; the choice by these scores, and weights (choice.glsl). This
// replaces three or more dispatches, of which only the first has work for a whole device.
//
// x: an expert for each work-group (several if there are more experts than work-groups); y: tokens. The factor of the norm is
// the same for all elements, so squares and products are summed in one pass over the row, the norm's weight and the expert's
// row: QUADS quads of each at a time, all loads before the first sum. Every work-group stores a piece of the normed row. The
// last one has all scores and picks, as TOP_K does.
//
// Rows are whole quads at multiples of four elements. For quads after the end of a row, its last one is read again and does not
// count. Shared memory: 4 bytes for each invocation, and that of pick.glsl and choice.glsl.
// Variants: lds and subgroup, the way in which sums and picks are combined.

#include "common.glsl"
#include "pick.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint QUADS = 1;
// Scores of an invocation in the work-group that picks.
layout(constant_id = 2) const uint HELD = 1;
// 0: experts are chosen by their scores alone, and weights are the soft-max of these.
layout(constant_id = 3) const uint GENERAL = 0;

layout(push_constant, std430) uniform GateParams {
    uint k, experts, tokens, used;
    uint nbx, nbw, nbn, nbd;
    uint offx, offs, offw, offb, offn, offd, offe;
    uint bias;
    float eps;
    float scale;
    uint probabilities;
    uint weights;
    float factor;
    uint biased;
    uint offc;
    uint groups, groups_used;
    float never;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 1, std430) readonly buffer S { vec4 s[]; };
layout(set = 0, binding = 2, std430) readonly buffer W { vec4 w[]; };
layout(set = 0, binding = 3, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 4, std430) readonly buffer C { float c[]; };
layout(set = 0, binding = 5, std430) writeonly buffer N { vec4 n[]; };
layout(set = 0, binding = 6, std430) writeonly buffer D { uint d[]; };
layout(set = 0, binding = 7, std430) writeonly buffer E { float e[]; };
// The scores of all tokens.
layout(set = 0, binding = 8, std430) coherent buffer Scratch { uint scratch[]; };
// Number of work-groups that have arrived, for each token.
layout(set = 0, binding = 9, std430) coherent buffer Arrived { uint arrived[]; };

#include "arrival.glsl"
#include "choice.glsl"

// Sums of squares and of products with an expert's row, over the work-group.
vec2 sums_of(uint row_x, uint row_w) {
    const uint lane = gl_LocalInvocationIndex;
    const uint quads = p.k / 4;
    vec2 sums = vec2(0.0);
    for (uint begin = lane; begin < quads; begin += QUADS * WG) {
        vec4 of_x[QUADS], of_s[QUADS], of_w[QUADS];
        [[unroll]] for (uint j = 0; j < QUADS; j++) {
            const uint at = min(begin + j * WG, quads - 1);
            of_x[j] = x[row_x + at];
            of_s[j] = s[p.offs / 4 + at];
            of_w[j] = w[row_w + at];
        }
        [[unroll]] for (uint j = 0; j < QUADS; j++) {
            if (begin + j * WG < quads) {
                sums += vec2(dot(of_x[j], of_x[j]), dot(of_x[j] * of_s[j], of_w[j]));
            }
        }
    }
    return vec2(workgroup_sum(sums.x), workgroup_sum(sums.y));
}

// Stores this work-group's piece of a normed row.
void store_piece(uint token, uint row_x, float factor) {
    const uint quads = p.k / 4;
    const uint piece = (quads + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x;
    const uint first = gl_WorkGroupID.x * piece;
    const uint row_n = (p.offn + token * p.nbn) / 4;
    for (uint i = first + gl_LocalInvocationIndex; i < min(first + piece, quads); i += WG) {
        n[row_n + i] = x[row_x + i] * factor * s[p.offs / 4 + i];
    }
}

// Chooses the experts of a token, and computes their weights.
void choose(uint token) {
    const uint lane = gl_LocalInvocationIndex;
    float of_scores[HELD];
    [[unroll]] for (uint j = 0; j < HELD; j++) {
        of_scores[j] = uintBitsToFloat(scratch[token * p.experts + min(lane + j * WG, p.experts - 1)]);
    }
    vec2 normalizer = vec2(0.0);
    if (GENERAL != 0 && p.probabilities == PROBABILITY_SOFT_MAX) {
        normalizer = normalizer_of(of_scores);
    }
    uint keys[HELD];
    [[unroll]] for (uint j = 0; j < HELD; j++) {
        const uint at = lane + j * WG;
        float candidate = of_scores[j];
        if (GENERAL != 0) {
            candidate = probability_of(candidate, normalizer);
            candidate += p.biased != 0 ? c[p.offc + min(at, p.experts - 1)] : 0.0;
        }
        keys[j] = at < p.experts ? key_of(floatBitsToUint(candidate)) : 0;
    }
    if (GENERAL != 0 && p.groups > 1) {
        keep_best_groups(keys);
    }
    // The pick with this invocation's number.
    uvec2 own = NONE;
    for (uint pick = 0; pick < p.used; pick++) {
        uvec2 best = NONE;
        [[unroll]] for (uint j = 0; j < HELD; j++) {
            best = keys[j] > best.x ? uvec2(keys[j], lane + j * WG) : best;
        }
        best = first_of_all(best);
        [[unroll]] for (uint j = 0; j < HELD; j++) {
            keys[j] = lane + j * WG == best.y ? 0 : keys[j];
        }
        own = pick == lane ? best : own;
    }
    float weight;
    if (GENERAL != 0) {
        const float score = lane < p.used ? uintBitsToFloat(scratch[token * p.experts + own.y]) : 0.0;
        weight = general_weight(score, p.used, normalizer);
    } else {
        weight = weight_of_pick(value_of(own.x) * p.scale, p.used);
    }
    if (lane < p.used) {
        d[p.offd + token * p.nbd + lane] = own.y;
        e[p.offe + token * p.nbd + lane] = weight;
    }
}

void main() {
    const uint token = gl_WorkGroupID.y;
    const uint row_x = (p.offx + token * p.nbx) / 4;
    float factor = 0.0;
    for (uint expert = gl_WorkGroupID.x; expert < p.experts; expert += gl_NumWorkGroups.x) {
        const vec2 sums = sums_of(row_x, (p.offw + expert * p.nbw) / 4);
        factor = inversesqrt(sums.x / float(p.k) + p.eps);
        if (gl_LocalInvocationIndex == 0) {
            const float score = sums.y * factor + (p.bias != 0 ? b[p.offb + expert] : 0.0);
            scratch[token * p.experts + expert] = floatBitsToUint(score);
        }
    }
    store_piece(token, row_x, factor);
    if (is_last(token, gl_NumWorkGroups.x)) {
        choose(token);
        if (gl_LocalInvocationIndex == 0) {
            arrived[token] = 0;
        }
    }
}
