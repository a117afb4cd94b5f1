// Rows of a work-group of products with up to three matrices (products.glsl), and the operations after each sum. The including
// shader has TEAMS teams, which compute RESULTS rows at a time each, PASSES times; team() is that of the invocation.
#ifndef PRODUCT_ROWS_GLSL
#define PRODUCT_ROWS_GLSL

#include "activation.glsl"

// Groups of rows along the grid's x; more go along its y. Some devices allow no more.
const uint FOLD = 65535;

// Rows of the results that a work-group computes at a time.
const uint ROWS_OF_PASS = RESULTS * TEAMS;

// Rows of a matrix: ROWS_OF_PASS from row0 on, up to `end` at most.
struct Rows {
    uint row0;
    uint end;
};

// Finds the matrix and the first rows of a work-group, which may be none.
Rows first_rows(uint group) {
    uint end = p.rows_1;
    if (USED > 1 && !HAS_GLU) {
        const uint each = ROWS_OF_PASS * PASSES;
        const uint groups_0 = (p.m_0 + each - 1) / each;
        const uint groups_1 = (p.m_1 + each - 1) / each;
        end = p.m_0;
        if (group >= groups_0) {
            group -= groups_0;
            chosen = 1;
            end = p.m_1;
            if (USED > 2 && group >= groups_1) {
                group -= groups_1;
                chosen = 2;
                end = p.m_2;
            }
        }
    }
    const uint row0 = p.rows_0 + group * (ROWS_OF_PASS * PASSES);
    return Rows(row0, min(end, row0 + ROWS_OF_PASS * PASSES));
}

// Place of row r of a team in its matrix. Rows after the end repeat the last one and are not stored.
uint place_of_row(Rows rows, uint r) {
    const uint row = min(rows.row0 + team() * RESULTS + (HAS_GLU ? r / 2 : r), rows.end - 1) - p.rows_0;
    const uint off = HAS_GLU ? (r % 2 == 0 ? p.off0_0 : p.off0_1) : of_chosen(p.off0_0, p.off0_1, p.off0_2);
    return off + row * p.nb0_0;
}

// A result: one product, or with a GLU two, with the operations after them.
float finished(uint row, uint column, float sums[2]) {
    float sum = with_bias(chosen, row, sums[0]);
    if (HAS_GLU) {
        sum = gated_product(p.op, p.alpha, p.limit, sum, with_bias(chosen + 1, row, sums[1]));
    }
    if ((PARTS & 8) != 0) {
        sum += residual.of[p.offr + column * p.nbr + row];
    }
    return sum;
}

#endif
