// Products with many columns: tiles of the result; the operands pass through LDS.
//
// A work-group computes BM rows of the weights times BN columns; a thread has TM x TN of them in registers. Steps along k have
// BK elements. In each, a thread loads eight adjacent elements of one or two rows: weights are decoded to F32 on the way into
// LDS, activations are copied.
//
//   * LDS holds both tiles as [k][row], so that the operands of one k are 16-byte reads without bank conflicts: adjacent
//     threads read adjacent rows of the weights, and the same activations (one broadcast).
//   * Eight values of one row are written to LDS one by one, a line apart. The threads that share a row hold different groups
//     of eight along k. Each eight lines are followed by a gap that puts these threads on different banks.
//   * While a tile is multiplied, the loads of the next one are in flight.
//   * TM = TN = 4: for each k two 16-byte reads for 16 products, so that LDS and arithmetic are balanced; 8 x 8: four reads for
//     64.
//
// Sums are F32, along k in order. The last tiles in each direction read the last row or column repeatedly and do not store the
// results.
#pragma once
#include "mat_vec.h"

// A thread's parts of a tile, for operands of either kind.
template <int BM_, int BN_, int BK_, int TM_, int TN_> struct TileParts {
    static constexpr u32 BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_;
    static constexpr u32 THREADS = BM / TM * (BN / TN);
    // Threads that share a row while loading, and rows that are loaded at once.
    static constexpr u32 EIGHTS = BK / 8, ROWS = THREADS / EIGHTS;

    // This thread's part. While loading: row of load `i` and first element. While multiplying: first row and first column.
    DEVICE u32 row(u32 i = 0) { return thread_id() / EIGHTS + i * ROWS; }
    DEVICE u32 k() { return thread_id() % EIGHTS * 8; }
    DEVICE u32 m0() { return thread_id() % (BM / TM) * 4; }
    DEVICE u32 n0() { return thread_id() / (BM / TM) * 4; }
};

// Adds the products of one line of k. A thread's rows are TM / 4 groups of four, which are BM / (TM / 4) apart; the same for
// columns.
template <class T> DEVICE void line_of_k(const float *line_a, const float *line_b, u32 m0, u32 n0, typename T::Sums &sum) {
    lds_f32x4 x[T::TM / 4], y[T::TN / 4];
    UNROLL for (u32 i = 0; i < T::TM / 4; i++) x[i] = *(const lds_f32x4 *)(line_a + m0 + i * (T::BM * 4 / T::TM));
    UNROLL for (u32 i = 0; i < T::TN / 4; i++) y[i] = *(const lds_f32x4 *)(line_b + n0 + i * (T::BN * 4 / T::TN));
    UNROLL for (u32 i = 0; i < T::TM; i++) UNROLL for (u32 j = 0; j < T::TN; j++) {
        sum[i][j] = mad(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j]);
    }
}

