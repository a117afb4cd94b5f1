#version 460
// MUL_MAT_ID: d[row, u, t] = sum over k of a[k, row, ids[u, t]] * b[k, u, t].
//
// A work-group computes TEAMS times ROWS rows (the grid's x) of the product for one index (y) of one token (z): mat-vec
// with the matrix of that index. An index outside the matrices gives zeros and reads nothing. mat_vec.glsl has the rest:
// work split, specialisation (COLS is 1), variants, shared memory.
//
// Matrices larger than a window take several dispatches, each with first_expert .. first_expert + window_experts in its
// window: each writes the products with the matrices that it has, the first one also the zeros.

#define MUL_MAT_ID
#include "common.glsl"
#include "vec_shape.glsl"
#include "mul_mat.glsl"
#include "mat_vec.glsl"

void main() {
    const uint u = gl_WorkGroupID.y;
    const uint t = gl_WorkGroupID.z;
    // Rows of the work-group: results, and where they begin in d.
    const uint row0 = gl_WorkGroupID.x * ROWS * TEAMS;
    const uint base_d = p.offd + u * p.nbd_0 + t * p.nbd_1 + row0;
    const uint results = min(ROWS * TEAMS, p.m - row0);
    const int id = ids[p.off2 + u * p.nb2_0 + t * p.nb2_1];
    const bool none = id < 0 || uint(id) >= p.experts;
    const uint expert = uint(id) - p.first_expert;
    if (!none && expert < p.window_experts) {
        // Rows beyond the end repeat the last one and are not stored.
        uint row_a[ROWS];
        uint row_b[COLS];
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            row_a[r] = p.off0 + expert * p.nb0_1 + min(row0 + team() * ROWS + r, p.m - 1) * p.nb0_0;
        }
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            row_b[c] = p.off1 + u * p.nb1_0 + t * p.nb1_1;
        }
        mat_vec(row_a, row_b);
        for (uint v = gl_LocalInvocationIndex; v < results; v += WG) {
            d[base_d + v] = total(v / ROWS, v % ROWS, 0);
        }
    } else if (none && p.first_expert == 0) {
        for (uint v = gl_LocalInvocationIndex; v < results; v += WG) {
            d[base_d + v] = 0.0;
        }
    }
}
