// Products of quantised weights with few columns of activations in 8 bits. Rows, lanes and loads are those of
// mat_vec.h; eight products are two dot4 and three operations for the scales, where F32 takes some 18.
//
//   * One or two columns: the work-group rounds the activations itself, CHUNK elements at a time, into LDS (4.5 KiB a
//     column). That costs some 6 operations for each 8 elements of a column, shared by all rows of the work-group, and
//     spares a launch and its wait, which next to the reading of a small matrix would be most of the time.
//   * More columns: the product is limited by arithmetic, and rounding comes first, in a launch of its own
//     (`quantize_int8`), into scratch: rows of bytes, then a scale for each 32 of them.
#pragma once
#include "int8.h"
#include "mat_vec.h"

#define INT8_THREADS 256
// Elements of a column that are in LDS at a time.
#define CHUNK 4096u

struct InMemory {
    typedef const u8 *Bytes;
    typedef const lds_u32x2 *Words;
    typedef const float *Floats;
};
struct InLds {
    typedef const IN_LDS u8 *Bytes;
    typedef const IN_LDS lds_u32x2 *Words;
    typedef const IN_LDS float *Floats;
};

// A column in 8 bits; see ColumnF32.
template <class PLACE> struct ColumnInt8 {
    typename PLACE::Bytes q;
    typename PLACE::Floats scale;
    typedef EightInt8 Raw;
    __attribute__((device, always_inline)) Raw fetch(u32 base, u32 k) const {
        return {*(typename PLACE::Words)(q + base + k), (scale + base / 32)[k / 32]};
    }
    // Whole, because the sum of products begins with it; of an offset the sum of the activations.
    template <class W> DEVICE auto bias(const Raw &b) {
        if constexpr (W::OFFSET) {
            return b.scale * (float)int8_sum<1>(b.q);
        } else {
            return int8_sum<-(int)W::BIAS>(b.q);
        }
    }
    template <class W, class B> DEVICE void add(const typename W::Raw &raw, const Raw &b, B bias, float *sum) {
        u32x2 q = W::bytes(raw);
        i32 s = dot4(q[0], b.q[0], dot4(q[1], b.q[1], W::OFFSET ? 0 : (i32)bias));
        if constexpr (W::OFFSET) *sum = mad(W::offset(raw), bias, *sum);
        *sum = mad(W::factor(raw) * b.scale, (float)s, *sum);
    }
};

// The chunk of N columns that a work-group works on.
template <int N> struct Chunk {
    __attribute__((aligned(16))) u8 q[N][CHUNK];
    float scale[N][CHUNK / 32];
};

// Where a column of plane z begins in scratch, in columns.
DEVICE u64 int8_column(const MulMatParams &p, const Plane &z, u32 n) {
    return ((u64)z.i3 * p.ne2 + z.i2) * p.n + n;
}

template <class W, class C, int N, int R>
DEVICE void reduce_and_store(MatVec<W, C, N, R> &t, float *d, const MulMatParams &p, const Plane &z, u32 row0,
                             u32 col0) {
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) t.sum[r][n] = wave_reduce<Sum>(t.sum[r][n]);
    if (lane_id() == 0) t.store(d, p, z, row0, col0);
}

// group_x: groups of rows; group_y: groups of N columns; `z`: what group_z stands for.
template <class W, int N, int R>
DEVICE void mat_vec_chunks(const u8 *a, const float *b, float *d, const MulMatParams &p, const Plane &z,
                           Chunk<N> *shared) {
    u32 thread = thread_id(), k = lane_id() * 8;
    u32 row0 = p.first_row + (group_x() * (INT8_THREADS / WAVE) + wave_id()) * R, col0 = group_y() * N;
    MatVec<W, ColumnInt8<InLds>, N, R> t;
    t.begin(a, p, z, row0);
    const float *column[N];
    UNROLL for (int n = 0; n < N; n++) {
        column[n] = b + row_offset(p.off1, p.nb1, minimum(col0 + n, p.n - 1), z.i2, z.i3);
        t.column[n] = {(InLds::Bytes)shared->q[n], (InLds::Floats)shared->scale[n]};
    }

    NO_UNROLL for (u32 chunk = 0; chunk < p.k; chunk += CHUNK) {
        u32 count = minimum(p.k - chunk, CHUNK);
        if (chunk > 0) barrier();
        NO_UNROLL for (u32 at = thread * 8; at < count; at += INT8_THREADS * 8) {
            UNROLL for (int n = 0; n < N; n++) {
                EightInt8 eight = quantize_eight(WeightF32::fetch((const u8 *)(column[n] + chunk), at));
                *(lds_u32x2 *)(shared->q[n] + at) = eight.q;
                if (at % 32 == 0) shared->scale[n][at / 32] = eight.scale;
            }
        }
        barrier();
        u32 from = 0;
        NO_UNROLL for (; from + 2 * STRETCH <= count; from += 2 * STRETCH) t.template eight<2>(chunk + from, from, k);
        NO_UNROLL for (; from + k + 8 <= count; from += STRETCH) t.template eight<1>(chunk + from, from, k);
    }
    reduce_and_store(t, d, p, z, row0, col0);
}

template <class W, int N, int R>
DEVICE void mat_vec_columns(const u8 *a, const u8 *q, const float *scale, float *d, const MulMatParams &p) {
    u32 k = lane_id() * 8;
    u32 row0 = p.first_row + (group_x() * (INT8_THREADS / WAVE) + wave_id()) * R, col0 = group_y() * N;
    if (row0 >= p.m) return;
    Plane z = plane(p);
    MatVec<W, ColumnInt8<InMemory>, N, R> t;
    t.begin(a, p, z, row0);
    UNROLL for (int n = 0; n < N; n++) {
        u64 at = int8_column(p, z, minimum(col0 + n, p.n - 1));
        t.column[n] = {q + at * p.k, scale + at * (p.k / 32)};
    }
    u32 base = 0;
    NO_UNROLL for (; base + k + 8 <= p.k; base += STRETCH) t.template eight<1>(base, base, k);
    reduce_and_store(t, d, p, z, row0, col0);
}
