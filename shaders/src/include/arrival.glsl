// Cooperation of work-groups: the last one sees what the others have written to `coherent` buffers. The including shader
// declares such a buffer of counters, `arrived`, which are zero before and after.
#ifndef ARRIVAL_GLSL
#define ARRIVAL_GLSL

shared bool arrived_last;

// Returns true if all other parts have written their results, so that this work-group may read them. `slot`: their counter.
bool is_last(uint slot, uint parts) {
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationIndex == 0) {
        memoryBarrierBuffer();
        arrived_last = atomicAdd(arrived[slot], 1) == parts - 1;
        memoryBarrierBuffer();
    }
    barrier();
    memoryBarrierBuffer();
    return arrived_last;
}

#endif
