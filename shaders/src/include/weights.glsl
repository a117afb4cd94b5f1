// Operand a of a matrix product: weights of any type, read in pieces of eight.
//
// Defines the buffer at binding 0 and
//
//     Piece        eight weights as two runs of four neighbours, and their common factor
//     load_piece   piece i of the row that begins at block (element for plain types) `row`
//     run_0/run_1  where in the row the two runs of piece i begin
//     load_one     one weight, for the end of a row that is no multiple of eight (plain types only)
//
// Q4_0 keeps elements j and j + 16 of a block in one byte, so the runs of a piece are 16 apart there: a piece is four
// bytes, four invocations read one block, and their two runs of activations are 64 bytes without gaps each.
// For Q4_0 the nibbles are given as they are; PIECE_OFFSET, what has to be added, costs nothing when a product adds it
// to the sum of the other operand.
//
// Blocks of Q8_0 (34 bytes) and Q4_0 (18) begin at odd multiples of two bytes half of the time. They are read as aligned
// words that cover the piece and are shifted by 16 bits where needed: the words begin at or before the scale, so none
// lies beyond the block but for the last two bytes of a window of odd length, which the host rounds up.
#ifndef WEIGHTS_GLSL
#define WEIGHTS_GLSL

#extension GL_EXT_shader_16bit_storage : require

struct Piece {
    vec4 lo;
    vec4 hi;
    float scale;
};

#if defined(A_F32)

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 0, std430) readonly buffer A4 { vec4 a4[]; };

Piece load_piece(uint row, uint i) {
    if (ALIGNED != 0) {
        const uint at = row / 4 + 2 * i;
        return Piece(a4[at], a4[at + 1], 1.0);
    }
    const uint at = row + 8 * i;
    return Piece(vec4(a[at], a[at + 1], a[at + 2], a[at + 3]), vec4(a[at + 4], a[at + 5], a[at + 6], a[at + 7]), 1.0);
}

float load_one(uint row, uint k) {
    return a[row + k];
}

#elif defined(A_F16)

layout(set = 0, binding = 0, std430) readonly buffer A { float16_t a[]; };
layout(set = 0, binding = 0, std430) readonly buffer A8 { uvec4 a8[]; };

Piece load_piece(uint row, uint i) {
    if (ALIGNED != 0) {
        const uvec4 w = a8[row / 8 + i];
        return Piece(vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)), vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w)), 1.0);
    }
    const uint at = row + 8 * i;
    return Piece(
        vec4(a[at], a[at + 1], a[at + 2], a[at + 3]), vec4(a[at + 4], a[at + 5], a[at + 6], a[at + 7]), 1.0);
}

float load_one(uint row, uint k) {
    return float(a[row + k]);
}

#elif defined(A_BF16)

layout(set = 0, binding = 0, std430) readonly buffer A { uint16_t a[]; };
layout(set = 0, binding = 0, std430) readonly buffer A8 { uvec4 a8[]; };

vec4 from_bf16(uint x, uint y) {
    return uintBitsToFloat(uvec4(x << 16, x & 0xffff0000u, y << 16, y & 0xffff0000u));
}

float load_one(uint row, uint k) {
    return uintBitsToFloat(uint(a[row + k]) << 16);
}

Piece load_piece(uint row, uint i) {
    if (ALIGNED != 0) {
        const uvec4 w = a8[row / 8 + i];
        return Piece(from_bf16(w.x, w.y), from_bf16(w.z, w.w), 1.0);
    }
    Piece p;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        p.lo[j] = load_one(row, 8 * i + j);
        p.hi[j] = load_one(row, 8 * i + 4 + j);
    }
    p.scale = 1.0;
    return p;
}

#elif defined(A_Q8_0)

layout(set = 0, binding = 0, std430) readonly buffer Scales { float16_t scales[]; };
layout(set = 0, binding = 0, std430) readonly buffer Words { uint words[]; };

vec4 from_bytes(uint w) {
    const int v = int(w);
    return vec4(bitfieldExtract(v, 0, 8), bitfieldExtract(v, 8, 8), bitfieldExtract(v, 16, 8), bitfieldExtract(v, 24, 8));
}

Piece load_piece(uint row, uint i) {
    const uint block = row + i / 4;
    // Half-words before the quants less one: the first word holds the two bytes before them, or the four.
    const uint half_word = block * 17 + i % 4 * 4;
    const uint at = half_word / 2;
    const bool odd = (half_word & 1) == 0;
    const uint w0 = words[at], w1 = words[at + 1], w2 = words[at + 2];
    const uint lo = odd ? w0 >> 16 | w1 << 16 : w1;
    const uint hi = odd ? w1 >> 16 | w2 << 16 : w2;
    return Piece(from_bytes(lo), from_bytes(hi), float(scales[block * 17]));
}

#elif defined(A_Q4_0)

layout(set = 0, binding = 0, std430) readonly buffer Scales { float16_t scales[]; };
layout(set = 0, binding = 0, std430) readonly buffer Words { uint words[]; };

#define PIECE_OFFSET -8.0

vec4 from_bytes(uint w) {
    return vec4(w & 255u, w >> 8 & 255u, w >> 16 & 255u, w >> 24);
}

Piece load_piece(uint row, uint i) {
    const uint block = row + i / 4;
    const uint half_word = block * 9 + i % 4 * 2;
    const uint at = half_word / 2;
    const bool odd = (half_word & 1) == 0;
    const uint w0 = words[at], w1 = words[at + 1];
    const uint w = odd ? w0 >> 16 | w1 << 16 : w1;
    return Piece(from_bytes(w & 0x0f0f0f0fu), from_bytes(w >> 4 & 0x0f0f0f0fu), float(scales[block * 9]));
}

#endif

#if defined(A_Q8_0) || defined(A_Q4_0)
#define A_BLOCK 32
#else
#define A_BLOCK 1
#endif

#ifndef PIECE_OFFSET
#define PIECE_OFFSET 0.0
#endif

uint run_0(uint i) {
#if defined(A_Q4_0)
    return i / 4 * 32 + i % 4 * 4;
#else
    return 8 * i;
#endif
}

uint run_1(uint i) {
#if defined(A_Q4_0)
    return i / 4 * 32 + i % 4 * 4 + 16;
#else
    return 8 * i + 4;
#endif
}

#endif
