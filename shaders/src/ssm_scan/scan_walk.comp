#version 460
// SSM_SCAN by chunks, from chunk to chunk: see chunk_walk.glsl. Specialisation: see chunks.glsl.

#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { float v[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer B4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer C { float q[]; };
layout(set = 0, binding = 2, std430) readonly buffer C4 { vec4 q4[]; };
layout(set = 0, binding = 3, std430) readonly buffer State { float state[]; };
layout(set = 0, binding = 4, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 5, std430) readonly buffer Chunks { float chunks[]; };
layout(set = 0, binding = 5, std430) readonly buffer Chunks4 { vec4 chunks4[]; };
layout(set = 0, binding = 6, std430) writeonly buffer D { float d[]; };

#include "ssm_scan.glsl"
#include "run.glsl"

const bool WITH_A = false;
#define GROUP(head) ((head) / (p.heads_1 / p.heads_0))
#define K_BEGIN(head) (p.off_3 + GROUP(head) * p.nbb_0)
#define K_STRIDE p.nbb_1
#define Q_BEGIN(head) (p.off_4 + GROUP(head) * p.nbc_0)
#define Q_STRIDE p.nbc_1
#define V_BEGIN(head) (p.off_0 + (head) * p.nbx_0)
#define V_STRIDE p.nbx_1
#include "chunk_walk.glsl"
