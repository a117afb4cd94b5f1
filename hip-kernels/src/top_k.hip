// TOP_K: indices of the k largest elements of each row, the largest first; of equals the lower index first, NaN last.
// With `weights` their soft-max, too (SOFT_MAX without a mask), one for each lane.
//
// A wavefront takes a row (pick.h).
#include "index.h"
#include "params.h"
#include "pick.h"

KERNEL(ROW_THREADS) top_k(const float *x, i32 *d, float *w, TopKParams p) {
    u32 row = group_x() * (ROW_THREADS / WAVE) + wave_id();
    if (row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    Index i = row_index(row, p.ne);
    u64 result = row_offset(0, p.nbd, i.i1, i.i2, i.i3);
    x += row_offset(p.off0, p.nb0, i.i1, i.i2, i.i3);
    Element own = pick_largest(x, p.ne[0], p.k, i.i1 * p.first, d + p.offd + result);
    if (!p.weights) return;
    float weight = weight_of_pick(value_of(own.place) * p.scale, p.k);
    if (lane_id() < p.k) w[p.offw + result + lane_id()] = weight;
}
