#version 460
// TOP_K: the indices of the k largest elements of each row in descending order, and with `weights` their soft-max, as SOFT_MAX
// without a mask.
//
// One work-group for each row (the grid's y and z). A pick is the best of the invocations' best elements; each invocation has
// every n-th element of the row, and these candidates are compared through shared memory. For rows up to HELD * work-group,
// such as the scores of experts, everything stays in registers, and picked elements are marked there. For longer rows a pick is
// the largest element that comes after the previous one in the order of the result: nothing has to be marked, and later picks
// read the row from the cache.
//
// Variants: lds, and subgroup, where candidates are first compared by subgroup arithmetic: a work-group of one subgroup picks
// without a barrier.
//
// The order of elements, shared memory and work-groups: see pick.glsl.

#include "common.glsl"
#include "grid.glsl"

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

#include "pick.glsl"

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
        // Key of the pick with this invocation's number.
        uint own = 0;
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
            }
            own = pick == lane ? last.x : own;
        }
        if (p.weights != 0) {
            const float weight = weight_of_pick(value_of(own) * p.scale, p.k);
            if (lane < p.k) {
                w[p.offw + row_d + lane] = weight;
            }
        }
    END_EACH_ROW
}
