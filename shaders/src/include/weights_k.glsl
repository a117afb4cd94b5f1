// Types with blocks of 256 weights. See weights.glsl.
//
// Adjacent invocations take adjacent quants. A large piece uses all bits of the bytes that it loads, so its groups of quads are
// elements 32 apart that share these bytes, each with factors of its own; the words of factors are unpacked once for the 32
// weights of the piece. A small piece has eight adjacent elements.
//
// Q4_K (144 bytes) and Q5_K (176) are read 16 bytes at a time, IQ4_XS (136) 8 bytes, Q2_K (84) by words. Blocks of Q3_K (110),
// Q6_K (210), TQ1_0 (54) and TQ2_0 (66) start at odd multiples of two bytes half of the time: aligned words that cover the
// piece are shifted by 16 bits if necessary. No word is after the end of the block, except for the last two bytes of a window
// of odd length, which the host rounds up.
#ifndef WEIGHTS_K_GLSL
#define WEIGHTS_K_GLSL

#if defined(A_Q2_K) || defined(A_Q4_K) || defined(A_Q5_K)
#define HAS_MINIMUM
#endif

// A step of tiles of bytes has sub-blocks of 32: their pieces are as stored (weights_sub_block.glsl).
#if defined(TILE_INT8) && (defined(A_Q4_K) || defined(A_Q5_K))
#define SUB_BLOCKS
#define HAS_PIECE_OF_STEP
#endif

#if defined(A_Q3_K) || defined(A_Q6_K) || defined(A_TQ1_0) || defined(A_TQ2_0)

// Two words from a half-word on.
uvec2 two_words_at(uint half_word) {
    const uint at = half_word / 2;
    const uint w0 = words[at], w1 = words[at + 1], w2 = words[at + 2];
    return (half_word & 1) == 0 ? uvec2(w0, w1) : uvec2(w0 >> 16 | w1 << 16, w1 >> 16 | w2 << 16);
}

#endif

// A word shifted by `to` bits upwards and `from` bits downwards at once.
uint up(uint w, uint to, uint from) {
    return to < from ? w >> from - to : w << to - from;
}

float byte_of(uint w, uint i) {
    return float(bitfieldExtract(w, int(8 * i), 8));
}

float signed_byte_of(uint w, uint i) {
    return float(bitfieldExtract(int(w), int(8 * i), 8));
}

#if (defined(A_Q4_K) || defined(A_Q5_K)) && !defined(SUB_BLOCKS)

// Factors and minima of sub-blocks 2 g and 2 g + 1, six bits each, as bytes 0 and 1, 2 and 3. `all` has 12 bytes. For
// sub-blocks 0 to 3 the factors are the lower six bits of bytes 0 to 3, the minima those of bytes 4 to 7. For sub-blocks 4 to 7
// the lower four bits are the nibbles of bytes 8 to 11, the upper two the remaining bits of bytes 0 to 7.
uint six_bits(uvec3 all, uint g) {
    const uvec3 w = bitfieldExtract(all, int(g % 2 * 16), 16);
    const uint both = w.x | w.y << 16;
    // Values that depend only on g are the same for all rows.
    const bool first = g < 2;
    return both >> (first ? 0 : 2) & (first ? 0x3f3f3f3fu : 0x30303030u) | (w.z | w.z << 12) & (first ? 0 : 0x0f0f0f0fu);
}

#endif

#if defined(A_TQ1_0)

// Blocks of 27 half-words: 48 bytes of five base-3 digits, four bytes of four digits, factor. A byte is 256 times the fraction
// that its digits represent, rounded up: multiplied by 3^n, its fractional part begins with digit n. Digits n of the first 32
// bytes are weights from 32 n on, those of the next 16 bytes from 160 + 16 n on, of the last four from 240 + 4 n on. All pieces
// have eight weights.
#include "weights_piece.glsl"

#define PIECE_OFFSET -1.0

// Digits n of four bytes.
uint digits(uint q, uint n) {
    const uint power = n < 4 ? 0x1b090301u >> 8 * n & 255 : 81;
    const uint even = (q & 0x00ff00ffu) * power & 0x00ff00ffu;
    const uint odd = (q >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
    return even * 3 >> 8 & 0x00030003u | odd * 3 & 0x03000300u;
}

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 32) * 27;
    const uint p = i % 32;
    const bool last = p >= 30;
    // With the two half-words before the last four bytes, nothing after the block is read.
    const uvec2 loaded = two_words_at(block + (p < 20 ? p % 4 * 4 : last ? 22 : 16 + p % 2 * 4));
    const uvec2 q = last ? loaded.yy : loaded;
    const uint n = p < 20 ? p / 4 : last ? p % 2 * 2 : p / 2 - 10;
    return Piece(uvec2(digits(q.x, n), digits(q.y, last ? n + 1 : n)), float(scales[block + 26]));
}

