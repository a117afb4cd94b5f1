// Loading of cells for matrix units: rows of k and v in F16 or in blocks become tiles of F16 in LDS (fragment.h),
// MATRIX_POSITIONS positions in each step.
//
// Each thread loads pieces of rows as they are stored, so that the loads of the next step occupy few registers while this step
// is computed: 8 elements of F16, or PIECE elements of blocks (attention_fragment.h). The conversion of blocks loses nothing:
//
//   * Blocks of k become integers, which F16 represents exactly, and the scales of the blocks as F32: the sum of products of a
//     block is multiplied by its scale.
//   * Blocks of v become scale times integer, as the sum of two F16 numbers in two tiles. A value above 65504 becomes an
//     infinity, as it would in a cache of F16. The matrix units of gfx90a treat numbers below 2^-14 as zeros, according to AMD.
//     For them the second number is multiplied by 2^11, which makes it large enough in all cases (REST_EXPONENT).
#pragma once
#include "fragment.h"

#define MATRIX_POSITIONS 32u

template <class KV, u32 PIECE_> struct PieceOfCell {
    static constexpr u32 PIECE = PIECE_;
    typedef typename KV::template Raws<PIECE> Raw;
    DEVICE Raw fetch(const u8 *row, u32 k) { return KV::template fetch<PIECE>(row, k); }
    // Sets the fields that decoding derives from a piece's place. They are computed again here, so that they are not kept while
    // the piece is loaded.
    DEVICE void settle(Raw &raw, u32 k) {
        if constexpr (KV::APART) raw.shift = KV::Q::shift(k);
    }
};
template <u32 PIECE_> struct PieceOfCell<WeightF16, PIECE_> {
    static constexpr u32 PIECE = 8;
    // On NVIDIA's processors the host ensures that rows start at multiples of 16 bytes.
    typedef u32 Eight __attribute__((ext_vector_type(4), aligned(DEVICE_AMD ? 2 : 16)));
    typedef lds_u32x4 Raw;
    DEVICE Raw fetch(const u8 *row, u32 k) { return *(const Eight *)(row + k * 2); }
};

// Pieces of k or v that a thread loads in a step. Adjacent threads have adjacent pieces of a row. TURNED: rows of the tile are
// columns of v. Then the pieces of a thread are from adjacent positions and are stored together, and adjacent threads have the
// next positions, so that their stores are in one row.
template <class KV, u32 DIM, u32 THREADS, u32 PIECE_, bool TURNED> struct RowsOfStep {
    typedef PieceOfCell<KV, PIECE_> Cell;
    static constexpr u32 PIECE = Cell::PIECE, PIECES = DIM / PIECE, LOADS = MATRIX_POSITIONS * PIECES / THREADS;
    static constexpr u32 RUNS = MATRIX_POSITIONS / LOADS;
    static_assert(LOADS * THREADS == MATRIX_POSITIONS * PIECES && (!TURNED || (PIECE == 8 && MATRIX_POSITIONS == TILE_K)), "");
    typename Cell::Raw raw[LOADS];

    // Index of the thread in the work-group, or in its wavefront if THREADS is the size of a wavefront.
    DEVICE u32 here() { return offset_here(thread_id() % THREADS); }
    // Values that depend on the thread are computed where they are used: kept throughout a loop, they would occupy registers.
    DEVICE u32 position(u32 thread, u32 i) {
        return TURNED ? thread % RUNS * LOADS + i : (thread + i * THREADS) / PIECES;
    }
    DEVICE u32 column(u32 thread, u32 i) { return (TURNED ? thread / RUNS : (thread + i * THREADS) % PIECES) * PIECE; }

    // Loads rows from `base` on, columns from `first` on. Without CHECKS all of these columns exist.
    template <bool CHECKS = true>
    INLINED void load(const u8 *rows, u32 pitch, u32 base, u32 end, u32 length, u32 first = 0) {
        // The host ensures that the distance between rows in bytes fits 32 bits.
        u32 thread = here(), stride = pitch * KV::BYTES;
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            const u8 *row = rows + (u64)minimum(base + position(thread, i), end - 1) * stride;
            raw[i] = {};
            u32 k = first + column(thread, i);
            if (!CHECKS || k < length) raw[i] = Cell::fetch(row, k);
        }
    }
    // Loads whole rows. Most rows have all columns; setting missing ones to zero costs instructions.
    INLINED void load_rows(const u8 *rows, u32 pitch, u32 base, u32 end, u32 length) {
        if (length == DIM) {
            load<false>(rows, pitch, base, end, length);
        } else {
            load<true>(rows, pitch, base, end, length);
        }
    }
    // Copies whole rows of F16 to LDS without registers, with COPY::copy_eight. Missing columns become zeros.
    template <class COPY>
    INLINED void copy(const u8 *rows, u32 pitch, u32 base, u32 end, u32 length, u16 *tiles) {
        u32 thread = here(), stride = pitch * KV::BYTES;
        UNROLL for (u32 i = 0; i < LOADS; i++) {
            const u8 *row = rows + (u64)minimum(base + position(thread, i), end - 1) * stride;
            u32 k = column(thread, i);
            COPY::copy_eight(tiles + place(position(thread, i), k), row + (k < length ? k * 2 : 0), k < length);
        }
    }
    typedef lds_u32x4 Piece[PIECE / 8];
    // Stores F16 unchanged. Returns true if there is an infinity or a NaN.
    INLINED bool store(u16 *tiles) {
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
    // Stores the integers of blocks, and their scales: for each block of a row, the scales of all positions. An infinite scale
    // becomes a NaN, because the sum of its block's products has infinities of both signs, or zero times infinity.
    INLINED void store_wholes(u16 *tiles, float *scales) {
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
    // Stores blocks as sums of two numbers, the second multiplied by 2^REST_EXPONENT. Returns true if there is an infinity or a
    // NaN; its rest is meaningless.
    template <u32 REST_EXPONENT>
    INLINED bool store_sums(u16 *tiles, u16 *rest_tiles) {
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
    // Offset of an element of a cell. If not TURNED, the tiles have TILE_K elements of all positions and follow each other.
    DEVICE u32 place(u32 position, u32 column) {
        if (TURNED) return eight_at(column, position / 8) + position % 8;
        return column / TILE_K * (MATRIX_POSITIONS * TILE_K) + eight_at(position, column % TILE_K / 8) + column % 8;
    }
};
