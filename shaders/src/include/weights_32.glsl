// Types with blocks of 32 weights. See weights.glsl.
//
// A piece is 16 weights, 8 with SMALL_PIECES, or a block if it is read from shared memory. Types of 4 and 5 bits keep elements
// l and l + 16 of a block in one byte, so half of a piece's quads are 16 elements after the others: two invocations (four) read
// one block, and each half of the corresponding elements of the other operand is contiguous.
//
// Blocks of Q8_0 (34 bytes), Q4_0 and IQ4_NL (18), and Q5_0 (22) start at odd multiples of two bytes half of the time, those of
// MXFP4 (17) anywhere. They are read as aligned words that cover the piece, and are shifted when they are unpacked. No word is
// after the end of the block, except for the last bytes of a window, which the host rounds up to whole words.
#ifndef WEIGHTS_32_GLSL
#define WEIGHTS_32_GLSL

#ifdef SMALL_PIECES
#define PIECE 8
#elif defined(STAGED)
#define PIECE 32
#else
#define PIECE 16
#endif

#if defined(A_Q4_1) || defined(A_Q5_1)
#define HAS_MINIMUM
#endif

// Words of a piece, and pieces of a block.
#ifdef A_Q8_0
#define PIECE_WORDS (PIECE / 4)
#else
#define PIECE_WORDS (PIECE / 8)
#endif
#define PIECES_OF_BLOCK (32 / PIECE)

// A type has those of these fields that it needs.
struct Piece {
    // The words that cover the piece.
    uint q[PIECE_WORDS + 1];
    // Start of the piece in them, in bits.
    uint shift;
    // Fifth bits, that of the first weight in the lowest bit.
    uint fifth;
    float scale;
    float low;
    // For types with a minimum: factor and minimum in F16.
    uint head;
};

// The word that starts `shift` bits, 0 to 31, after the start of the first of two words. Mesa's compiler recognises this form
// as one instruction.
uint shifted_together(uint first, uint second, uint shift) {
    return shift == 0 ? first : first >> shift | second << (32 - shift);
}

#if defined(A_Q8_0) || defined(A_Q4_0) || defined(A_IQ4_NL) || defined(A_Q5_0)

// Words that start with the piece, shifted in pairs, with an index of their own: worthwhile for pieces with this many words.
// Not for tiles: with it an H200 computes prompts at a third of the speed.
#if defined(A_Q8_0) && !defined(SMALL_PIECES)
#define SHIFTED_TOGETHER
#endif

// Half-words of a block, and half-words before its weights.
#if defined(A_Q8_0)
#define BLOCK_HALVES 17
#define HEAD_HALVES 0
#elif defined(A_Q5_0)
#define BLOCK_HALVES 11
#define HEAD_HALVES 2
#else
#define BLOCK_HALVES 9
#define HEAD_HALVES 0
#endif

// Tiles of bytes read the factor, the half-word before the block, with the first piece of the block, and unpack it with the
// piece; a conversion here would wait for the load.
#if defined(TILE_INT8) && HEAD_HALVES == 0
#define FACTOR_WITH_PIECE
#endif

// Half-words of this many blocks, as a sum: from products of a row and of a block with the same factor a compiler makes one
// product, which takes another multiplication for each row.
uint of_blocks(uint n) {
    return (n << (BLOCK_HALVES == 17 ? 4 : 3)) + n * (BLOCK_HALVES == 11 ? 3 : 1);
}

#if defined(A_Q4_0)
#define PIECE_OFFSET -8.0
#elif defined(A_Q5_0)
#define PIECE_OFFSET -16.0
#endif

Piece load_part(uint row, uint n, uint part) {
    // The words start with the half-word before the piece, or the two before it, or with the piece.
    const uint block = of_blocks(n);
    const HalfWord block_at = halves_at(ROW_HALVES(row, BLOCK_HALVES), block);
    const uint before = block + HEAD_HALVES + part * (2 * PIECE_WORDS);
    Piece w;
#ifdef SHIFTED_TOGETHER
    // If the piece has whole words, the last one is read again, because the next may be after the block.
    const HalfWord piece_at = halves_at(ROW_HALVES(row, BLOCK_HALVES), before + 1);
    [[unroll]] for (uint j = 0; j < PIECE_WORDS; j++) {
        w.q[j] = words[piece_at.word + j];
    }
    w.q[PIECE_WORDS] = words[piece_at.word + (piece_at.odd ? PIECE_WORDS : PIECE_WORDS - 1)];
    w.shift = piece_at.odd ? 16 : 0;
#else
    const HalfWord piece_at = halves_at(ROW_HALVES(row, BLOCK_HALVES), before);
    [[unroll]] for (uint j = 0; j <= PIECE_WORDS; j++) {
        w.q[j] = words[piece_at.word + j];
    }
    w.shift = piece_at.odd ? 0 : 16;
#endif
#ifdef A_Q5_0
    const uint lower = words[block_at.word], upper = words[block_at.word + 1];
    const uint bits = block_at.odd ? upper : lower >> 16 | upper << 16;
    w.fifth = bits >> part * (4 * PIECE_WORDS);
#endif
#ifndef FACTOR_WITH_PIECE
    w.scale = float(scales[ROW_HALVES(row, BLOCK_HALVES) + block]);
#endif
    return w;
}

