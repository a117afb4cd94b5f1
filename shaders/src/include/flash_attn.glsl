// Shared by the kernels of FLASH_ATTN_EXT: parameters, operands, scores.
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
    uint off_0, off_1, off_2, off_3, off_4, off_5;
    uint mask_type;
    uint heads_log2;
    float scale;
    float max_bias;
    float logit_softcap;
} p;

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 0, std430) readonly buffer Q4 { vec4 q4[]; };
#if defined(KV_Q8_0) || defined(KV_Q4_0)
#define KV_BLOCKS
layout(set = 0, binding = 1, std430) readonly buffer K { uint16_t k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { uint16_t v[]; };
#elif defined(KV_F16)
layout(set = 0, binding = 1, std430) readonly buffer K { float16_t k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { uvec2 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float16_t v[]; };
layout(set = 0, binding = 2, std430) readonly buffer V4 { uvec2 v4[]; };
#else
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 2, std430) readonly buffer V4 { vec4 v4[]; };
#endif

// For blocks of 32: their half-words, of which the first is the scale; the first half-word of the integers of piece `piece` of
// eight elements; and four of its elements from the lower bits of the two half-words that contain them.
#if defined(KV_Q8_0)
// Two bytes each.
#define BLOCK_HALVES 17
#define HALVES_OF(piece) (1 + (piece) % 4 * 4)
vec4 from_block(uvec2 w, uint piece, uint scale) {
    const ivec4 bytes = ivec4(bitfieldExtract(ivec2(w), 0, 8), bitfieldExtract(ivec2(w), 8, 8)).xzyw;
    return vec4(bytes) * unpackHalf2x16(scale).x;
}
#elif defined(KV_Q4_0)
// Two bytes each; lower nibbles are elements 0 to 15, upper ones 16 to 31.
#define BLOCK_HALVES 9
#define HALVES_OF(piece) (1 + (piece) % 2 * 4)
vec4 from_block(uvec2 w, uint piece, uint scale) {
    const uvec2 of_piece = w >> piece % 4 / 2 * 4;
    const vec4 nibbles = vec4(of_piece.x & 15u, of_piece.x >> 8 & 15u, of_piece.y & 15u, of_piece.y >> 8 & 15u);
    return (nibbles - 8.0) * unpackHalf2x16(scale).x;
}
#endif

// k_quad, v_quad: four elements, k_piece, v_piece: eight of the row that starts at element (for blocks: at block) `row` as they
// lie in memory, so that several can be on their way. Rows of plain types are multiples of as many elements. numbers_of: the
// elements; zeros unless `there`, which is selected before the conversion, for blocks by their scale.
#ifdef KV_BLOCKS
struct Quad {
    uvec2 halves;
    uint scale;
};
struct Piece {
    uvec4 halves;
    uint scale;
};
#define READERS(of_quad, of_piece, blocks)                                                                             \
    Quad of_quad(uint row, uint quad) {                                                                                \
        const uint block = (row + quad / 8) * BLOCK_HALVES;                                                            \
        const uint at = block + HALVES_OF(quad / 2) + 2 * (quad % 2);                                                  \
        return Quad(uvec2(blocks[at], blocks[at + 1]), uint(blocks[block]));                                           \
    }                                                                                                                  \
    Piece of_piece(uint row, uint piece) {                                                                             \
        const uint block = (row + piece / 4) * BLOCK_HALVES;                                                           \
        const uint at = block + HALVES_OF(piece);                                                                      \
        return Piece(uvec4(blocks[at], blocks[at + 1], blocks[at + 2], blocks[at + 3]), uint(blocks[block]));          \
    }
READERS(k_quad, k_piece, k)
READERS(v_quad, v_piece, v)
vec4 numbers_of(Quad w, uint quad, bool there) {
    return from_block(w.halves, quad / 2, there ? w.scale : 0);
}
void numbers_of(Piece w, uint piece, bool there, out vec4 lo, out vec4 hi) {
    const uint scale = there ? w.scale : 0;
    lo = from_block(w.halves.xy, piece, scale);
    hi = from_block(w.halves.zw, piece, scale);
}
#elif defined(KV_F16)
layout(set = 0, binding = 1, std430) readonly buffer K8 { uvec4 k8[]; };
layout(set = 0, binding = 2, std430) readonly buffer V8 { uvec4 v8[]; };
#define Quad uvec2
#define Piece uvec4
#define READERS(of_quad, of_piece, quads, eights)                                                                      \
    Quad of_quad(uint row, uint quad) {                                                                                \
        return quads[row / 4 + quad];                                                                                  \
    }                                                                                                                  \
    Piece of_piece(uint row, uint piece) {                                                                             \
        return eights[row / 8 + piece];                                                                                \
    }
READERS(k_quad, k_piece, k4, k8)
READERS(v_quad, v_piece, v4, v8)
vec4 numbers_of(Quad w, uint quad, bool there) {
    const uvec2 chosen = there ? w : uvec2(0);
    return vec4(unpackHalf2x16(chosen.x), unpackHalf2x16(chosen.y));
}
void numbers_of(Piece w, uint piece, bool there, out vec4 lo, out vec4 hi) {
    lo = numbers_of(w.xy, 0, there);
    hi = numbers_of(w.zw, 0, there);
}
#else
#define Quad vec4
struct Piece {
    vec4 lo, hi;
};
#define READERS(of_quad, of_piece, quads)                                                                              \
    Quad of_quad(uint row, uint quad) {                                                                                \
        return quads[row / 4 + quad];                                                                                  \
    }                                                                                                                  \
    Piece of_piece(uint row, uint piece) {                                                                             \
        return Piece(quads[row / 4 + 2 * piece], quads[row / 4 + 2 * piece + 1]);                                      \
    }
READERS(k_quad, k_piece, k4)
READERS(v_quad, v_piece, v4)
vec4 numbers_of(Quad w, uint quad, bool there) {
    return there ? w : vec4(0.0);
}
void numbers_of(Piece w, uint piece, bool there, out vec4 lo, out vec4 hi) {
    lo = numbers_of(w.lo, 0, there);
    hi = numbers_of(w.hi, 0, there);
}
#endif

layout(set = 0, binding = 3, std430) readonly buffer Mask { float mask[]; };
layout(set = 0, binding = 3, std430) readonly buffer Mask16 { float16_t mask16[]; };
layout(set = 0, binding = 3, std430) readonly buffer MaskWords { uint mask_words[]; };
layout(set = 0, binding = 4, std430) readonly buffer Sinks { float sinks[]; };
layout(set = 0, binding = 5, std430) writeonly buffer D { float d[]; };
layout(set = 0, binding = 5, std430) writeonly buffer D4 { vec4 d4[]; };

// Initial value of maxima, below all scores: minus infinity minus minus infinity never occurs, and a row without any finite
// score ends with sum 0.
const float LOWEST = -1.0e38;

// Positions are hidden if their mask is minus infinity: none of their keys and values may affect the result, whatever they
// contain. A score of minus infinity and a weight of zero do not ensure that, because zero times infinity is NaN. Hidden
// positions have this weight, a zero whose sign distinguishes it from the weights of others.
#define HIDDEN uintBitsToFloat(0x80000000u)

bool is_hidden(float weight) {
    return floatBitsToUint(weight) == 0x80000000u;
}

// Fields of mask_type.
#define NO_MASK 0u
#define MASK_F32 1u
#define MASK_TYPE (p.mask_type & 3u)
#define HAS_SINKS ((p.mask_type & 4u) != 0u)

// Score of a head in addition to those of its positions, without a value: the running maximum starts with it, and the sum with
// its weight.
float sink_of(uint head) {
    return HAS_SINKS ? sinks[p.off_4 + head] : MINUS_INFINITY;
}

// Start of the mask's row for a token of a head.
uint mask_row(uint token, uint head, uint batch) {
    // Most masks are the same for all heads and batches, and divisions are slow.
    const uint of_head = p.mask_ne_0 == 1 ? 0 : head % p.mask_ne_0;
    const uint of_batch = p.mask_ne_1 == 1 ? 0 : batch % p.mask_ne_1;
    return p.off_3 + token * p.nbm_0 + of_head * p.nbm_1 + of_batch * p.nbm_2;
}

// Without a branch, so that a load does not wait for another: without a mask, some other element is loaded.
float mask_at(uint i) {
    const bool whole = MASK_TYPE == MASK_F32;
    const uint word = mask_words[MASK_TYPE == NO_MASK ? 0 : whole ? i : i / 2];
    const float half_of = unpackHalf2x16(word >> (i % 2 * 16)).x;
    return MASK_TYPE == NO_MASK ? 0.0 : whole ? uintBitsToFloat(word) : half_of;
}

float capped(float score) {
    return p.logit_softcap * safe_tanh(score / p.logit_softcap);
}

// Scores of products of q and k, without the mask.
vec4 scores_of(vec4 products) {
    vec4 s = products * p.scale;
    if (p.logit_softcap != 0.0) {
        [[unroll]] for (uint i = 0; i < 4; i++) {
            s[i] = capped(s[i]);
        }
    }
    return s;
}

#endif
