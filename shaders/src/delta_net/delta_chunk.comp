#version 460
// GATED_DELTA_NET by chunks, what does not depend on the state: see delta_chunks.glsl. A work-group for a chunk (the
// grid's x, over all slots) of one head (y).
//
// Products of keys and queries with keys, 64 x 32, eight for an invocation, half of the elements at a time through shared
// memory. Then the inverse: an invocation has four rows of a column; from the top, four rows are solved and their share is
// taken off those below.
//
// Specialisation: see delta_chunks.glsl. Shared memory: 16 KiB (13.5 for DK = 64), 4.4 KiB of gates.

#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 0, std430) readonly buffer Q4 { vec4 q4[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer G { float g[]; };
layout(set = 0, binding = 3, std430) readonly buffer Beta { float beta[]; };
layout(set = 0, binding = 4, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Chunks { float chunks[]; };

#include "delta_chunks.glsl"
#include "run.glsl"

// Quads of a column of 32, and one that puts columns on different banks.
const uint LINE = CHUNK / 4 + 1;
const uint TABLE = CHUNK * LINE;
// A, P and T, by columns, where keys and queries were.
const uint A = 0;
const uint P = TABLE;
const uint T = 2 * TABLE;
shared vec4 memory[64 * HALF > 3 * TABLE ? 64 * HALF : 3 * TABLE];
// Rows of D, at the end of each an element of G.
const uint DECAYS = CHUNK + 1;
shared float decay[CHUNK * DECAYS];
shared float gate[CHUNK];
shared float share[CHUNK];

// Column j of D, or, behind the last one, G.
void decay_column(uint j) {
    const uint first = j < CHUNK ? j + 1 : 0;
    float product = 1.0;
    [[dont_unroll]] for (uint i = 0; i < CHUNK; i++) {
        product = i < first ? 1.0 : product * gate[i];
        decay[i * DECAYS + j] = product;
    }
}

// Products of four rows of keys, or of queries, with the keys `column` and `column + 16`, and their decays, to A and P.
void multiply_rows(vec4 sums[2], uint column, uint quad, bool queries) {
    [[unroll]] for (uint j = 0; j < 2; j++) {
        const uint c = column + 16 * j;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uint row = quad * 4 + i;
            sums[j][i] *= decay[row * DECAYS + c] * (queries ? 1.0 : share[row]);
        }
        memory[(queries ? P : A) + c * LINE + quad] = sums[j];
    }
}

// Four rows of column j of T.
vec4 inverse(uint j, uint quad) {
    vec4 x = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        x[i] = quad * 4 + i == j ? 1.0 : 0.0;
    }
    [[dont_unroll]] for (uint solved = 0; solved < CHUNK / 4; solved++) {
        if (quad == solved) {
            [[unroll]] for (uint l = 0; l < 3; l++) {
                const vec4 factor = memory[A + (quad * 4 + l) * LINE + quad];
                [[unroll]] for (uint i = l + 1; i < 4; i++) {
                    x[i] -= factor[i] * x[l];
                }
            }
            memory[T + j * LINE + quad] = x;
        }
        barrier();
        if (quad > solved) {
            const vec4 above = memory[T + j * LINE + solved];
            [[unroll]] for (uint l = 0; l < 4; l++) {
                x -= memory[A + (solved * 4 + l) * LINE + quad] * above[l];
            }
        }
    }
    return x;
}

// Four rows of column j of P T, for which T is in shared memory.
vec4 through(uint j, uint quad) {
    vec4 sum = vec4(0.0);
    [[dont_unroll]] for (uint i = 0; i < quad; i++) {
        const vec4 x = memory[T + j * LINE + i];
        [[unroll]] for (uint l = 0; l < 4; l++) {
            sum += memory[P + (i * 4 + l) * LINE + quad] * x[l];
        }
    }
    const vec4 x = memory[T + j * LINE + quad];
    [[unroll]] for (uint l = 0; l < 4; l++) {
        const vec4 weight = memory[P + (quad * 4 + l) * LINE + quad];
        [[unroll]] for (uint i = l; i < 4; i++) {
            sum[i] += weight[i] * x[l];
        }
    }
    return sum;
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint head = gl_WorkGroupID.y;
    uint chunk = gl_WorkGroupID.x;
    uint slot = 0;
    Run run = run_of(0, p.tokens);
    while (chunk >= chunks_of(run.count)) {
        chunk -= chunks_of(run.count);
        slot++;
        if (slot == p.slots) {
            return;
        }
        run = run_of(slot, p.tokens);
    }
    const uint token = run.first + chunk * CHUNK;
    const uint left = min(run.count - chunk * CHUNK, CHUNK);
    const uint head_k = head % p.heads_0;
    const uint first_q = p.off_0 + head_k * p.nbq_0 + token * p.nbq_1;
    const uint first_k = p.off_1 + head_k * p.nbk_0 + token * p.nbk_1;

    if (lane < CHUNK) {
        const uint at = (token + min(lane, left - 1)) * p.heads_1 + head;
        gate[lane] = lane < left ? exp(g[p.off_3 + at]) : 1.0;
        share[lane] = lane < left ? beta[p.off_4 + at] : 0.0;
    }
    const uint column = lane % 16;
    const uint quad = lane / 16 % 8;
    const bool queries = lane >= THREADS / 2;
    vec4 sums[2] = vec4[2](vec4(0.0), vec4(0.0));
    [[dont_unroll]] for (uint half_row = 0; half_row < 2; half_row++) {
        vec4 next_k[EACH], next_q[EACH];
        LOAD_ROWS(next_k, key_quad, first_k, p.nbk_1, left, half_row)
        LOAD_ROWS(next_q, query_quad, first_q, p.nbq_1, left, half_row)
        barrier();
        STORE_ROWS(0, next_k, left)
        STORE_ROWS(CHUNK * HALF, next_q, left)
        if (half_row == 0 && lane <= CHUNK) {
            decay_column(lane);
        }
        barrier();
        [[dont_unroll]] for (uint i = 0; i < HALF; i++) {
            vec4 y[2];
            [[unroll]] for (uint j = 0; j < 2; j++) {
                y[j] = memory[(column + 16 * j) * HALF + (i ^ column % 8)];
            }
            [[unroll]] for (uint r = 0; r < 4; r++) {
                const uint row = quad * 4 + r;
                const vec4 x = memory[(queries ? CHUNK * HALF : 0) + row * HALF + (i ^ row % 8)];
                [[unroll]] for (uint j = 0; j < 2; j++) {
                    sums[j][r] = add_products(sums[j][r], x, y[j]);
                }
            }
        }
    }
    barrier();
    multiply_rows(sums, column, quad, queries);
    barrier();

    const uint j = lane % CHUNK;
    const uint rows = lane / CHUNK;
    const vec4 direct = inverse(j, rows);
    barrier();
    const vec4 result = through(j, rows);
    const uint to = (head * all_chunks() + gl_WorkGroupID.x) * CHUNK_QUADS * 4;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uint row = rows * 4 + i;
        chunks[to + row * CHUNK + j] = direct[i] * share[j] * decay[(CHUNK - 1) * DECAYS + row];
        chunks[to + (CHUNK + row) * CHUNK + j] = result[i] * share[j] * p.scale;
    }
    if (lane < 2 * CHUNK) {
        const float product = decay[lane % CHUNK * DECAYS + CHUNK];
        chunks[to + 2 * CHUNK * CHUNK + lane] = lane < CHUNK ? product : product * p.scale;
    }
}
