// RMS_NORM: d = x / sqrt(mean(x^2) + eps) for each row.
//
// Two kernels for two lengths. `rms_norm_wave`: one wavefront for each row, no LDS, no barrier; heads of 64 or 128
// elements, and many rows. `rms_norm_group`: 256 threads for one row, so that the single row of a decoded token (4096
// elements: 16 a thread) is done in a few memory latencies. Rows are read 16 bytes a lane; the second reading finds
// them in the cache. The sum is kept in F32, by lane, and combined as a tree.
#include "index.h"
#include "params.h"

// Row `row` by `THREADS` threads, of which this one is number `thread`.
template <int THREADS>
DEVICE void rms_norm(const float *x, float *d, const NormParams &p, u32 row, u32 thread, float *scratch) {
    Index i = row_index(row, p.ne);
    x += row_offset(p.off0, p.nb0 + 1, i.i1, i.i2, i.i3);
    d += row_offset(p.offd, p.nbd + 1, i.i1, i.i2, i.i3);
    u32 n = p.ne[0], quads = n & ~3u;

    float sum = 0.0f;
    for (u32 j = thread * 4; j < quads; j += THREADS * 4) {
        f32x4 v = *(const f32x4 *)(x + j);
        sum = mad(v[0], v[0], sum);
        sum = mad(v[1], v[1], sum);
        sum = mad(v[2], v[2], sum);
        sum = mad(v[3], v[3], sum);
    }
    u32 rest = quads + thread;
    if (rest < n) sum = mad(x[rest], x[rest], sum);
    sum = THREADS == WAVE ? wave_reduce<Sum>(sum) : group_reduce<Sum, THREADS>(sum, scratch);

    float scale = 1.0f / __builtin_sqrtf(sum / (float)n + p.eps);
    for (u32 j = thread * 4; j < quads; j += THREADS * 4) {
        *(f32x4 *)(d + j) = *(const f32x4 *)(x + j) * scale;
    }
    if (rest < n) d[rest] = x[rest] * scale;
}

KERNEL(256) rms_norm_wave(const float *x, float *d, NormParams p) {
    u32 row = group_x() * (256 / WAVE) + wave_id();
    if (row < p.ne[1] * p.ne[2] * p.ne[3]) rms_norm<WAVE>(x, d, p, row, lane_id(), nullptr);
}

KERNEL(256) rms_norm_group(const float *x, float *d, NormParams p) {
    LDS float scratch[256 / WAVE];
    rms_norm<256>(x, d, p, group_x(), thread_id(), scratch);
}
