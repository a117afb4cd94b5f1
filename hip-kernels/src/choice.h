// The choice of experts by their scores, as the nodes of a model do it: what is made of scores, and what they are chosen by.
// The work-group does it together; its first wavefront picks then (pick.h).
#pragma once
#include "activation.h"
#include "params.h"
#include "pick.h"

enum { PROBABILITY_SIGMOID = 1, PROBABILITY_SOFT_MAX = 2 };
enum { WEIGHTS_OF_LOGARITHMS = 2 };

// Experts at the most that are not chosen by their scores themselves, as in `gate.rs`.
#define MOST_CANDIDATES 1024u

// THREADS: of the work-group, and groups of experts at the most.
template <int THREADS> struct ChoiceShared {
    float candidates[MOST_CANDIDATES];
    u32 groups[THREADS], counts[THREADS];
};

// The largest of all scores, and one over the sum of exponentials (NaN if a score is), as soft_max.hip has them.
struct Normalizer {
    float top, factor;
};

// Whether experts are chosen by something else than their scores.
DEVICE bool has_candidates(const GateParams &p) { return p.probabilities || p.biased || p.groups > 1; }

// `scratch` has two elements for each wavefront.
template <int THREADS> DEVICE Normalizer normalizer_of(const float *scores, u32 n, float *scratch) {
    float top = -infinity(), sum = 0.0f;
    NO_UNROLL for (u32 i = thread_id(); i < n; i += THREADS) top = larger(top, scores[i]);
    top = group_reduce<Max, THREADS>(top, scratch);
    NO_UNROLL for (u32 i = thread_id(); i < n; i += THREADS) {
        if (!is_hidden(scores[i])) sum += exp_fast(scores[i] - top);
    }
    sum = group_reduce<Sum, THREADS>(sum, scratch + THREADS / WAVE);
    return {top, sum > 0.0f ? 1.0f / sum : sum};
}

DEVICE float probability_of(const GateParams &p, float score, const Normalizer &all) {
    switch (p.probabilities) {
    case PROBABILITY_SIGMOID: return activation(SIGMOID, score);
    case PROBABILITY_SOFT_MAX: return all.top > -infinity() ? exp_fast(score - all.top) * all.factor : all.factor;
    default: return score;
    }
}

// Candidates of the groups whose two largest have the largest sums stay, the others become `0 * candidate + never`.
template <int THREADS> DEVICE void keep_best_groups(const GateParams &p, ChoiceShared<THREADS> *shared) {
    u32 group = thread_id(), size = p.experts / p.groups, own = 0;
    if (group < p.groups) {
        u32 first = 0, second = 0;
        NO_UNROLL for (u32 i = 0; i < size; i++) {
            u32 here = place(shared->candidates[group * size + i]), lower = minimum(first, here);
            second = second > lower ? second : lower;
            first = first > here ? first : here;
        }
        own = place(value_of(first) + value_of(second));
        shared->groups[group] = own;
    }
    barrier();
    if (group < p.groups) {
        u32 before = 0;
        NO_UNROLL for (u32 i = 0; i < p.groups; i++) {
            u32 other = shared->groups[i];
            before += other > own || (other == own && i < group);
        }
        shared->counts[group] = before < p.groups_used;
    }
    barrier();
    NO_UNROLL for (u32 i = thread_id(); i < p.experts; i += THREADS) {
        float x = shared->candidates[i];
        if (!shared->counts[i / size]) shared->candidates[i] = x * 0.0f + p.never;
    }
}

// What experts are chosen by, in LDS for all threads. `bias`: from its first element on.
template <int THREADS>
DEVICE void make_candidates(const GateParams &p, const float *scores, const float *bias, const Normalizer &all,
                            ChoiceShared<THREADS> *shared) {
    NO_UNROLL for (u32 i = thread_id(); i < p.experts; i += THREADS) {
        shared->candidates[i] = probability_of(p, scores[i], all) + (p.biased ? bias[i] : 0.0f);
    }
    barrier();
    if (p.groups > 1) {
        keep_best_groups(p, shared);
        barrier();
    }
}

// The weight of this lane's pick by its score; `p.used` lanes have one.
DEVICE float weight_by(const GateParams &p, float score, const Normalizer &all) {
    if (!p.weights) return probability_of(p, score, all) * p.factor;
    float x = p.weights == WEIGHTS_OF_LOGARITHMS ? softplus(-score) : score;
    return weight_of_pick(x * p.scale, p.used) * p.factor;
}
