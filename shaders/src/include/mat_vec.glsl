// Mat-vec: the products of ROWS rows of a with COLS rows of b, for the kernels of MUL_MAT and MUL_MAT_ID with few columns.
//
// Bound by the bytes of a, so the work split follows a's memory. A work-group computes ROWS rows times COLS columns; its
// invocations walk along the rows together: each takes the next UNROLL pieces of every row (Q8_0: eight weights, 8 of 34
// bytes of a block, so 64 invocations read 544 bytes without gaps, ROWS times; Q4_K: 32 weights, 16 bytes and the 16 of
// the block's head) and the activations that belong to them (four bytes a weight for each column, shared by the ROWS
// rows). Pieces stay packed in registers and are unpacked quad by quad; the factor of a group is applied to the sum of its
// products. All loads of weights of a step are issued before the first is used: what is under way at a time decides the
// speed where a matrix has too few rows to fill the device. At the end partial sums are added over the work-group.
//
// Specialisation: work-group size, ROWS, COLS, ALIGNED (strides and offsets allow 16-byte loads: of plain types of a,
// and of b), UNROLL.
// Variants: type of a; lds or subgroup, how partial sums are added. Shared memory: lds ROWS * COLS * (work-group + 9)
// floats, subgroup one float for each value and subgroup.
//
// All invocations of the including shader call mat_vec(row_a, row_b): where in the operands the rows begin. It defines
// store(r, c, sum), which gets the product of row r and column c.
#ifndef MAT_VEC_GLSL
#define MAT_VEC_GLSL

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

#ifdef USE_SUBGROUP
// One value for each subgroup, of which there are no more than invocations divided by four.
shared float partial[VALUES * (WG / 4 + 1)];
#else
// A stride that is 8 more than a multiple of 32 puts the eight readers of each value on banks of their own.
const uint STRIDE = WG + 8;
shared float partial[VALUES * STRIDE];
shared float eighths[VALUES * 8];
#endif

// A group's part of a sum, from its products and the sum `all` of its activations, which costs nothing where unused.
#ifdef HAS_MINIMUM
#define OF_GROUP(w, g, products, all) factor(w, g) * (products) + minimum(w, g) * (all)
#else
#define OF_GROUP(w, g, products, all) factor(w, g) * (PIECE_OFFSET != 0.0 ? (products) + PIECE_OFFSET * (all) : (products))
#endif

// Adds the products of group g of pieces w[first ..], pieces i of all rows, with the activations of all columns.
#define MULTIPLY_GROUP(w, first, i, g)                                                                                 \
    {                                                                                                                  \
        float products[VALUES];                                                                                        \
        float all[COLS];                                                                                               \
        [[unroll]] for (uint c = 0; c < COLS; c++) {                                                                   \
            all[c] = 0.0;                                                                                              \
            [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                               \
                products[c * ROWS + r] = 0.0;                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {                                                            \
            vec4 x[ROWS];                                                                                              \
            [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                               \
                x[r] = quad(w[first + r], g, j);                                                                       \
            }                                                                                                          \
            [[unroll]] for (uint c = 0; c < COLS; c++) {                                                               \
                const vec4 y = load_b(row_b[c] + quad_at(i, g, j));                                                    \
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

// All groups. With several columns a loop over them keeps code and registers small.
#if GROUPS == 1
#define MULTIPLY(w, first, i) MULTIPLY_GROUP(w, first, i, 0)
#else
#define MULTIPLY(w, first, i)                                                                                          \
    if (COLS == 1) {                                                                                                   \
        [[unroll]] for (uint g = 0; g < GROUPS; g++) {                                                                 \
            MULTIPLY_GROUP(w, first, i, g)                                                                             \
        }                                                                                                              \
    } else {                                                                                                           \
        [[dont_unroll]] for (uint g = 0; g < GROUPS; g++) {                                                            \
            MULTIPLY_GROUP(w, first, i, g)                                                                             \
        }                                                                                                              \
    }
#endif

void store(uint r, uint c, float sum);

void mat_vec(uint row_a[ROWS], uint row_b[COLS]) {
    const uint lane = gl_LocalInvocationIndex;
    float sums[VALUES];
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
            store(i % ROWS, i / ROWS, sum);
        }
    } else if (lane == 0) {
        [[unroll]] for (uint i = 0; i < VALUES; i++) {
            store(i % ROWS, i / ROWS, sums[i]);
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
        store(i % ROWS, i / ROWS, sum);
    }
#endif
}

#endif