#elif defined(SMALL_PIECES)

#ifdef SUB_BLOCKS
#include "weights_sub_block.glsl"
#else
#include "weights_piece.glsl"
#endif

#if defined(A_TQ2_0)

#define PIECE_OFFSET -1.0

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 32) * 33;
    const uint n = i % 32 / 16, j = i % 16 / 4, l = i % 4 * 8;
    return Piece(two_words_at(block + n * 16 + l / 2) >> 2 * j & 0x03030303u, float(scales[block + 32]));
}

#elif defined(A_Q2_K)

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 32) * 21;
    const uint n = i % 32 / 16, j = i % 16 / 4, l = i % 4 * 8;
    const uint at = block + 4 + n * 8 + l / 4;
    const uvec2 q = uvec2(words[at], words[at + 1]) >> 2 * j & 0x03030303u;
    const uint scale = words[block + 2 * n + j / 2] >> j % 2 * 16 + l / 16 * 8;
    const vec2 d = unpackHalf2x16(words[block + 20]);
    return Piece(q, d.x * float(scale & 15u), -d.y * float(scale >> 4 & 15u));
}

#elif defined(A_Q3_K)

#define PIECE_OFFSET -4.0

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 32) * 55;
    const uint n = i % 32 / 16, j = i % 16 / 4, l = i % 4 * 8;
    const uvec2 low = two_words_at(block + 16 + n * 16 + l / 2) >> 2 * j & 0x03030303u;
    const uvec2 high = two_words_at(block + l / 2) >> 4 * n + j & 0x01010101u;
    // The lower four bits of scale s are nibble s / 8 of byte s % 8, the upper two pair s / 4 of byte 8 + s % 4.
    const uint s = 2 * j + l / 16;
    const uint nibble = uint(halves[block + 48 + s / 2]) >> s % 2 * 8 + 4 * n & 15u;
    const uint pair = uint(halves[block + 52 + s % 4 / 2]) >> s % 2 * 8 + 4 * n + s / 4 * 2 & 3u;
    return Piece(low | high << 2, float(scales[block + 54]) * (float(nibble | pair << 4) - 32.0));
}

#elif defined(SUB_BLOCKS)

Piece load_piece(uint row, uint first, uint j) {
    // Sums of values that are the same in all steps with values that are the same for all rows.
    const uint block = first / 32;
    const uint group = first / 8 % 4 * 4;
    sub_block = first / 4 % 8;
    Piece w;
#ifdef A_Q4_K
    w.header = words4[row * 9 + block * 9];
    w.q = words2[row * 18 + j + (block * 18 + 2 + group)];
#else
    w.header = words4[row * 11 + block * 11];
    w.q = words2[row * 22 + j + (block * 22 + 6 + group)];
    w.fifth = words2[row * 22 + j + (block * 22 + 2)];
#endif
    return w;
}

#elif defined(A_Q4_K)

Piece load_piece(uint row, uint i) {
    const uint block = row + i / 32;
    const uint g = i % 32 / 8, h = i % 8 / 4;
    const uvec4 header = words4[block * 9];
    const uint s = six_bits(header.yzw, g) >> 8 * h;
    const vec2 d = unpackHalf2x16(header.x);
    const uvec2 q = words2[block * 18 + 2 + g * 4 + i % 4] >> 4 * h & 0x0f0f0f0fu;
    return Piece(q, d.x * byte_of(s, 0), -d.y * byte_of(s, 2));
}

#elif defined(A_Q5_K)

Piece load_piece(uint row, uint i) {
    const uint block = row + i / 32;
    const uint g = i % 32 / 8, h = i % 8 / 4;
    const uvec4 header = words4[block * 11];
    const uint s = six_bits(header.yzw, g) >> 8 * h;
    const vec2 d = unpackHalf2x16(header.x);
    const uvec2 low = words2[block * 22 + 6 + g * 4 + i % 4] >> 4 * h & 0x0f0f0f0fu;
    const uvec2 high = words2[block * 22 + 2 + i % 4] >> 2 * g + h & 0x01010101u;
    return Piece(low | high << 4, d.x * byte_of(s, 0), -d.y * byte_of(s, 2));
}

