#version 460
// CACHE_MASK: F16 [kv, tokens], 0 if a token sees a cell, minus infinity otherwise.
//
// An invocation has CELLS adjacent cells, whose positions it reads once, and their masks for TOKENS tokens in turn: it reads
// the word with the bit of the token's sequence, which is mostly the same word again, and writes 2 bytes. A cell is visible
// if the token's sequence holds it and its position is in an interval. Nothing shared.
// The grid's x covers the cells for the first tokens, then those for the next ones, so that short rows fill work-groups too.
//
// Variants: w128, eight cells, whose masks are four words, for rows that are multiples of four words and start at such; w16,
// one.

#include "common.glsl"
#include "grid.glsl"

#extension GL_EXT_shader_16bit_storage : require

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform CacheMaskParams {
    uint kv, tokens, words;
    uint causal, window, chunked;
    uint off0, off1, offd;
} p;

#ifdef W128
#define CELLS 8
layout(set = 0, binding = 0, std430) readonly buffer Cells { ivec4 cells[]; };
layout(set = 0, binding = 2, std430) writeonly buffer D { uvec4 d[]; };
#else
#define CELLS 1
layout(set = 0, binding = 0, std430) readonly buffer Cells { int cells[]; };
layout(set = 0, binding = 2, std430) writeonly buffer D { uint16_t d[]; };
#endif
layout(set = 0, binding = 1, std430) readonly buffer Tokens { int tokens[]; };

// Loads a field of the cells of an invocation: 0 is the position, the others are words of sequences.
#ifdef W128
#define LOAD_FIELD(to, field)                                                         \
    [[unroll]] for (uint j = 0; j < 2; j++) {                                         \
        const ivec4 four = cells[(p.off0 + (field) * p.kv) / 4 + 2 * piece + j];      \
        [[unroll]] for (uint k = 0; k < 4; k++) {                                     \
            to[4 * j + k] = four[k];                                                  \
        }                                                                             \
    }
#else
#define LOAD_FIELD(to, field) to[0] = cells[p.off0 + (field) * p.kv + piece];
#endif

// CacheMaskParams::TOKENS.
#define TOKENS 4
// Minus infinity.
#define HIDDEN 0xfc00u

// The first position that a token sees, and the number of positions after it.
uvec2 seen(uint position) {
    const bool chunked = p.chunked != 0;
    const uint first = position - (chunked ? position % p.window : min(position, p.window - 1));
    // A chunk may extend beyond the last position.
    const uint end = chunked ? min(first + (p.window - 1), 0x7fffffffu) : 0x7fffffffu;
    return uvec2(first, (p.causal != 0 ? position : end) - first);
}

void main() {
    const uint pieces = p.kv / CELLS;
    FOR_EACH_COLUMN(n, pieces * ((p.tokens + TOKENS - 1) / TOKENS))
        const uint block = n / pieces, piece = n - block * pieces;
        int at[CELLS], holders[CELLS];
        LOAD_FIELD(at, 0)
        [[unroll]] for (uint t = 0; t < TOKENS; t++) {
            const uint token = block * TOKENS + t;
            if (token < p.tokens) {
                const int own = tokens[p.off1 + token], position = tokens[p.off1 + p.tokens + token];
                const uvec2 range = seen(uint(position));
                const uint word = uint(own) / 32, bit = uint(own) % 32;
                // As an unsigned number, a sequence below 0 is greater than all others.
                const bool any = word < p.words && position >= 0;
                LOAD_FIELD(holders, any ? 1 + word : 0)
                uint masks[CELLS];
                [[unroll]] for (uint j = 0; j < CELLS; j++) {
                    // As an unsigned number, a position below 0 is greater than all others.
                    const bool held = (uint(holders[j]) >> bit & 1) != 0;
                    const bool sees = any && held && uint(at[j]) - range.x <= range.y;
                    masks[j] = sees ? 0u : HIDDEN;
                }
#ifdef W128
                uvec4 words;
                [[unroll]] for (uint j = 0; j < 4; j++) {
                    words[j] = masks[2 * j] | masks[2 * j + 1] << 16;
                }
                d[p.offd / 8 + token * pieces + piece] = words;
#else
                d[p.offd + token * pieces + piece] = uint16_t(masks[0]);
#endif
            }
        }
    END_EACH_COLUMN
}
