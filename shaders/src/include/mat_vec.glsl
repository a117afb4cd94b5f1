// Mat-vec: the products of rows of a with COLS rows of b, for the kernels of MUL_MAT and MUL_MAT_ID with few columns.
//
// Limited by the bytes of a, so the work split follows a's memory. A work-group has TEAMS teams of adjacent invocations. A team
// computes ROWS rows times COLS columns, and its invocations proceed along the rows together: each takes the next piece of
// every row (Q8_0: 16 weights, half a block of 34 bytes; Q4_K: 32 weights, 16 bytes and the 16 of the block's head) and the
// corresponding activations, which the ROWS rows share. Pieces stay packed in registers and are unpacked quad by quad; the
// factor of a group is applied to the sum of its products. All loads of weights of a step are issued before the first is used:
// the number of bytes in flight determines the speed of matrices with too few rows to fill the device. At the end partial sums
// are added over the team.
//
// Variants: type of a; lds, subgroup, int8 and staged. Activations are F32 with the first two (four bytes from memory for each
// weight and column), which differ in how sums are added over a team, and blocks of 8 bits with int8 (mat_vec_int8.glsl), which
// adds as subgroup does. There a team is one or more subgroups. With the fourth one, staged, weights pass through shared memory
// during the computation (mat_vec_staged.glsl).
//
// Specialisation: work-group size, ROWS, COLS, ALIGNED (strides and offsets allow 16-byte loads: of plain types of a, and of
// b), EVEN (rows of types whose blocks are an odd number of half-words start with whole words), TEAMS, SUBGROUPS (the largest
// number in a work-group; a team is one or more of them, with int8 also a part of one), CHUNK (int8: elements of a column at a
// time, a multiple of 512), QUADS (int8: quads that an invocation rounds at a time, 2 or 4).
// Shared memory: lds ROWS * COLS * (work-group + 8 + 8 TEAMS) floats; subgroup one float for each value and subgroup; int8 also
// 9 bytes for 8 elements of a chunk of each column, for some types 11.
//
// The including shader has vec_shape.glsl, b, and matrices. It defines MATRIX_OF(r), the matrix of row r of a team, and
// HAS_NORM: true if activations are to be multiplied by load_norm_weight, and the products divided by the root of the mean
// square of the row of b. LENGTH is that of a row of b. A row of a has the same length or, with JOINED, consists of one row of
// each of several matrices in sequence: PLACE(first, i) then declares which `piece` of a row piece first + i is, and in `begin`
// the distance of that row from the start of the rows; SHARE_OF(x) is x times the weight of that matrix. All invocations call
// mat_vec(row_a, row_b) with the starts of the rows of the invocation's team() and of the columns in the operands. Then
// total(team, r, c) is the product of row r of a team and column c.
#ifndef MAT_VEC_GLSL
#define MAT_VEC_GLSL

#ifdef USE_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

const uint WG = gl_WorkGroupSize.x;
const uint TEAM = WG / TEAMS;
const uint VALUES = ROWS * COLS;

#if defined(STAGED)
// See stage.glsl.
#elif defined(USE_SUBGROUP)
const uint PARTIALS = SUBGROUPS > TEAMS ? SUBGROUPS : TEAMS;
shared float partial[VALUES * PARTIALS];
shared float squares_of[HAS_NORM ? COLS * PARTIALS : 1];
#else
// A stride of 8 plus a multiple of 32 puts the eight readers of each value on different banks.
const uint STRIDE = WG + 8;
shared float partial[VALUES * STRIDE];
shared float eighths[VALUES * 8 * TEAMS];
shared float squares_of[HAS_NORM ? COLS * STRIDE : 1];
shared float square_eighths[HAS_NORM ? COLS * 8 * TEAMS : 1];
#endif

// Number of the invocation, in which invocations of a subgroup are adjacent, and its team.
#ifdef USE_SUBGROUP
uint invocation() {
    return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
}

uint team() {
#ifdef INT8
    if (TEAM < gl_SubgroupSize) {
        return invocation() / TEAM;
    }
#endif
    return gl_SubgroupID / (gl_NumSubgroups / TEAMS);
}
#else
uint invocation() {
    return gl_LocalInvocationIndex;
}

uint team() {
    return TEAMS == 1 ? 0 : gl_LocalInvocationIndex / TEAM;
}
#endif

// Adds a group's part to sums: its products and, if there are minima, the sum `all` of its activations.
#ifdef HAS_MINIMUM
#define ADD_GROUP(w, g, v, products, all)                                                                              \
    factors[v] += factor(w, g) * (products);                                                                           \
    minima[v] += minimum(w, g) * (all);
#else
#define ADD_GROUP(w, g, v, products, all) factors[v] += factor(w, g) * (products);
#endif

#ifdef INT8
#include "mat_vec_int8.glsl"
#else
#include "mat_vec_f32.glsl"
#endif

// Products of pieces i of all rows with the activations of all columns.
#define MULTIPLY(w, i)                                                                                                 \
    {                                                                                                                  \
        float factors[VALUES];                                                                                         \
        float minima[VALUES];                                                                                          \
        [[unroll]] for (uint v = 0; v < VALUES; v++) {                                                                 \
            factors[v] = 0.0;                                                                                          \
            minima[v] = 0.0;                                                                                           \
        }                                                                                                              \
        MULTIPLY_GROUPS(w, i)                                                                                          \
        [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                                   \
            const vec2 whole = of_piece(w[r]);                                                                         \
            [[unroll]] for (uint c = 0; c < COLS; c++) {                                                               \
                const uint v = c * ROWS + r;                                                                           \
                sums[v] += SHARE_OF(whole.x * factors[v] + whole.y * minima[v]);                                       \
            }                                                                                                          \
        }                                                                                                              \
    }