uint stored(Piece w, uint j) {
#ifdef SHIFTED_TOGETHER
    return shifted_together(w.q[j], w.q[j + 1], w.shift);
#else
    return w.shift == 0 ? w.q[j + 1] : w.q[j] >> 16 | w.q[j + 1] << 16;
#endif
}

#elif defined(A_Q4_1) || defined(A_Q5_1)

// Words: factor and minimum, fifth bits, nibbles.
#ifdef A_Q4_1
#define HEAD_WORDS 1
#else
#define HEAD_WORDS 2
#endif

Piece load_part(uint row, uint n, uint part) {
    const uint block = ROW_WORDS(row, HEAD_WORDS + 4) + n * (HEAD_WORDS + 4);
    Piece w;
#ifdef TILE_INT8
    // As stored, because a conversion here would wait for the load.
    w.head = words[block];
#else
    const vec2 dm = unpackHalf2x16(words[block]);
    w.scale = dm.x;
    w.low = dm.y;
#endif
    [[unroll]] for (uint j = 0; j < PIECE_WORDS; j++) {
        w.q[j] = words[block + HEAD_WORDS + part * PIECE_WORDS + j];
    }
    w.fifth = words[block + HEAD_WORDS - 1] >> part * (4 * PIECE_WORDS);
    return w;
}

uint stored(Piece w, uint j) {
    return w.q[j];
}

float minimum(Piece w, uint g) {
#ifdef TILE_INT8
    return unpackHalf2x16(w.head).y;
#else
    return w.low;
#endif
}

#elif defined(A_MXFP4)

Piece load_part(uint row, uint n, uint part) {
    // A block has 17 bytes: exponent, nibbles.
    const uint block = (row + n) * 17;
    const uint first = block + 1 + part * (4 * PIECE_WORDS);
    Piece w;
    [[unroll]] for (uint j = 0; j < PIECE_WORDS; j++) {
        w.q[j] = words[first / 4 + j];
    }
    w.q[PIECE_WORDS] = words[(first + 4 * PIECE_WORDS - 1) / 4];
    w.shift = first % 4 * 8;
    // The power of two is halved, because the table's values are doubled.
    const uint e = words[block / 4] >> block % 4 * 8 & 255u;
    w.scale = uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    return w;
}

uint stored(Piece w, uint j) {
    return shifted_together(w.q[j], w.q[j + 1], w.shift);
}

#endif

// Piece `i` of a row, and piece j of the step that starts with piece `first`: steps of tiles of bytes are blocks, so the index
// of the block is the same for all rows.
#ifdef TILE_INT8
#define HAS_PIECE_OF_STEP
Piece load_piece(uint row, uint first, uint j) {
    return load_part(row, first / PIECES_OF_BLOCK, j);
}
#else
Piece load_piece(uint row, uint i) {
    return load_part(row, i / PIECES_OF_BLOCK, i % PIECES_OF_BLOCK);
}
#endif

float factor(Piece w, uint g) {
#if defined(FACTOR_WITH_PIECE)
    return unpackHalf2x16(w.shift == 0 ? w.q[0] >> 16 : w.q[0]).x;
#elif defined(TILE_INT8) && defined(HAS_MINIMUM)
    return unpackHalf2x16(w.head).x;
#else
    return w.scale;
#endif
}

#ifdef A_Q8_0

uint bytes(Piece w, uint g, uint j) {
    return stored(w, j);
}

#else

#define HAS_QUAD_AT

uint quad_at(uint i, uint g, uint j) {
    return i / PIECES_OF_BLOCK * 32 + i % PIECES_OF_BLOCK * (4 * PIECE_WORDS) + 16 * (j / PIECE_WORDS) + 4 * (j % PIECE_WORDS);
}

uint bytes(Piece w, uint g, uint j) {
    const uint q = half_bytes(stored(w, j % PIECE_WORDS), j / PIECE_WORDS);
#if defined(A_Q5_0) || defined(A_Q5_1)
    // Four adjacent bits, each as bit 4 of a byte.
    return q | ((w.fifth >> (16 * (j / PIECE_WORDS) + 4 * (j % PIECE_WORDS)) & 15u) * 0x00204081u & 0x01010101u) << 4;
#else
    return q;
#endif
}

#endif

#endif
