// Types whose weights are indices of grid points: eight weights for each index, for IQ3 four. Blocks of 256 in eight parts of
// 32. See weights.glsl.
//
// A part has indices, signs, and one or two scales. Where seven sign bits are stored, the eighth makes their number even. A
// piece is the data of a part; with SMALL_PIECES it is for eight of its weights. In F32 all products with a scale but the last
// are exact, so their order does not matter.
//
// The grid is a buffer, at TABLE_BINDING, and is copied to shared memory: eight codes of 2 bits in a point, for IQ3 four of 4
// bits, the first in the lowest bits; two points in a word. Blocks start at odd multiples of two bytes half of the time, so
// everything is read by half-words.
#ifndef WEIGHTS_IQ_GLSL
#define WEIGHTS_IQ_GLSL

#define HAS_GRID

// Words of the grid.
#if defined(A_IQ1_S) || defined(A_IQ1_M)
#define GRID_WORDS 1024
#elif defined(A_IQ2_S)
#define GRID_WORDS 512
#elif defined(A_IQ2_XS) || defined(A_IQ3_S)
#define GRID_WORDS 256
#else
#define GRID_WORDS 128
#endif

layout(set = 0, binding = TABLE_BINDING, std430) readonly buffer Grid { uint of[]; } grid_of;

shared uint grid[GRID_WORDS];

void prepare_weights() {
    for (uint i = gl_LocalInvocationIndex; i < GRID_WORDS; i += gl_WorkGroupSize.x) {
        grid[i] = grid_of.of[i];
    }
    barrier();
}

struct Piece {
    // Indices, and further fields of some types.
    uvec2 q;
    // Their upper bits.
    uint high;
    uint signs;
    uint scale;
    float d;
#ifdef SMALL_PIECES
    // Index of the group of eight in the part.
    uint eight;
#endif
};

#ifdef SMALL_PIECES
#define PIECE 8
#define PART_OF(i) ((i) / 4)
#define EIGHT_OF(i) , (i) % 4
#else
#define PIECE 32
#define PART_OF(i) (i)
#define EIGHT_OF(i)
#if defined(A_IQ2_XS) || defined(A_IQ2_S) || defined(A_IQ1_M)
#define GROUPS 2
#define HAS_QUAD_AT

uint quad_at(uint i, uint g, uint j) {
    return 32 * i + 16 * g + 4 * j;
}
#endif
#endif

// The word from a half-word on.
uint word_at(uint half_word) {
    return uint(halves[half_word]) | uint(halves[half_word + 1]) << 16;
}

uvec2 two_words_at(uint half_word) {
    return uvec2(word_at(half_word), word_at(half_word + 2));
}

// Byte `i` from a half-word on.
uint byte_at(uint half_word, uint i) {
    return bitfieldExtract(uint(halves[half_word + i / 2]), int(i % 2 * 8), 8);
}

// Eight signs from seven.
uint eight_signs(uint seven) {
    const uint s = seven & 127;
    return s | (bitCount(s) & 1) << 7;
}

// For each type: index `at` of a part, for eight weights or with IQ3 for four; the signs of group `e` of eight; the scale of
// the weights from group `e` on.
#if defined(A_IQ2_XXS)

// F16 scale of the scales; for each part, four bytes of indices, then a word of four times seven signs and the scale.
Piece load_piece(uint row, uint i) {
    const uint block = (row + PART_OF(i) / 8) * 33;
    const uvec2 q = two_words_at(block + 1 + 4 * (PART_OF(i) % 8));
    return Piece(q, 0, 0, 0, float(scales[block]) EIGHT_OF(i));
}

uint number(Piece w, uint at) {
    return w.q.x >> 8 * at & 255;
}

uint signs_of(Piece w, uint e) {
    return eight_signs(w.q.y >> 7 * e);
}

float scale_of(Piece w, uint e) {
    return float(w.q.y >> 28) * 0.25 + 0.125;
}

#elif defined(A_IQ2_XS)

