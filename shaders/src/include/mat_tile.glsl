// Tiles of a matrix product, for the kernels of MUL_MAT and MUL_MAT_ID with many columns: BM rows times BN columns through
// shared memory.
//
// A work-group computes one tile of the result in steps of BK along k. In each step it loads BM x BK weights, converted from
// their type on the way, and BN x BK activations to shared memory. Each invocation takes pieces of eight weights; adjacent
// invocations have adjacent pieces along k. A fragment multiplies them: fragment_lanes.glsl in the registers of single
// invocations, fragment_int8.glsl by dot products of bytes, fragment_packed.glsl by pairs of F16, fragment_matrix.glsl on matrix
// units.
//
// If the fragment says so (AHEAD), the loads of the next step are in flight while this one is multiplied. With two BUFFERS in
// shared memory, which alternate, a step has one barrier: when all have reached it, all have multiplied the step before, whose
// buffer is written next. With one buffer it has two.
//
// Products with few columns have too few work-groups to fill a device. Then SLICES parts of a work-group each have tiles of
// their own and take every SLICES-th step along k; their sums are added at the end.
//
// Specialisation: work-group size, BM, BN, BK (a multiple of 8 that divides 128; the invocations of a slice are a multiple of
// BK / 8 and divide BM * BK / 8 and the fragment's loads of activations), TM and TN (rows and columns of the fragment's unit),
// UNROLL (fragment_lanes.glsl), ALIGNED (strides and offsets allow 16-byte loads), SLICES, BUFFERS; fragment_matrix.glsl has
// more.
// Variants: type of a; tile32, tile16, packed, int8, matrix or emulated: the fragment.
// Shared memory: for each buffer and slice (BM + BN) * (BK + PAD) numbers, and that of the fragment.
//
// All invocations of the including shader call prepare_weights() once, and mat_tile() for each tile, or for each part of one
// along k. A shader contains only one call of it: with two, a driver of NVIDIA's keeps their shared parts in memory, and tiles
// of Q8_0 take five times as long. The shader defines
//
//     row_of_a(r)         start of row r of the tile in the operand, also for rows after the end
//     row_of_b(c)         the same for column c: in numbers, or in vectors of 16 bytes if these were rounded before
//     store(r, c, sum)    receives the product of row r and column c, or the sum of the part
//
// and the fragment
//
//     row_of_piece        start of the row of piece j of an invocation
//     put_piece           writes it to shared memory
//     fetch_b, put_b      load and write the other data of a slice's invocations in a step, mainly activations
//     too_large           returns true if the step has to be written again
//     begin               starts a tile: clears the sums, and computes values that are the same in every step
//     FETCH_LAST          true if the loads of the last step are issued again after it, unused: where a branch costs more
//     multiply            adds the product of a buffer's tiles to the sums
//     store_sums          adds the sums of slices, calls store()
#ifndef MAT_TILE_GLSL
#define MAT_TILE_GLSL

layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint TM = 8;
layout(constant_id = 5) const uint TN = 4;
layout(constant_id = 6) const uint UNROLL = 4;
layout(constant_id = 7) const uint ALIGNED = 0;
layout(constant_id = 8) const uint SLICES = 1;
layout(constant_id = 9) const uint BUFFERS = 1;

#if defined(TILE_F16) || defined(TILE_PACKED)
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

#define SMALL_PIECES
#include "mul_mat.glsl"

// Invocations of a slice.
const uint WG = gl_WorkGroupSize.x / SLICES;

// Weights of a step that an invocation moves from global to shared memory.
const uint PIECES = BK / 8;
const uint LOADS_A = BM * PIECES / WG;
Piece w[LOADS_A];

// Row of the tile for piece j of an invocation; it is piece lane % PIECES of the step.
uint place_of_piece(uint lane, uint j) {
    return lane / PIECES + j * (WG / PIECES);
}

uint row_of_a(uint r);
uint row_of_b(uint c);
void store(uint r, uint c, float sum);

#if defined(MATRIX)
#include "fragment_matrix.glsl"
#elif defined(TILE_INT8)
#include "fragment_int8.glsl"
#elif defined(TILE_PACKED)
#include "fragment_packed.glsl"
#else
#include "fragment_lanes.glsl"
#endif

// Loads the data of a slice's invocations for the step that starts at k0. All loads are issued before the first value is used.
// `whole`: nothing is after the end of the rows. Otherwise elements after it are replaced by zeros: weights or, if the weights
// are blocks, activations.
void fetch(uint lane, uint k0, bool whole) {
    [[unroll]] for (uint j = 0; j < LOADS_A; j++) {
        const uint row = row_of_piece(lane, j);
#if A_BLOCK == 1
        const uint piece = k0 / 8 + lane % PIECES;
        w[j] = whole || 8 * piece + 8 <= p.k ? load_piece(row, piece) : load_some(row, piece, p.k);
#else
        const uint of_step = lane % PIECES;
        w[j] = load_piece(row, k0 / 8, whole ? of_step : min(of_step, (p.k - k0) / 8 - 1));
#endif
    }
    fetch_b(lane, k0, whole);
}

// The same for any step.
void fetch(uint lane, uint k0) {
    // Rows of blocks of 32 are whole numbers of such steps.
    if (A_BLOCK > 1 && BK <= 32 || k0 + BK <= p.k) {
        fetch(lane, k0, true);
    } else {
        fetch(lane, k0, false);
    }
}

// Writes the data to buffer `turn`.
void put(uint lane, uint slice, uint turn, uint k0) {
    const uint tile = turn * SLICES + slice;
    [[unroll]] for (uint j = 0; j < LOADS_A; j++) {
        put_piece(lane, j, tile, turn, k0, w[j]);
    }
    put_b(lane, tile, turn);
}

// Computes the steps from `begin_k` to `end_k`: multiples of BK, or the end of the rows.
void mat_tile(uint begin_k, uint end_k) {
    const uint slice = SLICES == 1 ? 0 : gl_LocalInvocationIndex / WG;
    const uint lane = gl_LocalInvocationIndex - slice * WG;
    begin(lane, slice);
    const uint first = begin_k + slice * BK;
    if (BUFFERS > 1) {
        barrier();
    }
    if (AHEAD && (SLICES == 1 || first < end_k)) {
        fetch(lane, first);
    }
    uint turn = 0;
    // All slices have the same number of steps; in those after the end of the rows they only wait.
    for (uint k0 = first; k0 - first < end_k - begin_k; k0 += BK * SLICES) {
        const bool some = SLICES == 1 || k0 < end_k;
        if (BUFFERS == 1) {
            barrier();
        }
        if (!AHEAD && some) {
            fetch(lane, k0);
        }
        if (some) {
            put(lane, slice, turn, k0);
        }
        barrier();
        if (too_large(turn)) {
            if (some) {
                put(lane, slice, turn, k0);
            }
            barrier();
        }
        const uint next = k0 + BK * SLICES;
        if (AHEAD && (next < end_k || FETCH_LAST && some)) {
            fetch(lane, FETCH_LAST && next >= end_k ? k0 : next);
        }
        if (some) {
            multiply(lane, slice, turn);
        }
        turn = BUFFERS > 1 ? 1 - turn : 0;
    }
    store_sums(lane, slice);
}

#endif