#elif defined(A_Q6_K)

#define PIECE_OFFSET -32.0

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 32) * 105;
    const uint n = i % 32 / 16, j = i % 16 / 4, l = i % 4 * 8;
    const uvec2 low = two_words_at(block + n * 32 + j % 2 * 16 + l / 2) >> j / 2 * 4 & 0x0f0f0f0fu;
    const uvec2 high = two_words_at(block + 64 + n * 16 + l / 2) >> j * 2 & 0x03030303u;
    const uint s = uint(halves[block + 96 + 4 * n + j]);
    return Piece(low | high << 4, float(scales[block + 104]) * signed_byte_of(s, l / 16));
}

#elif defined(A_IQ4_XS)

#define HAS_QUAD_AT

// As for the blocks of 32.
uint quad_at(uint i, uint g, uint j) {
    return i / 4 * 32 + i % 4 * 4 + 16 * j;
}

Piece load_piece(uint row, uint i) {
    const uint block = row + i / 32;
    const uint s = i % 32 / 4;
    const uvec2 header = words2[block * 17];
    const uint q = words[block * 34 + 2 + i % 32];
    const uint scale = header.y >> 4 * s & 15u | (header.x >> 16 + 2 * s & 3u) << 4;
    return Piece(uvec2(q, q >> 4), unpackHalf2x16(header.x).x * (float(scale) - 32.0));
}

#endif

#else

#define HAS_QUAD_AT

#if !defined(A_IQ4_XS) && !defined(A_TQ2_0)
#define HAS_OF_PIECE
#endif

#if defined(STAGED) && (defined(A_Q4_K) || defined(A_Q5_K))

#include "weights_k_staged.glsl"

#elif defined(A_Q4_K)

// 16 bytes of nibbles: 16 adjacent elements of sub-block 2 g, then those of sub-block 2 g + 1.
#define PIECE 32
#define GROUPS 2

struct Piece {
    uvec4 q;
    uint scale;
    vec2 d;
};

Piece load_piece(uint row, uint i) {
    // Nine times the block, as a sum: see of_blocks in weights_32.glsl.
    const uint block = (i / 8 << 3) + i / 8;
    const uvec4 header = words4[ROW_FOURS(row, 9) + block];
    const uvec4 q = words4[ROW_FOURS(row, 9) + (block + 1 + i % 8)];
    return Piece(q, six_bits(header.yzw, i % 8 / 2), unpackHalf2x16(header.x));
}

uint bytes(Piece w, uint g, uint j) {
    return half_bytes(w.q[j], g);
}

#elif defined(A_Q5_K)

// 16 bytes of nibbles and of fifth bits, shifted so that those of sub-block 2 g are the lowest.
#define PIECE 32
#define GROUPS 2

struct Piece {
    uvec4 q;
    uvec4 fifth;
    uint scale;
    vec2 d;
};

Piece load_piece(uint row, uint i) {
    const uint block = (i / 8 << 3) + i / 8 * 3;
    const uint g = i % 8 / 2;
    const uvec4 header = words4[ROW_FOURS(row, 11) + block];
    const uvec4 fifth = words4[ROW_FOURS(row, 11) + (block + 1 + i % 2)] >> 2 * g;
    const uvec4 q = words4[ROW_FOURS(row, 11) + (block + 3 + i % 8)];
    return Piece(q, fifth, six_bits(header.yzw, g), unpackHalf2x16(header.x));
}

uint bytes(Piece w, uint g, uint j) {
    return half_bytes(w.q[j], g) | up(w.fifth[j], 4, g) & 0x10101010u;
}

#elif defined(A_Q2_K) || defined(A_Q3_K) || defined(A_Q6_K) || defined(A_TQ2_0)

// Four groups of eight adjacent elements, of 16 if staged, 32 apart: n is the half of the block, l the first of the adjacent
// elements.
#ifdef STAGED
#define PIECE 64
#else
#define PIECE 32
#endif
#define GROUPS 4

uint quad_at(uint i, uint g, uint j) {
    return PIECE == 64 ? i / 2 * 128 + i % 2 * 16 + 32 * g + 4 * j : i / 4 * 128 + i % 4 * 8 + 32 * g + 4 * j;
}

#if defined(A_TQ2_0)

#define PIECE_OFFSET -1.0

struct Piece {
    uvec2 q;
    float d;
};

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 8) * 33;
    const uint n = i % 8 / 4, l = i % 4 * 8;
    return Piece(two_words_at(block + n * 16 + l / 2), float(scales[block + 32]));
}

