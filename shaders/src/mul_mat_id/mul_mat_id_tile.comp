#version 460
// MUL_MAT_ID with many tokens (prompts): tiles of BM rows times BN columns, the columns that chose the same matrix.
//
// A work-group computes BM rows (the grid's x) of the products with one matrix (y): it searches the indices for its own, and
// gathers the columns of BN of them at a time, tile after tile. The gathered columns' places go to shared memory. Each
// invocation searches one section of the indices, so that their order is the same in each iteration. The work-groups of the
// first matrix also write the zeros of indices outside the matrices. mat_tile.glsl has the rest: work split, specialisation,
// variants, shared memory (here work-group + 2 * BN words more).
//
// Matrices larger than a window take several dispatches, each with first_expert .. first_expert + window_experts in its window
// and as its grid.

#define MUL_MAT_ID
#include "common.glsl"
#include "mat_tile.glsl"

// Number of the work-group's indices in each invocation's section.
shared uint found[gl_WorkGroupSize.x];
// Starts of the gathered columns in b and in d.
shared uint gathered_b[BN];
shared uint gathered_d[BN];

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
    return gathered_b[min(c, columns - 1)] * rounded_pitch();
#else
    return gathered_b[min(c, columns - 1)];
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

#ifdef MATRIX
float factor_of(uint c) {
    return factors[rounded_columns() * rounded_pitch() * 4 + gathered_b[min(c, columns - 1)]];
}
#endif

// Start of the column of pair i, or its number if the columns were rounded.
uint column_of(uint i) {
#ifdef ROUNDED
    return i / p.used * columns_each() + i % p.used % columns_each();
#else
    return p.off1 + i % p.used * p.nb1_0 + i / p.used * p.nb1_1;
#endif
}

void store(uint r, uint c, float sum) {
    if (row0 + r < p.m && c < columns) {
        d[gathered_d[c] + row0 + r] = sum;
    }
}

// Index of pair i: index i % used of token i / used.
int id_of(uint i) {
    return ids[p.off2 + i % p.used * p.nb2_0 + i / p.used * p.nb2_1];
}

// Writes zeros in the work-group's rows for pairs whose index is outside the matrices.
void clear_others(uint first, uint end) {
    for (uint i = first; i < end; i++) {
        const int id = id_of(i);
        if (id < 0 || uint(id) >= p.experts) {
            for (uint row = row0; row < min(row0 + BM, p.m); row++) {
                d[p.offd + i % p.used * p.nbd_0 + i / p.used * p.nbd_1 + row] = 0.0;
            }
        }
    }
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const int expert = int(p.first_expert + gl_WorkGroupID.y);
    row0 = gl_WorkGroupID.x * BM;
    base_a = p.off0 + gl_WorkGroupID.y * p.nb0_1;
    const uint pairs = p.used * p.tokens;
    const uint stretch = (pairs + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
    const uint first = min(lane * stretch, pairs);
    const uint end = min(first + stretch, pairs);
    if (expert == 0) {
        clear_others(first, end);
    }

    uint own = 0;
    for (uint i = first; i < end; i++) {
        own += id_of(i) == expert ? 1 : 0;
    }
    found[lane] = own;
    prepare_weights();
    barrier();
    // In all sections, and in those before this one.
    uint all = 0, before = 0;
    for (uint i = 0; i < gl_WorkGroupSize.x; i++) {
        before += i < lane ? found[i] : 0;
        all += found[i];
    }

    for (uint column0 = 0; column0 < all; column0 += BN) {
        barrier();
        uint at = before - column0;
        for (uint i = first; i < end && own > 0; i++) {
            if (id_of(i) == expert) {
                if (at < BN) {
                    gathered_b[at] = column_of(i);
                    gathered_d[at] = p.offd + i % p.used * p.nbd_0 + i / p.used * p.nbd_1;
                }
                at++;
            }
        }
        columns = min(BN, all - column0);
        barrier();
        mat_tile(0, p.k);
    }
}
