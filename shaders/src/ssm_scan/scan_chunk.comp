#version 460
// SSM_SCAN by chunks, the part that does not depend on the state: see chunks.glsl. A work-group has a chunk (the grid's x, over
// all slots) of one head (y).
//
// Specialisation: see chunks.glsl. Shared memory: 16 KiB (8 for DK = 64), 4.4 KiB of gates.

#include "common.glsl"
#include "activation.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Dt { float dt[]; };
layout(set = 0, binding = 1, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 2, std430) readonly buffer B { float k[]; };
layout(set = 0, binding = 2, std430) readonly buffer B4 { vec4 k4[]; };
layout(set = 0, binding = 3, std430) readonly buffer C { float q[]; };
layout(set = 0, binding = 3, std430) readonly buffer C4 { vec4 q4[]; };
layout(set = 0, binding = 4, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Chunks { float chunks[]; };

#include "ssm_scan.glsl"
#include "run.glsl"

const uint TABLES = 0;
const bool WITH_A = false;
#define K_STRIDE p.nbb_1
#define Q_STRIDE p.nbc_1
#include "chunk_products.glsl"

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint head = gl_WorkGroupID.y;
    const uvec2 place = find_chunk();
    const uint token = place.x, left = place.y;
    if (left == 0) {
        return;
    }
    if (lane < CHUNK) {
        const float step_size = softplus(dt[p.off_1 + (token + min(lane, left - 1)) * p.heads_1 + head]);
        gate[lane] = lane < left ? exp(step_size * a[p.off_2 + head]) : 1.0;
        share[lane] = lane < left ? step_size : 0.0;
    }
    const uint group = head / (p.heads_1 / p.heads_0);
    const uint first_k = p.off_3 + group * p.nbb_0 + token * p.nbb_1;
    const uint first_q = p.off_4 + group * p.nbc_0 + token * p.nbc_1;
    const Part part = own_part();
    vec4 sums[SUMS];
    chunk_products(first_k, first_q, left, part, sums);

    const uint to = chunk_begin(head);
    [[unroll]] for (uint r = 0; r < 4; r++) {
        chunks[to + (CHUNK + part.quad * 4 + r) * CHUNK + part.column] = sums[0][r] * share[part.column];
    }
    if (lane < CHUNK) {
        chunks[to + 2 * CHUNK * CHUNK + lane] = share[lane] * decay[(CHUNK - 1) * DECAYS + lane];
        chunks[to + 2 * CHUNK * CHUNK + CHUNK + lane] = decay[lane * DECAYS + CHUNK];
    }
}
