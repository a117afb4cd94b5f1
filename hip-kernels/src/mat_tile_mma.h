// The tiles of mat_tile_half.h for NVIDIA's matrix units from sm_80 on.
//
// Such a tile is limited by the first-level cache, through which all loads from memory, and all reads and writes of LDS, pass.
// So the columns are copied to LDS without registers (cp.async), one step ahead into the other of two halves. The registers
// saved allow larger parts of a wavefront: with 64 x 64 sums it reads 16 KiB of LDS for the same work as 24 KiB with 32 x 64.
//
// Two slices of a work-group alternate along k, each with its own LDS and barriers; their sums are added at the end. So the
// eight wavefronts of a multiprocessor have work even if there are no more tiles than multiprocessors, which is common: 2048
// rows times 512 columns are 128 tiles of 64 x 128.
#pragma once
#include "copies.h"
#include "mat_tile_half.h"

#if !DEVICE_AMD && HAS_MATRIX

// A barrier of the 128 threads of a slice: one slice may load while the other multiplies.
DEVICE void slice_barrier(u32 slice) {
    if (slice == 0) {
        __asm__ volatile("bar.sync 1, 128;" : : : "memory");
    } else {
        __asm__ volatile("bar.sync 2, 128;" : : : "memory");
    }
}

template <class W, class F, int BM, int BN> struct TileMma : TileHalf<W, F, BM, BN, 128, 2> {
    typedef TileHalf<W, F, BM, BN, 128, 2> Half;
    using Half::BK;
    using Half::EIGHTS;
    using Half::ROWS;
    // Steps of the rows in the LDS of a slice. For the largest tile there is no room for a second one.
    static constexpr u32 A_STEPS = BM * BN == 128 * 128 ? 1 : 2;
    struct Shared {
        __attribute__((aligned(16))) u16 a[A_STEPS][BM * TILE_K], b[2][BN * TILE_K];
    };
    typedef typename Half::Sums Sums;
    static_assert(2 * sizeof(Shared) >= sizeof(float) * BM * BN, "the sums of a slice have room");

    // The first column, and the distance of columns in halves.
    const u16 *columns;
    u32 pitch;

    // Starts to copy the columns of a step. Columns after the last one are arbitrary and not stored.
    INLINED void begin_columns(u16 *to, u32 base) {
        u32 row = Half::row(), k = Half::k();
        const u16 *from = columns + (u64)row * pitch + base + k;
        UNROLL for (u32 i = 0; i < Half::B_LOADS; i++) {
            begin_copy(to + eight_at(row + i * ROWS, k / 8), from + (u64)(i * ROWS) * pitch);
        }
    }

    // Main loop along k; at the end the first slice has the sums of both.
    INLINED void walk(u32 end, Shared *slices, Sums &sums) {
        constexpr u32 FURTHER = 2 * BK;
        u32 slice = thread_id() / 128, first = slice * BK;
        u32 row = Half::row(), k = Half::k(), m0 = Half::m0(), n0 = Half::n0();
        Shared *shared = slices + slice;
        Half::clear(sums);
        if (first < end) {
            begin_columns(shared->b[0], first);
            Half::load_rows(first, k, end);
        }
        // If LDS holds one step of the rows, it is written after all threads have multiplied the previous one.
        NO_UNROLL for (u32 base = first, turn = 0; base < end; base += FURTHER, turn ^= 1) {
            u16 *rows = shared->a[turn % A_STEPS];
            Half::store_rows(rows, row, k);
            wait_for_copies();
            slice_barrier(slice);
            if (base + FURTHER < end) {
                begin_columns(shared->b[turn ^ 1], base + FURTHER);
                Half::load_rows(base + FURTHER, k, end);
            }
            Half::multiply(rows, shared->b[turn], m0, n0, sums);
            if (A_STEPS == 1) slice_barrier(slice);
        }
        barrier();
        add_slices((float *)slices, slice, sums);
    }

    INLINED void add_slices(float *room, u32 slice, Sums &sums) {
        room += thread_id() % 128;
        UNROLL for (u32 i = 0; i < Half::FM; i++) UNROLL for (u32 j = 0; j < Half::FN; j++) {
            UNROLL for (u32 e = 0; e < F::SUMS; e++) {
                if (slice == 1) room[((i * Half::FN + j) * F::SUMS + e) * 128] = sums[i][j][e];
            }
        }
        barrier();
        if (slice == 1) return;
        UNROLL for (u32 i = 0; i < Half::FM; i++) UNROLL for (u32 j = 0; j < Half::FN; j++) {
            UNROLL for (u32 e = 0; e < F::SUMS; e++) sums[i][j][e] += room[((i * Half::FN + j) * F::SUMS + e) * 128];
        }
    }
};

template <class W, class T>
DEVICE void mat_tile_mma(const u8 *a, const u16 *x, const float *scale, float *d, const MulMatParams &p) {
    Corner at = corner<T>(p);
    if (at.row >= p.m) return;
    T t;
    begin_rows<W>(t, a, p, at);
    u64 plane = scratch_column(p, at.z, 0);
    t.pitch = half_pitch(p.k);
    t.columns = x + (plane + at.col) * t.pitch;
    typename T::Sums sums;
    t.walk(p.k, (typename T::Shared *)dynamic_lds, sums);
    if (thread_id() >= 128) return;
    d += row_offset(p.offd, p.nbd, 0, at.z.i2, at.z.i3);
    store_sums<T>(PlaneOfHalf{d, scale + plane, at.col, p.n, p.nbd[0]}, at.row, p.m, sums);
}

// `mat_tile_mma_<type>_<rows>x<columns>`; the launch gives the LDS of two slices.
#define MAT_TILE_MMA(type, W, BM, BN) \
    KERNEL(256) \
    mat_tile_mma_##type##_##BM##x##BN(const u8 *a, const u16 *x, const float *scale, float *d, MulMatParams p) { \
        by_alignment<W>(places_of_rows<W>(a, p), [&] INLINED(auto rows) { \
            typedef decltype(rows) Rows; \
            mat_tile_mma<Rows, TileMma<Rows, Fragment, BM, BN>>(a, x, scale, d, p); \
        }); \
    }
#endif
