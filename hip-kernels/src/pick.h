// The largest elements of a row, and their soft-max, computed by a wavefront.
//
// Lane l has the elements l, l + WAVE ...; each lane keeps its best element that has not been picked. A pick is the best over
// the lanes: two reductions without LDS, one over the order of the values and one over the indices. Only the lane that had the
// pick searches its next element, among those that come after the pick: no marks are kept. Rows of up to HELD * WAVE elements
// are read once, into registers.
#pragma once
#include "mask.h"

#define HELD 8u

// Rank in the order of values: greater for a greater value, the same for both zeros, 0 for NaN.
DEVICE u32 place(float x) {
    u32 bits = f32_bits(x + 0.0f);
    return x != x ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The value of a rank.
DEVICE float value_of(u32 place) {
    return bits_f32(place == 0 ? 0x7fc00000u : place & 0x80000000u ? place & 0x7fffffffu : ~place);
}

// An element: its rank, and the complement of its index. The larger of two elements comes first.
struct Element {
    u32 place, behind;
    INLINED bool before(const Element &e) const {
        return place > e.place || (place == e.place && behind > e.behind);
    }
};

// Maximum over the lanes.
DEVICE u32 wave_max(u32 x) { return f32_bits(wave_reduce<MaxOrNan>(bits_f32(x))); }

// `Source`: a pointer to elements.
template <class Source> struct Lane {
    Source x;
    u32 n, held[HELD];

    INLINED void load() {
        UNROLL for (u32 i = 0; i < HELD; i++) {
            u32 at = lane_id() + i * WAVE;
            held[i] = at < n ? place(x[at]) : 0;
        }
    }

    // The best of this lane's elements after `last`; {0, 0} if there is none.
    INLINED Element next(const Element &last) const {
        Element best = {0, 0};
        UNROLL for (u32 i = 0; i < HELD; i++) {
            u32 at = lane_id() + i * WAVE;
            Element e = {held[i], ~at};
            if (at < n && last.before(e) && e.before(best)) best = e;
        }
        NO_UNROLL for (u32 at = lane_id() + HELD * WAVE; at < n; at += WAVE) {
            Element e = {place(x[at]), ~at};
            if (last.before(e) && e.before(best)) best = e;
        }
        return best;
    }
};

// Stores the indices of the `k` largest of `n` elements, each plus `first`; lane l returns the l-th largest.
template <class Source> DEVICE Element pick_largest(Source x, u32 n, u32 k, u32 first, i32 *d) {
    Lane<Source> lane;
    lane.x = x;
    lane.n = n;
    lane.load();
    Element own = {0, 0};
    Element best = lane.next({0xffffffffu, 0xffffffffu});
    NO_UNROLL for (u32 pick = 0; pick < k; pick++) {
        Element largest;
        largest.place = wave_max(best.place);
        largest.behind = wave_max(best.place == largest.place ? best.behind : 0);
        if (pick == lane_id()) own = largest;
        if (best.place == largest.place && best.behind == largest.behind) {
            d[pick] = (i32)(~largest.behind + first);
            best = lane.next(largest);
        }
    }
    return own;
}

// Soft-max of the first `k` lanes' scores.
DEVICE float weight_of_pick(float score, u32 k) {
    score = lane_id() < k ? score : -infinity();
    float top = wave_reduce<Max>(score);
    float power = is_hidden(score) ? 0.0f : exp_fast(score - top);
    float sum = wave_reduce<Sum>(power), factor = sum > 0.0f ? 1.0f / sum : sum;
    return top > -infinity() ? power * factor : factor;
}
