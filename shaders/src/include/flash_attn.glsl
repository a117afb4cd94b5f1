// What the kernels of FLASH_ATTN_EXT share: parameters, operands, scores.
#ifndef FLASH_ATTN_GLSL
#define FLASH_ATTN_GLSL

#include "activation.glsl"
#include "alibi.glsl"

#extension GL_EXT_shader_16bit_storage : require

layout(push_constant, std430) uniform FlashAttnParams {
    uint d_0, d_1;
    uint ne_0, ne_1, ne_2;
    uint kv_0, kv_1;
    uint nbq_0, nbq_1, nbq_2;
    uint nbk_0, nbk_1, nbk_2;
    uint nbv_0, nbv_1, nbv_2;
    uint nbm_0, nbm_1, nbm_2;
    uint mask_ne_0, mask_ne_1;
    uint off_0, off_1, off_2, off_3, off_4;
    uint mask_type;
    uint heads_log2;
    float scale;
    float max_bias;
    float logit_softcap;
} p;

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 0, std430) readonly buffer Q4 { vec4 q4[]; };
#ifdef KV_F16
layout(set = 0, binding = 1, std430) readonly buffer K { float16_t k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { uvec2 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float16_t v[]; };
layout(set = 0, binding = 2, std430) readonly buffer V4 { uvec2 v4[]; };
#define FROM_QUAD(w) vec4(unpackHalf2x16((w).x), unpackHalf2x16((w).y))
#else
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 2, std430) readonly buffer V4 { vec4 v4[]; };
#define FROM_QUAD(w) (w)
#endif
layout(set = 0, binding = 3, std430) readonly buffer Mask { float mask[]; };
layout(set = 0, binding = 3, std430) readonly buffer Mask16 { float16_t mask16[]; };
layout(set = 0, binding = 4, std430) writeonly buffer D { float d[]; };

// Maxima start here, below all scores: minus infinity less minus infinity never occurs, and a row without any finite
// score ends with sum 0.
const float LOWEST = -1.0e38;

// Beginning of the mask's row for a token of a head.
uint mask_row(uint token, uint head, uint batch) {
    return p.off_3 + token * p.nbm_0 + head % p.mask_ne_0 * p.nbm_1 + batch % p.mask_ne_1 * p.nbm_2;
}

float mask_at(uint i) {
    return p.mask_type == 0 ? 0.0 : p.mask_type == 1 ? mask[i] : float(mask16[i]);
}

// Scores of products of q and k, without the mask.
vec4 scores_of(vec4 products) {
    vec4 s = products * p.scale;
    if (p.logit_softcap != 0.0) {
        [[unroll]] for (uint i = 0; i < 4; i++) {
            s[i] = p.logit_softcap * safe_tanh(s[i] / p.logit_softcap);
        }
    }
    return s;
}

float score_of(float product) {
    const float s = product * p.scale;
    return p.logit_softcap == 0.0 ? s : p.logit_softcap * safe_tanh(s / p.logit_softcap);
}

#endif