// F16 scale of the scales; for each part, four half-words with an index in nine bits and seven signs; for each part a byte of
// two scales.
Piece load_piece(uint row, uint i) {
    const uint block = (row + PART_OF(i) / 8) * 37;
    const uint part = PART_OF(i) % 8;
    return Piece(two_words_at(block + 1 + 4 * part), 0, 0, byte_at(block + 33, part), float(scales[block]) EIGHT_OF(i));
}

uint half_of(Piece w, uint e) {
    return (e < 2 ? w.q.x : w.q.y) >> e % 2 * 16 & 0xffffu;
}

uint number(Piece w, uint at) {
    return half_of(w, at) & 511;
}

uint signs_of(Piece w, uint e) {
    return eight_signs(half_of(w, e) >> 9);
}

#elif defined(A_IQ2_S)

// F16 scale of the scales, lower bytes of the indices, signs, upper bit pairs of the indices, scales as in IQ2_XS.
Piece load_piece(uint row, uint i) {
    const uint block = (row + PART_OF(i) / 8) * 41;
    const uint part = PART_OF(i) % 8;
    return Piece(
        uvec2(word_at(block + 1 + 2 * part), 0), byte_at(block + 33, part), word_at(block + 17 + 2 * part),
        byte_at(block + 37, part), float(scales[block]) EIGHT_OF(i));
}

uint number(Piece w, uint at) {
    return w.q.x >> 8 * at & 255 | (w.high >> 2 * at & 3) << 8;
}

uint signs_of(Piece w, uint e) {
    return w.signs >> 8 * e;
}

#elif defined(A_IQ3_XXS)

// F16 scale of the scales; eight bytes of indices for each part; then for each part a word of signs and scale as in IQ2_XXS.
Piece load_piece(uint row, uint i) {
    const uint block = (row + PART_OF(i) / 8) * 49;
    const uint part = PART_OF(i) % 8;
    return Piece(
        two_words_at(block + 1 + 4 * part), 0, word_at(block + 33 + 2 * part), 0, float(scales[block]) EIGHT_OF(i));
}

uint number(Piece w, uint at) {
    return (at < 4 ? w.q.x : w.q.y) >> at % 4 * 8 & 255;
}

uint signs_of(Piece w, uint e) {
    return eight_signs(w.signs >> 7 * e);
}

float scale_of(Piece w, uint e) {
    return float(w.signs >> 28) * 0.5 + 0.25;
}

#elif defined(A_IQ3_S)

// F16 scale of the scales, lower bytes of the indices as in IQ3_XXS, their ninth bits, signs, nibbles of scales.
Piece load_piece(uint row, uint i) {
    const uint block = (row + PART_OF(i) / 8) * 55;
    const uint part = PART_OF(i) % 8;
    return Piece(
        two_words_at(block + 1 + 4 * part), byte_at(block + 33, part), word_at(block + 37 + 2 * part),
        uint(halves[block + 53 + part / 4]) >> part % 4 * 4 & 15, float(scales[block]) EIGHT_OF(i));
}

uint number(Piece w, uint at) {
    return (at < 4 ? w.q.x : w.q.y) >> at % 4 * 8 & 255 | (w.high >> at & 1) << 8;
}

uint signs_of(Piece w, uint e) {
    return w.signs >> 8 * e;
}

float scale_of(Piece w, uint e) {
    return float(2 * w.scale + 1);
}

#elif defined(A_IQ1_S)

// F16 scale of the scales, lower bytes of the indices, and for each part a half-word: four times three upper bits, the scale,
// and the sign of the eighth.
Piece load_piece(uint row, uint i) {
    const uint block = (row + PART_OF(i) / 8) * 25;
    const uint part = PART_OF(i) % 8;
    return Piece(
        uvec2(word_at(block + 1 + 2 * part), 0), uint(halves[block + 17 + part]), 0, 0, float(scales[block]) EIGHT_OF(i));
}

uint number(Piece w, uint at) {
    return w.q.x >> 8 * at & 255 | (w.high >> 3 * at & 7) << 8;
}

bool is_less(Piece w, uint e) {
    return (w.high & 0x8000u) != 0;
}

float scale_of(Piece w, uint e) {
    return float(w.high >> 12 & 7) * 0.25 + 0.125;
}

