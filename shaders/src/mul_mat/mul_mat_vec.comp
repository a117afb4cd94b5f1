#version 460
// Products of one input with up to three matrices, few columns (decoding): d[row, column] = sum over k of a[k, row] *
// b[k, column], and what stands before and after them (products.glsl). MUL_MAT is the case of one matrix and nothing else.
//
// A work-group computes TEAMS times ROWS rows of one matrix (the grid's x, and y for what x cannot hold; matrices one after
// the other) times COLS columns (z: the groups of columns of a matrix after each other). With a GLU a team's rows are
// pairs, one of each matrix. mat_vec.glsl has the rest: work split, specialisation, variants, shared memory.

#include "common.glsl"
#include "vec_shape.glsl"
#include "products.glsl"
#include "mat_vec.glsl"
#include "activation.glsl"

// Groups of rows along the grid's x; more go along its y. Some devices allow no more.
const uint FOLD = 65535;

// Rows of the result that a team computes.
const uint RESULTS = HAS_GLU ? ROWS / 2 : ROWS;

void main() {
    // The matrix of the work-group, and its first row and the end of rows there.
    uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * FOLD;
    uint end = p.rows_1;
    if (USED > 1 && !HAS_GLU) {
        const uint each = RESULTS * TEAMS;
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
    const uint row0 = p.rows_0 + group * RESULTS * TEAMS;
    if (row0 >= end) {
        return;
    }
    uint i2 = 0;
    uint column0 = gl_WorkGroupID.z * COLS;
    if (p.ne2 > 1) {
        const uint columns = (p.n + COLS - 1) / COLS;
        i2 = gl_WorkGroupID.z / columns;
        column0 = (gl_WorkGroupID.z - i2 * columns) * COLS;
    }
    // Rows and columns beyond the end repeat the last one and are not stored.
    uint row_a[ROWS];
    uint row_b[COLS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        const uint row = min(row0 + team() * RESULTS + (HAS_GLU ? r / 2 : r), end - 1) - p.rows_0;
        const uint off = HAS_GLU ? (r % 2 == 0 ? p.off0_0 : p.off0_1) : of_chosen(p.off0_0, p.off0_1, p.off0_2);
        row_a[r] = off + (i2 == 0 ? 0 : i2 / p.r2 * p.nb0_1) + row * p.nb0_0;
    }
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        row_b[c] = p.off1 + i2 * p.nb1_1 + min(column0 + c, p.n - 1) * p.nb1_0;
    }
    mat_vec(row_a, row_b);

    const uint m = of_chosen(p.m_0, p.m_1, p.m_2);
    const uint base_d = of_chosen(p.offd_0, p.offd_1, p.offd_2) + i2 * p.n * m;
    for (uint v = gl_LocalInvocationIndex; v < RESULTS * COLS * TEAMS; v += WG) {
        const uint result = v % (RESULTS * TEAMS);
        const uint row = row0 + result;
        const uint c = v / (RESULTS * TEAMS);
        const uint column = column0 + c;
        if (row >= end || column >= p.n) {
            continue;
        }
        // With a GLU gate and up.
        float sums[2];
        for (uint i = 0; i < (HAS_GLU ? 2 : 1); i++) {
            const uint r = HAS_GLU ? result % RESULTS * 2 + i : result % RESULTS;
            sums[i] = with_bias(chosen + i, row, total(result / RESULTS, r, c));
        }
        float sum = sums[0];
        if (HAS_GLU) {
            sum = gated_product(p.op, p.alpha, p.limit, sum, sums[1]);
        }
        if ((PARTS & 8) != 0) {
            sum += residual.of[p.offr + column * p.nbr + row];
        }
        d[chosen].of[base_d + column * m + row] = sum;
    }
}
