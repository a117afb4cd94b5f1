#version 460
// The lane probe: the actual results of subgroup operations on this device and driver. One work-group; each invocation writes
// one record, from which the host recomputes every result with plain integer arithmetic.
//
// All values are unsigned integers and sums wrap, so that a correct result has exactly one value.
//
// Variants: basic executes no subgroup operation beyond the built-in ids; full (USE_SUBGROUP) also executes arithmetic, ballot
// and shuffle. Fields that a variant does not compute are zero.

#include "common.glsl"

#extension GL_KHR_shader_subgroup_basic : require
#ifdef USE_SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

// 16 words for each invocation, in the order of gl_LocalInvocationIndex.
struct Record {
    uint subgroup_size;
    uint subgroup_lane;      // gl_SubgroupInvocationID
    uint subgroup_id;
    uint num_subgroups;
    uint value;              // input of this invocation to every operation below
    uint shared_sum;         // of value over the workgroup, by a tree in shared memory
    uint subgroup_sum;       // subgroupAdd(value)
    uint shuffled;           // subgroupShuffleXor(value, 1)
    uint ballot[4];          // subgroupBallot((value & 1) != 0)
    uint ballot_count;       // subgroupBallotBitCount of it
    uint exclusive_count;    // subgroupBallotExclusiveBitCount of it
    uint branch_sum;         // subgroupAdd(value) by the invocations with an odd value; the others write 0
    uint broadcast;          // subgroupBroadcastFirst(value)
};

layout(set = 0, binding = 0, std430) writeonly buffer Dst {
    Record dst[];
};

layout(push_constant, std430) uniform Parameters {
    uint seed;
} p;

shared uint sums[gl_WorkGroupSize.x];

// A value that the compiler cannot know and that differs between invocations.
uint lane_value(uint index) {
    uint x = p.seed + index * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

uint workgroup_sum(uint index, uint value) {
    sums[index] = value;
    barrier();
    // Any size of work-group: the upper part is added to the lower until one value is left.
    for (uint n = gl_WorkGroupSize.x; n > 1;) {
        const uint half_n = (n + 1) / 2;
        if (index + half_n < n) {
            sums[index] += sums[index + half_n];
        }
        barrier();
        n = half_n;
    }
    return sums[0];
}

void main() {
    const uint index = gl_LocalInvocationIndex;
    const uint value = lane_value(index);

    Record record;
    record.subgroup_size = gl_SubgroupSize;
    record.subgroup_lane = gl_SubgroupInvocationID;
    record.subgroup_id = gl_SubgroupID;
    record.num_subgroups = gl_NumSubgroups;
    record.value = value;
    record.shared_sum = workgroup_sum(index, value);
    record.subgroup_sum = 0;
    record.shuffled = 0;
    record.ballot = uint[4](0, 0, 0, 0);
    record.ballot_count = 0;
    record.exclusive_count = 0;
    record.branch_sum = 0;
    record.broadcast = 0;

#ifdef USE_SUBGROUP
    const bool odd = (value & 1) != 0;
    record.subgroup_sum = subgroupAdd(value);
    record.shuffled = subgroupShuffleXor(value, 1);
    const uvec4 ballot = subgroupBallot(odd);
    record.ballot = uint[4](ballot.x, ballot.y, ballot.z, ballot.w);
    record.ballot_count = subgroupBallotBitCount(ballot);
    record.exclusive_count = subgroupBallotExclusiveBitCount(ballot);
    record.broadcast = subgroupBroadcastFirst(value);
    if (odd) {
        record.branch_sum = subgroupAdd(value);
    }
#endif

    dst[index] = record;
}
