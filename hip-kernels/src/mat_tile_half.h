// Products with many columns of activations in F16: tiles of the result. The operands pass through LDS as F16 and are
// multiplied by fragments (fragment.h), which use matrix units if there are any. The sums are F32.
//
// A work-group computes BM rows of the weights times BN columns; a wavefront has BM / 2 of the rows and its share of the
// columns. Steps along k have TILE_K elements. In each, a thread loads eight adjacent elements of some rows: weights are
// decoded on the way into LDS, once for BN columns; activations were rounded before (`round_half`) and are copied.
//
//   * Bytes become F16 in pairs (halves.h): three instructions for two weights.
//   * While a step is multiplied, the loads of the next are in flight. If LDS holds two steps, they go to the other half, so
//     that a step has one barrier.
//
// A column of activations is multiplied by a power of two that brings its largest magnitude to 2^14 .. 2^15, and its results by
// the inverse: nothing overflows, and values that are 2^28 times smaller still have all bits of F16. Infinities and NaNs are
// preserved. Weights must be in the range of F16: a block with a value above 65504 gives infinities, so types with larger
// scales (MXFP4) and numbers of F32 and BF16 use other tiles.
#pragma once
#include "fragment.h"
#include "mat_tile.h"

// Halves of a column in scratch: whole steps of either length, zeros after its end.
DEVICE u32 half_pitch(u32 k) { return (k + 63) / 64 * 64; }

#if DEVICE_AMD
typedef WeightF16 RoundedHalf;
#else
typedef Aligned<WeightF16> RoundedHalf;
#endif

// The operands of a step.
template <int BM, int BN> struct SharedHalf {
    __attribute__((aligned(16))) u16 a[BM * TILE_K], b[BN * TILE_K];
};

// SLICES: the work-group has SLICES times THREADS threads; each slice computes the whole tile over its own steps.
template <class W, class F_, int BM_, int BN_, int THREADS_, int SLICES = 1> struct TileHalf {
    typedef F_ F;
    static constexpr u32 BM = BM_, BN = BN_, BK = TILE_K, THREADS = THREADS_;
    // Threads that share a row while loading, and rows that are loaded at once.
    static constexpr u32 EIGHTS = BK / 8, ROWS = THREADS / EIGHTS, A_LOADS = BM / ROWS, B_LOADS = BN / ROWS;
    // A wavefront's part, and its number of fragments.
    static constexpr u32 WM = BM / 2, WN = BN / (THREADS / F::LANES / 2), FM = WM / F::M, FN = WN / F::N;
    static_assert(BM % ROWS == 0 && BN % ROWS == 0 && FM * F::M == WM && FN * F::N == WN, "");

    static constexpr u32 STEPS_IN_LDS = HALF_STEPS;
    typedef SharedHalf<BM, BN> Shared;
    typedef typename F::Sums Sums[FM][FN];

    const u8 *a[A_LOADS], *b[B_LOADS];
    typename W::Raw next_a[A_LOADS];
    RoundedHalf::Raw next_b[B_LOADS];

    // This thread's part. While loading: row of load `i` and first element. While multiplying: first row and column.
    DEVICE u32 thread() { return SLICES == 1 ? thread_id() : thread_id() % THREADS; }
    DEVICE u32 row(u32 i = 0) { return thread() / EIGHTS + i * ROWS; }
    DEVICE u32 k() { return thread() % EIGHTS * 8; }
    DEVICE u32 wave() { return F::LANES == WAVE && SLICES == 1 ? wave_id() : thread() / F::LANES; }
    DEVICE u32 m0() { return wave() % 2 * WM; }
    DEVICE u32 n0() { return wave() / 2 * WN; }

    // Issues the loads of elements base + k .. base + k + 8; `base` is the same for all threads.
    INLINED void load(u32 base, u32 k, u32 end) {
        UNROLL for (u32 i = 0; i < B_LOADS; i++) next_b[i] = RoundedHalf::fetch(b[i] + (u64)base * 2, k);
        load_rows(base, k, end);
    }
    INLINED void load_rows(u32 base, u32 k, u32 end) {
        u64 skip_a = (u64)(base / W::BLOCK) * W::BYTES;
        u32 inner = base % W::BLOCK;
        if (W::BLOCK >= BK || base + BK <= end) {
            UNROLL for (u32 i = 0; i < A_LOADS; i++) next_a[i] = W::fetch(a[i] + skip_a, inner + k);
        } else if (W::BLOCK > 1) {
            // After the end the activations are zeros.
            u32 within = minimum(k, end - base - 8);
            UNROLL for (u32 i = 0; i < A_LOADS; i++) next_a[i] = W::fetch(a[i] + skip_a, within);
        } else {
            UNROLL for (u32 i = 0; i < A_LOADS; i++) next_a[i] = W::fetch_some(a[i] + skip_a, k, end - base);
        }
    }

    // Stores the loaded values in LDS; `row` and `k` are this thread's part.
    INLINED void store(Shared *shared, u32 row, u32 k) {
        store_rows(shared->a, row, k);
        UNROLL for (u32 i = 0; i < B_LOADS; i++) {
            *(lds_u32x4 *)(shared->b + eight_at(row + i * ROWS, k / 8)) = __builtin_bit_cast(lds_u32x4, next_b[i].x);
        }
    }

    INLINED void store_rows(u16 *to, u32 row, u32 k) {
        UNROLL for (u32 i = 0; i < A_LOADS; i++) {
            *(lds_u32x4 *)(to + eight_at(row + i * ROWS, k / 8)) = decode_halves<W>(next_a[i]);
        }
    }

    DEVICE void clear(Sums &sums) {
        UNROLL for (u32 i = 0; i < FM; i++) UNROLL for (u32 j = 0; j < FN; j++) sums[i][j] = 0.0f;
    }

    // Adds the products of a step; m0 and n0 are the wavefront's part.
    DEVICE void multiply(const Shared *shared, u32 m0, u32 n0, Sums &sums) {
        multiply(shared->a, shared->b, m0, n0, sums);
    }
    DEVICE void multiply(const u16 *a, const u16 *b, u32 m0, u32 n0, Sums &sums) {
        UNROLL for (u32 k = 0; k < BK; k += F::K) {
            typename F::Operand columns[FN];
            UNROLL for (u32 j = 0; j < FN; j++) columns[j] = F::columns(b, n0 + j * F::N, k);
            UNROLL for (u32 i = 0; i < FM; i++) {
                typename F::Operand weights = F::weights(a, m0 + i * F::M, k);
                UNROLL for (u32 j = 0; j < FN; j++) F::multiply(weights, columns[j], sums[i][j]);
            }
        }
    }
};

