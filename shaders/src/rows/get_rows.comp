#version 460
// GET_ROWS: rows of a matrix by index, converted to F32.
//
// The grid's x covers the columns of a row, y the indices, z the batches. One element in each invocation, for quantised types
// one piece of eight. Adjacent invocations read adjacent elements or pieces. An index outside the matrix gives zeros and reads
// nothing. Shared memory: the table of the types that have one.
//
// A matrix larger than a window takes several dispatches, each with the rows first_row .. first_row + window_rows in its
// window: each writes the rows that it has, the first one also the zeros.
//
// Variants: the type of the matrix; w32 moves the bits of F32 and I32.

#include "common.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform GetRowsWindow {
    uint ne_0, ne_1, ne_2, ne_3;
    uint rows;
    uint nb0_0, nb0_1, nb0_2;
    uint nb1_0, nb1_1, nb1_2;
    uint nbd_0, nbd_1, nbd_2;
    uint off0, off1, offd;
    uint first_row, window_rows;
} p;

#ifdef A_W32
layout(set = 0, binding = 0, std430) readonly buffer A { uint a[]; };
#else
// Pieces of plain types are not read.
const uint ALIGNED = 0;
#define SMALL_PIECES
#define TABLE_BINDING 3
#include "weights.glsl"
#endif
layout(set = 0, binding = 1, std430) readonly buffer Ids { int ids[]; };
#ifdef A_W32
layout(set = 0, binding = 2, std430) writeonly buffer D { uint d[]; };
#else
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };
#endif

// Elements of an invocation.
#if defined(A_W32) || A_BLOCK == 1
#define TAKEN 1
#else
#define TAKEN PIECE
#endif

// Writes an invocation's elements of the row that starts at block (element for plain types) row_a.
void copy_row(uint row_a, uint row_d, uint i) {
#if defined(A_W32)
    d[row_d + i] = a[row_a + i];
#elif A_BLOCK == 1
    d[row_d + i] = load_one(row_a, i);
#else
    const Piece w = load_piece(row_a, i);
    [[unroll]] for (uint j = 0; j < PIECE / 4; j++) {
        const vec4 x = weights(w, 0, j);
        const uint at = row_d + quad_at(i, 0, j);
        [[unroll]] for (uint l = 0; l < 4; l++) {
            d[at + l] = x[l];
        }
    }
#endif
}

void clear_row(uint row_d, uint i) {
    [[unroll]] for (uint l = 0; l < TAKEN; l++) {
#ifdef A_W32
        d[row_d + TAKEN * i + l] = 0u;
#else
        d[row_d + TAKEN * i + l] = 0.0;
#endif
    }
}

void main() {
#ifndef A_W32
    prepare_weights();
#endif
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const int id = ids[p.off1 + i1 * p.nb1_0 + i2 * p.nb1_1 + i3 * p.nb1_2];
        const bool valid = id >= 0 && uint(id) < p.rows;
        const uint row = uint(id) - p.first_row;
        // Rows of other dispatches have no columns here.
        const bool skipped = valid ? row >= p.window_rows : p.first_row != 0;
        const uint row_a = p.off0 + row * p.nb0_0 + i2 * p.nb0_1 + i3 * p.nb0_2;
        const uint row_d = p.offd + i1 * p.nbd_0 + i2 * p.nbd_1 + i3 * p.nbd_2;
        FOR_EACH_COLUMN(i, skipped ? 0 : p.ne_0 / TAKEN)
            if (valid) {
                copy_row(row_a, row_d, i);
            } else {
                clear_row(row_d, i);
            }
        END_EACH_COLUMN
    END_EACH_ROW
}
