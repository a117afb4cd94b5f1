#version 460
// MUL_MAT with few columns (decoding): d[row, column] = sum over k of a[k, row] * b[k, column].
//
// Bound by the bytes of a, so the work split follows a's memory. A work-group computes ROWS rows times COLS columns; its
// invocations walk along the rows together: each takes the next UNROLL pieces of eight weights of every row (Q8_0: 8 of
// 34 bytes of a block, so 64 invocations read 544 bytes without gaps, ROWS times) and the activations that belong to
// them (32 bytes for each column, shared by the ROWS rows). Weights are converted in registers; the scale of a block is
// applied to the sum of eight products. All loads of weights of a step are issued before the first is used: what is
// under way at a time decides the speed where a matrix has too few rows to fill the device. At the end partial sums are
// added over the work-group.
//
// Specialisation: work-group size, ROWS, COLS, ALIGNED (strides and offsets allow 16-byte loads: of plain types of a,
// and of b), UNROLL.
// Variants: type of a; lds or subgroup, how partial sums are added. Shared memory: lds ROWS * COLS * (work-group + 9)
// floats, subgroup one float for each value and subgroup.

#include "common.glsl"

layout(constant_id = 1) const uint ROWS = 2;
layout(constant_id = 2) const uint COLS = 1;
layout(constant_id = 3) const uint ALIGNED = 0;
layout(constant_id = 4) const uint UNROLL = 1;

#include "mul_mat.glsl"

#ifdef USE_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

const uint WG = gl_WorkGroupSize.x;
const uint VALUES = ROWS * COLS;
// Groups of rows along the grid's x; more go along its y. Some devices allow no more.
const uint FOLD = 65535;

#ifdef USE_SUBGROUP
// One value for each subgroup, of which there are no more than invocations divided by four.
shared float partial[VALUES * (WG / 4 + 1)];
#else
// A stride that is 8 more than a multiple of 32 puts the eight readers of each value on banks of their own.
const uint STRIDE = WG + 8;
shared float partial[VALUES * STRIDE];
shared float eighths[VALUES * 8];
#endif

// Adds the products of pieces w[first ..] of all rows with a column's activations to the sums of that column.
#ifdef TWO_SCALES
#define SCALED(w, of_lo, of_hi) w.scale * (of_lo) + w.scale_hi * (of_hi)
#else
#define SCALED(w, of_lo, of_hi) w.scale * ((of_lo) + (of_hi))
#endif
#define MULTIPLY(w, first, c, lo, hi)                                                                                  \
    {                                                                                                                  \
        const float all_lo = PIECE_OFFSET != 0.0 ? PIECE_OFFSET * dot(lo, vec4(1.0)) : 0.0;                            \
        const float all_hi = PIECE_OFFSET != 0.0 ? PIECE_OFFSET * dot(hi, vec4(1.0)) : 0.0;                            \
        [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                                   \
            const float of_lo = dot(w[first + r].lo, lo) + all_lo;                                                     \
            const float of_hi = dot(w[first + r].hi, hi) + all_hi;                                                     \
            sums[(c) * ROWS + r] += SCALED(w[first + r], of_lo, of_hi);                                                \
        }                                                                                                              \
    }

