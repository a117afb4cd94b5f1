// Fragments of mat_tile.glsl in the registers of single invocations: each multiplies TM rows by TN columns.
//
// For every pair of k (F16: every four) it reads TM + TN vectors of 8 bytes from shared memory and executes 2 TM TN
// multiplications, so 8 x 4 occupies the multipliers 1.3 times as long as shared memory. The rows of an invocation are BM / TM
// apart and its columns BN / TN, so that adjacent invocations read adjacent rows, which the padding of each row puts on
// different banks, and write adjacent elements of the result.
//
// F16: one packed instruction multiplies two adjacent elements along k. Even and odd products of a step of BK are summed in F16
// and then added to the F32 accumulator: 1.8 multiplications for each instruction. Only for quantised weights, which are small:
// chains of 16 products of any two F16 numbers could overflow. Activations may also exceed F16. They are multiplied by a power
// of two on their way to shared memory. It is 1 until one of them exceeds the limit of the fragment; a step with such an
// activation is written again with a smaller factor, which is kept from then on.
//
// A work-group has SLICES times (BM / TM) * (BN / TN) invocations. UNROLL: unrolled steps of the inner loop. Shared memory in
// addition to the tiles: BM * BN floats to add slices, with F16 two words.
#ifndef FRAGMENT_LANES_GLSL
#define FRAGMENT_LANES_GLSL

const bool AHEAD = BUFFERS > 1;
const bool FETCH_LAST = false;
const uint TR = BM / TM;
const uint TC = BN / TN;

#ifdef TILE_F16
#define LDS_VEC f16vec4
const uint VEC = 4;
const uint PAD = 4;
// Activations up to 2048 need no factor.
const uint SMALL = 137;
#else
#define LDS_VEC vec2
const uint VEC = 2;
const uint PAD = 2;
#endif

const uint STRIDE = (BK + PAD) / VEC;
shared LDS_VEC tile_a[BUFFERS * SLICES * BM * STRIDE];
shared LDS_VEC tile_b[BUFFERS * SLICES * BN * STRIDE];

#ifdef TILE_F16
#define PUT(tile, at, v) tile[at] = f16vec4(v)

// Exponent bits of the F32 numbers for which the factor of activations is made: at first those of the largest number that needs
// none, then those of the largest finite activation so far.
uint exponent;
// Largest exponent bits that an invocation found; one for each of two steps, because the next step may start before all have
// read it.
shared uint largest[2];

// Power of two by which activations are multiplied.
float factor_of_b(uint exponent) {
    return uintBitsToFloat((127 + SMALL - exponent) << 23);
}

// An activation times the factor.
vec4 shrunk(vec4 v, uint turn) {
    const vec4 sizes = abs(v);
    const uint size = floatBitsToUint(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w))) >> 23;
    if (size > exponent && size < 255) {
        atomicMax(largest[turn], size);
    }
    return v * factor_of_b(exponent);
}

// Returns true if activations were too large for the factor, and reduces it. The same for all invocations.
bool too_large(uint turn) {
    const uint most = max(exponent, largest[turn]);
    const bool more = most > exponent;
    exponent = most;
    return more;
}
#else
#define PUT(tile, at, v) tile[at] = (v).xy, tile[(at) + 1] = (v).zw
#define shrunk(v, turn) (v)
#define too_large(turn) false
#endif

#define row_of_piece(lane, j) row_of_a(place_of_piece(lane, j))

void put_piece(uint lane, uint j, uint tile, uint turn, uint k0, Piece w) {
    const uint row = tile * BM + place_of_piece(lane, j);
    const uint piece = k0 / 8 + lane % PIECES;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        PUT(tile_a, row * STRIDE + (quad_at(piece, 0, i) - k0) / VEC, weights(w, 0, i));
    }
}

// An invocation loads quads of activations; adjacent invocations have adjacent quads along k.
const uint QUADS = BK / 4;
const uint LOADS_B = BN * QUADS / WG;
vec4 v[LOADS_B];

void fetch_b(uint lane, uint k0, bool whole) {
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
}

void put_b(uint lane, uint tile, uint turn) {
    [[unroll]] for (uint j = 0; j < LOADS_B; j++) {
        const uint i = lane + j * WG;
        PUT(tile_b, (tile * BN + i / QUADS) * STRIDE + i % QUADS * (4 / VEC), shrunk(v[j], turn));
    }
}

#define ROW_OF(lane, i) ((lane) % TR + (i) * TR)
#define COLUMN_OF(lane, j) ((lane) / TR + (j) * TC)
#include "lane_sums.glsl"

void begin(uint lane, uint slice) {
    no_sums();
#ifdef TILE_F16
    // All invocations have read the results of the previous tile.
    barrier();
    exponent = SMALL;
    if (gl_LocalInvocationIndex < 2) {
        largest[gl_LocalInvocationIndex] = SMALL;
    }
    barrier();
#endif
}

void multiply(uint lane, uint slice, uint turn) {
    const uint tile = turn * SLICES + slice;
    const uint row_a = (tile * BM + lane % TR) * STRIDE;
    const uint row_b = (tile * BN + lane / TR) * STRIDE;
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

#endif
