// TOP_K: indices of the k largest elements of each row, the largest first; of equals the lower index first, NaN last.
// With `weights` their soft-max, too (SOFT_MAX without a mask), one for each lane.
//
// A wavefront takes a row, lane l the elements l, l + WAVE ...; each lane knows its best element that was not picked
// yet. A pick is the best of the lanes: two reductions without LDS, of the order of the values and of the indices. Only
// the lane that gave it looks for its next one, among the elements that come after the pick: no marks are kept. Rows of
// up to HELD * WAVE elements are read once, into registers.
#include "index.h"
#include "mask.h"
#include "params.h"

#define HELD 8u

// A place in the order of values: greater for a greater value, the same for both zeros, 0 for NaN.
DEVICE u32 place(float x) {
    u32 bits = f32_bits(x + 0.0f);
    return x != x ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The value of a place.
DEVICE float value_of(u32 place) {
    return bits_f32(place == 0 ? 0x7fc00000u : place & 0x80000000u ? place & 0x7fffffffu : ~place);
}

// An element: its place, and the complement of its index. The larger of two comes first.
struct Element {
    u32 place, behind;
    __attribute__((device, always_inline)) bool before(const Element &e) const {
        return place > e.place || (place == e.place && behind > e.behind);
    }
};

// The largest of the lanes' numbers.
DEVICE u32 wave_max(u32 x) { return f32_bits(wave_reduce<MaxOrNan>(bits_f32(x))); }

struct Lane {
    const float *x;
    u32 n, held[HELD];

    __attribute__((device, always_inline)) void load() {
        UNROLL for (u32 i = 0; i < HELD; i++) {
            u32 at = lane_id() + i * WAVE;
            held[i] = at < n ? place(x[at]) : 0;
        }
    }

    // The best of this lane's elements after `last`; no element is {0, 0}.
    __attribute__((device, always_inline)) Element next(const Element &last) const {
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

KERNEL(ROW_THREADS) top_k(const float *x, i32 *d, float *w, TopKParams p) {
    u32 row = group_x() * (ROW_THREADS / WAVE) + wave_id();
    if (row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(row, p.ne);
    u64 result = row_offset(0, p.nbd, i.i1, i.i2, i.i3);
    d += p.offd + result;
    w += p.offw + result;
    Lane lane;
    lane.x = x + row_offset(p.off0, p.nb0, i.i1, i.i2, i.i3);
    lane.n = p.ne[0];
    lane.load();

    u32 own = 0;
    Element best = lane.next({0xffffffffu, 0xffffffffu});
    NO_UNROLL for (u32 pick = 0; pick < p.k; pick++) {
        Element first;
        first.place = wave_max(best.place);
        first.behind = wave_max(best.place == first.place ? best.behind : 0);
        if (pick == lane_id()) own = first.place;
        if (best.place == first.place && best.behind == first.behind) {
            d[pick] = (i32)(~first.behind + i.i1 * p.first);
            best = lane.next(first);
        }
    }
    if (!p.weights) return;

    bool used = lane_id() < p.k;
    float score = used ? value_of(own) * p.scale : -infinity();
    float top = wave_reduce<Max>(score);
    float power = is_hidden(score) ? 0.0f : exp_fast(score - top);
    float sum = wave_reduce<Sum>(power), factor = sum > 0.0f ? 1.0f / sum : sum;
    if (used) w[lane_id()] = top > -infinity() ? power * factor : factor;
}
