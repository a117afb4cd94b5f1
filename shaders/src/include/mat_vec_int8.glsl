// Mat-vec with activations in 8 bits: blocks of 32 signed bytes with an F32 scale, the largest magnitude over 127. See
// mat_vec.glsl.
//
// The work-group rounds CHUNK elements of each column into shared memory, then its teams walk along that part of their
// rows. That costs about 5 operations for each element, which all rows of the work-group share. A block with an infinity or
// a NaN gets a NaN for its scale, so that a fault upstream shows in the result; blocks of magnitudes below SMALLEST become
// zeros. The norm's factor does not matter to rounding: it is applied to the sums, and the squares are added on the way.
#ifndef MAT_VEC_INT8_GLSL
#define MAT_VEC_INT8_GLSL

#extension GL_EXT_integer_dot_product : require
#extension GL_KHR_shader_subgroup_shuffle : require

// Magnitude below which 127 over it could be infinite.
const float SMALLEST = 1e-36;

const uint ONES = 0x01010101u;

// Invocations that share a block when it is rounded.
const uint SHARERS = 8 / QUADS;

shared uint chunk_q[COLS * CHUNK / 4];
shared float chunk_scale[COLS * CHUNK / 32];

// The bits of the largest magnitude. As numbers they are in the order of magnitudes, infinity and NaN being the largest;
// with the sign the largest of all is the largest negative one, or the largest of all if none is negative.
uint largest(vec4 x[QUADS]) {
    uint with_sign = 0;
    int positive = 0;
    [[unroll]] for (uint j = 0; j < QUADS; j++) {
        const uvec4 y = floatBitsToUint(x[j]);
        const ivec4 z = floatBitsToInt(x[j]);
        with_sign = max(max(max(with_sign, y.x), y.y), max(y.z, y.w));
        positive = max(max(max(positive, z.x), z.y), max(z.z, z.w));
    }
    return max(with_sign & 0x7fffffffu, uint(positive));
}

// Four numbers times `scale`, of no more than 127 then, rounded to nearest, as bytes: the unit of a number near 1.5 * 2^23
// is 1. With 128 more than the numbers none is negative, and their bits add up without borrowing.
uint to_bytes(vec4 x, float scale) {
    const uvec4 q = floatBitsToUint(x * scale + 12583040.0);
    // 0x4b400000 are the bits of 1.5 * 2^23, shifted as each number is.
    const uint sum = q.x + (q.y << 8) + (q.z << 16) + (q.w << 24) - (0x4b400000u + 0x40000000u);
    return sum ^ 0x80808080u;
}

// Rounds `count` elements from element `first` on of all columns. Squares of this invocation's elements are added.
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
            uint bits = largest(x);
            [[unroll]] for (uint lanes = 1; lanes < SHARERS; lanes *= 2) {
                bits = max(bits, subgroupShuffleXor(bits, lanes));
            }
            const float most = uintBitsToFloat(bits);
            const float scale = most >= SMALLEST ? 127.0 / most : 0.0;
            [[unroll]] for (uint j = 0; j < QUADS; j++) {
                chunk_q[c * (CHUNK / 4) + QUADS * i + j] = to_bytes(x[j], scale);
            }
            if (i % SHARERS == 0) {
                const float finite = most >= SMALLEST ? most / 127.0 : 0.0;
                chunk_scale[c * (CHUNK / 32) + i / SHARERS] = bits < 0x7f800000u ? finite : uintBitsToFloat(0x7fc00000u);
            }
        }
    }
}

int dot4(uint x, uint y, int sum) {
    return dotPacked4x8EXT(int(x), int(y)) + sum;
}

// All groups of all rows and columns.
#define MULTIPLY_GROUPS(w, i)                                                                                          \
    [[unroll]] for (uint g = 0; g < GROUPS; g++) {                                                                     \
        [[unroll]] for (uint c = 0; c < COLS; c++) {                                                                   \
            uint y[GROUP_QUADS];                                                                                       \
            int all = 0;                                                                                               \
            [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {                                                        \
                y[j] = chunk_q[c * (CHUNK / 4) + quad_at(i, g, j) / 4];                                                \
                all = dot4(y[j], ONES, all);                                                                           \
            }                                                                                                          \
            const float scale = chunk_scale[c * (CHUNK / 32) + quad_at(i, g, 0) / 32];                                 \
            [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                               \
                int products = int(PIECE_OFFSET) * all;                                                                \
                [[unroll]] for (uint j = 0; j < GROUP_QUADS; j++) {                                                    \
                    products = dot4(bytes(w[r], g, j), y[j], products);                                                \
                }                                                                                                      \
                ADD_GROUP(w[r], g, c * ROWS + r, scale * float(products), scale * float(all))                          \
            }                                                                                                          \
        }                                                                                                              \
    }

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