template <class W, int BM_, int BN_, int BK_, int TM_, int TN_> struct MatTile : TileParts<BM_, BN_, BK_, TM_, TN_> {
    typedef TileParts<BM_, BN_, BK_, TM_, TN_> Parts;
    using Parts::BK;
    using Parts::BM;
    using Parts::BN;
    using Parts::EIGHTS;
    using Parts::ROWS;
    using Parts::TM;
    using Parts::TN;
    // The gap (in floats) after eight lines of k.
    static constexpr u32 GAP = 32 / EIGHTS;
    static constexpr u32 A_LOADS = BM / ROWS, B_LOADS = BN / ROWS;
    // Lines of k whose reads may be in flight together. Two where eight would leave one wavefront on a SIMD.
    static constexpr u32 LINES = !HAS_FMAC && W::BLOCK == 1 && TM * TN == 64 ? 2 : 8;
    static_assert(BM % ROWS == 0 && BN % ROWS == 0 && ROWS >= 16, "every thread loads whole eights");

    static constexpr u32 STEPS_IN_LDS = 1;
    struct Shared {
        __attribute__((aligned(16))) float a[BK * BM + EIGHTS * GAP];
        __attribute__((aligned(16))) float b[BK * BN + EIGHTS * GAP];
    };
    typedef float Sums[TM][TN];

    const u8 *a[A_LOADS], *b[B_LOADS];
    typename W::Raw next_a[A_LOADS];
    WeightF32::Raw next_b[B_LOADS];

    static INLINED u32 line(u32 k, u32 width) { return k * width + k / 8 * GAP; }

    // Issues the loads of elements base + k .. base + k + 8; `base` is the same for all threads.
    INLINED void load(u32 base, u32 k, u32 end) {
        static_assert(W::BLOCK == 1 || W::BLOCK % BK == 0, "a step ends within a block");
        u32 block = base / W::BLOCK, inner = base % W::BLOCK;
        u64 skip_a = (u64)block * W::BYTES, skip_b = (u64)base * 4;
        if (W::BLOCK > 1 || base + BK <= end) {
            UNROLL for (u32 i = 0; i < A_LOADS; i++) next_a[i] = W::fetch(a[i] + skip_a, inner + k);
            UNROLL for (u32 i = 0; i < B_LOADS; i++) next_b[i] = WeightF32::fetch(b[i] + skip_b, k);
        } else {
            u32 left = end - base;
            UNROLL for (u32 i = 0; i < A_LOADS; i++) next_a[i] = W::fetch_some(a[i] + skip_a, inner + k, inner + left);
            UNROLL for (u32 i = 0; i < B_LOADS; i++) next_b[i] = WeightF32::fetch_some(b[i] + skip_b, k, left);
        }
    }

    // Stores the loaded values in LDS; `row` and `k` are this thread's part.
    INLINED void store(Shared *shared, u32 row, u32 k) {
        UNROLL for (u32 i = 0; i < A_LOADS; i++) {
            float x[8];
            decode_values<W>(next_a[i], x);
            UNROLL for (u32 j = 0; j < 8; j++) shared->a[line(k, BM) + j * BM + row + i * ROWS] = x[j];
        }
        UNROLL for (u32 i = 0; i < B_LOADS; i++) {
            float x[8];
            WeightF32::decode(next_b[i], x);
            UNROLL for (u32 j = 0; j < 8; j++) shared->b[line(k, BN) + j * BN + row + i * ROWS] = x[j];
        }
    }

    DEVICE void clear(Sums &sum) {
        UNROLL for (u32 i = 0; i < TM; i++) UNROLL for (u32 j = 0; j < TN; j++) sum[i][j] = 0.0f;
    }

    // Adds the products of a step; m0 and n0 are this thread's part.
    DEVICE void multiply(const Shared *shared, u32 m0, u32 n0, Sums &sum) {
        _Pragma("unroll LINES") for (u32 l = 0; l < BK; l++) {
            line_of_k<MatTile>(shared->a + line(l, BM), shared->b + line(l, BN), m0, n0, sum);
        }
    }
};

// Multiplies a thread's sums of column `j`.
template <class T> DEVICE void scale_column(u32 j, float factor, float (*sum)[T::TN]) {
    UNROLL for (u32 i = 0; i < T::TM; i++) sum[i][j] *= factor;
}

// Stores a thread's sums of column `j`. `whole`: the tile is within the rows. `row` is the thread's first row.
template <class T>
DEVICE void store_column(float *d, u32 row, u32 rows, bool whole, u32 j, float (*sum)[T::TN]) {
    UNROLL for (u32 i = 0; i < T::TM; i += 4) {
        u32 m = row + i / 4 * (T::BM * 4 / T::TM);
        if (whole) {
            *(f32x4 *)(d + m) = (f32x4){sum[i][j], sum[i + 1][j], sum[i + 2][j], sum[i + 3][j]};
        } else {
            UNROLL for (u32 c = 0; c < 4; c++) if (m + c < rows) d[m + c] = sum[i + c][j];
        }
    }
}

