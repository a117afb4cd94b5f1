// Sum or maximum over a work-group, returned to every invocation.
//
// Without subgroup operations, each invocation writes its value to shared memory; the first 16 invocations combine a sixteenth
// each (their reads are independent and on different banks); then every invocation combines the 16 results. Two barriers
// instead of the eight of a halving tree. With subgroup operations (USE_SUBGROUP), first one result for each subgroup.
//
// The work-group is a multiple of 16. Uses (gl_WorkGroupSize.x + 16) * 4 bytes of shared memory.
#ifndef REDUCE_GLSL
#define REDUCE_GLSL

#ifdef USE_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

shared float reduce_values[gl_WorkGroupSize.x + 16];

#ifdef USE_SUBGROUP
#define REDUCE(name, combine, subgroup_combine, neutral)                                                               \
    float name(float value) {                                                                                          \
        value = subgroup_combine(value);                                                                               \
        if (gl_NumSubgroups == 1) {                                                                                    \
            return value;                                                                                              \
        }                                                                                                              \
        barrier();                                                                                                     \
        if (subgroupElect()) {                                                                                         \
            reduce_values[gl_SubgroupID] = value;                                                                      \
        }                                                                                                              \
        barrier();                                                                                                     \
        value = neutral;                                                                                               \
        for (uint i = 0; i < gl_NumSubgroups; i++) {                                                                   \
            value = combine(value, reduce_values[i]);                                                                  \
        }                                                                                                              \
        return value;                                                                                                  \
    }
#else
#define REDUCE(name, combine, subgroup_combine, neutral)                                                               \
    float name(float value) {                                                                                          \
        const uint lane = gl_LocalInvocationIndex;                                                                     \
        barrier();                                                                                                     \
        reduce_values[lane] = value;                                                                                   \
        barrier();                                                                                                     \
        if (lane < 16) {                                                                                               \
            [[unroll]] for (uint i = 16; i < gl_WorkGroupSize.x; i += 16) {                                            \
                value = combine(value, reduce_values[lane + i]);                                                       \
            }                                                                                                          \
            reduce_values[gl_WorkGroupSize.x + lane] = value;                                                          \
        }                                                                                                              \
        barrier();                                                                                                     \
        value = reduce_values[gl_WorkGroupSize.x];                                                                     \
        [[unroll]] for (uint i = 1; i < 16; i++) {                                                                     \
            value = combine(value, reduce_values[gl_WorkGroupSize.x + i]);                                             \
        }                                                                                                              \
        return value;                                                                                                  \
    }
#endif

float reduce_plus(float a, float b) {
    return a + b;
}

REDUCE(workgroup_sum, reduce_plus, subgroupAdd, 0.0)
REDUCE(workgroup_max, max, subgroupMax, -3.0e38)

#endif