#else

// Lower bytes of the indices; nibbles with three upper bits and the sign of the eighth; four half-words, each with the scales
// of four times 16 weights in three bits and, above them, a nibble of the F16 scale of the scales.
Piece load_piece(uint row, uint i) {
    const uint block = (row + PART_OF(i) / 8) * 28;
    const uint part = PART_OF(i) % 8;
    const uvec2 s = two_words_at(block + 24);
    const uint d = s.x >> 12 & 0xfu | s.x >> 24 & 0xf0u | s.y >> 4 & 0xf00u | s.y >> 16 & 0xf000u;
    return Piece(
        uvec2(word_at(block + 2 * part), 0), uint(halves[block + 16 + part]), 0,
        (part < 4 ? s.x : s.y) >> (part / 2 % 2 * 16 + part % 2 * 6), unpackHalf2x16(d).x EIGHT_OF(i));
}

uint number(Piece w, uint at) {
    return w.q.x >> 8 * at & 255 | (w.high >> 4 * at & 7) << 8;
}

bool is_less(Piece w, uint e) {
    return (w.high >> 4 * e & 8) != 0;
}

float scale_of(Piece w, uint e) {
    return float(w.scale >> e / 2 * 3 & 7) * 0.25 + 0.125;
}

#endif

#if defined(A_IQ2_XS) || defined(A_IQ2_S)

float scale_of(Piece w, uint e) {
    return float(w.scale >> e / 2 * 4 & 15) * 0.25 + 0.125;
}

#endif

#if !defined(A_IQ1_S) && !defined(A_IQ1_M)

// Negates the bytes whose bit is set. The four bytes are not zero. No carry leaves a byte.
uint with_signs(uint x, uint signs) {
    const uint ones = (signs & 15) * 0x00204081u & 0x01010101u;
    return (x ^ ones * 255) + ones;
}

#endif

// Quad q of a part: the codes of the point, then their values.
uint quad_of_part(Piece w, uint q) {
#if defined(A_IQ3_XXS) || defined(A_IQ3_S)
    const uint n = number(w, q);
    const uint entry = bitfieldExtract(grid[n / 2], int(n % 2 * 16), 16);
    const uint pairs = (entry | entry << 8) & 0x00ff00ffu;
    const uint codes = (pairs | pairs << 4) & 0x0f0f0f0fu;
#if defined(A_IQ3_XXS)
    // 4, 12, 20, 28, 36, 44, 52, 62.
    const uint x = (codes << 3) + 0x04040404u + ((codes & codes >> 1 & codes >> 2 & 0x01010101u) << 1);
#else
    // 1, 3, 5 .. 15.
    const uint x = codes << 1 | 0x01010101u;
#endif
    return with_signs(x, signs_of(w, q / 2) >> q % 2 * 4);
#else
    const uint n = number(w, q / 2);
    const uint entry = bitfieldExtract(grid[n / 2], int(n % 2 * 16 + q % 2 * 8), 8);
    const uint pairs = (entry | entry << 12) & 0x000f000fu;
    const uint codes = (pairs | pairs << 6) & 0x03030303u;
#if defined(A_IQ1_S) || defined(A_IQ1_M)
    // -1, 0 and 1, plus or minus an eighth, in units of an eighth: with 128 added no carry leaves a byte.
    return (codes << 3) + (is_less(w, q / 2) ? 0x77777777u : 0x79797979u) ^ 0x80808080u;
#else
    // 8, 25, 43.
    const uint x = (codes << 4) + codes + (codes >> 1 & 0x01010101u) + 0x08080808u;
    return with_signs(x, signs_of(w, q / 2) >> q % 2 * 4);
#endif
#endif
}

uint bytes(Piece w, uint g, uint j) {
#ifdef SMALL_PIECES
    return quad_of_part(w, 2 * w.eight + j);
#else
    return quad_of_part(w, 4 * g + j);
#endif
}

float factor(Piece w, uint g) {
#ifdef SMALL_PIECES
    return w.d * scale_of(w, w.eight);
#else
    return w.d * scale_of(w, 2 * g);
#endif
}

#endif
