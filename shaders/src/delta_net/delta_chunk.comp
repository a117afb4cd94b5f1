#version 460
// GATED_DELTA_NET by chunks, the part that does not depend on the state: see chunks.glsl. A work-group has a chunk (the grid's
// x, over all slots) of one head (y).
//
// The inverse: an invocation has four rows of a column; from the top, four rows are solved, and their share is subtracted from
// those below.
//
// Specialisation: see chunks.glsl. Shared memory: 16 KiB (13.5 for DK = 64), 4.4 KiB of gates.

#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 0, std430) readonly buffer Q4 { vec4 q4[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer G { float g[]; };
layout(set = 0, binding = 3, std430) readonly buffer Beta { float beta[]; };
layout(set = 0, binding = 4, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Chunks { float chunks[]; };

#include "delta_net.glsl"
#include "run.glsl"

// A, P and T by columns, in place of keys and queries: columns of 8 quads, plus one that puts them on different banks.
const uint LINE = 9;
const uint A = 0;
const uint P = 32 * LINE;
const uint T = 64 * LINE;
const uint TABLES = 96 * LINE;
const bool WITH_A = true;
#define K_STRIDE p.nbk_1
#define Q_STRIDE p.nbq_1
#include "chunk_products.glsl"

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

// Four rows of column j of P T; T is in shared memory.
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
    const uvec2 place = find_chunk();
    const uint token = place.x, left = place.y;
    if (left == 0) {
        return;
    }
    if (lane < CHUNK) {
        const uint at = (token + min(lane, left - 1)) * p.heads_1 + head;
        gate[lane] = lane < left ? exp(g[p.off_3 + at]) : 1.0;
        share[lane] = lane < left ? beta[p.off_4 + at] : 0.0;
    }
    const uint head_k = head % p.heads_0;
    const uint first_k = p.off_1 + head_k * p.nbk_0 + token * p.nbk_1;
    const uint first_q = p.off_0 + head_k * p.nbq_0 + token * p.nbq_1;
    const Part part = own_part();
    vec4 sums[SUMS];
    chunk_products(first_k, first_q, left, part, sums);
    barrier();
    [[unroll]] for (uint j = 0; j < SUMS; j++) {
        [[unroll]] for (uint r = 0; r < 4; r++) {
            sums[j][r] *= part.queries ? 1.0 : share[part.quad * 4 + r];
        }
        memory[(part.queries ? P : A) + (part.column + ACROSS * j) * LINE + part.quad] = sums[j];
    }
    barrier();

    const uint j = lane % CHUNK;
    const uint rows = lane / CHUNK;
    const vec4 direct = inverse(j, rows);
    barrier();
    const vec4 result = through(j, rows);
    const uint to = chunk_begin(head);
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