// Stores the sums; `to` returns the address of a column's results and their factor.
template <class T, class TO> DEVICE void store_sums(const TO &to, u32 row, u32 rows, const typename T::Sums &sums) {
    UNROLL for (u32 j = 0; j < T::FN; j++) UNROLL for (u32 e = 0; e < T::F::SUMS; e++) {
        u32 n = T::n0() + j * T::F::N + T::F::n(e);
        if (!to.has(n)) continue;
        float *d = to.column(n), factor = to.factor(n);
        UNROLL for (u32 i = 0; i < T::FM; i++) {
            u32 m = row + T::m0() + i * T::F::M + T::F::m(e);
            if (m < rows) d[m] = sums[i][j][e] * factor;
        }
    }
}

// Columns of a plane of the result.
struct PlaneOfHalf {
    float *d;
    const float *scale;
    u32 first, columns, pitch;
    INLINED bool has(u32 n) const { return first + n < columns; }
    INLINED float *column(u32 n) const { return d + (u64)(first + n) * pitch; }
    INLINED float factor(u32 n) const { return scale[first + n]; }
};

template <class W, class T>
DEVICE void mat_tile_half(const u8 *a, const u16 *x, const float *scale, float *d, const MulMatParams &p,
                          typename T::Shared *shared) {
    Corner at = corner<T>(p);
    if (at.row >= p.m) return;
    T t;
    begin_rows<W>(t, a, p, at);
    u64 plane = scratch_column(p, at.z, 0);
    UNROLL for (u32 i = 0; i < T::B_LOADS; i++) {
        t.b[i] = (const u8 *)(x + (plane + column<T>(p, at, i)) * half_pitch(p.k));
    }
    typename T::Sums sums;
    walk(t, p.k, shared, sums);
    d += row_offset(p.offd, p.nbd, 0, at.z.i2, at.z.i3);
    store_sums<T>(PlaneOfHalf{d, scale + plane, at.col, p.n, p.nbd[0]}, at.row, p.m, sums);
}
