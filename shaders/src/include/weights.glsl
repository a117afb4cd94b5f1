// Weights of any type, read in pieces: operand a of a matrix product, the matrix of GET_ROWS.
//
// Defines the buffer at binding 0 and
//
//     PIECE           weights of a piece, in quads: four adjacent elements
//     GROUPS          parts of a piece with a factor of their own, GROUP_QUADS quads each
//     load_piece      piece i of the row that starts at block (element for plain types) `row`, as stored; for types with
//                     blocks also piece j of the step that starts with piece `first`
//     quad_at         place in the row at which quad j of group g of piece i starts
//     bytes           quad j of group g, one byte for each integer (types with blocks)
//     quad            the four numbers of quad j of group g
//     factor          the factor of group g
//     minimum         the value that group g adds (with HAS_MINIMUM only)
//     of_piece        multiplies all factors and minima of the piece
//     weights         the four weights of quad j of group g
//     load_one        one weight, for the end of a row that is not a multiple of eight (plain types only)
//     load_some       the piece at the end of such a row
//     prepare_weights must be called by all invocations before the first quad
//
// A weight is of_piece.x * factor * (number + PIECE_OFFSET) + of_piece.y * minimum. Offset and minimum cost a product nothing
// for each weight: it multiplies them by the sum of the other operand's values.
//
// A piece has eight weights. Mat-vec takes 32 of blocks of 256, whose factors are packed, so that 32 weights share the
// unpacking. With SMALL_PIECES all pieces have eight, at most 32 elements apart, and one group.
//
// weights_32.glsl has the blocks of 32, weights_64.glsl those of 64 and 128, weights_k.glsl those of 256, and weights_iq.glsl
// those of 256 whose weights are points of a grid. weights_piece.glsl has pieces of eight, weights_sub_block.glsl some as
// stored. The layouts are ggml's.
#ifndef WEIGHTS_GLSL
#define WEIGHTS_GLSL

#extension GL_EXT_shader_16bit_storage : require

// Views of the buffer. With MATRICES there are that many buffers, and `matrix` is read: a variable that the including shader
// sets, the same for the whole work-group.
#ifdef MATRICES
uint matrix;
#define A_VIEW(block, type, name) layout(set = 0, binding = 0, std430) readonly buffer block { type of[]; } name[MATRICES]
#define A_OF(name) name[matrix].of
#else
#define A_VIEW(block, type, name) layout(set = 0, binding = 0, std430) readonly buffer block { type of[]; } name
#define A_OF(name) name.of
#endif

#ifndef EVEN_ROWS
#define EVEN_ROWS false
#endif

#if defined(A_F32) || defined(A_F16) || defined(A_BF16)

#if defined(A_F16) && defined(MATRIX)

// Pieces as stored.
#define RAW_PIECES
struct Piece {
    uvec4 both;
};

Piece piece_of(vec4 lo, vec4 hi) {
    return Piece(uvec4(packHalf2x16(lo.xy), packHalf2x16(lo.zw), packHalf2x16(hi.xy), packHalf2x16(hi.zw)));
}

#else

struct Piece {
    vec4 lo;
    vec4 hi;
};

Piece piece_of(vec4 lo, vec4 hi) {
    return Piece(lo, hi);
}

#endif

#if defined(A_F32)

A_VIEW(A, float, a_of);
A_VIEW(A4, vec4, a4_of);

float load_one(uint row, uint k) {
    return A_OF(a_of)[row + k];
}

Piece load_aligned(uint row, uint i) {
    const uint at = row / 4 + 2 * i;
    return Piece(A_OF(a4_of)[at], A_OF(a4_of)[at + 1]);
}

#elif defined(A_F16)

A_VIEW(A, float16_t, a_of);
A_VIEW(A8, uvec4, a8_of);

float load_one(uint row, uint k) {
    return float(A_OF(a_of)[row + k]);
}

Piece load_aligned(uint row, uint i) {
    const uvec4 w = A_OF(a8_of)[row / 8 + i];
#ifdef RAW_PIECES
    return Piece(w);
#else
    return Piece(vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)), vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w)));
#endif
}

#else

A_VIEW(A, uint16_t, a_of);
A_VIEW(A8, uvec4, a8_of);

vec4 from_bf16(uint x, uint y) {
    return uintBitsToFloat(uvec4(x << 16, x & 0xffff0000u, y << 16, y & 0xffff0000u));
}

float load_one(uint row, uint k) {
    return uintBitsToFloat(uint(A_OF(a_of)[row + k]) << 16);
}

Piece load_aligned(uint row, uint i) {
    const uvec4 w = A_OF(a8_of)[row / 8 + i];
    return Piece(from_bf16(w.x, w.y), from_bf16(w.z, w.w));
}

#endif

#define A_BLOCK 1

Piece load_piece(uint row, uint i) {
    if (ALIGNED != 0) {
        return load_aligned(row, i);
    }
    vec4 lo, hi;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        lo[j] = load_one(row, 8 * i + j);
        hi[j] = load_one(row, 8 * i + 4 + j);
    }
    return piece_of(lo, hi);
}

// The same if the row ends at `end`: weights after the end are zero.
Piece load_some(uint row, uint i, uint end) {
    vec4 lo, hi;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const uint k = 8 * i + j;
        lo[j] = k < end ? load_one(row, min(k, end - 1)) : 0.0;
        hi[j] = k + 4 < end ? load_one(row, min(k + 4, end - 1)) : 0.0;
    }
    return piece_of(lo, hi);
}