// Returns column `j` of a thread whose first column is `first`.
template <class T> DEVICE u32 column_of(u32 first, u32 j) { return first + j / 4 * (T::BN * 4 / T::TN) + j % 4; }

// Position of a work-group's tile in the result. group_x: tiles of rows; group_y: tiles of columns; group_z: planes of the
// result.
struct Corner {
    u32 row, col;
    Plane z;
};

template <class T> DEVICE Corner corner(const MulMatParams &p) {
    return {p.first_row + group_x() * T::BM, group_y() * T::BN, plane(group_z(), p.ne2, p.r2, p.r3)};
}

// Stores a thread's sums.
template <class T> DEVICE void store_tile(float *d, const MulMatParams &p, const Corner &at, float (*sum)[T::TN]) {
    u32 row = at.row + T::m0(), col = at.col + T::n0();
    bool whole = at.row + T::BM <= p.m && at.col + T::BN <= p.n;
    d += row_offset(p.offd, p.nbd, 0, at.z.i2, at.z.i3);
    UNROLL for (u32 j = 0; j < T::TN; j++) {
        u32 n = column_of<T>(col, j);
        if (whole || n < p.n) store_column<T>(d + (u64)n * p.nbd[0], row, p.m, whole, j, sum);
    }
}

// Main loop of every tile: steps along k, from the rows and columns whose starts are in `t`. While a step is multiplied, the
// loads of the next are in flight. If LDS holds two steps, the loaded values go to the place that no thread reads any more, and
// one barrier suffices.
template <class T> DEVICE void walk(T &t, u32 end, typename T::Shared *shared, typename T::Sums &sums) {
    u32 row = t.row(), k = t.k(), m0 = t.m0(), n0 = t.n0();
    T::clear(sums);
    t.load(0, k, end);
    NO_UNROLL for (u32 base = 0, step = 0; base < end; base += T::BK) {
        t.store(shared + step, row, k);
        barrier();
        if (base + T::BK < end) t.load(base + T::BK, k, end);
        T::multiply(shared + step, m0, n0, sums);
        if constexpr (T::STEPS_IN_LDS == 2) {
            step ^= 1;
        } else {
            barrier();
        }
    }
}

// Sets the starts of the rows of a tile.
template <class W, class T> DEVICE void begin_rows(T &t, const u8 *a, const MulMatParams &p, const Corner &at) {
    UNROLL for (u32 i = 0; i < T::A_LOADS; i++) {
        t.a[i] = a + row_offset(p.off0, p.nb0, minimum(at.row + t.row(i), p.m - 1), at.z.a2, at.z.a3) * W::BYTES;
    }
}

// Addresses and distances of the rows of weights, for by_alignment().
template <class W> DEVICE u64 places_of_rows(const u8 *a, const MulMatParams &p) {
    return (u64)a | (p.off0 | p.nb0[0] | p.nb0[1] | p.nb0[2]) * W::BYTES;
}

// Index of a column of plane z among the columns that were rounded before; these are contiguous in scratch.
DEVICE u64 scratch_column(const MulMatParams &p, const Plane &z, u32 n) {
    return ((u64)z.i3 * p.ne2 + z.i2) * p.n + n;
}

// Column of the activations for load `i` of a tile.
template <class T> DEVICE u32 column(const MulMatParams &p, const Corner &at, u32 i) {
    return minimum(at.col + T::row(i), p.n - 1);
}

template <class W, class T>
DEVICE void mat_tile(const u8 *a, const float *b, float *d, const MulMatParams &p, typename T::Shared *shared) {
    Corner at = corner<T>(p);
    if (at.row >= p.m) return;
    T t;
    begin_rows<W>(t, a, p, at);
    UNROLL for (u32 i = 0; i < T::B_LOADS; i++) {
        t.b[i] = (const u8 *)(b + row_offset(p.off1, p.nb1, column<T>(p, at, i), at.z.i2, at.z.i3));
    }
    typename T::Sums sum;
    walk(t, p.k, shared, sum);
    store_tile<T>(d, p, at, sum);
}
