// CACHE_MASK: F16 [kv, tokens], 0 if a token sees a cell, minus infinity otherwise.
//
// A thread has eight adjacent cells, whose positions it reads once, and their masks for MASK_TOKENS tokens in turn. For each
// token it reads the words with the bit of the token's sequence, which are mostly the same words again, and writes 16 bytes,
// in one store if rows are whole groups of eight. A cell is visible if the token's sequence holds it and its position is in an
// interval. No LDS.
#include "index.h"
#include "params.h"

// CacheMaskParams::TOKENS, and the cells of a thread.
#define MASK_TOKENS 4
#define MASK_CELLS 8
// Minus infinity.
#define HIDDEN 0xfc00u

// The result is a tensor of its own, so it starts at a multiple of 16.
typedef u32 MaskWords __attribute__((ext_vector_type(4), aligned(16)));

// Positions that a token sees: the first, and the number of positions after it.
struct Seen {
    u32 first, more;
};

DEVICE Seen seen(u32 position, const CacheMaskParams &p) {
    Seen s;
    s.first = position - (p.chunked ? position % p.window : minimum(position, p.window - 1));
    // A chunk may extend beyond the last position.
    u32 end = p.chunked ? minimum(s.first + (p.window - 1), 0x7fffffffu) : 0x7fffffffu;
    s.more = (p.causal ? position : end) - s.first;
    return s;
}

// Loads a field of a thread's cells; `none` stands for cells past the end of the row.
DEVICE void load_field(i32 (&to)[MASK_CELLS], const i32 *from, u32 count, i32 none) {
    if (count == MASK_CELLS) {
        UNROLL for (u32 j = 0; j < MASK_CELLS; j += 4) {
            u32x4 quad = *(const u32x4 *)(from + j);
            UNROLL for (u32 k = 0; k < 4; k++) to[j + k] = (i32)quad[k];
        }
    } else {
        UNROLL for (u32 j = 0; j < MASK_CELLS; j++) to[j] = j < count ? from[j] : none;
    }
}

KERNEL(ROW_THREADS) cache_mask(const i32 *cells, const i32 *tokens, u16 *d, CacheMaskParams p) {
    Piece piece = row_piece((p.kv + MASK_CELLS - 1) / MASK_CELLS);
    u32 i0 = piece.unit * MASK_CELLS, first_token = piece.row * MASK_TOKENS;
    if (i0 >= p.kv || first_token >= p.tokens) return;
    u32 count = minimum(p.kv - i0, MASK_CELLS);
    i32 at[MASK_CELLS], holders[MASK_CELLS];
    cells += p.off0 + i0;
    load_field(at, cells, count, -1);
    bool whole = p.kv % MASK_CELLS == 0 && p.offd % MASK_CELLS == 0;
    tokens += p.off1;
    UNROLL for (u32 t = 0; t < MASK_TOKENS; t++) {
        u32 token = first_token + t;
        if (token >= p.tokens) return;
        i32 own = tokens[token], position = tokens[p.tokens + token];
        Seen s = seen((u32)position, p);
        u32 word = (u32)own / 32, bit = (u32)own % 32;
        // As an unsigned number, a sequence below 0 is greater than all others.
        bool any = word < p.words && position >= 0;
        load_field(holders, cells + (u64)(any ? 1 + word : 0) * p.kv, count, 0);
        u32 masks[MASK_CELLS];
        UNROLL for (u32 j = 0; j < MASK_CELLS; j++) {
            // As an unsigned number, a position below 0 is greater than all others.
            bool held = ((u32)holders[j] >> bit & 1) != 0;
            bool sees = any && held && (u32)at[j] - s.first <= s.more;
            masks[j] = sees ? 0 : HIDDEN;
        }
        u16 *row = d + p.offd + (u64)token * p.kv + i0;
        if (whole) {
            MaskWords words;
            UNROLL for (u32 j = 0; j < 4; j++) words[j] = masks[2 * j] | masks[2 * j + 1] << 16;
            *(MaskWords *)row = words;
        } else {
            UNROLL for (u32 j = 0; j < MASK_CELLS; j++) if (j < count) row[j] = (u16)masks[j];
        }
    }
}