#ifndef RAW_PIECES
vec4 quad(Piece w, uint g, uint j) {
    return j == 0 ? w.lo : w.hi;
}
#endif

float factor(Piece w, uint g) {
    return 1.0;
}

#else

A_VIEW(Scales, float16_t, scales_of);
A_VIEW(Halves, uint16_t, halves_of);
A_VIEW(Words, uint, words_of);
A_VIEW(Words2, uvec2, words2_of);
A_VIEW(Words4, uvec4, words4_of);
#ifdef STAGED
// Pieces are read from shared memory, whose views have these names; rows start at a half-word there.
#include "stage.glsl"
#define ROW_HALVES(row, of_block) (row)
#define ROW_WORDS(row, of_block) ((row) / 2)
#define ROW_FOURS(row, of_block) ((row) / 8)
#else
#define scales A_OF(scales_of)
#define halves A_OF(halves_of)
#define words A_OF(words_of)
#define words2 A_OF(words2_of)
#define words4 A_OF(words4_of)
// Start of a row in half-words, words and groups of 16 bytes, of which a block has `of_block`.
#define ROW_HALVES(row, of_block) ((row) * (of_block))
#define ROW_WORDS(row, of_block) ((row) * (of_block))
#define ROW_FOURS(row, of_block) ((row) * (of_block))
#endif

// A half-word: its word, and whether it is the upper one.
struct HalfWord {
    uint word;
    bool odd;
};

// Half-word `at` of a row that starts at half-word `row`. EVEN_ROWS: rows start with whole words, which saves arithmetic that
// differs between invocations.
HalfWord halves_at(uint row, uint at) {
    return EVEN_ROWS ? HalfWord(row / 2 + at / 2, (at & 1) != 0) : HalfWord((row + at) / 2, (row + at & 1) != 0);
}

// Bytes of a word as numbers.
vec4 from_bytes(uint w) {
    return vec4(w & 255u, w >> 8 & 255u, w >> 16 & 255u, w >> 24);
}

vec4 from_signed_bytes(uint w) {
    const int v = int(w);
    return vec4(bitfieldExtract(v, 0, 8), bitfieldExtract(v, 8, 8), bitfieldExtract(v, 16, 8), bitfieldExtract(v, 24, 8));
}

#if defined(A_IQ4_NL) || defined(A_IQ4_XS) || defined(A_MXFP4) || defined(A_NVFP4)
#include "weights_table.glsl"
#endif

// The lower (0) or upper (1) nibbles of a word's bytes, one in each byte; with a table and INT8, their table values.
uint half_bytes(uint w, uint upper) {
#if defined(HAS_TABLE) && defined(INT8)
    return from_pairs(w, upper);
#else
    return w >> 4 * upper & 0x0f0f0f0fu;
#endif
}

#if defined(A_Q2_K) || defined(A_Q3_K) || defined(A_Q4_K) || defined(A_Q5_K) || defined(A_Q6_K) || defined(A_IQ4_XS) \
    || defined(A_TQ1_0) || defined(A_TQ2_0)
#define A_BLOCK 256
#include "weights_k.glsl"
#elif defined(A_IQ1_S) || defined(A_IQ1_M) || defined(A_IQ2_XXS) || defined(A_IQ2_XS) || defined(A_IQ2_S) \
    || defined(A_IQ3_XXS) || defined(A_IQ3_S)
#define A_BLOCK 256
#include "weights_iq.glsl"
#elif defined(A_Q1_0)
#define A_BLOCK 128
#include "weights_64.glsl"
#elif defined(A_Q2_0) || defined(A_NVFP4)
#define A_BLOCK 64
#include "weights_64.glsl"
#else
#define A_BLOCK 32
#include "weights_32.glsl"
#endif

#ifndef HAS_PIECE_OF_STEP
Piece load_piece(uint row, uint first, uint j) {
    return load_piece(row, first + j);
}
#endif

vec4 quad(Piece w, uint g, uint j) {
#if defined(HAS_TABLE)
    return from_table(bytes(w, g, j));
#elif defined(A_Q8_0) || defined(HAS_GRID)
    return from_signed_bytes(bytes(w, g, j));
#else
    return from_bytes(bytes(w, g, j));
#endif
}

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

#if !defined(HAS_TABLE) && !defined(HAS_GRID)
void prepare_weights() {
}
#endif

const uint GROUP_QUADS = PIECE / 4 / GROUPS;

#ifndef HAS_OF_PIECE
vec2 of_piece(Piece w) {
    return vec2(1.0);
}
#endif

#ifndef RAW_PIECES
vec4 weights(Piece w, uint g, uint j) {
    const vec4 x = PIECE_OFFSET != 0.0 ? quad(w, g, j) + PIECE_OFFSET : quad(w, g, j);
#ifdef HAS_MINIMUM
    return x * (of_piece(w).x * factor(w, g)) + of_piece(w).y * minimum(w, g);
#else
    return x * (of_piece(w).x * factor(w, g));
#endif
}
#endif

#ifndef HAS_QUAD_AT
uint quad_at(uint i, uint g, uint j) {
    return PIECE * i + 4 * j;
}
#endif

#endif
