// Operand a of a matrix product: weights of any type, read in pieces of eight.
//
// Defines the buffer at binding 0 and
//
//     Piece        eight weights as two runs of four neighbours, each with its factor
//     load_piece   piece i of the row that begins at block (element for plain types) `row`
//     run_0/run_1  where in the row the two runs of piece i begin
//     load_one     one weight, for the end of a row that is no multiple of eight (plain types only)
//
// Nibbles and six-bit numbers are given as they are, not negative; PIECE_OFFSET, what has to be added, costs nothing
// when a product adds it to the sum of the other operand. TWO_SCALES: the factors of the runs differ.
//
// Q4_0 keeps elements j and j + 16 of a block in one byte, so the runs of a piece are 16 apart there: a piece is four
// bytes, four invocations read one block, and their two runs of activations are 64 bytes without gaps each. Q6_K keeps
// four elements, 32 apart, in bits of the same bytes; a piece takes those 64 apart, or with RUNS_ADJACENT (for tiles, in
// which runs must be close) eight neighbours.
//
// Blocks of Q8_0 (34 bytes), Q4_0 (18) and Q6_K (210) begin at odd multiples of two bytes half of the time. They are
// read as aligned words that cover the piece and are shifted by 16 bits where needed. No word lies beyond the block but
// for the last two bytes of a window of odd length, which the host rounds up.
#ifndef WEIGHTS_GLSL
#define WEIGHTS_GLSL

#extension GL_EXT_shader_16bit_storage : require

struct Piece {
    vec4 lo;
    vec4 hi;
    float scale;
#ifdef A_Q6_K
    float scale_hi;
#endif
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

#else

layout(set = 0, binding = 0, std430) readonly buffer Scales { float16_t scales[]; };
layout(set = 0, binding = 0, std430) readonly buffer Words { uint words[]; };

// Bytes of a word as numbers.
vec4 from_bytes(uint w) {
    return vec4(w & 255u, w >> 8 & 255u, w >> 16 & 255u, w >> 24);
}

vec4 from_signed_bytes(uint w) {
    const int v = int(w);
    return vec4(bitfieldExtract(v, 0, 8), bitfieldExtract(v, 8, 8), bitfieldExtract(v, 16, 8), bitfieldExtract(v, 24, 8));
}

// A word that begins at the upper half of `lower` if shifted, else `upper` itself.
uint shifted_word(bool shifted, uint lower, uint upper) {
    return shifted ? lower >> 16 | upper << 16 : upper;
}

#if defined(A_Q8_0)

Piece load_piece(uint row, uint i) {
    // Counted in half-words: a block has 17, the first of which is the scale. The words begin with the half-word before
    // the piece, or the two before it.
    const uint block = (row * 17) + ((i / 4 << 4) + i / 4);
    const uint before = block + i % 4 * 4;
    const uint at = before / 2;
    const bool shifted = (before & 1) == 0;
    const uint w0 = words[at], w1 = words[at + 1], w2 = words[at + 2];
    return Piece(
        from_signed_bytes(shifted_word(shifted, w0, w1)),
        from_signed_bytes(shifted_word(shifted, w1, w2)),
        float(scales[block]));
}

#elif defined(A_Q4_0)

#define PIECE_OFFSET -8.0

Piece load_piece(uint row, uint i) {
    // As for Q8_0; a block has nine half-words, a piece two.
    const uint block = (row * 9) + ((i / 4 << 3) + i / 4);
    const uint before = block + i % 4 * 2;
    const uint at = before / 2;
    const uint w = shifted_word((before & 1) == 0, words[at], words[at + 1]);
    return Piece(from_bytes(w & 0x0f0f0f0fu), from_bytes(w >> 4 & 0x0f0f0f0fu), float(scales[block]));
}

#elif defined(A_Q6_K)

layout(set = 0, binding = 0, std430) readonly buffer Halves { uint16_t halves[]; };

#define PIECE_OFFSET -32.0
#ifndef RUNS_ADJACENT
#define TWO_SCALES
#endif

// The word that begins at a half-word; the next word must lie in the block too.
uint word_at(uint half_word) {
    const uint w0 = words[half_word / 2], w1 = words[half_word / 2 + 1];
    return (half_word & 1) == 0 ? w0 : w0 >> 16 | w1 << 16;
}

// A signed byte, counted from a half-word.
float scale_at(uint half_word, uint byte) {
    return float(bitfieldExtract(int(uint(halves[half_word + byte / 2])), int(byte % 2) * 8, 8));
}

// A block: 64 half-words of lower nibbles, 32 of upper pairs of bits, 8 of scales, and the factor of all.
Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 32) * 105;
    const float d = float(scales[block + 104]);
    const uint n = i % 32 / 16;
#ifdef RUNS_ADJACENT
    // Eight neighbours: sub-block j of 32 elements, elements l to l + 7.
    const uint j = i % 16 / 4, l = i % 4 * 8;
    const uint low = block + n * 32 + j % 2 * 16 + l / 2;
    const uint high = block + 64 + n * 16 + l / 2;
    const uint shift = j / 2 * 4, pairs = j * 2;
    const uint lo = word_at(low) >> shift & 0x0f0f0f0fu | (word_at(high) >> pairs & 0x03030303u) << 4;
    const uint hi = word_at(low + 2) >> shift & 0x0f0f0f0fu | (word_at(high + 2) >> pairs & 0x03030303u) << 4;
    return Piece(from_bytes(lo), from_bytes(hi), d * scale_at(block + 96, 8 * n + 2 * j + l / 16), 0.0);
#else
    // Elements l to l + 3 of sub-blocks j and j + 2.
    const uint j = i % 16 / 8, l = i % 8 * 4;
    const uint low = word_at(block + n * 32 + j * 16 + l / 2);
    const uint high = word_at(block + 64 + n * 16 + l / 2) >> 2 * j;
    const uint lo = low & 0x0f0f0f0fu | (high & 0x03030303u) << 4;
    const uint hi = low >> 4 & 0x0f0f0f0fu | high & 0x30303030u;
    const uint scale = 8 * n + 2 * j + l / 16;
    return Piece(
        from_bytes(lo), from_bytes(hi), d * scale_at(block + 96, scale), d * scale_at(block + 96, scale + 4));
#endif
}

#endif
#endif

#if defined(A_Q8_0) || defined(A_Q4_0)
#define A_BLOCK 32
#elif defined(A_Q6_K)
#define A_BLOCK 256
#else
#define A_BLOCK 1
#endif

#ifndef PIECE_OFFSET
#define PIECE_OFFSET 0.0
#endif

uint run_0(uint i) {
#if defined(A_Q4_0)
    return i / 4 * 32 + i % 4 * 4;
#elif defined(A_Q6_K) && !defined(RUNS_ADJACENT)
    return i / 16 * 128 + i % 16 * 4;
#else
    return 8 * i;
#endif
}

uint run_1(uint i) {
#if defined(A_Q4_0)
    return run_0(i) + 16;
#elif defined(A_Q6_K) && !defined(RUNS_ADJACENT)
    return run_0(i) + 64;
#else
    return 8 * i + 4;
#endif
}

#endif