uint bytes(Piece w, uint g, uint j) {
    return w.q[j] >> 2 * g & 0x03030303u;
}

float factor(Piece w, uint g) {
    return w.d;
}

#elif defined(A_Q2_K)

// For each group a byte of scales: factor and minimum, nibbles.
struct Piece {
    uvec2 q;
    uint scale;
    vec2 d;
};

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 8) * 21;
    const uint n = i % 8 / 4, l = i % 4 * 8;
    const uint at = block + 4 + n * 8 + l / 4;
    const uvec2 s = uvec2(words[block + 2 * n], words[block + 2 * n + 1]) >> l / 16 * 8 & 0x00ff00ffu;
    return Piece(uvec2(words[at], words[at + 1]), s.x | s.y << 8, unpackHalf2x16(words[block + 20]));
}

uint bytes(Piece w, uint g, uint j) {
    return w.q[j] >> 2 * g & 0x03030303u;
}

// Groups 0 and 1 are bytes 0 and 2, groups 2 and 3 bytes 1 and 3.
float factor(Piece w, uint g) {
    return float(bitfieldExtract(w.scale, int(g % 2 * 16 + g / 2 * 8), 4));
}

float minimum(Piece w, uint g) {
    return float(bitfieldExtract(w.scale, int(g % 2 * 16 + g / 2 * 8 + 4), 4));
}

vec2 of_piece(Piece w) {
    return vec2(w.d.x, -w.d.y);
}

#elif defined(A_Q3_K)

#define PIECE_OFFSET -4.0

// Pairs of bits, third bits in bits 0 to 3 of each byte, six-bit scales in bytes.
struct Piece {
    uvec2 q;
    uvec2 high;
    uint scale;
    float d;
};

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 8) * 55;
    const uint n = i % 8 / 4, l = i % 4 * 8;
    // Six half-words of scales, and the factor of all.
    const uint at = (block + 48) / 2;
    const uint w0 = words[at], w1 = words[at + 1], w2 = words[at + 2], w3 = words[at + 3];
    const bool odd = (block & 1) != 0;
    const uvec3 s = odd ? uvec3(w0 >> 16 | w1 << 16, w1 >> 16 | w2 << 16, w2 >> 16 | w3 << 16) : uvec3(w0, w1, w2);
    const float d = unpackHalf2x16(odd ? w3 >> 16 : w3).x;
    // Groups 0 and 1 use bytes l / 16 and 2 + l / 16 of the first word, groups 2 and 3 those of the second, and all use pairs
    // of bits from those of the third.
    const uvec3 t = s >> l / 16 * 8 + 4 * n;
    const uint first = t.x & 0x000f000fu | (t.z & 0x00030003u) << 4;
    const uint second = t.y & 0x000f000fu | (t.z & 0x000c000cu) << 2;
    return Piece(
        two_words_at(block + 16 + n * 16 + l / 2), two_words_at(block + l / 2) >> 4 * n, first | second << 8, d);
}

uint bytes(Piece w, uint g, uint j) {
    return w.q[j] >> 2 * g & 0x03030303u | up(w.high[j], 2, g) & 0x04040404u;
}

// Groups 0 and 1 are bytes 0 and 2, groups 2 and 3 bytes 1 and 3.
float factor(Piece w, uint g) {
    return byte_of(w.scale, g % 2 * 2 + g / 2) - 32.0;
}

vec2 of_piece(Piece w) {
    return vec2(w.d, 0.0);
}

#else

#define PIECE_OFFSET -32.0

#ifdef STAGED

// Words that cover 16 adjacent elements of all groups: nibbles of groups 0 and 2, of groups 1 and 3, upper pairs of bits,
// scales of the half of the block. All start at an upper half-word if `shifted`.
struct Piece {
    uint even[5];
    uint odd[5];
    uint high[5];
    uint scale[3];
    bool shifted;
    uint second;
    float d;
};

