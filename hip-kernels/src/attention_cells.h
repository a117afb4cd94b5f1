// Cells of the cache on their way to matrix units: rows of k and v in F16 or in blocks become tiles of F16 in LDS
// (fragment.h), a step of MATRIX_POSITIONS at a time.
//
// Each thread loads pieces of rows, as they are stored, so that those of the next step are on their way in few registers
// while this one is computed: 8 elements of F16, of blocks PIECE (attention_fragment.h). What blocks become when they are
// put into LDS loses nothing:
//
//   * Of k whole numbers, which F16 holds, and the scales of the blocks as F32: sums of the products of a block are
//     multiplied by its scale.
//   * Of v scale times whole number as the sum of two F16 numbers, in two tiles. A number beyond 65504 becomes an infinity,
//     as it would be in a cache of F16. gfx90a's units take numbers below 2^-14 for zeros, as AMD says: for those the second
//     comes times 2^11, which makes it large enough, whatever it is (REST_EXPONENT).
#pragma once
#include "fragment.h"

#define MATRIX_POSITIONS 32u

template <class KV, u32 PIECE_> struct PieceOfCell {
    static constexpr u32 PIECE = PIECE_;
    typedef typename KV::template Raws<PIECE> Raw;
    DEVICE Raw fetch(const u8 *row, u32 k) { return KV::template fetch<PIECE>(row, k); }
    // What decoding wants to know of a piece's place; computed again, it is not kept while the piece is on its way.
    DEVICE void settle(Raw &raw, u32 k) {
        if constexpr (KV::APART) raw.shift = KV::Q::shift(k);
    }
};
template <u32 PIECE_> struct PieceOfCell<WeightF16, PIECE_> {
    static constexpr u32 PIECE = 8;
    // For NVIDIA's processors the host sees to it that rows begin at multiples of 16 bytes.
    typedef u32 Eight __attribute__((ext_vector_type(4), aligned(DEVICE_AMD ? 2 : 16)));
    typedef lds_u32x4 Raw;
    DEVICE Raw fetch(const u8 *row, u32 k) { return *(const Eight *)(row + k * 2); }
};

