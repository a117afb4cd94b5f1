// Mat-vec with activations in F32, directly from memory. See mat_vec.glsl.
#ifndef MAT_VEC_F32_GLSL
#define MAT_VEC_F32_GLSL

// A group of all rows and columns.
#define MULTIPLY_GROUP(w, i, g)                                                                                        \
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
                x[r] = quad(w[r], g, j);                                                                               \
            }                                                                                                          \
            const vec4 of_norm = HAS_NORM ? load_norm_weight(quad_at(i, g, j)) : vec4(1.0);                            \
            [[unroll]] for (uint c = 0; c < COLS; c++) {                                                               \
                vec4 y = COLS == 1 ? ahead[g * GROUP_QUADS + j] : load_b(row_b[c] + quad_at(i, g, j));                 \
                if (HAS_NORM) {                                                                                        \
                    squares[c] += dot(y, y);                                                                           \
                    y *= of_norm;                                                                                      \
                }                                                                                                      \
                all[c] += dot(y, vec4(1.0));                                                                           \
                [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                           \
                    products[c * ROWS + r] += dot(x[r], y);                                                            \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                                   \
            [[unroll]] for (uint c = 0; c < COLS; c++) {                                                               \
                const uint v = c * ROWS + r;                                                                           \
                ADD_GROUP(w[r], g, v, products[v] + PIECE_OFFSET * all[c], all[c])                                     \
            }                                                                                                          \
        }                                                                                                              \
    }

// One column is loaded before the first wait; with several, a loop over the groups keeps code and registers small.
#define MULTIPLY_GROUPS(w, i)                                                                                          \
    vec4 ahead[COLS == 1 ? PIECE / 4 : 1];                                                                             \
    if (COLS == 1) {                                                                                                   \
        [[unroll]] for (uint g = 0; g < GROUPS; g++) {                                                                 \
            [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {                                                        \
                ahead[g * GROUP_QUADS + j] = load_b(row_b[0] + quad_at(i, g, j));                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    if (COLS == 1 || GROUPS == 1) {                                                                                    \
        [[unroll]] for (uint g = 0; g < GROUPS; g++) {                                                                 \
            MULTIPLY_GROUP(w, i, g)                                                                                    \
        }                                                                                                              \
    } else {                                                                                                           \
        [[dont_unroll]] for (uint g = 0; g < GROUPS; g++) {                                                            \
            MULTIPLY_GROUP(w, i, g)                                                                                    \
        }                                                                                                              \
    }

#if A_BLOCK == 1
// The rest of a row whose length is not a multiple of eight; JOINED has none.
#define MULTIPLY_REST                                                                                                  \
    for (uint k = LENGTH / 8 * 8 + invocation() % TEAM; k < LENGTH; k += TEAM) {                                       \
        const float of_norm = HAS_NORM ? load_one_norm_weight(k) : 1.0;                                                \
        [[unroll]] for (uint c = 0; c < COLS; c++) {                                                                   \
            const float y = b[row_b[c] + k];                                                                           \
            if (HAS_NORM) {                                                                                            \
                squares[c] += y * y;                                                                                   \
            }                                                                                                          \
            [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                               \
                matrix = MATRIX_OF(r);                                                                                 \
                sums[c * ROWS + r] += load_one(row_a[r], k) * (y * of_norm);                                           \
            }                                                                                                          \
        }                                                                                                              \
    }
#else
#define MULTIPLY_REST
#endif

#define MULTIPLY_ALL                                                                                                   \
    WALK(0, LENGTH / PIECE)                                                                                            \
    MULTIPLY_REST

#endif
