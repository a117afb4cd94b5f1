// Fragments of mat_tile.glsl for matrix units (cooperative matrices): each subgroup multiplies TM rows by TN columns as
// matrices of MATRIX_M x MATRIX_K and MATRIX_K x MATRIX_N F16 numbers, with sums in F32.
//
// For every MATRIX_K of k a subgroup reads its rows of weights once and its columns one after the other: with 64 x 32 and
// matrices of 16, six loads for eight multiplications. Rows are padded by 8 numbers, which puts 16 bytes of eight adjacent rows
// on different banks.
//
// Activations were rounded before (mul_mat_round.comp), each column multiplied by a power of two, and are copied. Weights
// become F16 in pairs: a byte under a high byte of 0x64 is the number 1024 + byte, from which 1024 and the offset of the type
// are subtracted exactly; a packed product and sum with factor and minimum follow. Conversions of integers take four times as
// long on NVIDIA's processors.
//
// At the end, sums are multiplied by the inverse of their column's power of two, except sums of parts (HAS_PARTS, see
// `part_of_tile`). They pass through shared memory, in place of the tiles, because only the driver knows which invocation has
// which sum: a strip of MATRIX_N columns at a time, whose columns are divided among the slices when they are added.
//
// A work-group has SLICES times (BM / TM) * (BN / TN) subgroups of LANES invocations, the size that the device has.
// Specialisation: MATRIX_M, MATRIX_N, MATRIX_K, a shape that the device has and that divides TM, TN and BK.
// Variants: matrix; emulated, in which invocations compute what the matrix units would.
#ifndef FRAGMENT_MATRIX_GLSL
#define FRAGMENT_MATRIX_GLSL

#extension GL_KHR_shader_subgroup_basic : require

layout(constant_id = 10) const uint MATRIX_M = 16;
layout(constant_id = 11) const uint MATRIX_N = 16;
layout(constant_id = 12) const uint MATRIX_K = 16;

const bool AHEAD = true;
const bool FETCH_LAST = false;
const uint PAD = 8;
const uint SUBGROUPS = (BM / TM) * (BN / TN);
const uint LANES = WG / SUBGROUPS;
// Vectors of eight numbers in a row.
const uint STRIDE = (BK + PAD) / 8;
const uint TILES_B = BUFFERS * SLICES * BM * STRIDE;
// Eight F16 numbers each; four sums each at the end. Of this type because rows of matrices must start at multiples of 16 bytes,
// which no smaller type guarantees.
shared uvec4 tiles[TILES_B + BUFFERS * SLICES * BN * STRIDE];

// Factor of the sums of column c.
float factor_of(uint c);

#ifndef HAS_PARTS
#define part_of_tile false
#endif

#if A_BLOCK > 1

// Bytes 0 and 1, or 2 and 3, as F16 numbers: 1024 + byte.
f16vec2 byte_pair(uint q, uint which) {
    const uint both = which == 0 ? q & 0xffu | (q & 0xff00u) << 8 : q >> 16 & 0xffu | q >> 8 & 0xff0000u;
    return unpackFloat2x16(both | 0x64006400u);
}

f16vec2 number_pair(Piece w, uint j, uint which) {
#if defined(HAS_TABLE)
    const vec4 x = from_table(bytes(w, 0, j));
    return f16vec2(which == 0 ? x.xy : x.zw);
#elif defined(A_Q8_0)
    return byte_pair(bytes(w, 0, j) ^ 0x80808080u, which) - float16_t(1152.0);
#else
    return byte_pair(bytes(w, 0, j), which) - float16_t(1024.0 - PIECE_OFFSET);
#endif
}

// The weights of quad j.
uvec2 f16_quad(Piece w, uint j) {
    uvec2 both;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const f16vec2 x = number_pair(w, j, i) * float16_t(factor(w, 0));
#ifdef HAS_MINIMUM
        both[i] = packFloat2x16(x + float16_t(minimum(w, 0)));
#else
        both[i] = packFloat2x16(x);
#endif
    }
    return both;
}

#else

uvec2 f16_quad(Piece w, uint j) {
    return j == 0 ? w.both.xy : w.both.zw;
}

