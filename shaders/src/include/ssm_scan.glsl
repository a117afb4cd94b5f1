// Shared by the kernels of SSM_SCAN: parameters.
#ifndef SSM_SCAN_GLSL
#define SSM_SCAN_GLSL

layout(push_constant, std430) uniform SsmScanParams {
    uint d_0, d_1;
    uint heads_0, heads_1;
    uint tokens;
    uint slots;
    uint run_fields;
    uint nbx_0, nbx_1;
    uint nbb_0, nbb_1;
    uint nbc_0, nbc_1;
    uint off_0, off_1, off_2, off_3, off_4, off_5, off_6, off_7;
} p;

#define RUNS(slot, field) runs[p.off_6 + p.run_fields * (slot) + (field)]

#endif
