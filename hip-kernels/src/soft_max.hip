// SOFT_MAX: d = soft_max(scale x + slope mask) for each row. Operands: x, mask (x again if there is none), result.
//
// Two kernels for two lengths: `soft_max_wave`, one wavefront for each row, no LDS; `soft_max_group`, 256 threads for one row.
// Each thread keeps a running maximum and the sum of exponentials relative to it (Milakov and Gimelshein), so a row is read
// twice, not three times: once for maximum and sum, once for the results. A thread writes only elements that no other thread
// reads, so the result may be in x. A row of minus infinities gives zeros, one with a NaN gives NaNs: the maximum ignores it,
// the sum does not. Hidden elements are not read.
#include "index.h"
#include "mask.h"
#include "params.h"

template <int THREADS>
DEVICE void soft_max(const float *x, const void *mask, float *d, const SoftMaxParams &p, u32 row, u32 thread,
                     float *scratch) {
    Index i = row_index(row, p.ne);
    x += row_offset(p.off0, p.nb0, i.i1, i.i2, i.i3);
    d += row_offset(p.offd, p.nbd, i.i1, i.i2, i.i3);
    u64 bias = row_offset(p.off1, p.nb1, i.i1, i.i2 % p.mask_ne[0], i.i3 % p.mask_ne[1]);
    float slope = alibi_slope(p.max_bias, i.i2, p.heads_log2);
    u32 n = p.ne[0];
    auto score = [&](u32 j) { return masked(x[j] * p.scale, slope * mask_at(mask, p.mask_type, bias + j)); };

    float max = -infinity(), sum = 0.0f;
    for (u32 j = thread; j < n; j += THREADS) {
        float s = score(j);
        if (s > max) {
            sum = sum * exp_fast(max - s) + 1.0f;
            max = s;
        } else if (!is_hidden(s)) {
            sum += exp_fast(s - max);
        }
    }
    float top = THREADS == WAVE ? wave_reduce<Max>(max) : group_reduce<Max, THREADS>(max, scratch);
    if (max > -infinity()) sum *= exp_fast(max - top);
    sum = THREADS == WAVE ? wave_reduce<Sum>(sum) : group_reduce<Sum, THREADS>(sum, scratch + THREADS / WAVE);

    float factor = sum > 0.0f ? 1.0f / sum : sum;
    for (u32 j = thread; j < n; j += THREADS) {
        d[j] = top > -infinity() ? exp_fast(score(j) - top) * factor : factor;
    }
}

KERNEL(256) soft_max_wave(const float *x, const void *mask, float *d, SoftMaxParams p) {
    u32 row = group_x() * (256 / WAVE) + wave_id();
    if (row < p.ne[1] * p.ne[2] * p.ne[3]) soft_max<WAVE>(x, mask, d, p, row, lane_id(), nullptr);
}

KERNEL(256) soft_max_group(const float *x, const void *mask, float *d, SoftMaxParams p) {
    LDS float scratch[2 * 256 / WAVE];
    soft_max<256>(x, mask, d, p, group_x(), thread_id(), scratch);
}