// Products of `end` pieces of the rows; `first` is the number of activations before them.
#define WALK(first, end)                                                                                               \
    for (uint i = invocation() % TEAM; i < end; i += TEAM) {                                                           \
        PLACE(first, i)                                                                                                \
        Piece w[ROWS];                                                                                                 \
        [[unroll]] for (uint r = 0; r < ROWS; r++) {                                                                   \
            matrix = MATRIX_OF(r);                                                                                     \
            w[r] = load_piece(row_a[r] + begin, piece);                                                                \
        }                                                                                                              \
        MULTIPLY(w, i)                                                                                                 \
    }

// Adds values over the team, or over the team's part in a subgroup, into shared memory.
#if defined(INT8)
#define SHARE(count, values, into)                                                                                     \
    [[unroll]] for (uint i = 0; i < count; i++) {                                                                      \
        float sum = values[i];                                                                                         \
        if (TEAM < gl_SubgroupSize) {                                                                                  \
            [[unroll]] for (uint lanes = 1; lanes < TEAM; lanes *= 2) {                                                \
                sum += subgroupShuffleXor(sum, lanes);                                                                 \
            }                                                                                                          \
            if (invocation() % TEAM == 0) {                                                                            \
                into[team() * count + i] = sum;                                                                        \
            }                                                                                                          \
        } else {                                                                                                       \
            sum = subgroupAdd(sum);                                                                                    \
            if (subgroupElect()) {                                                                                     \
                into[gl_SubgroupID * count + i] = sum;                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }
#elif defined(USE_SUBGROUP)
#define SHARE(count, values, into)                                                                                     \
    [[unroll]] for (uint i = 0; i < count; i++) {                                                                      \
        const float sum = subgroupAdd(values[i]);                                                                      \
        if (subgroupElect()) {                                                                                         \
            into[gl_SubgroupID * count + i] = sum;                                                                     \
        }                                                                                                              \
    }
#else
#define SHARE(count, values, into)                                                                                     \
    [[unroll]] for (uint i = 0; i < count; i++) {                                                                      \
        into[i * STRIDE + gl_LocalInvocationIndex] = values[i];                                                        \
    }
// Eight invocations for each value of a team add every eighth partial sum.
#define SHARE_EIGHTHS(count, from, into)                                                                               \
    for (uint i = gl_LocalInvocationIndex; i < count * 8 * TEAMS; i += WG) {                                           \
        const uint at = i / 8 % count * STRIDE + i / 8 / count * TEAM + i % 8;                                         \
        float sum = from[at];                                                                                          \
        [[unroll]] for (uint j = 8; j < TEAM; j += 8) {                                                                \
            sum += from[at + j];                                                                                       \
        }                                                                                                              \
        into[i] = sum;                                                                                                 \
    }
#endif

#ifdef USE_SUBGROUP
#define ADDED(count, from, team, v, sum)                                                                               \
    const uint each = max(gl_NumSubgroups / TEAMS, 1);                                                                 \
    for (uint s = 0; s < each; s++) {                                                                                  \
        sum += from[((team) * each + s) * count + v];                                                                  \
    }
#else
#define ADDED(count, from, team, v, sum)                                                                               \
    [[unroll]] for (uint s = 0; s < 8; s++) {                                                                          \
        sum += from[((team) * count + v) * 8 + s];                                                                     \
    }
#endif

// Inverse of the root of the mean square of column c.
float norm_of(uint c) {
    float sum = 0.0;
#ifdef INT8
    // The whole work-group has read the column once.
    for (uint s = 0; s < max(gl_NumSubgroups, TEAMS); s++) {
        sum += squares_of[s * COLS + c];
    }
#elif defined(USE_SUBGROUP)
    ADDED(COLS, squares_of, 0, c, sum)
#else
    ADDED(COLS, square_eighths, 0, c, sum)
#endif
    return inversesqrt(sum / float(LENGTH) + EPS);
}

float total(uint of_team, uint r, uint c) {
    float sum = 0.0;
#ifdef USE_SUBGROUP
    ADDED(VALUES, partial, of_team, c * ROWS + r, sum)
#else
    ADDED(VALUES, eighths, of_team, c * ROWS + r, sum)
#endif
    return HAS_NORM ? sum * norm_of(c) : sum;
}

#ifdef STAGED
#include "mat_vec_staged.glsl"
#else

void mat_vec(uint row_a[ROWS], uint row_b[COLS]) {
    float sums[VALUES];
    float squares[COLS];
    [[unroll]] for (uint i = 0; i < VALUES; i++) {
        sums[i] = 0.0;
    }
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        squares[c] = 0.0;
    }
    prepare_weights();
    MULTIPLY_ALL
    SHARE(VALUES, sums, partial)
    if (HAS_NORM) {
        SHARE(COLS, squares, squares_of)
    }
    barrier();
#ifndef USE_SUBGROUP
    SHARE_EIGHTHS(VALUES, partial, eighths)
    if (HAS_NORM) {
        SHARE_EIGHTHS(COLS, squares_of, square_eighths)
    }
    barrier();
#endif
}

#endif

#endif
