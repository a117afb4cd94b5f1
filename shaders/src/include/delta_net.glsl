// Shared by the kernels of GATED_DELTA_NET: parameters.
#ifndef DELTA_NET_GLSL
#define DELTA_NET_GLSL

layout(push_constant, std430) uniform DeltaNetParams {
    uint d_0, d_1;
    uint heads_0, heads_1;
    uint tokens;
    uint slots;
    uint run_fields;
    uint nbq_0, nbq_1;
    uint nbk_0, nbk_1;
    uint nbv_0, nbv_1;
    uint off_0, off_1, off_2, off_3, off_4, off_5, off_6, off_7, off_8, off_9;
    float scale;
    // Queries and keys are normed if the factor is not 0.
    float factor, eps;
    // 1 if g and beta are operands of a softplus and a sigmoid; 1 if the new state replaces the old one.
    uint gates, keeps;
} p;

#define RUNS(slot, field) runs[p.off_6 + p.run_fields * (slot) + (field)]

#endif
