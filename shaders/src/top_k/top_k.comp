#version 460
// TOP_K: the indices of the k largest elements of each row, the largest first, and with `weights` their soft-max, as
// SOFT_MAX without a mask.
//
// One work-group for each row (the grid's y and z). A pick is the best of the invocations' best elements, each of which
// has every n-th of the row; these candidates meet in shared memory. Of rows up to HELD * work-group, the scores of
// experts, everything stays in registers, and what was picked is marked there. Of longer rows a pick is the largest
// element that comes after the one before in the order of the result: nothing has to be marked, and later picks find the
// row in the cache.
//
// Variants: lds, and subgroup, where candidates meet by subgroup arithmetic first: a work-group of one subgroup picks
// without a barrier.
//
// Elements are compared by a key that grows with the element; an element comes before another if its key is larger, or
// equal and its index lower. Shared memory: (work-group + 16) * 8 bytes and 4 for each invocation. The work-group is a
// multiple of 16, and no smaller than k where there are weights.

#include "common.glsl"
#include "grid.glsl"

#ifdef USE_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

layout(constant_id = 1) const uint ONCE = 0;
// Elements of an invocation that are kept in registers; 0 if rows are longer.
layout(constant_id = 2) const uint HELD = 0;

layout(push_constant, std430) uniform TopKParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2;
    uint nbd_0, nbd_1, nbd_2;
    uint off0, offd, offw;
    uint k;
    uint first;
    uint weights;
    float scale;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) writeonly buffer D { uint d[]; };
layout(set = 0, binding = 2, std430) writeonly buffer W { float w[]; };

const uint WG = gl_WorkGroupSize.x;

// A key and an index. No element has key 0.
shared uvec2 candidates[WG + 16];

const uvec2 NONE = uvec2(0, 0xffffffffu);

// Scores of what was picked.
shared float scores[WG];
const float LOWEST = -1.0e38;

// The key of an element's bits: 1 for what is no number, both zeros alike.
uint key_of(uint bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 1;
    }
    if (bits == 0x80000000u) {
        bits = 0;
    }
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float value_of(uint key) {
    if (key == 1) {
        return uintBitsToFloat(0x7fc00000u);
    }
    return uintBitsToFloat((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

bool is_before(uvec2 a, uvec2 b) {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

uvec2 first_of(uvec2 a, uvec2 b) {
    return is_before(a, b) ? a : b;
}

#ifdef USE_SUBGROUP
// The first of all invocations' candidates: that of each subgroup, then of these.
uvec2 first_of_all(uvec2 candidate) {
    const uint key = subgroupMax(candidate.x);
    const uint index = subgroupMin(candidate.x == key ? candidate.y : NONE.y);
    if (gl_NumSubgroups == 1) {
        return uvec2(key, index);
    }
    barrier();
    if (subgroupElect()) {
        candidates[gl_SubgroupID] = uvec2(key, index);
    }
    barrier();
    candidate = candidates[0];
    for (uint i = 1; i < gl_NumSubgroups; i++) {
        candidate = first_of(candidate, candidates[i]);
    }
    return candidate;
}
#else
// The first of all invocations' candidates: sixteen invocations combine a sixteenth each, everybody the rest.
uvec2 first_of_all(uvec2 candidate) {
    const uint lane = gl_LocalInvocationIndex;
    barrier();
    candidates[lane] = candidate;
    barrier();
    if (lane < 16) {
        for (uint i = 16; i < WG; i += 16) {
            candidate = first_of(candidate, candidates[lane + i]);
        }
        candidates[WG + lane] = candidate;
    }
    barrier();
    candidate = candidates[WG];
    for (uint i = 1; i < 16; i++) {
        candidate = first_of(candidate, candidates[WG + i]);
    }
    return candidate;
}
#endif

// The soft-max of the scores, as soft_max.comp does it.
void store_weights(uint row) {
    const uint lane = gl_LocalInvocationIndex;
    barrier();
    float largest = LOWEST;
    for (uint i = 0; i < p.k; i++) {
        largest = max(largest, scores[i]);
    }
    float sum = 0.0;
    for (uint i = 0; i < p.k; i++) {
        sum += exp(scores[i] - largest);
    }
    const float factor = sum == 0.0 ? 0.0 : 1.0 / sum;
    if (lane < p.k) {
        w[row + lane] = exp(scores[lane] - largest) * factor;
    }
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_x = p.off0 + i1 * p.nb0_0 + i2 * p.nb0_1 + i3 * p.nb0_2;
        const uint row_d = i1 * p.nbd_0 + i2 * p.nbd_1 + i3 * p.nbd_2;
        uint keys[HELD + 1];
        [[unroll]] for (uint j = 0; j < HELD; j++) {
            const uint bits = x[row_x + min(lane + j * WG, p.ne_0 - 1)];
            keys[j] = lane + j * WG < p.ne_0 ? key_of(bits) : 0;
        }
        // Before all elements.
        uvec2 last = uvec2(0xffffffffu, 0);
        for (uint pick = 0; pick < p.k; pick++) {
            uvec2 best = NONE;
            [[unroll]] for (uint j = 0; j < HELD; j++) {
                best = keys[j] > best.x ? uvec2(keys[j], lane + j * WG) : best;
            }
            for (uint i = lane; i < p.ne_0 && HELD == 0; i += WG) {
                const uvec2 element = uvec2(key_of(x[row_x + i]), i);
                best = is_before(last, element) ? first_of(element, best) : best;
            }
            last = first_of_all(best);
            [[unroll]] for (uint j = 0; j < HELD; j++) {
                keys[j] = lane + j * WG == last.y ? 0 : keys[j];
            }
            if (lane == 0) {
                d[p.offd + row_d + pick] = last.y + i1 * p.first;
                scores[min(pick, WG - 1)] = value_of(last.x) * p.scale;
            }
        }
        if (p.weights != 0) {
            store_weights(p.offw + row_d);
        }
    END_EACH_ROW
}
