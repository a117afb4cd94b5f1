// Choice of experts by their scores, as the nodes of a model compute it: the weights of experts, and the candidates by which
// they are chosen. All threads of the work-group compute these; then its first wavefront picks (pick.h).
#pragma once
#include "activation.h"
#include "params.h"
#include "pick.h"

enum { PROBABILITY_SIGMOID = 1, PROBABILITY_SOFT_MAX = 2 };
enum { WEIGHTS_OF_LOGARITHMS = 2 };

// Largest number of experts that may be chosen by other values than their scores, as in `gate.rs`.
#define MOST_CANDIDATES 1024u

// THREADS: threads of the work-group; also the largest number of groups of experts.
template <int THREADS> struct ChoiceShared {
    float candidates[MOST_CANDIDATES];
    u32 groups[THREADS], counts[THREADS];
};

// Largest score, and the inverse of the sum of exponentials (NaN if a score is NaN), as in soft_max.hip.
struct Normalizer {
    float top, factor;
};

// True if experts are chosen by other values than their scores.
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

// Keeps the candidates of the groups whose two largest candidates have the largest sums; replaces the others by
// `0 * candidate + never`.
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

// Computes the candidates, in LDS for all threads. `bias` points to its first element.
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

// Returns the weight of this lane's pick from its score; `p.used` lanes have one.
DEVICE float weight_by(const GateParams &p, float score, const Normalizer &all) {
    if (!p.weights) return probability_of(p, score, all) * p.factor;
    float x = p.weights == WEIGHTS_OF_LOGARITHMS ? softplus(-score) : score;
    return weight_of_pick(x * p.scale, p.used) * p.factor;
}
