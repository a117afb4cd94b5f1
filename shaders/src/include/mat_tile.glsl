// Tiles of a matrix product, for the kernels of MUL_MAT and MUL_MAT_ID with many columns: BM rows times BN columns through
// shared memory.
//
// A work-group computes one tile of the result and walks along k in steps of BK. In each step it loads BM x BK weights,
// converted from their type on the way, and BN x BK activations to shared memory: each invocation takes pieces of eight
// weights and of four activations, neighbours along k for neighbouring invocations. Then each invocation multiplies TM
// rows with TN columns in registers: for every pair of k (F16: every four) it reads TM + TN vectors of 8 bytes from
// shared memory and issues 2 TM TN multiplications, so 8 x 4 keeps the multipliers busy 1.3 times as long as shared
// memory. The rows of an invocation are BM / TM apart and its columns BN / TN, so that neighbouring invocations read
// neighbouring rows, which the padding of each row puts on different banks, and write neighbouring elements of the
// result.
//
// F16 tiles: one packed instruction multiplies two neighbours along k; even and odd products of a step of BK are summed
// in F16 and then added to the F32 accumulator: 1.8 multiplications for each instruction. Only for quantised weights,
// which are small: chains of 16 products of any two F16 numbers could overflow. Activations may be large. They go to
// shared memory times a power of two, 1 until one of them reaches 2048; a step that meets such a one is loaded again
// with a smaller factor, which holds from then on.
//
// Products with few columns leave too few work-groups to fill a device. Then SLICES parts of a work-group each have tiles
// of their own and take every SLICES-th step along k; their sums are added at the end.
//
// Specialisation: work-group size (SLICES times (BM / TM) * (BN / TN)), BM, BN, BK (a multiple of 8 that divides 32; the
// invocations of a slice divide BM * BK / 8 and BN * BK / 4), TM, TN, UNROLL (steps of the inner loop that are written
// out), ALIGNED (strides and offsets allow 16-byte loads), SLICES.
// Variants: type of a; tile32 or tile16, whether tiles are F32 or F16.
// Shared memory: for each slice (BM + BN) * (BK + 2) floats, F16: (BM + BN) * (BK + 4) halves; BM * BN floats to add
// slices; F16: a word more.
//
// All invocations of the including shader call prepare_weights() once, and mat_tile() for each tile. It defines
//
//     row_of_a(r), row_of_b(c)    where in the operands row r and column c of the tile begin, those beyond the end too
//     store(r, c, sum)            gets the product of row r and column c
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

#ifdef TILE_F16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

#define SMALL_PIECES
#include "mul_mat.glsl"

// Invocations of a slice.
const uint WG = gl_WorkGroupSize.x / SLICES;
const uint TR = BM / TM;
const uint TC = BN / TN;

#ifdef TILE_F16
#define LDS_VEC f16vec4
const uint VEC = 4;
#else
#define LDS_VEC vec2
const uint VEC = 2;
#endif

const uint STRIDE = BK / VEC + 1;
shared LDS_VEC tile_a[SLICES * BM * STRIDE];
shared LDS_VEC tile_b[SLICES * BN * STRIDE];
shared float slice_sums[SLICES > 1 ? BM * BN : 1];

// Four neighbours along k to vector `at` of a tile.
#ifdef TILE_F16
#define PUT(tile, at, v) tile[at] = f16vec4(v)
#else
#define PUT(tile, at, v) tile[at] = (v).xy, tile[(at) + 1] = (v).zw
#endif

#ifdef TILE_F16
// Exponent bits of the F32 numbers that the factor of activations is made for, from 1024 to 2048 at first, and of the
// largest finite activation that an invocation met.
const uint SMALL = 137;
shared uint largest;
uint exponent;

// An activation times the factor.
vec4 shrunk(vec4 v) {
    const vec4 sizes = abs(v);
    const uint size = floatBitsToUint(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w))) >> 23;
    if (size > exponent && size < 255) {
        atomicMax(largest, size);
    }
    return v * uintBitsToFloat((127 + SMALL - exponent) << 23);
}

// Whether activations were too large for the factor; it is smaller then. The same for all invocations.
bool too_large() {
    const bool more = largest > exponent;
    exponent = max(exponent, largest);
    return more;
}
#else
#define shrunk(v) (v)
#define too_large() false
#endif

// What an invocation carries from global to shared memory in a step.
const uint PIECES = BK / 8;
const uint QUADS = BK / 4;
const uint LOADS_A = BM * PIECES / WG;
const uint LOADS_B = BN * QUADS / WG;

uint row_of_a(uint r);
uint row_of_b(uint c);
void store(uint r, uint c, float sum);

