// RMS_NORM: d = v / sqrt(mean(v^2) + eps) for each row, where v is x, or x + y, which is then also a result (r); multiplied by
// a factor and a weight w, plus a third tensor z, or with z as its gate. Absent operands are replaced by other pointers.
//
// `norm_wave`: one wavefront for each row, no LDS, no barrier; for heads of 64 or 128 elements. `norm_gated` is the same with a
// gate. `norm_group`: 256 threads for one row, so that the single row of a decode step (4096 elements: 16 in a thread) takes
// two memory latencies. Both read a row once, 16 bytes in each lane: it stays in registers with its weight and added tensor
// while squares are summed. `norm_long` takes rows of any length in several iterations and reads them again, from the cache.
// The sum is kept in F32 for each lane, and reduced as a tree.
#include "activation.h"
#include "index.h"
#include "params.h"

enum { SUM = 1, WEIGHT = 2, RESIDUAL = 4 };

// Row `row` by `THREADS` threads; this one is number `thread`. Each takes QUADS quads at a time; if the row is read WHOLE,
// these are all.
template <int THREADS, int QUADS, bool WHOLE, bool GATED>
DEVICE void norm_row(const float *x, const float *y, const float *w, const float *z, float *r, float *d,
                     const NormParams &p, u32 row, u32 thread, float *scratch) {
    Index i = row_index(row, p.ne);
    x += row_offset(p.off0, p.nb0, i.i1, i.i2, i.i3);
    y += row_offset(p.off1, p.nb1, i.i1, i.i2, i.i3);
    z += row_offset(p.off2, p.nb2, i.i1, i.i2, i.i3);
    u64 result = row_offset(0, p.nbd, i.i1, i.i2, i.i3);
    r += p.offr + result;
    d += p.offd + result;
    w += p.offw;
    u32 n = p.ne[0];

    // Absent operands are neutral: for a sum, -0 is.
    f32x4 v[QUADS], weight[QUADS], added[QUADS];
    auto load = [&](const float *row, u32 begin, bool there, float neutral, f32x4 *quads) {
        UNROLL for (int q = 0; q < QUADS; q++) {
            quads[q] = there ? load_quad(row, begin + q * THREADS * 4, n) : f32x4(neutral);
        }
    };
    auto load_normed = [&](u32 begin) {
        f32x4 second[QUADS];
        load(x, begin, true, 0.0f, v);
        load(y, begin, p.parts & SUM, -0.0f, second);
        if constexpr (WHOLE) {
            load(w, begin, p.parts & WEIGHT, 1.0f, weight);
            load(z, begin, GATED || p.parts & RESIDUAL, -0.0f, added);
        }
        UNROLL for (int q = 0; q < QUADS; q++) v[q] += second[q];
    };

    constexpr u32 ROUND = QUADS * THREADS * 4;
    float sum = 0.0f;
    for (u32 begin = thread * 4; begin < (WHOLE ? thread * 4 + 1 : n); begin += ROUND) {
        load_normed(begin);
        UNROLL for (int q = 0; q < QUADS; q++) {
            UNROLL for (int j = 0; j < 4; j++) sum = mad(v[q][j], v[q][j], sum);
        }
    }
    sum = THREADS == WAVE ? wave_reduce<Sum>(sum) : group_reduce<Sum, THREADS>(sum, scratch);

    float scale = p.factor / __builtin_sqrtf(sum / (float)n + p.eps);
    for (u32 begin = thread * 4; begin < (WHOLE ? thread * 4 + 1 : n); begin += ROUND) {
        if constexpr (!WHOLE) {
            load_normed(begin);
            load(w, begin, p.parts & WEIGHT, 1.0f, weight);
            load(z, begin, GATED || p.parts & RESIDUAL, -0.0f, added);
        }
        UNROLL for (int q = 0; q < QUADS; q++) {
            u32 at = begin + q * THREADS * 4;
            if (p.parts & SUM) store_quad(r, at, n, v[q]);
            f32x4 normed = v[q] * scale * weight[q];
            if constexpr (GATED) {
                // Activation functions are long code: not executed for quads after the end.
                if (at >= n) continue;
                UNROLL for (int j = 0; j < 4; j++) normed[j] *= activation(p.op, added[q][j]);
            } else {
                normed += added[q];
            }
            store_quad(d, at, n, normed);
        }
    }
}

#define NORM(name) \
    KERNEL(256) norm_##name(const float *x, const float *y, const float *w, const float *z, float *r, float *d, NormParams p)

NORM(wave) {
    u32 row = group_x() * (256 / WAVE) + wave_id();
    if (row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    norm_row<WAVE, 512 / 4 / WAVE, true, false>(x, y, w, z, r, d, p, row, lane_id(), nullptr);
}

NORM(gated) {
    u32 row = group_x() * (256 / WAVE) + wave_id();
    if (row >= p.ne[1] * p.ne[2] * p.ne[3]) return;
    norm_row<WAVE, 512 / 4 / WAVE, true, true>(x, y, w, z, r, d, p, row, lane_id(), nullptr);
}

NORM(group) {
    LDS float scratch[256 / WAVE];
    norm_row<256, 4, true, false>(x, y, w, z, r, d, p, group_x(), thread_id(), scratch);
}

NORM(long) {
    LDS float scratch[256 / WAVE];
    norm_row<256, 4, false, false>(x, y, w, z, r, d, p, group_x(), thread_id(), scratch);
}
