#version 460
// Products with the experts of each token, and the operations after them (experts.glsl): MUL_MAT_ID is d[row, u, t] = sum over
// k of a[k, row, ids[u, t]] * b[k, u, t], without further operations.
//
// A work-group computes TEAMS times ROWS rows (the grid's x) of the products for one index (y), or for the weighted sum over
// all indices, of one token (z). With a GLU a team's rows are pairs, one of each matrix. An index outside the matrices gives
// zeros and reads nothing. mat_vec.glsl has the rest: work split, specialisation (COLS is 1), variants, shared memory.
//
// Matrices larger than a window take several dispatches, each with first_expert .. first_expert + window_experts in its window:
// each writes the products with the matrices that it has, the first one also the zeros. No further operations are possible
// then.

#include "common.glsl"
#include "vec_shape.glsl"
#include "experts.glsl"
#include "mat_vec.glsl"
#include "activation.glsl"

// Rows of the result that a team computes.
const uint RESULTS = HAS_GLU ? ROWS / 2 : ROWS;

void main() {
    const uint u = gl_WorkGroupID.y;
    const uint t = gl_WorkGroupID.z;
    // Rows of the work-group: results, and their start in d.
    const uint row0 = gl_WorkGroupID.x * RESULTS * TEAMS;
    const uint base_d = p.offd + u * p.nbd_0 + t * p.nbd_1 + row0;
    const uint results = min(RESULTS * TEAMS, p.m - row0);
    // Rows of joined experts have the places of the first expert's rows.
    uint expert = 0;
    if (JOINED) {
        read_joined(t);
    } else {
        expert = expert_of(u, t);
        if (expert == NO_EXPERT) {
            for (uint v = gl_LocalInvocationIndex; v < results && p.first_expert == 0; v += WG) {
                d[base_d + v] = 0.0;
            }
            return;
        }
        if (expert - p.first_expert >= p.window_experts) {
            return;
        }
    }
    // Rows after the end repeat the last one and are not stored.
    uint row_a[ROWS];
    uint row_b[COLS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        const uint row = min(row0 + team() * RESULTS + (HAS_GLU ? r / 2 : r), p.m - 1);
        const uint off = HAS_GLU && r % 2 == 1 ? p.off0_up : p.off0;
        row_a[r] = off + (expert - p.first_expert) * p.nb0_1 + row * p.nb0_0;
    }
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        row_b[c] = p.off1 + u * p.nb1_0 + t * p.nb1_1;
    }
    mat_vec(row_a, row_b);
    for (uint v = gl_LocalInvocationIndex; v < results; v += WG) {
        const uint row = row0 + v;
        const uint r = v % RESULTS;
        float sum = with_bias(0, expert, row, total(v / RESULTS, HAS_GLU ? 2 * r : r, 0));
        if (HAS_GLU) {
            const float up = with_bias(1, expert, row, total(v / RESULTS, 2 * r + 1, 0));
            sum = gated_product(p.op, p.alpha, p.limit, sum, up);
        }
        if ((PARTS & 8) != 0) {
            sum += residual.of[p.offr + t * p.nbr + row];
        }
        d[base_d + v] = sum;
    }
}