// Loads the tiles that begin at k0. All loads are issued before the first value is needed. `whole`: nothing lies beyond
// the end of the rows; what does is zero.
void load_tiles(uint lane, uint slice, uint k0, bool whole) {
    Piece w[LOADS_A];
    vec4 v[LOADS_B];
    [[unroll]] for (uint j = 0; j < LOADS_A; j++) {
        const uint i = lane + j * WG;
        const uint piece = k0 / 8 + i % PIECES;
        const uint row = row_of_a(i / PIECES);
        if (whole || 8 * piece + 8 <= p.k) {
            w[j] = load_piece(row, piece);
        } else {
#if A_BLOCK == 1
            [[unroll]] for (uint l = 0; l < 4; l++) {
                const uint k = 8 * piece + l;
                w[j].lo[l] = k < p.k ? load_one(row, min(k, p.k - 1)) : 0.0;
                w[j].hi[l] = k + 4 < p.k ? load_one(row, min(k + 4, p.k - 1)) : 0.0;
            }
#endif
        }
    }
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        const uint i = lane + j * WG;
        const uint k = k0 + 4 * (i % QUADS);
        const uint at = row_of_b(i / QUADS) + k;
        if (whole || k + 4 <= p.k) {
            v[j] = load_b(at);
        } else {
            [[unroll]] for (uint l = 0; l < 4; l++) {
                v[j][l] = k + l < p.k ? b[at + l] : 0.0;
            }
        }
    }
    [[unroll]] for (uint j = 0; j < LOADS_A; j++) {
        const uint i = lane + j * WG;
        const uint piece = k0 / 8 + i % PIECES;
        const uint at = (slice * BM + i / PIECES) * STRIDE;
        PUT(tile_a, at + (quad_at(piece, 0, 0) - k0) / VEC, weights(w[j], 0, 0));
        PUT(tile_a, at + (quad_at(piece, 0, 1) - k0) / VEC, weights(w[j], 0, 1));
    }
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        const uint i = lane + j * WG;
        PUT(tile_b, (slice * BN + i / QUADS) * STRIDE + i % QUADS * (4 / VEC), shrunk(v[j]));
    }
}

// An invocation's part of the result: TM rows of each of TN columns.
float sums[TM * TN];

// Adds the product of the tiles of a slice to an invocation's sums.
void multiply(uint tr, uint tc, uint slice) {
    const uint row_a = (slice * BM + tr) * STRIDE;
    const uint row_b = (slice * BN + tc) * STRIDE;
#ifdef TILE_F16
    f16vec2 chains[TM * TN];
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        chains[i] = f16vec2(0.0);
    }
#endif
    [[dont_unroll]] for (uint v0 = 0; v0 < BK / VEC; v0 += UNROLL) {
        [[unroll]] for (uint v1 = 0; v1 < UNROLL; v1++) {
            LDS_VEC x[TM];
            [[unroll]] for (uint i = 0; i < TM; i++) {
                x[i] = tile_a[row_a + i * TR * STRIDE + v0 + v1];
            }
            [[unroll]] for (uint j = 0; j < TN; j++) {
                const LDS_VEC y = tile_b[row_b + j * TC * STRIDE + v0 + v1];
                [[unroll]] for (uint i = 0; i < TM; i++) {
#ifdef TILE_F16
                    chains[j * TM + i] = fma(x[i].xy, y.xy, chains[j * TM + i]);
                    chains[j * TM + i] = fma(x[i].zw, y.zw, chains[j * TM + i]);
#else
                    sums[j * TM + i] = fma(x[i].x, y.x, sums[j * TM + i]);
                    sums[j * TM + i] = fma(x[i].y, y.y, sums[j * TM + i]);
#endif
                }
            }
        }
    }
#ifdef TILE_F16
    const float back = uintBitsToFloat((127 + exponent - SMALL) << 23);
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        sums[i] = fma(float(chains[i].x), back, sums[i]);
        sums[i] = fma(float(chains[i].y), back, sums[i]);
    }
#endif
}

void mat_tile() {
    const uint slice = SLICES == 1 ? 0 : gl_LocalInvocationIndex / WG;
    const uint lane = gl_LocalInvocationIndex - slice * WG;
    const uint tr = lane % TR;
    const uint tc = lane / TR;
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        sums[i] = 0.0;
    }
#ifdef TILE_F16
    // All invocations have read what the tile before left.
    barrier();
    exponent = SMALL;
    if (gl_LocalInvocationIndex == 0) {
        largest = SMALL;
    }
#endif
    // Slices have as many steps; those beyond the end of the rows do nothing but wait.
    for (uint k0 = slice * BK; k0 - slice * BK < p.k; k0 += BK * SLICES) {
        const bool some = SLICES == 1 || k0 < p.k;
        do {
            barrier();
            // Rows of blocks of 32 are whole numbers of steps.
            if (A_BLOCK > 1 ? some : k0 + BK <= p.k) {
                load_tiles(lane, slice, k0, true);
            } else if (some) {
                load_tiles(lane, slice, k0, false);
            }
            barrier();
        } while (too_large());
        if (some) {
            multiply(tr, tc, slice);
        }
    }

    if (SLICES > 1) {
        [[unroll]] for (uint s = 1; s < SLICES; s++) {
            barrier();
            [[unroll]] for (uint i = 0; i < TM * TN; i++) {
                if (slice == s) {
                    slice_sums[i * WG + lane] = sums[i];
                }
            }
            barrier();
            [[unroll]] for (uint i = 0; i < TM * TN; i++) {
                if (slice == 0) {
                    sums[i] += slice_sums[i * WG + lane];
                }
            }
        }
        if (slice > 0) {
            return;
        }
    }

    [[unroll]] for (uint j = 0; j < TN; j++) {
        [[unroll]] for (uint i = 0; i < TM; i++) {
            store(tr + i * TR, tc + j * TC, sums[j * TM + i]);
        }
    }
}

#endif
