#version 460
// MUL_MAT with few columns (decoding): d[row, column] = sum over k of a[k, row] * b[k, column].
//
// A work-group computes ROWS rows (the grid's x, and y for what x cannot hold) times COLS columns (z: the groups of
// columns of a matrix after each other). mat_vec.glsl has the rest: work split, specialisation, variants, shared memory.

#include "common.glsl"
#include "mat_vec.glsl"

// Groups of rows along the grid's x; more go along its y. Some devices allow no more.
const uint FOLD = 65535;

// The first row and column of the work-group, and where its matrix begins in d.
uint row0;
uint column0;
uint base_d;

void store(uint r, uint c, float sum) {
    if (row0 + r < p.m && column0 + c < p.n) {
        d[base_d + (column0 + c) * p.nbd_0 + row0 + r] = sum;
    }
}

void main() {
    row0 = p.first_row + (gl_WorkGroupID.x + gl_WorkGroupID.y * FOLD) * ROWS;
    if (row0 >= p.m) {
        return;
    }
    const uint groups = (p.n + COLS - 1) / COLS;
    const uint i23 = gl_WorkGroupID.z / groups;
    column0 = (gl_WorkGroupID.z - i23 * groups) * COLS;
    const uint i3 = i23 / p.ne2;
    const uint i2 = i23 - i3 * p.ne2;
    const uint base_a = p.off0 + i2 / p.r2 * p.nb0_1 + i3 / p.r3 * p.nb0_2;
    const uint base_b = p.off1 + i2 * p.nb1_1 + i3 * p.nb1_2;
    base_d = p.offd + i2 * p.nbd_1 + i3 * p.nbd_2;
    // Rows and columns beyond the end repeat the last one and are not stored.
    uint row_a[ROWS];
    uint row_b[COLS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        row_a[r] = base_a + (min(row0 + r, p.m - 1) - p.first_row) * p.nb0_0;
    }
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        row_b[c] = base_b + min(column0 + c, p.n - 1) * p.nb1_0;
    }
    mat_vec(row_a, row_b);
}