void store(uint value, float sum, uint row0, uint column0, uint row_d) {
    const uint column = column0 + value / ROWS;
    const uint row = row0 + value % ROWS;
    if (row < p.m && column < p.n) {
        d[row_d + column * p.nbd_0 + row] = sum;
    }
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint row0 = p.first_row + (gl_WorkGroupID.x + gl_WorkGroupID.y * FOLD) * ROWS;
    if (row0 >= p.m) {
        return;
    }
    // z: groups of COLS columns of a matrix after each other.
    const uint groups = (p.n + COLS - 1) / COLS;
    const uint i23 = gl_WorkGroupID.z / groups;
    const uint column0 = (gl_WorkGroupID.z - i23 * groups) * COLS;
    const uint i3 = i23 / p.ne2;
    const uint i2 = i23 - i3 * p.ne2;
    const uint base_a = p.off0 + i2 / p.r2 * p.nb0_1 + i3 / p.r3 * p.nb0_2;
    const uint base_b = p.off1 + i2 * p.nb1_1 + i3 * p.nb1_2;
    // Rows and columns beyond the end repeat the last one and are not stored.
    uint row_a[ROWS];
    uint row_b[COLS];
    float sums[VALUES];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        row_a[r] = base_a + (min(row0 + r, p.m - 1) - p.first_row) * p.nb0_0;
    }
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        row_b[c] = base_b + min(column0 + c, p.n - 1) * p.nb1_0;
    }
    [[unroll]] for (uint i = 0; i < VALUES; i++) {
        sums[i] = 0.0;
    }

    const uint pieces = p.k / 8;
    uint i = lane;
    if (UNROLL > 1) {
        for (; i + (UNROLL - 1) * WG < pieces; i += UNROLL * WG) {
            Piece w[UNROLL * ROWS];
            [[unroll]] for (uint u = 0; u < UNROLL; u++) {
                [[unroll]] for (uint r = 0; r < ROWS; r++) {
                    w[u * ROWS + r] = load_piece(row_a[r], i + u * WG);
                }
            }
            [[unroll]] for (uint u = 0; u < UNROLL; u++) {
                [[unroll]] for (uint c = 0; c < COLS; c++) {
                    const vec4 lo = load_b(row_b[c] + run_0(i + u * WG));
                    const vec4 hi = load_b(row_b[c] + run_1(i + u * WG));
                    MULTIPLY(w, u * ROWS, c, lo, hi)
                }
            }
        }
    }
    for (; i < pieces; i += WG) {
        Piece w[ROWS];
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            w[r] = load_piece(row_a[r], i);
        }
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            const vec4 lo = load_b(row_b[c] + run_0(i));
            const vec4 hi = load_b(row_b[c] + run_1(i));
            MULTIPLY(w, 0, c, lo, hi)
        }
    }
#if A_BLOCK == 1
    for (uint k = p.k / 8 * 8 + lane; k < p.k; k += WG) {
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            const float y = b[row_b[c] + k];
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                sums[c * ROWS + r] += load_one(row_a[r], k) * y;
            }
        }
    }
#endif

    const uint row_d = p.offd + i2 * p.nbd_1 + i3 * p.nbd_2;
#ifdef USE_SUBGROUP
    [[unroll]] for (uint i = 0; i < VALUES; i++) {
        sums[i] = subgroupAdd(sums[i]);
    }
    if (gl_NumSubgroups > 1) {
        if (subgroupElect()) {
            [[unroll]] for (uint i = 0; i < VALUES; i++) {
                partial[gl_SubgroupID * VALUES + i] = sums[i];
            }
        }
        barrier();
        for (uint i = lane; i < VALUES; i += WG) {
            float sum = partial[i];
            for (uint s = 1; s < gl_NumSubgroups; s++) {
                sum += partial[s * VALUES + i];
            }
            store(i, sum, row0, column0, row_d);
        }
    } else if (lane == 0) {
        [[unroll]] for (uint i = 0; i < VALUES; i++) {
            store(i, sums[i], row0, column0, row_d);
        }
    }
#else
    // Two steps: eight invocations for each value add every eighth partial sum, then one adds the eight.
    [[unroll]] for (uint i = 0; i < VALUES; i++) {
        partial[i * STRIDE + lane] = sums[i];
    }
    barrier();
    for (uint i = lane; i < VALUES * 8; i += WG) {
        const uint at = i / 8 * STRIDE + i % 8;
        float sum = partial[at];
        [[unroll]] for (uint j = 8; j < WG; j += 8) {
            sum += partial[at + j];
        }
        eighths[i] = sum;
    }
    barrier();
    for (uint i = lane; i < VALUES; i += WG) {
        float sum = eighths[i * 8];
        [[unroll]] for (uint j = 1; j < 8; j++) {
            sum += eighths[i * 8 + j];
        }
        store(i, sum, row0, column0, row_d);
    }
#endif
}
