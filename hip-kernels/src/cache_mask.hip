// CACHE_MASK: F16 [kv, tokens], 0 if a token sees a cell, minus infinity otherwise.
//
// A thread has eight adjacent cells, which it reads once (8 bytes each), and their masks for MASK_TOKENS tokens in turn. It
// writes 16 bytes for each token, in one store if rows are whole groups of eight. A cell is visible if its sequence is the
// token's and its position is in an interval. No LDS.
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

KERNEL(ROW_THREADS) cache_mask(const i32 *cells, const i32 *tokens, u16 *d, CacheMaskParams p) {
    Piece piece = row_piece((p.kv + MASK_CELLS - 1) / MASK_CELLS);
    u32 i0 = piece.unit * MASK_CELLS, first_token = piece.row * MASK_TOKENS;
    if (i0 >= p.kv || first_token >= p.tokens) return;
    u32 count = minimum(p.kv - i0, MASK_CELLS);
    i32 of[MASK_CELLS], at[MASK_CELLS];
    const i32 *sequences = cells + p.off0 + i0, *positions = sequences + p.kv;
    if (count == MASK_CELLS) {
        UNROLL for (u32 j = 0; j < MASK_CELLS; j += 4) {
            u32x4 quads[2] = {*(const u32x4 *)(sequences + j), *(const u32x4 *)(positions + j)};
            UNROLL for (u32 k = 0; k < 4; k++) of[j + k] = (i32)quads[0][k], at[j + k] = (i32)quads[1][k];
        }
    } else {
        UNROLL for (u32 j = 0; j < MASK_CELLS; j++) {
            of[j] = j < count ? sequences[j] : -1;
            at[j] = j < count ? positions[j] : 0;
        }
    }
    bool whole = p.kv % MASK_CELLS == 0 && p.offd % MASK_CELLS == 0;
    tokens += p.off1;
    UNROLL for (u32 t = 0; t < MASK_TOKENS; t++) {
        u32 token = first_token + t;
        if (token >= p.tokens) return;
        i32 own = tokens[token], position = tokens[p.tokens + token];
        Seen s = seen((u32)position, p);
        bool any = own >= 0 && position >= 0;
        u32 masks[MASK_CELLS];
        UNROLL for (u32 j = 0; j < MASK_CELLS; j++) {
            // As an unsigned number, a position below 0 is greater than all others.
            bool sees = any && of[j] == own && (u32)at[j] - s.first <= s.more;
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
