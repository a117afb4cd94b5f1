// Work-groups that meet: who comes last sees what the others have written to buffers that are `coherent`. Who includes this
// declares such a buffer of counters, `arrived`, which are zero before and after.
#ifndef ARRIVAL_GLSL
#define ARRIVAL_GLSL

shared bool arrived_last;

// Whether all other parts have written what they have, and this work-group may read it. `slot`: their counter.
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
