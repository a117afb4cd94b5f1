// Mat-vec with activations in 8 bits (int8.glsl). See mat_vec.glsl.
//
// The work-group rounds CHUNK elements of each column into shared memory; then its teams process that part of their rows. That
// takes about 5 operations for each element, which all rows of the work-group share. The norm's factor does not affect
// rounding: it is applied to the sums, and the squares are added during rounding.
#ifndef MAT_VEC_INT8_GLSL
#define MAT_VEC_INT8_GLSL

#include "int8.glsl"

// If groups are 16 or more adjacent elements whose minimum is multiplied by the sum of activations: these sums, so that not
// every row computes them.
#if defined(HAS_MINIMUM) && (defined(A_Q4_K) || defined(A_Q5_K))
#define STORED_SUMS
const uint SUMMED = 4 * GROUP_QUADS;
#endif

#ifdef STAGED
// Place of the word of four activations. Adjacent invocations read adjacent groups of sixteen: of a step first those with which
// all pieces start, then the next ones.
uint place_of_word(uint word) {
    const uint sixteen = word / 4;
#ifdef A_Q6_K
    const uint i = sixteen / 8 * 2 + sixteen % 2, part = sixteen % 8 / 2;
#else
    const uint i = sixteen / (PIECE / 16), part = sixteen % (PIECE / 16);
#endif
    const uint pieces = STEP / PIECE;
    return (i / pieces * (STEP / 16) + part * pieces + i % pieces) * 4 + word % 4;
}

#define CHUNK_Q(i) words[BYTES_AT * 4 + place_of_word(i)]
#define CHUNK_SCALE(i) floats[SCALE_AT * 4 + (i)]
#define CHUNK_SUM(i) floats[SUM_AT * 4 + (i)]
#else
shared uint chunk_q[COLS * CHUNK / 4];
shared float chunk_scale[COLS * CHUNK / 32];
#define CHUNK_Q(i) chunk_q[i]
#define CHUNK_SCALE(i) chunk_scale[i]
#ifdef STORED_SUMS
shared float chunk_sum[COLS * CHUNK / 16];
#define CHUNK_SUM(i) chunk_sum[i]
#endif
#endif

// Rounds `count` elements from element `first` on of all columns. Adds the squares of this invocation's elements.
void round_chunk(uint row_b[COLS], uint first, uint count, inout float squares[COLS]) {
    for (uint i = invocation(); i < count / (4 * QUADS); i += WG) {
        vec4 of_norm[QUADS];
        if (HAS_NORM) {
            [[unroll]] for (uint j = 0; j < QUADS; j++) {
                of_norm[j] = load_norm_weight(first + 4 * (i * QUADS + j));
            }
        }
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            vec4 x[QUADS];
            [[unroll]] for (uint j = 0; j < QUADS; j++) {
                x[j] = load_b_quad(row_b[c] + first, QUADS * i + j);
            }
            if (HAS_NORM) {
                [[unroll]] for (uint j = 0; j < QUADS; j++) {
                    squares[c] += dot(x[j], x[j]);
                    x[j] *= of_norm[j];
                }
            }
            const uint bits = largest_of_block(x);
            const float scale = to_scale(bits);
            int all = 0;
            [[unroll]] for (uint j = 0; j < QUADS; j++) {
                const uint q = to_bytes(x[j], scale);
                CHUNK_Q(c * (CHUNK / 4) + QUADS * i + j) = q;
                all = dot4(q, ONES, all);
            }
#ifdef STORED_SUMS
            [[unroll]] for (uint lanes = 1; lanes < SUMMED / (4 * QUADS); lanes *= 2) {
                all += subgroupShuffleXor(all, lanes);
            }
            CHUNK_SUM(c * (CHUNK / SUMMED) + i / (SUMMED / (4 * QUADS))) = scale_of(bits) * float(all);
#endif
            if (i % SHARERS == 0) {
                CHUNK_SCALE(c * (CHUNK / 32) + i / SHARERS) = scale_of(bits);
            }
        }
    }
}

#ifdef STORED_SUMS
#define SUM_OF(c, i, g, added) CHUNK_SUM(c * (CHUNK / SUMMED) + quad_at(i, g, 0) / SUMMED)
#else
#define SUM_OF(c, i, g, added) added
#endif

// All groups of all rows and columns.
#define MULTIPLY_GROUPS(w, i)                                                                                          \
    [[unroll]] for (uint g = 0; g < GROUPS; g++) {                                                                     \
        [[unroll]] for (uint c = 0; c < COLS; c++) {                                                                   \
            uint y[GROUP_QUADS];                                                                                       \
            int all = 0;                                                                                               \
            [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {                                                        \
                y[j] = CHUNK_Q(c * (CHUNK / 4) + quad_at(i, g, j) / 4);                                                \
                all = dot4(y[j], ONES, all);                                                                           \
            }                                                                                                          \
            const float scale = CHUNK_SCALE(c * (CHUNK / 32) + quad_at(i, g, 0) / 32);                                 \
            [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                               \
                int products = int(PIECE_OFFSET) * all;                                                                \
                [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {                                                    \
                    products = dot4(bytes(w[r], g, j), y[j], products);                                                \
                }                                                                                                      \
                ADD_GROUP(w[r], g, c * ROWS + r, scale * float(products), SUM_OF(c, i, g, scale * float(all)))         \
            }                                                                                                          \
        }                                                                                                              \
    }

#ifndef STAGED
#define MULTIPLY_ALL                                                                                                   \
    for (uint chunk = 0; chunk < LENGTH; chunk += CHUNK) {                                                             \
        const uint count = min(LENGTH - chunk, CHUNK);                                                                 \
        if (chunk > 0) {                                                                                               \
            barrier();                                                                                                 \
        }                                                                                                              \
        round_chunk(row_b, chunk, count, squares);                                                                     \
        barrier();                                                                                                     \
        WALK(chunk / PIECE, count / PIECE)                                                                             \
        [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                                   \
            row_a[r] += JOINED ? 0 : CHUNK / A_BLOCK;                                                                  \
        }                                                                                                              \
    }
#endif

#endif
