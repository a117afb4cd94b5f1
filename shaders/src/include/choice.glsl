// Choice of experts by their scores, as the nodes of a model compute it: the candidates by which experts are chosen, and the
// weights of the chosen ones.
//
// The including shader has the fields of GateParams in `p`, HELD candidates in each invocation, the bias `c` for the choice,
// and GENERAL: 1 if experts are not chosen by their scores alone. Shared memory, in addition to that of pick.glsl and
// reduce.glsl: 8 bytes for each candidate of the work-group and each invocation, if GENERAL.
#ifndef CHOICE_GLSL
#define CHOICE_GLSL

#include "activation.glsl"

#define PROBABILITY_SIGMOID 1u
#define PROBABILITY_SOFT_MAX 2u
#define WEIGHTS_OF_LOGARITHMS 2u

// Keys of all candidates, and of groups.
shared uint candidate_keys[1 + GENERAL * HELD * WG];
shared uint group_keys[1 + GENERAL * WG];
// True for groups whose experts may be chosen.
shared bool group_counts[1 + GENERAL * WG];

// Largest score, and the inverse of the sum of exponentials, as in soft_max.comp.
vec2 normalizer_of(float of_scores[HELD]) {
    float largest = LOWEST;
    [[unroll]] for (uint j = 0; j < HELD; j++) {
        largest = max(largest, of_scores[j]);
    }
    largest = workgroup_max(largest);
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < HELD; j++) {
        sum += gl_LocalInvocationIndex + j * WG < p.experts ? exp(of_scores[j] - largest) : 0.0;
    }
    sum = workgroup_sum(sum);
    return vec2(largest, sum == 0.0 ? 0.0 : 1.0 / sum);
}

float probability_of(float score, vec2 normalizer) {
    switch (p.probabilities) {
    case PROBABILITY_SIGMOID: return activate(SIGMOID, score);
    case PROBABILITY_SOFT_MAX: return exp(score - normalizer.x) * normalizer.y;
    default: return score;
    }
}

// Key of `0 * x + never`: a value that is not finite becomes NaN.
uint never_of(uint key) {
    const bool finite = key > key_of(0xff800000u) && key < key_of(0x7f800000u);
    return finite ? key_of(floatBitsToUint(p.never)) : 1;
}

// Selects the groups whose two largest candidates have the largest sums.
void compare_groups() {
    const uint lane = gl_LocalInvocationIndex;
    const uint size = p.experts / p.groups;
    uvec2 own = NONE;
    if (lane < p.groups) {
        uint first = 0;
        uint second = 0;
        for (uint i = 0; i < size; i++) {
            const uint key = candidate_keys[lane * size + i];
            second = max(second, min(first, key));
            first = max(first, key);
        }
        own = uvec2(key_of(floatBitsToUint(value_of(first) + value_of(second))), lane);
        group_keys[lane] = own.x;
    }
    barrier();
    if (lane < p.groups) {
        uint before = 0;
        for (uint i = 0; i < p.groups; i++) {
            before += is_before(uvec2(group_keys[i], i), own) ? 1 : 0;
        }
        group_counts[lane] = before < p.groups_used;
    }
    barrier();
}

// Removes the candidates of groups that are not selected.
void keep_best_groups(inout uint keys[HELD]) {
    const uint lane = gl_LocalInvocationIndex;
    [[unroll]] for (uint j = 0; j < HELD; j++) {
        candidate_keys[lane + j * WG] = keys[j];
    }
    barrier();
    compare_groups();
    [[unroll]] for (uint j = 0; j < HELD; j++) {
        const uint at = lane + j * WG;
        if (at < p.experts && !group_counts[at / (p.experts / p.groups)]) {
            keys[j] = never_of(keys[j]);
        }
    }
}

// Returns the weight of this invocation's pick from its score; the first `count` invocations have one.
float general_weight(float score, uint count, vec2 normalizer) {
    if (p.weights == 0) {
        return probability_of(score, normalizer) * p.factor;
    }
    const float of = p.weights == WEIGHTS_OF_LOGARITHMS ? softplus(-score) : score;
    return weight_of_pick(of * p.scale, count) * p.factor;
}

#endif
