// Columns of the products of mat_narrow.h: rounded to F16, in the order of the operands of NVIDIA's matrix units.
//
// Up to 8 columns, or each 16 of more, are together. A step is NARROW_STEP elements of eight of them, NARROW_OF_STEP bytes:
// eight pieces of 16 bytes for each lane, a piece of all lanes together. Lane l has column l / 4 and, of each group of four
// spans of SPAN adjacent elements, span l % 4, each four in the order 0, 2, 1, 3, as weights are decoded. The same step of the
// other eight columns follows. Elements after the last are zeros; columns after the last are arbitrary, and not stored.
//
// As in mat_tile_half.h, a column is multiplied by a power of two that brings its largest magnitude to 2^14 .. 2^15.
#pragma once
#include "copies.h"
#include "fragment.h"
#include "mat_vec.h"

#if HAS_COPIES && HAS_MATRIX

#define NARROW_STEP 256u
#define NARROW_OF_STEP 4096u

// Byte of eight elements from k on of a column in a plane of `eights` times eight columns.
template <u32 SPAN> DEVICE u64 narrow_place(u32 k, u32 column, u32 eights) {
    u32 group = k % NARROW_STEP / (4 * SPAN), piece = group * (SPAN / 8) + k % SPAN / 8, span = k / SPAN % 4;
    u64 step = (u64)(k / NARROW_STEP) * eights + column / 8;
    return step * NARROW_OF_STEP + piece * 512 + (column % 8 * 4 + span) * 16;
}

// Threads that round a column: all of its loads are in flight together, up to 16384 elements. The host's mat_narrow.rs has the
// same number.
#define NARROW_ROUND_THREADS 512u

// Columns that are together, divided by eight; bytes of them for rows of k elements.
DEVICE u32 narrow_eights(u32 n) { return n > 8 ? 2 : 1; }
DEVICE u64 narrow_bytes(u32 k, u32 n) {
    return (u64)((k + NARROW_STEP - 1) / NARROW_STEP) * narrow_eights(n) * NARROW_OF_STEP;
}

// A work-group rounds a column. NORM: the column is RMS_NORM(x) * w. group_x: columns; group_y: planes.
template <u32 SPAN, bool NORM>
DEVICE void round_narrow(const float *x, const float *w, u8 *to, float *scale, const VecParams &all) {
    constexpr u32 THREADS = NARROW_ROUND_THREADS, EACH = THREADS * 8, KEPT = 4;
    LDS float scratch[2][THREADS / WAVE];
    const ProductsParams &p = all.p;
    u32 n = group_x(), eights = narrow_eights(p.n), together = 8 * eights;
    Plane z = plane(group_y(), p.ne2, 1, 1);
    x += (u64)n * p.nb1[0] + (u64)z.i2 * p.nb1[1] + (u64)z.i3 * all.v.nb13;
    to += ((u64)group_y() * ((p.n + together - 1) / together) + n / together) * narrow_bytes(p.k, p.n);
    u32 end = (p.k + NARROW_STEP - 1) / NARROW_STEP * NARROW_STEP, mine = thread_id() * 8;
    auto fetch = [&] INLINED(const float *at, u32 k) {
        WeightF32::Raw y = {f32x4(0.0f), f32x4(0.0f)};
        if (k < p.k) y = fetch_eight_or_rest<true>(at, k, p.k);
        return y;
    };
    float squares = 0.0f, most = 0.0f;
    auto look = [&] INLINED(WeightF32::Raw *raw, const WeightF32::Raw &by) {
        float y[8];
        WeightF32::decode(*raw, y);
        UNROLL for (u32 j = 0; NORM && j < 8; j++) squares = mad(y[j], y[j], squares);
        if (NORM) *raw = {raw->low * by.low, raw->high * by.high};
        WeightF32::decode(*raw, y);
        UNROLL for (u32 j = 0; j < 8; j++) most = larger(most, is_finite(y[j]) ? __builtin_fabsf(y[j]) : 0.0f);
    };
    // The first elements stay in registers until the largest magnitude is known; further ones are read again.
    WeightF32::Raw kept[KEPT], by[KEPT];
    UNROLL for (u32 i = 0; i < KEPT; i++) {
        kept[i] = fetch(x, mine + i * EACH);
        if (NORM) by[i] = fetch(w, mine + i * EACH);
    }
    UNROLL for (u32 i = 0; i < KEPT; i++) look(kept + i, by[i]);
    NO_UNROLL for (u32 k = mine + KEPT * EACH; k < p.k; k += EACH) {
        WeightF32::Raw y = fetch(x, k);
        look(&y, NORM ? fetch(w, k) : y);
    }
    squares = wave_reduce<Sum>(squares);
    most = wave_reduce<Max>(most);
    if (lane_id() == 0) {
        scratch[0][wave_id()] = most;
        scratch[1][wave_id()] = squares;
    }
    barrier();
    float norm = 1.0f, sum = 0.0f;
    UNROLL for (u32 i = 0; i < THREADS / WAVE; i++) {
        most = larger(most, scratch[0][i]);
        sum += scratch[1][i];
    }
    if (NORM) norm = 1.0f / __builtin_sqrtf(sum / (float)p.k + p.eps);
    float factor = half_factor(most * norm);
    auto put = [&] INLINED(const WeightF32::Raw &raw, u32 k) {
        if (k >= end) return;
        float y[8];
        WeightF32::decode(raw, y);
        lds_u32x4 out;
        UNROLL for (u32 j = 0; j < 4; j++) {
            u32 first = j / 2 * 4 + j % 2;
            out[j] = half_pair(y[first] * norm * factor, y[first + 2] * norm * factor);
        }
        *(lds_u32x4 *)(to + narrow_place<SPAN>(k, n % together, eights)) = out;
    };
    UNROLL for (u32 i = 0; i < KEPT; i++) put(kept[i], mine + i * EACH);
    NO_UNROLL for (u32 k = mine + KEPT * EACH; k < end; k += EACH) {
        WeightF32::Raw y = fetch(x, k), of_norm = NORM ? fetch(w, k) : y;
        put(NORM ? WeightF32::Raw{y.low * of_norm.low, y.high * of_norm.high} : y, k);
    }
    if (thread_id() == 0) scale[group_y() * p.n + n] = inverse_power(factor);
}

#define ROUND_NARROW(name, SPAN, NORM) \
    KERNEL(NARROW_ROUND_THREADS) name##_##SPAN(const float *x, const float *w, u8 *to, float *scale, VecParams p) { \
        round_narrow<SPAN, NORM>(x, w, to, scale, p); \
    }
#endif
