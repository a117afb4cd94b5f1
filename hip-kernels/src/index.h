// Assignment of threads to elements in kernels that process rows.
//
// A work-group of 256 threads covers a rectangle of a tensor: `width` adjacent threads, the smallest power of two that covers
// the `units` pieces of a row (a piece is the work of one thread, for instance four elements), and 256 / width rows. So short
// rows occupy the lanes as well as long ones. Long rows take several work-groups. Work-groups are numbered in x (`row_groups`
// in the host's tuning.rs uses the same rule); the only division that finds the rectangle has a divisor that is the same for
// the whole work-group.
#pragma once
#include "device.h"

#define ROW_THREADS 256

struct Piece {
    // Index of the piece in the row.
    u32 unit;
    // Index of the row.
    u32 row;
};

// Returns the piece of this thread; `row` may be after the last row and `unit` after the last piece.
DEVICE Piece row_piece(u32 units) {
    u32 log2 = units <= 1 ? 0 : 32 - __builtin_clz(units - 1);
    log2 = minimum(log2, 8);
    u32 across = (units + (1u << log2) - 1) >> log2;
    u32 group = group_x();
    u32 down = across == 1 ? group : group / across;
    u32 thread = thread_id();
    Piece p;
    p.unit = ((group - down * across) << log2) + (thread & ((1u << log2) - 1));
    p.row = (down << (8 - log2)) + (thread >> log2);
    return p;
}

struct Index {
    u32 i1, i2, i3;
};

// Returns the three outer indices of row number `row`.
DEVICE Index row_index(u32 row, const u32 *ne) {
    Index i = {row, 0, 0};
    if (ne[2] * ne[3] > 1) {
        u32 plane = row / ne[1];
        i.i1 = row - plane * ne[1];
        i.i3 = plane / ne[2];
        i.i2 = plane - i.i3 * ne[2];
    }
    return i;
}

// Returns the offset of a row in elements; `nb` are the strides of rows and of the outer dimensions.
DEVICE u64 row_offset(u32 off, const u32 *nb, u32 i1, u32 i2, u32 i3) {
    return (u64)off + (u64)i1 * nb[0] + (u64)i2 * nb[1] + (u64)i3 * nb[2];
}

// i mod n where i < 2^32; usually n is the full extent (`whole`) or 1.
DEVICE u32 wrap(u32 i, u32 n, u32 whole) { return n == whole ? i : n == 1 ? 0 : i % n; }

// Loads four adjacent elements of a row of n elements; zeros for those after its end, which are not stored.
DEVICE f32x4 load_quad(const float *row, u32 at, u32 n) {
    f32x4 v = f32x4(0.0f);
    if (at + 4 <= n) {
        v = *(const f32x4 *)(row + at);
    } else {
        UNROLL for (u32 j = 0; j < 3; j++) if (at + j < n) v[j] = row[at + j];
    }
    return v;
}
DEVICE void store_quad(float *row, u32 at, u32 n, f32x4 v) {
    if (at + 4 <= n) {
        *(f32x4 *)(row + at) = v;
    } else {
        UNROLL for (u32 j = 0; j < 3; j++) if (at + j < n) row[at + j] = v[j];
    }
}