Piece load_piece(uint row, uint i) {
    const uint block = i / 4 * 105;
    const uint n = i % 4 / 2, l = i % 2 * 16;
    const HalfWord low = halves_at(ROW_HALVES(row, 105), block + n * 32 + l / 2);
    const HalfWord high = halves_at(ROW_HALVES(row, 105), block + 64 + n * 16 + l / 2);
    const HalfWord scale = halves_at(ROW_HALVES(row, 105), block + 96 + 4 * n);
    Piece w;
    [[unroll]] for (uint j = 0; j < 5; j++) {
        w.even[j] = words[low.word + j];
        w.odd[j] = words[low.word + 8 + j];
        w.high[j] = words[high.word + j];
    }
    [[unroll]] for (uint j = 0; j < 3; j++) {
        w.scale[j] = words[scale.word + j];
    }
    w.shifted = low.odd;
    w.second = l / 16;
    w.d = float(scales[ROW_HALVES(row, 105) + block + 104]);
    return w;
}

#else

// Words that cover nibbles of groups 0 and 2, of groups 1 and 3, upper pairs of bits of all, scales of the half of the block;
// all start at an upper half-word if `odd`.
struct Piece {
    uint even[3];
    uint odd[3];
    uint high[3];
    uint scale[3];
    bool shifted;
    uint second;
    float d;
};

// A block: 64 half-words of lower nibbles, 32 of upper pairs of bits, 8 of scales, and the factor of all.
Piece load_piece(uint row, uint i) {
    // 105 times the block, as a sum: see of_blocks in weights_32.glsl.
    const uint block = (i / 8 << 6) + i / 8 * 41;
    const uint n = i % 8 / 4, l = i % 4 * 8;
    const HalfWord low = halves_at(ROW_HALVES(row, 105), block + n * 32 + l / 2);
    const HalfWord high = halves_at(ROW_HALVES(row, 105), block + 64 + n * 16 + l / 2);
    const HalfWord scale = halves_at(ROW_HALVES(row, 105), block + 96 + 4 * n);
    Piece w;
    [[unroll]] for (uint j = 0; j < 3; j++) {
        w.even[j] = words[low.word + j];
        w.odd[j] = words[low.word + 8 + j];
        w.high[j] = words[high.word + j];
        w.scale[j] = words[scale.word + j];
    }
    w.shifted = low.odd;
    w.second = l / 16;
    w.d = float(scales[ROW_HALVES(row, 105) + block + 104]);
    return w;
}

#endif

uint covered(Piece w, uint first, uint second) {
    return w.shifted ? first >> 16 | second << 16 : first;
}

uint bytes(Piece w, uint g, uint j) {
    const uint low = g % 2 == 0 ? covered(w, w.even[j], w.even[j + 1]) : covered(w, w.odd[j], w.odd[j + 1]);
    return half_bytes(low, g / 2) | up(covered(w, w.high[j], w.high[j + 1]), 4, 2 * g) & 0x30303030u;
}

// Signed bytes, two for each group; the second is that of the upper 16 of 32 weights.
float factor(Piece w, uint g) {
    return signed_byte_of(covered(w, w.scale[g / 2], w.scale[g / 2 + 1]) >> 8 * w.second, g % 2 * 2);
}

vec2 of_piece(Piece w) {
    return vec2(w.d, 0.0);
}

#endif

#elif defined(A_IQ4_XS)

// A sub-block: 16 bytes of nibbles, the lower ones first. Both groups have the same factor.
#define PIECE 32
#define GROUPS 2

struct Piece {
    uvec2 q0;
    uvec2 q1;
    float scale;
};

Piece load_piece(uint row, uint i) {
    const uint block = (row + i / 8) * 17;
    const uint s = i % 8;
    const uvec2 header = words2[block];
    const uint at = block + 1 + 2 * s;
    const uint scale = header.y >> 4 * s & 15u | (header.x >> 16 + 2 * s & 3u) << 4;
    return Piece(words2[at], words2[at + 1], unpackHalf2x16(header.x).x * (float(scale) - 32.0));
}

uint bytes(Piece w, uint g, uint j) {
    return half_bytes(j < 2 ? w.q0[j % 2] : w.q1[j % 2], g);
}

uint quad_at(uint i, uint g, uint j) {
    return 32 * i + 16 * g + 4 * j;
}

float factor(Piece w, uint g) {
    return w.scale;
}

#endif

#if defined(A_Q4_K) || defined(A_Q5_K)

uint quad_at(uint i, uint g, uint j) {
    return PIECE == 64 ? i * 64 + 32 * g + 4 * j : i / 2 * 64 + i % 2 * 16 + 32 * g + 4 * j;
}

float factor(Piece w, uint g) {
    return byte_of(w.scale, g);
}

float minimum(Piece w, uint g) {
    return byte_of(w.scale, 2 + g);
}

vec2 of_piece(Piece w) {
    return vec2(w.d.x, -w.d.y);
}

#endif

#endif

#endif