#endif

#define row_of_piece(lane, j) row_of_a(place_of_piece(lane, j))

void put_piece(uint lane, uint j, uint tile, uint turn, uint k0, Piece w) {
    const uint row = tile * BM + place_of_piece(lane, j);
    const uint piece = k0 / 8 + lane % PIECES;
#ifdef HAS_QUAD_AT
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uint quad = (quad_at(piece, 0, i) - k0) / 4;
        const uint at = row * STRIDE + quad / 2;
        if (quad % 2 == 0) {
            tiles[at].xy = f16_quad(w, i);
        } else {
            tiles[at].zw = f16_quad(w, i);
        }
    }
#else
    tiles[row * STRIDE + piece - k0 / 8] = uvec4(f16_quad(w, 0), f16_quad(w, 1));
#endif
}

// An invocation loads groups of eight activations; adjacent invocations have adjacent groups along k.
const uint LOADS_B = BN * PIECES / WG;
uvec4 v[LOADS_B];

// Columns in scratch end with zeros.
void fetch_b(uint lane, uint k0, bool whole) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        const uint i = lane + j * WG;
        v[j] = rounded[row_of_b(i / PIECES) + k0 / 8 + i % PIECES];
    }
}

void put_b(uint lane, uint tile, uint turn) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        const uint i = lane + j * WG;
        tiles[TILES_B + (tile * BN + i / PIECES) * STRIDE + i % PIECES] = v[j];
    }
}

#define too_large(turn) false

#include "matrix.glsl"

const uint ROWS = TM / MATRIX_M;
const uint COLUMNS = TN / MATRIX_N;

// A subgroup's part of the result.
MATRIX_SUMS sums[ROWS * COLUMNS];

void begin(uint lane, uint slice) {
    [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; i++) {
        CLEAR(sums[i]);
    }
}

// First row and column of a subgroup in the tile.
uint subgroup_row(uint slice) {
    return (gl_SubgroupID - slice * SUBGROUPS) % (BM / TM) * TM;
}

uint subgroup_column(uint slice) {
    return (gl_SubgroupID - slice * SUBGROUPS) / (BM / TM) * TN;
}

void multiply(uint lane, uint slice, uint turn) {
    const uint tile = turn * SLICES + slice;
    const uint a0 = (tile * BM + subgroup_row(slice)) * STRIDE;
    const uint b0 = TILES_B + (tile * BN + subgroup_column(slice)) * STRIDE;
    [[unroll]] for (uint k = 0; k < BK; k += MATRIX_K) {
        MATRIX_A x[ROWS];
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            LOAD_A(x[i], a0 + i * MATRIX_M * STRIDE + k / 8, STRIDE);
        }
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            MATRIX_B y;
            LOAD_B(y, b0 + j * MATRIX_N * STRIDE + k / 8, STRIDE);
            [[unroll]] for (uint i = 0; i < ROWS; i++) {
                MULTIPLY_ADD(x[i], y, sums[j * ROWS + i]);
            }
        }
    }
}

// Number `at` of the strip of subgroup `i`.
float strip_sum(uint i, uint at) {
    return uintBitsToFloat(tiles[(i * TM * MATRIX_N + at) / 4][at % 4]);
}

void store_sums(uint lane, uint slice) {
    const uint own = gl_SubgroupID - slice * SUBGROUPS;
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        barrier();
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            STORE_SUMS(sums[j * ROWS + i], (gl_SubgroupID * TM * MATRIX_N + i * MATRIX_M) / 4, TM / 4);
        }
        barrier();
        for (uint i = gl_SubgroupInvocationID; i < TM * MATRIX_N / SLICES; i += LANES) {
            const uint r = i % TM;
            const uint c = i / TM * SLICES + slice;
            float sum = 0.0;
            [[unroll]] for (uint s = 0; s < SLICES; s++) {
                sum += strip_sum(s * SUBGROUPS + own, c * TM + r);
            }
            const uint column = subgroup_column(slice) + j * MATRIX_N + c;
            store(subgroup_row(slice) + r, column, part_of_tile ? sum : sum * factor_of(column));
        }
    }
}

#endif
