// Types with blocks of 32 weights. See weights.glsl.
//
// Types of 4 and 5 bits keep elements l and l + 16 of a block in one byte, so the quads of a piece are 16 apart there: a
// piece is four bytes, four invocations read one block, and their two quads of the other operand are 64 bytes without
// gaps each.
//
// Blocks of Q8_0 (34 bytes), Q4_0 and IQ4_NL (18), and Q5_0 (22) begin at odd multiples of two bytes half of the time,
// those of MXFP4 (17) anywhere. They are read as aligned words that cover the piece and are shifted where needed. No
// word lies beyond the block but for the last bytes of a window, which the host rounds up to whole words.
#ifndef WEIGHTS_32_GLSL
#define WEIGHTS_32_GLSL

#if defined(A_Q4_1) || defined(A_Q5_1)
#define HAS_MINIMUM
#endif

#include "weights_piece.glsl"

#ifndef A_Q8_0
#define QUADS_16_APART
#endif

// A word that begins at the upper half of `lower` if shifted, else `upper` itself.
uint shifted_word(bool shifted, uint lower, uint upper) {
    return shifted ? lower >> 16 | upper << 16 : upper;
}

// Both nibbles of each byte, as bytes.
uvec2 nibbles(uint w) {
    return uvec2(w, w >> 4) & 0x0f0f0f0fu;
}

// Bits 0 to 3 and 16 to 19 of a word, each as bit 4 of a byte.
uvec2 fifth_bits(uint w) {
    return ((uvec2(w, w >> 16) & 15u) * 0x00204081u & 0x01010101u) << 4;
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
    return Piece(uvec2(shifted_word(shifted, w0, w1), shifted_word(shifted, w1, w2)), float(scales[block]));
}

#elif defined(A_Q4_0) || defined(A_IQ4_NL)

#ifdef A_Q4_0
#define PIECE_OFFSET -8.0
#endif

Piece load_piece(uint row, uint i) {
    // As for Q8_0; a block has nine half-words, a piece two.
    const uint block = (row * 9) + ((i / 4 << 3) + i / 4);
    const uint before = block + i % 4 * 2;
    const uint at = before / 2;
    const uint w = shifted_word((before & 1) == 0, words[at], words[at + 1]);
    return Piece(nibbles(w), float(scales[block]));
}

#elif defined(A_Q4_1)

Piece load_piece(uint row, uint i) {
    // Words: factor and minimum, nibbles.
    const uint block = (row + i / 4) * 5;
    const vec2 dm = unpackHalf2x16(words[block]);
    return Piece(nibbles(words[block + 1 + i % 4]), dm.x, dm.y);
}

#elif defined(A_Q5_0)

#define PIECE_OFFSET -16.0

Piece load_piece(uint row, uint i) {
    // As for Q4_0; a block has eleven half-words: scale, fifth bits, nibbles.
    const uint block = (row + i / 4) * 11;
    const uint before = block + 2 + i % 4 * 2;
    const bool shifted = (block & 1) == 0;
    const uint w = shifted_word(shifted, words[before / 2], words[before / 2 + 1]);
    const uint bits = shifted_word(shifted, words[block / 2], words[block / 2 + 1]);
    return Piece(nibbles(w) | fifth_bits(bits >> i % 4 * 4), float(scales[block]));
}

#elif defined(A_Q5_1)

Piece load_piece(uint row, uint i) {
    // Words: factor and minimum, fifth bits, nibbles.
    const uint block = (row + i / 4) * 6;
    const vec2 dm = unpackHalf2x16(words[block]);
    return Piece(nibbles(words[block + 2 + i % 4]) | fifth_bits(words[block + 1] >> i % 4 * 4), dm.x, dm.y);
}

#elif defined(A_MXFP4)

Piece load_piece(uint row, uint i) {
    // A block has 17 bytes: exponent, nibbles.
    const uint block = (row + i / 4) * 17;
    const uint first = block + 1 + i % 4 * 4;
    const uint shift = first % 4 * 8;
    const uint w0 = words[first / 4];
    const uint w1 = words[(first + 3) / 4];
    const uint w = shift == 0 ? w0 : w0 >> shift | w1 << (32 - shift);
    // The power of two is halved, because the table's values are doubled.
    const uint e = words[block / 4] >> block % 4 * 8 & 255u;
    return Piece(nibbles(w), uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23));
}

#endif

#endif
