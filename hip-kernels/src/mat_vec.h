// Products with few columns: the weights are read once, and their bandwidth is the limit.
//
// A wavefront computes R rows of the weights times N columns (or shares them with the other wavefronts of its
// work-group, which then take every SPLIT-th part of the rows: for few long rows). Lane l has elements 8l .. 8l + 8 of
// each stretch of 8 * WAVE elements:
//
//   * weights: one load of 8 to 32 bytes a lane and row straight from the quantised blocks (plus what the block begins
//     with, which four lanes or more share), so that a wavefront reads one run of memory without gaps; lanes need no
//     block of their own, so nothing is wasted when rows are short
//   * activations: 32 bytes a lane and column, used for all R rows; they come from the caches
//   * with one or two columns two stretches of R rows are in flight at a time: with R = 4 and Q8_0 that is 4 KiB of
//     weights a wavefront of 64. Where a byte holds parts of elements APART, a lane takes two eights so far apart
//     instead: each byte is loaded once, and what a block begins with serves both
//
// The sum of a lane is kept in F32. One reduction over the lanes at the end, without LDS unless rows are split.
#pragma once
#include "blocks.h"
#include "index.h"
#include "params.h"

#define VEC_THREADS 128
// Elements of a row that a wavefront takes at a time, eight a lane.
#define STRETCH (8u * WAVE)

// Which plane of b and the result, and of the weights, group_z stands for.
struct Plane {
    u32 i2, i3, a2, a3;
};

DEVICE Plane plane(const MulMatParams &p) {
    Plane z = {0, 0, 0, 0};
    if (u32 n = group_z()) {
        z.i3 = n / p.ne2;
        z.i2 = n - z.i3 * p.ne2;
        z.a2 = z.i2 / p.r2;
        z.a3 = z.i3 / p.r3;
    }
    return z;
}

// A column of activations as they are. Every such structure has
//
//   Raw      eight neighbours, as loaded
//   fetch    loads elements base + k .. base + k + 8; `base` is the same in all lanes
//   bias     what the bias of the weights takes from the sum of eight products; the sum of the eight where weights
//            have an offset
//   add      adds the product with eight weights to a sum
struct ColumnF32 {
    const float *at;
    typedef WeightF32::Raw Raw;
    __attribute__((device, always_inline)) Raw fetch(u32 base, u32 k) const {
        return WeightF32::fetch((const u8 *)(at + base), k);
    }
    template <class W> DEVICE float bias(const Raw &b) {
        float sum = 0.0f;
        if constexpr (W::BIAS != 0.0f || W::OFFSET) {
            UNROLL for (int j = 0; j < 4; j++) sum += b.low[j] + b.high[j];
        }
        return W::OFFSET ? sum : sum * W::BIAS;
    }
    template <class W> DEVICE void add(const typename W::Raw &raw, const Raw &b, float bias, float *sum) {
        float w[8], y[8];
        W::decode(raw, w);
        WeightF32::decode(b, y);
        if constexpr (W::BLOCK == 1) {
            UNROLL for (int j = 0; j < 8; j++) *sum = mad(w[j], y[j], *sum);
        } else {
            float s = w[0] * y[0];
            UNROLL for (int j = 1; j < 8; j++) s = mad(w[j], y[j], s);
            if constexpr (W::OFFSET) {
                *sum = mad(W::factor(raw), s, mad(W::offset(raw), bias, *sum));
            } else {
                *sum = mad(W::factor(raw), s - bias, *sum);
            }
        }
    }
};

