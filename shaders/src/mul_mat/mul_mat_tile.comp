#version 460
// MUL_MAT with many columns (prompts): tiles of BM rows times BN columns.
//
// The grid's x covers the columns: work-groups that run together share the rows of a, the larger operand, in the second-level
// cache. y covers rows, z batches. mat_tile.glsl has the rest: work split, specialisation, variants, shared memory. On matrix
// units, work-groups can share the tiles of a single batch (stream.glsl).

#include "common.glsl"
#ifdef MATRIX
#define HAS_PARTS
bool part_of_tile;
#endif
#include "mat_tile.glsl"
#ifdef MATRIX
#include "stream.glsl"
#endif

// First row and column of the tile, and the starts of its matrices.
uint row0;
uint column0;
uint base_a;
uint base_b;
uint base_d;

// Rows and columns after the end repeat the last one and are not stored.
uint row_of_a(uint r) {
    return base_a + (min(row0 + r, p.m - 1) - p.first_row) * p.nb0_0;
}

uint row_of_b(uint c) {
#ifdef ROUNDED
    return (base_b + min(column0 + c, p.n - 1)) * rounded_pitch();
#else
    return base_b + min(column0 + c, p.n - 1) * p.nb1_0;
#endif
}

#ifdef ROUNDED
uint rounded_columns() {
    return p.n * p.ne2 * p.ne3;
}
#endif

#ifdef HAS_COLUMN_FACTORS
float factor_of(uint c) {
    return factors[rounded_columns() * rounded_pitch() * 4 + base_b + min(column0 + c, p.n - 1)];
}
#endif

void store(uint r, uint c, float sum) {
#ifdef MATRIX
    if (part_of_tile) {
        put_sum(r, c, sum);
        return;
    }
#endif
    if (row0 + r < p.m && column0 + c < p.n) {
        d[base_d + (column0 + c) * p.nbd_0 + row0 + r] = sum;
    }
}

void main() {
    column0 = gl_WorkGroupID.x * BN;
    row0 = p.first_row + gl_WorkGroupID.y * BM;
    const uint i3 = gl_WorkGroupID.z / p.ne2;
    const uint i2 = gl_WorkGroupID.z - i3 * p.ne2;
    base_a = p.off0 + i2 / p.r2 * p.nb0_1 + i3 / p.r3 * p.nb0_2;
#ifdef ROUNDED
    base_b = gl_WorkGroupID.z * p.n;
#else
    base_b = p.off1 + i2 * p.nb1_1 + i3 * p.nb1_2;
#endif
    base_d = p.offd + i2 * p.nbd_1 + i3 * p.nbd_2;
    prepare_weights();
#ifdef MATRIX
    const uint across = (p.n + BN - 1) / BN;
    Stream s = own_piece(across * ((p.m - p.first_row + BM - 1) / BM));
    do {
        next_part(s);
        if (STREAMED != 0) {
            column0 = s.tile % across * BN;
            row0 = p.first_row + s.tile / across * BM;
        }
        mat_tile(s.begin, s.end);
        join_parts(s);
    } while (STREAMED != 0 && has_parts(s));
#else
    mat_tile(0, p.k);
#endif
}
