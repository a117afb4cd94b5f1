// The largest of a work-group's elements, and the soft-max of the picked ones.
//
// Elements are compared by a key that increases with the element; an element comes before another if its key is larger, or
// equal and its index lower. Shared memory: (work-group + 16) * 8 bytes and 4 for each invocation. The work-group is a multiple
// of 16 and, if there are weights, not smaller than the number of picks.
#ifndef PICK_GLSL
#define PICK_GLSL

#ifdef USE_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

const uint WG = gl_WorkGroupSize.x;

// A key and an index. No element has key 0.
shared uvec2 candidates[WG + 16];

const uvec2 NONE = uvec2(0, 0xffffffffu);

// Scores of the picked elements.
shared float scores[WG];
const float LOWEST = -1.0e38;

// Key of an element's bits: 1 for NaN; both zeros have the same key.
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
// The first of all invocations' candidates: sixteen invocations combine a sixteenth each, then every invocation combines their
// results.
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

// Soft-max of this invocation's score among those of the first `count` invocations, as in soft_max.comp.
float weight_of_pick(float score, uint count) {
    scores[gl_LocalInvocationIndex] = score;
    barrier();
    float largest = LOWEST;
    for (uint i = 0; i < count; i++) {
        largest = max(largest, scores[i]);
    }
    float sum = 0.0;
    for (uint i = 0; i < count; i++) {
        sum += exp(scores[i] - largest);
    }
    const float factor = sum == 0.0 ? 0.0 : 1.0 / sum;
    return exp(score - largest) * factor;
}

#endif