template <class W, class C, int N, int R> struct MatVec {
    const u8 *row[R];
    C column[N];
    float sum[R][N];

    // Elements base + k .. base + k + 8 of the weights with elements from + k .. from + k + 8 of the columns, for each
    // of COUNT stretches. `base` and `from` are the same in all lanes and multiples of the block, so that they go into
    // scalar registers and the offsets of a lane never change.
    template <int COUNT> __attribute__((device, always_inline)) void eight(u32 base, u32 from, u32 k) {
        constexpr bool PAIR = COUNT == 2 && W::APART > 0;
        typename W::Raw a[COUNT][R];
        typename C::Raw b[COUNT][N];
        k = offset_here(k);
        // Room for the second eight of each pair.
        if constexpr (PAIR) k = (k / W::APART * 2 * W::APART) | k % W::APART;
        UNROLL for (int i = 0; i < COUNT; i++) {
            u32 skip = PAIR ? 0 : i * STRETCH, inner = PAIR ? k + i * W::APART : k;
            u64 block = (base + skip) / W::BLOCK;
            UNROLL for (int r = 0; r < R; r++) a[i][r] = W::fetch(row[r] + block * W::BYTES, inner);
            UNROLL for (int n = 0; n < N; n++) b[i][n] = column[n].fetch(from + skip, inner);
        }
        LOADS_FIRST();
        UNROLL for (int i = 0; i < COUNT; i++) UNROLL for (int n = 0; n < N; n++) {
            auto bias = C::template bias<W>(b[i][n]);
            UNROLL for (int r = 0; r < R; r++) C::template add<W>(a[i][r], b[i][n], bias, &sum[r][n]);
        }
    }

    // Rows beyond the last are computed as the last, and not stored; so are columns.
    __attribute__((device, always_inline)) void begin(const u8 *a, const MulMatParams &p, const Plane &z, u32 row0) {
        UNROLL for (int r = 0; r < R; r++) {
            row[r] = a + row_offset(p.off0, p.nb0, minimum(row0 + r, p.m - 1), z.a2, z.a3) * W::BYTES;
            UNROLL for (int n = 0; n < N; n++) sum[r][n] = 0.0f;
        }
    }

    // By one lane: the sums to their places.
    __attribute__((device, always_inline)) void store(float *d, const MulMatParams &p, const Plane &z, u32 row0,
                                                      u32 col0) const {
        d += row_offset(p.offd, p.nbd, 0, z.i2, z.i3);
        UNROLL for (int n = 0; n < N; n++) UNROLL for (int r = 0; r < R; r++) {
            if (col0 + n < p.n && row0 + r < p.m) d[(u64)(col0 + n) * p.nbd[0] + row0 + r] = sum[r][n];
        }
    }

    // What is left of rows that are no multiple of 8 long; rows of blocks always are.
    __attribute__((device, always_inline)) void rest(u32 k, u32 end) {
        if constexpr (W::BLOCK == 1) {
            NO_UNROLL for (; k < end; k++) {
                float w[R];
                UNROLL for (int r = 0; r < R; r++) w[r] = W::one(row[r], k);
                UNROLL for (int n = 0; n < N; n++) {
                    float y = column[n].at[k];
                    UNROLL for (int r = 0; r < R; r++) sum[r][n] = mad(w[r], y, sum[r][n]);
                }
            }
        }
    }
};

// group_x: groups of rows; group_y: groups of N columns; `z`: what group_z stands for.
template <class W, int N, int R, int SPLIT>
DEVICE void mat_vec(const u8 *a, const float *b, float *d, const MulMatParams &p, const Plane &z, float *scratch) {
    constexpr u32 WAVES = VEC_THREADS / WAVE;
    // How many stretches are in flight: activations of many columns take the registers.
    constexpr u32 DEPTH = N <= 2 ? 2 : 1;
    u32 wave = wave_id(), lane = lane_id();
    u32 part = SPLIT == 1 ? 0 : wave;
    u32 row0 = p.first_row + (SPLIT == 1 ? group_x() * WAVES + wave : group_x()) * R, col0 = group_y() * N;
    if (row0 >= p.m) return;

    MatVec<W, ColumnF32, N, R> t;
    t.begin(a, p, z, row0);
    UNROLL for (int n = 0; n < N; n++) {
        t.column[n].at = b + row_offset(p.off1, p.nb1, minimum(col0 + n, p.n - 1), z.i2, z.i3);
    }

    u32 base = part * DEPTH * STRETCH, k = lane * 8;
    NO_UNROLL for (; base + DEPTH * STRETCH <= p.k; base += SPLIT * DEPTH * STRETCH) {
        t.template eight<DEPTH>(base, base, k);
    }
    if (base < p.k) {
        NO_UNROLL for (; base + k + 8 <= p.k; base += STRETCH) t.template eight<1>(base, base, k);
        t.rest(base + k, p.k);
    }

    UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) {
        float s = wave_reduce<Sum>(t.sum[r][n]);
        if constexpr (SPLIT > 1) {
            if (lane == 0) scratch[(r * N + n) * SPLIT + part] = s;
        } else {
            t.sum[r][n] = s;
        }
    }
    if constexpr (SPLIT > 1) {
        barrier();
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) {
            float s = 0.0f;
            UNROLL for (int i = 0; i < SPLIT; i++) s += scratch[(r * N + n) * SPLIT + i];
            t.sum[r][n] = s;
        }
    }
    if (lane == 0 && part == 0) t.store(d, p, z, row0, col0);
}
