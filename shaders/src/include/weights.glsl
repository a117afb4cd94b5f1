// Weights of any type, read in pieces: operand a of a matrix product, the matrix of GET_ROWS.
//
// Defines the buffer at binding 0 and
//
//     PIECE           weights of a piece, in quads: four neighbours
//     GROUPS          parts of a piece with a factor of their own, GROUP_QUADS quads each
//     load_piece      piece i of the row that begins at block (element for plain types) `row`, as it is stored
//     quad_at         where in the row quad j of group g of piece i begins
//     quad            the four numbers of quad j of group g
//     factor          the factor of group g
//     minimum         what group g adds (with HAS_MINIMUM only)
//     weights         the four weights of quad j of group g
//     load_one        one weight, for the end of a row that is no multiple of eight (plain types only)
//     prepare_weights to be called by all invocations before the first quad
//
// A weight is factor * (number + PIECE_OFFSET) + minimum. Offset and minimum cost a product nothing for each weight:
// it adds them to the sum of the other operand's values.
//
// A piece has eight weights; mat-vec takes 32 of blocks of 256, whose factors are packed: they share what it takes to
// unpack these. With SMALL_PIECES all have eight, no more than 32 elements apart, and one group.
//
// weights_32.glsl has the blocks of 32, weights_k.glsl those of 256, weights_piece.glsl the pieces of eight of both. The
// layouts are ggml's.
#ifndef WEIGHTS_GLSL
#define WEIGHTS_GLSL

#extension GL_EXT_shader_16bit_storage : require

#if defined(A_F32) || defined(A_F16) || defined(A_BF16)

struct Piece {
    vec4 lo;
    vec4 hi;
};

#if defined(A_F32)

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 0, std430) readonly buffer A4 { vec4 a4[]; };

float load_one(uint row, uint k) {
    return a[row + k];
}

Piece load_aligned(uint row, uint i) {
    const uint at = row / 4 + 2 * i;
    return Piece(a4[at], a4[at + 1]);
}

#elif defined(A_F16)

layout(set = 0, binding = 0, std430) readonly buffer A { float16_t a[]; };
layout(set = 0, binding = 0, std430) readonly buffer A8 { uvec4 a8[]; };

float load_one(uint row, uint k) {
    return float(a[row + k]);
}

Piece load_aligned(uint row, uint i) {
    const uvec4 w = a8[row / 8 + i];
    return Piece(vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)), vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w)));
}

#else

layout(set = 0, binding = 0, std430) readonly buffer A { uint16_t a[]; };
layout(set = 0, binding = 0, std430) readonly buffer A8 { uvec4 a8[]; };

vec4 from_bf16(uint x, uint y) {
    return uintBitsToFloat(uvec4(x << 16, x & 0xffff0000u, y << 16, y & 0xffff0000u));
}

float load_one(uint row, uint k) {
    return uintBitsToFloat(uint(a[row + k]) << 16);
}

Piece load_aligned(uint row, uint i) {
    const uvec4 w = a8[row / 8 + i];
    return Piece(from_bf16(w.x, w.y), from_bf16(w.z, w.w));
}

#endif

#define A_BLOCK 1

Piece load_piece(uint row, uint i) {
    if (ALIGNED != 0) {
        return load_aligned(row, i);
    }
    Piece w;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        w.lo[j] = load_one(row, 8 * i + j);
        w.hi[j] = load_one(row, 8 * i + 4 + j);
    }
    return w;
}

vec4 quad(Piece w, uint g, uint j) {
    return j == 0 ? w.lo : w.hi;
}

float factor(Piece w, uint g) {
    return 1.0;
}

#else

layout(set = 0, binding = 0, std430) readonly buffer Scales { float16_t scales[]; };
layout(set = 0, binding = 0, std430) readonly buffer Words { uint words[]; };
layout(set = 0, binding = 0, std430) readonly buffer Words2 { uvec2 words2[]; };
layout(set = 0, binding = 0, std430) readonly buffer Words4 { uvec4 words4[]; };

// Bytes of a word as numbers.
vec4 from_bytes(uint w) {
    return vec4(w & 255u, w >> 8 & 255u, w >> 16 & 255u, w >> 24);
}

vec4 from_signed_bytes(uint w) {
    const int v = int(w);
    return vec4(bitfieldExtract(v, 0, 8), bitfieldExtract(v, 8, 8), bitfieldExtract(v, 16, 8), bitfieldExtract(v, 24, 8));
}

#if defined(A_IQ4_NL) || defined(A_IQ4_XS) || defined(A_MXFP4)
#include "weights_table.glsl"
#endif

#if defined(A_Q2_K) || defined(A_Q3_K) || defined(A_Q4_K) || defined(A_Q5_K) || defined(A_Q6_K) || defined(A_IQ4_XS)
#define A_BLOCK 256
#include "weights_k.glsl"
#else
#define A_BLOCK 32
#include "weights_32.glsl"
#endif

#endif

#ifndef PIECE
#define PIECE 8
#endif

#ifndef GROUPS
#define GROUPS 1
#endif

#ifndef PIECE_OFFSET
#define PIECE_OFFSET 0.0
#endif

#ifndef HAS_TABLE
void prepare_weights() {
}
#endif

const uint GROUP_QUADS = PIECE / 4 / GROUPS;

vec4 weights(Piece w, uint g, uint j) {
    const vec4 x = PIECE_OFFSET != 0.0 ? quad(w, g, j) + PIECE_OFFSET : quad(w, g, j);
#ifdef HAS_MINIMUM
    return x * factor(w, g) + minimum(w, g);
#else
    return x * factor(w, g);
#endif
}

#ifndef HAS_QUAD_AT
uint quad_at(uint i, uint g, uint j) {
#ifdef QUADS_16_APART
    // Elements l and l + 16 of a block share a byte.
    return i / 4 * 32 + i % 4 * 4 + 16 * j;
#else
    return 8 * i + 4 * j;
#endif
}
#endif

#endif