// What a thread brings of k or v for a step. Neighbouring threads have neighbouring pieces of a row. TURNED: rows of the
// tile are columns of v; then a thread's pieces are of neighbouring positions, which it stores together, and neighbouring
// threads have the next positions, so that what they store lies in one row.
template <class KV, u32 DIM, u32 THREADS, u32 PIECE_, bool TURNED> struct RowsOfStep {
    typedef PieceOfCell<KV, PIECE_> Cell;
    static constexpr u32 PIECE = Cell::PIECE, PIECES = DIM / PIECE, LOADS = MATRIX_POSITIONS * PIECES / THREADS;
    static constexpr u32 RUNS = MATRIX_POSITIONS / LOADS;
    static_assert(LOADS * THREADS == MATRIX_POSITIONS * PIECES && (!TURNED || (PIECE == 8 && MATRIX_POSITIONS == TILE_K)), "");
    typename Cell::Raw raw[LOADS];

    // Of all threads, or of those of a wavefront each.
    DEVICE u32 here() { return offset_here(thread_id() % THREADS); }
    // What follows from the thread is computed where it is wanted: held throughout a loop it would take the registers.
    DEVICE u32 position(u32 thread, u32 i) {
        return TURNED ? thread % RUNS * LOADS + i : (thread + i * THREADS) / PIECES;
    }
    DEVICE u32 column(u32 thread, u32 i) { return (TURNED ? thread / RUNS : (thread + i * THREADS) % PIECES) * PIECE; }

    // Of rows from `base` on the columns from `first` on; without CHECKS all of them are there.
    template <bool CHECKS = true>
    __attribute__((device, always_inline)) void load(const u8 *rows, u32 pitch, u32 base, u32 end, u32 length, u32 first = 0) {
        // The host sees to it that the bytes from row to row are a number of 32 bits.
        u32 thread = here(), stride = pitch * KV::BYTES;
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            const u8 *row = rows + (u64)minimum(base + position(thread, i), end - 1) * stride;
            raw[i] = {};
            u32 k = first + column(thread, i);
            if (!CHECKS || k < length) raw[i] = Cell::fetch(row, k);
        }
    }
    // Whole rows, of which most have all columns: zeros for those that are not there are instructions, too.
    __attribute__((device, always_inline)) void load_rows(const u8 *rows, u32 pitch, u32 base, u32 end, u32 length) {
        if (length == DIM) {
            load<false>(rows, pitch, base, end, length);
        } else {
            load<true>(rows, pitch, base, end, length);
        }
    }
    // Whole rows as they are into LDS, past the registers: of F16, with COPY::copy_eight. Zeros where there are no columns.
    template <class COPY>
    __attribute__((device, always_inline)) void copy(const u8 *rows, u32 pitch, u32 base, u32 end, u32 length, u16 *tiles) {
        u32 thread = here(), stride = pitch * KV::BYTES;
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            const u8 *row = rows + (u64)minimum(base + position(thread, i), end - 1) * stride;
            u32 k = column(thread, i);
            COPY::copy_eight(tiles + place(position(thread, i), k), row + (k < length ? k * 2 : 0), k < length);
        }
    }
    typedef lds_u32x4 Piece[PIECE / 8];
    // F16 as it is. Gives whether there is an infinity or a NaN.
    __attribute__((device, always_inline)) bool store(u16 *tiles) {
        Piece pieces[LOADS];
        u32 special = 0, thread = here();
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            pieces[i][0] = raw[i];
            put(tiles, thread, i, pieces[i]);
            mark_special(pieces[i], special);
        }
        if constexpr (TURNED) put_turned(tiles, thread, pieces);
        return special & 0x80008000u;
    }
    // The whole numbers of blocks, and their scales, a row of all positions for each block of a row. A scale that is infinite
    // becomes a NaN: infinities of both signs, or a zero times infinity, are in the sum of its block's products.
    __attribute__((device, always_inline)) void store_wholes(u16 *tiles, float *scales) {
        u32 thread = here();
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            Piece piece;
            Cell::settle(raw[i], column(thread, i));
            decode_wholes<KV, PIECE>(raw[i], piece);
            put(tiles, thread, i, piece);
            float scale = KV::factor(raw[i]);
            if (column(thread, i) % KV::BLOCK) continue;
            scales[column(thread, i) / KV::BLOCK * MATRIX_POSITIONS + position(thread, i)] = mad(scale, 0.0f, scale);
        }
    }
    // Blocks as sums of two, the second times 2^REST_EXPONENT. Gives whether there is an infinity or a NaN, whose rest says
    // nothing.
    template <u32 REST_EXPONENT>
    __attribute__((device, always_inline)) bool store_sums(u16 *tiles, u16 *rest_tiles) {
        Piece pieces[LOADS], rest[LOADS];
        u32 special = 0, thread = here();
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            Cell::settle(raw[i], column(thread, i));
            decode_sums<KV, PIECE, REST_EXPONENT>(raw[i], pieces[i], rest[i]);
            mark_special(pieces[i], special);
            put(tiles, thread, i, pieces[i]);
            put(rest_tiles, thread, i, rest[i]);
        }
        if constexpr (TURNED) {
            put_turned(tiles, thread, pieces);
            put_turned(rest_tiles, thread, rest);
        }
        return special & 0x80008000u;
    }
    DEVICE void mark_special(const Piece &piece, u32 &special) {
        UNROLL for (u32 e = 0; e < PIECE / 8; e++) UNROLL for (int j = 0; j < 4; j++) special |= special_halves(piece[e][j]);
    }
    DEVICE void put(u16 *tiles, u32 thread, u32 i, const Piece &piece) {
        if constexpr (!TURNED) {
            UNROLL for (u32 e = 0; e < PIECE / 8; e++) {
                *(lds_u32x4 *)(tiles + place(position(thread, i), column(thread, i) + e * 8)) = piece[e];
            }
        }
    }
    DEVICE void put_turned(u16 *tile, u32 thread, const Piece (&pieces)[LOADS]) {
        typedef u16 Run __attribute__((ext_vector_type(LOADS)));
        UNROLL for (u32 c = 0; c < 8; c++) {
            Run run;
            UNROLL for (u32 i = 0; i < LOADS; i++) run[i] = (u16)(pieces[i][0][c / 2] >> c % 2 * 16);
            *(Run *)(tile + place(position(thread, 0), column(thread, 0) + c)) = run;
        }
    }
    // Where an element of a cell is. Not turned there is a tile of TILE_K elements of all positions after the other.
    DEVICE u32 place(u32 position, u32 column) {
        if (TURNED) return eight_at(column, position / 8) + position % 8;
        return column / TILE_K * (MATRIX_POSITIONS * TILE_K) + eight_at(position, column % TILE_K / 8) + column % 8;
    }
};
