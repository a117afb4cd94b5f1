#version 460
// Lists for MUL_MAT_ID with many tokens: the pairs of an index and a token by matrix (expert), and the tiles of BN columns or
// fewer that mul_mat_id_tile.comp computes from them.
//
// The grid's x covers the matrices of the window, and one entry more for pairs whose index is outside all matrices. A work-group
// reads all indices: it counts its own pairs and those of the matrices before it, which is where its part of the list begins.
// Adjacent invocations read adjacent indices, AT_ONCE of them before the first is used. Pairs are in the same order in each
// run: by invocation, then by index.
//
// Tiles of a matrix start at entry first / BN + its number: the matrices before it cannot have more, because each has at most
// one tile that is not full. Entries in between are empty.
// Specialisation: work-group size, BN.
// Shared memory: two words for each invocation.

#include "common.glsl"
#include "mul_mat_id_params.glsl"

layout(constant_id = 1) const uint BN = 64;

layout(set = 0, binding = 0, std430) readonly buffer Ids { int ids[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Sorted { uint sorted[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Tiles { uvec4 tiles[]; };

const uint AT_ONCE = 4;
const uint STEP = AT_ONCE * gl_WorkGroupSize.x;

shared uvec2 counted[gl_WorkGroupSize.x];

// Matrix of a pair within the window; window_experts for an index outside all matrices, more for one in another window.
uint matrix_of(uint pair) {
    const uint token = pair / p.used;
    const uint id = uint(ids[p.off2 + (pair - token * p.used) * p.nb2_0 + token * p.nb2_1]);
    if (id >= p.experts) {
        return p.first_expert == 0 ? p.window_experts : 0xffffffff;
    }
    return id - p.first_expert < p.window_experts ? id - p.first_expert : 0xffffffff;
}

// The matrices of AT_ONCE pairs of this invocation.
uvec4 matrices_of(uint begin, uint pairs) {
    uvec4 of;
    [[unroll]] for (uint j = 0; j < AT_ONCE; j++) {
        const uint pair = begin + j * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
        const uint read = matrix_of(min(pair, pairs - 1));
        of[j] = pair < pairs ? read : 0xffffffff;
    }
    return of;
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint own = gl_WorkGroupID.x;
    const uint pairs = p.used * p.tokens;
    // Pairs of the matrices before, and of this one.
    uvec2 mine = uvec2(0);
    for (uint begin = 0; begin < pairs; begin += STEP) {
        const uvec4 of = matrices_of(begin, pairs);
        [[unroll]] for (uint j = 0; j < AT_ONCE; j++) {
            mine += uvec2(of[j] < own ? 1 : 0, of[j] == own ? 1 : 0);
        }
    }
    counted[lane] = mine;
    barrier();
    for (uint distance = 1; distance < gl_WorkGroupSize.x; distance *= 2) {
        const uvec2 before = lane >= distance ? counted[lane - distance] : uvec2(0);
        barrier();
        counted[lane] += before;
        barrier();
    }
    const uint first = counted[gl_WorkGroupSize.x - 1].x;
    const uint count = counted[gl_WorkGroupSize.x - 1].y;
    uint at = first + counted[lane].y - mine.y;
    for (uint begin = 0; begin < pairs && count > 0; begin += STEP) {
        const uvec4 of = matrices_of(begin, pairs);
        [[unroll]] for (uint j = 0; j < AT_ONCE; j++) {
            if (of[j] == own) {
                sorted[at] = begin + j * gl_WorkGroupSize.x + lane;
                at++;
            }
        }
    }
    const uint tile = first / BN + own;
    const bool is_last = own + 1 == gl_NumWorkGroups.x;
    const uint next = (is_last ? pairs / BN : (first + count) / BN) + own + 1;
    for (uint i = lane; tile + i < next; i += gl_WorkGroupSize.x) {
        const uint done = min(i * BN, count);
        tiles[tile + i] = uvec4(own, first + done, min(count - done, BN), 0);
    }
}
