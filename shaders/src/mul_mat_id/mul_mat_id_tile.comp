#version 460
// MUL_MAT_ID with many tokens (prompts): tiles of BM rows times BN columns, the columns that chose the same matrix.
//
// The grid's x covers the rows, y and z the tiles that mul_mat_id_list.comp listed: work-groups that run together share columns and
// matrices in the second-level cache, and a matrix with many columns has as many work-groups as it has tiles. The columns' places
// go to shared memory. Tiles of pairs whose index is outside the matrices are zeros. mat_tile.glsl has the rest: work split,
// specialisation, variants, shared memory (here 2 * BN words more).
//
// Matrices larger than a window take several dispatches, each with first_expert .. first_expert + window_experts in its window
// and lists of its own.

#define MUL_MAT_ID
#include "common.glsl"
#include "mat_tile.glsl"

// Starts of the tile's columns in b and in d.
shared uint start_b[BN];
shared uint start_d[BN];

// First row of the tile, start of its matrix, and columns of the tile.
uint row0;
uint base_a;
uint columns;

// Rows and columns after the end repeat the last one and are not stored.
uint row_of_a(uint r) {
    return base_a + min(row0 + r, p.m - 1) * p.nb0_0;
}

uint row_of_b(uint c) {
#ifdef ROUNDED
    return start_b[min(c, columns - 1)] * rounded_pitch();
#else
    return start_b[min(c, columns - 1)];
#endif
}

#ifdef ROUNDED
// Columns of a token.
uint columns_each() {
    return p.nb1_0 == 0 ? 1 : p.used;
}

uint rounded_columns() {
    return columns_each() * p.tokens;
}
#endif

#ifdef HAS_COLUMN_FACTORS
float factor_of(uint c) {
    return factors[rounded_columns() * rounded_pitch() * 4 + start_b[min(c, columns - 1)]];
}
#endif

void store(uint r, uint c, float sum) {
    if (row0 + r < p.m && c < columns) {
        d[start_d[c] + row0 + r] = sum;
    }
}

// Writes the starts of column c, which is index `index` of `token`; in b its number if the columns were rounded.
void put_starts(uint c, uint token, uint index) {
#ifdef ROUNDED
    start_b[c] = token * columns_each() + index % columns_each();
#else
    start_b[c] = p.off1 + index * p.nb1_0 + token * p.nb1_1;
#endif
    start_d[c] = p.offd + index * p.nbd_0 + token * p.nbd_1;
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint entry = gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y;
    const uint last = p.used * p.tokens / BN + p.window_experts;
    // Matrix, first of the sorted pairs, number of pairs.
    const uvec4 tile = tiles_of_pairs[min(entry, last)];
    columns = entry > last ? 0 : tile.z;
    if (columns == 0) {
        return;
    }
    row0 = gl_WorkGroupID.x * BM;
    for (uint c = lane; c < columns; c += gl_WorkGroupSize.x) {
        const uint pair = sorted[tile.y + c];
        put_starts(c, pair / p.used, pair % p.used);
    }
    prepare_weights();
    barrier();
    if (tile.x >= p.window_experts) {
        for (uint i = lane; i < BM * columns; i += gl_WorkGroupSize.x) {
            store(i % BM, i / BM, 0.0);
        }
        return;
    }
    base_a = p.off0 + tile.x * p.nb0_1;
    mat_tile(0, p.k);
}
