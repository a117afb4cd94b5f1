// Types with blocks of 64 and 128 weights: Q1_0, Q2_0, NVFP4. See weights.glsl.
#ifndef WEIGHTS_64_GLSL
#define WEIGHTS_64_GLSL

#if defined(A_NVFP4)

#ifdef SMALL_PIECES
#define PIECE 8
#else
#define PIECE 16
#endif

// Eight bytes of nibbles: those of 8 adjacent elements, then of the next 8.
struct Piece {
    uvec2 q;
    float scale;
#ifdef SMALL_PIECES
    uint upper;
#endif
};

// A block of 9 words: four scales of 16 weights, unsigned E4M3 numbers, then their nibbles.
Piece load_piece(uint row, uint i) {
    const uint block = (row + i / (64 / PIECE)) * 9;
    const uint part = i % (64 / PIECE) / (16 / PIECE);
    const uint at = block + 1 + 2 * part;
    // Converted as F16, whose exponent bias is greater by eight; halved, because the table's values are doubled. The largest
    // encoding is no number.
    const uint e = bitfieldExtract(words[block], int(8 * part), 7);
    const float scale = e == 127 ? 0.0 : unpackHalf2x16(e << 7).x * 128.0;
#ifdef SMALL_PIECES
    return Piece(uvec2(words[at], words[at + 1]), scale, i % 2);
#else
    return Piece(uvec2(words[at], words[at + 1]), scale);
#endif
}

uint bytes(Piece w, uint g, uint j) {
#ifdef SMALL_PIECES
    return half_bytes(w.q[j], w.upper);
#else
    return half_bytes(w.q[j % 2], j / 2);
#endif
}

#else

// Bits of a weight; a weight has an offset of one (Q1_0: twice the bit minus one).
#ifdef A_Q1_0
#define BITS 1
#else
#define BITS 2
#endif

#define PIECE_OFFSET -1.0

#ifdef SMALL_PIECES
#define PIECE 8
#define PIECE_HALVES 1
#else
#define PIECE 32
#define PIECE_HALVES (2 * BITS)
#endif
#define PIECES_OF_BLOCK (A_BLOCK / PIECE)

struct Piece {
    uint q[(PIECE_HALVES + 1) / 2];
    float scale;
};

// A block of 9 half-words: scale, then the bits of the elements in order.
Piece load_piece(uint row, uint i) {
    const uint block = (row + i / PIECES_OF_BLOCK) * 9;
    const uint first = i % PIECES_OF_BLOCK * (PIECE * BITS);
    Piece w;
    [[unroll]] for (uint j = 0; j < PIECE_HALVES; j += 2) {
        const uint at = block + 1 + first / 16 + j;
        w.q[j / 2] = PIECE_HALVES == 1 ? uint(halves[at]) >> first % 16 : uint(halves[at]) | uint(halves[at + 1]) << 16;
    }
    w.scale = float(scales[block]);
    return w;
}

uint bytes(Piece w, uint g, uint j) {
    const uint bits = w.q[j * BITS / 8] >> j * BITS % 8 * 4;
#ifdef A_Q1_0
    return ((bits & 15) * 0x00204081u & 0x01010101u) << 1;
#else
    const uint pairs = (bits & 255 | (bits & 255) << 12) & 0x000f000fu;
    return (pairs | pairs << 6) & 0x03030303u;
#endif
}

#endif

float factor(Piece w, uint g) {
    return w.scale;
}

#endif
