#version 460
// MUL_MAT with few columns (decoding): d[row, column] = sum over k of a[k, row] * b[k, column].
//
// Bound by the bytes of a, so the work split follows a's memory. A work-group computes ROWS rows times COLS columns; its
// invocations walk along the rows together: each takes the next UNROLL pieces of every row (Q8_0: eight weights, 8 of 34
// bytes of a block, so 64 invocations read 544 bytes without gaps, ROWS times; Q4_K: 32 weights, 16 bytes and the 16 of
// the block's head) and the activations that belong to them (four bytes a weight for each column, shared by the ROWS
// rows). Pieces stay packed in registers and are unpacked run by run; the factor of a group is applied to the sum of its
// products. All loads of weights of a step are issued before the first is used: what is under way at a time decides the
// speed where a matrix has too few rows to fill the device. At the end partial sums are added over the work-group.
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

// Runs of a group.
const uint RUNS = PIECE / 4 / GROUPS;
// A group's part of a sum, from its products and the sum `all` of its activations, which costs nothing where unused.
#ifdef HAS_MINIMUM
#define OF_GROUP(w, g, products, all) factor(w, g) * (products) + minimum(w, g) * (all)
#else
#define OF_GROUP(w, g, products, all) factor(w, g) * (PIECE_OFFSET != 0.0 ? (products) + PIECE_OFFSET * (all) : (products))
#endif

// Adds the products of pieces w[first ..], pieces i of all rows, with the activations of all columns to the sums.
#define MULTIPLY(w, first, i)                                                                                          \
    [[unroll]] for (uint g = 0; g < GROUPS; g++) {                                                                     \
        float products[VALUES];                                                                                        \
        float all[COLS];                                                                                               \
        [[unroll]] for (uint c = 0; c < COLS; c++) {                                                                   \
            all[c] = 0.0;                                                                                              \
            [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                               \
                products[c * ROWS + r] = 0.0;                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        [[unroll]] for (uint j = g * RUNS; j < (g + 1) * RUNS; j++) {                                                  \
            vec4 x[ROWS];                                                                                              \
            [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                               \
                x[r] = run(w[first + r], j);                                                                           \
            }                                                                                                          \
            [[unroll]] for (uint c = 0; c < COLS; c++) {                                                               \
                const vec4 y = load_b(row_b[c] + run_at(i, j));                                                        \
                all[c] += dot(y, vec4(1.0));                                                                           \
                [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                           \
                    products[c * ROWS + r] += dot(x[r], y);                                                            \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                                   \
            [[unroll]] for (uint c = 0; c < COLS; c++) {                                                               \
                const uint v = c * ROWS + r;                                                                           \
                sums[v] += OF_GROUP(w[first + r], g, products[v], all[c]);                                             \
            }                                                                                                          \
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

    prepare_weights();
    const uint pieces = p.k / PIECE;
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
                MULTIPLY(w, u * ROWS, i + u * WG)
            }
        }
    }
    for (; i < pieces; i += WG) {
        Piece w[ROWS];
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            w[r] = load_piece(row_a[r], i);
        }
        MULTIPLY(w, 0, i)
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
