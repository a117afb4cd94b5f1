#version 460
// Products of one input with up to three matrices, for few columns (decode steps): d[row, column] = sum over k of a[k,
// row] * b[k, column], with operations before and after them (products.glsl). MUL_MAT is the case of one matrix without further
// operations.
//
// A work-group computes TEAMS times ROWS rows of one matrix (the grid's x, and y for what x cannot hold; matrices in sequence)
// times COLS columns (z: the groups of columns of a matrix in sequence). With a GLU a team's rows are pairs, one of each
// matrix. mat_vec.glsl has the rest: work split, specialisation, variants, shared memory.

#include "common.glsl"
#include "vec_shape.glsl"
#include "products.glsl"
#include "mat_vec.glsl"

// Rows of the result that a team computes.
const uint RESULTS = HAS_GLU ? ROWS / 2 : ROWS;

#ifdef STAGED
// Groups of rows that a work-group computes in sequence.
layout(constant_id = 11) const uint PASSES = 1;
#else
const uint PASSES = 1;
#endif

#include "product_rows.glsl"

#ifdef STAGED

void main() {
    Rows rows = first_rows(gl_WorkGroupID.x + gl_WorkGroupID.y * FOLD);
    if (rows.row0 >= rows.end) {
        return;
    }
    uint row_b[COLS];
    row_b[0] = p.off1;
    uint row_a[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        row_a[r] = place_of_row(rows, r);
    }
    uint from[ALL_LOADS];
    uvec4 raw[ALL_LOADS];
    begin_loads(row_a, from);
    load_step(from, 0, raw);
    float squares[COLS];
    squares[0] = 0.0;
    round_chunk(row_b, 0, LENGTH, squares);
    if (HAS_NORM) {
        SHARE(COLS, squares, squares_of)
    }
    barrier();
    const float norm = HAS_NORM ? norm_of(0) : 1.0;
    // From here on subgroups do not wait for each other. PASSES is a constant: with one pass the loop disappears, and nothing
    // is loaded for the next.
    for (uint pass = 0; pass < PASSES && rows.row0 < rows.end; pass++) {
        float sums[MINE];
        uint within[MINE];
        begin_rows(row_a, within, sums);
        const Rows now = rows;
        for (uint at = 0; at < LENGTH; at += STEP) {
            store_step(raw);
            uint next = at + STEP;
            if (next >= LENGTH) {
                // Advances to the next rows, at a distance of ROWS_OF_PASS rows, except for those that repeat the last one.
                next = 0;
                rows.row0 += ROWS_OF_PASS;
                if (rows.row0 + ROWS_OF_PASS <= rows.end) {
                    skip_rows(ROWS_OF_PASS * p.nb0_0, row_a, from);
                } else if (rows.row0 < rows.end) {
                    [[unroll]] for (uint r = 0; r < ROWS; r++) {
                        row_a[r] = place_of_row(rows, r);
                    }
                    begin_loads(row_a, from);
                }
            }
            if (rows.row0 < rows.end) {
                load_step(from, next, raw);
            }
            subgroupBarrier();
            multiply_step(within, at, sums);
            subgroupBarrier();
        }
        add_lanes(norm, sums);
        const uint which = gl_SubgroupInvocationID % LANES_OF_ROW;
        // Gate and up of a result may be in different invocations.
        const float other = APART ? subgroupShuffleXor(sums[0], LANES_OF_ROW) : 0.0;
        float of_result[2];
        of_result[0] = sums[0];
        of_result[1] = APART ? other : sums[USES - 1];
        [[unroll]] for (uint r = USES; r < MINE; r += USES) {
            of_result[0] = which == r / USES ? sums[r] : of_result[0];
            of_result[1] = which == r / USES ? sums[r + USES - 1] : of_result[1];
        }
        const bool stores = which < (APART ? 1 : MINE / USES) && first_row() % USES == 0;
        // Invocations do not diverge: all load the operands of their store, and only the store is omitted.
        const uint wanted = now.row0 + gl_SubgroupID * RESULTS + first_row() / USES + (APART ? 0 : which);
        const float sum = finished(min(wanted, now.end - 1), 0, of_result);
        if (stores && wanted < now.end) {
            d[chosen].of[of_chosen(p.offd_0, p.offd_1, p.offd_2) + wanted] = sum;
        }
        // All lanes have arrived before one starts with the next rows.
        subgroupBarrier();
    }
}

#else

void main() {
    const Rows rows = first_rows(gl_WorkGroupID.x + gl_WorkGroupID.y * FOLD);
    if (rows.row0 >= rows.end) {
        return;
    }
    uint i2 = 0;
    uint column0 = gl_WorkGroupID.z * COLS;
    if (p.ne2 > 1) {
        const uint columns = (p.n + COLS - 1) / COLS;
        i2 = gl_WorkGroupID.z / columns;
        column0 = (gl_WorkGroupID.z - i2 * columns) * COLS;
    }
    // Also for columns after the end.
    uint row_a[ROWS];
    uint row_b[COLS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        row_a[r] = place_of_row(rows, r) + (i2 == 0 ? 0 : i2 / p.r2 * p.nb0_1);
    }
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        row_b[c] = p.off1 + i2 * p.nb1_1 + min(column0 + c, p.n - 1) * p.nb1_0;
    }
    mat_vec(row_a, row_b);

    for (uint v = gl_LocalInvocationIndex; v < RESULTS * COLS * TEAMS; v += WG) {
        const uint result = v % (RESULTS * TEAMS);
        const uint row = rows.row0 + result;
        const uint c = v / (RESULTS * TEAMS);
        const uint column = column0 + c;
        if (row >= rows.end || column >= p.n) {
            continue;
        }
        const uint of_team = result / RESULTS, r = result % RESULTS * (HAS_GLU ? 2 : 1);
        float sums[2];
        sums[0] = total(of_team, r, c);
        sums[1] = HAS_GLU ? total(of_team, r + 1, c) : 0.0;
        const uint m = of_chosen(p.m_0, p.m_1, p.m_2);
        d[chosen].of[of_chosen(p.offd_0, p.offd_1, p.offd_2) + i2 * p.n * m + column * m + row] = finished(row, column, sums);
    }
}

#endif
