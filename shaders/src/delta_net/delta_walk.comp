#version 460
// GATED_DELTA_NET by chunks, from chunk to chunk: see chunk_walk.glsl. Specialisation: see chunks.glsl.

#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 0, std430) readonly buffer Q4 { vec4 q4[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 3, std430) readonly buffer State { float state[]; };
layout(set = 0, binding = 4, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 5, std430) readonly buffer Chunks { float chunks[]; };
layout(set = 0, binding = 5, std430) readonly buffer Chunks4 { vec4 chunks4[]; };
layout(set = 0, binding = 6, std430) writeonly buffer D { float d[]; };

#include "delta_net.glsl"
#include "run.glsl"

const bool WITH_A = true;
#define K_BEGIN(head) (p.off_1 + (head) % p.heads_0 * p.nbk_0)
#define K_STRIDE p.nbk_1
#define Q_BEGIN(head) (p.off_0 + (head) % p.heads_0 * p.nbq_0)
#define Q_STRIDE p.nbq_1
#define V_BEGIN(head) (p.off_2 + (head) * p.nbv_0)
#define V_STRIDE p.nbv_1
#include "chunk_walk.glsl"
