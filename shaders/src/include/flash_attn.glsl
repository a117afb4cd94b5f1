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
#define QUAD uvec2
#define FROM_QUAD(w) vec4(unpackHalf2x16((w).x), unpackHalf2x16((w).y))
#else
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 2, std430) readonly buffer V4 { vec4 v4[]; };
#define QUAD vec4
#define FROM_QUAD(w) (w)
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

// k_quad, v_quad: quad h (0 or 1) of piece `piece` of the row that starts at element `row` (for blocks: at block `row`; for
// plain types a multiple of four). Zeros unless `seen`: selected before the conversion, for blocks by their scale, which
// affects fewer words.
#ifdef KV_BLOCKS
#define QUAD_READER(name, plain, blocks)                                                                               \
    vec4 name(uint row, uint piece, uint h, bool seen) {                                                               \
        const uint block = (row + piece / 4) * BLOCK_HALVES;                                                           \
        const uint at = block + HALVES_OF(piece) + 2 * h;                                                              \
        const uint scale = uint(blocks[block]);                                                                        \
        return from_block(uvec2(blocks[at], blocks[at + 1]), piece, seen ? scale : 0);                                 \
    }
#else
#define QUAD_READER(name, plain, blocks)                                                                               \
    vec4 name(uint row, uint piece, uint h, bool seen) {                                                               \
        const QUAD quad = plain[row / 4 + 2 * piece + h];                                                              \
        const QUAD chosen = seen ? quad : QUAD(0);                                                                     \
        return FROM_QUAD(chosen);                                                                                      \
    }
#endif
QUAD_READER(k_quad, k4, k)
QUAD_READER(v_quad, v4, v)

// k_piece, v_piece: piece `piece` of the row that starts at element (for blocks: at block) `row` as it lies in memory, in F16 with
// one load: rows are multiples of eight there. numbers_of: its elements; zeros unless `there`, as with the quads.
#ifdef KV_BLOCKS
struct Piece {
    uvec4 halves;
    uint scale;
};
#define PIECE_LOADER(name, blocks)                                                                                     \
    Piece name(uint row, uint piece) {                                                                                 \
        const uint block = (row + piece / 4) * BLOCK_HALVES;                                                           \
        const uint at = block + HALVES_OF(piece);                                                                      \
        return Piece(uvec4(blocks[at], blocks[at + 1], blocks[at + 2], blocks[at + 3]), uint(blocks[block]));          \
    }
PIECE_LOADER(k_piece, k)
PIECE_LOADER(v_piece, v)
void numbers_of(Piece w, uint piece, bool there, out vec4 lo, out vec4 hi) {
    const uint scale = there ? w.scale : 0;
    lo = from_block(w.halves.xy, piece, scale);
    hi = from_block(w.halves.zw, piece, scale);
}
#elif defined(KV_F16)
layout(set = 0, binding = 1, std430) readonly buffer K8 { uvec4 k8[]; };
layout(set = 0, binding = 2, std430) readonly buffer V8 { uvec4 v8[]; };
#define Piece uvec4
Piece k_piece(uint row, uint piece) {
    return k8[row / 8 + piece];
}
Piece v_piece(uint row, uint piece) {
    return v8[row / 8 + piece];
}
void numbers_of(Piece w, uint piece, bool there, out vec4 lo, out vec4 hi) {
    const uvec4 chosen = there ? w : uvec4(0);
    lo = vec4(unpackHalf2x16(chosen.x), unpackHalf2x16(chosen.y));
    hi = vec4(unpackHalf2x16(chosen.z), unpackHalf2x16(chosen.w));
}
#else
struct Piece {
    vec4 lo, hi;
};
Piece k_piece(uint row, uint piece) {
    return Piece(k4[row / 4 + 2 * piece], k4[row / 4 + 2 * piece + 1]);
}
Piece v_piece(uint row, uint piece) {
    return Piece(v4[row / 4 + 2 * piece], v4[row / 4 + 2 * piece + 1]);
}
void numbers_of(Piece w, uint piece, bool there, out vec4 lo, out vec4 hi) {
    lo = there ? w.lo : vec4(0.0);
    hi = there ? w.hi : vec4(0.0);
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
