// Matrix units (matrix.glsl) whose sums can be read row by row and become operands (VK_NV_cooperative_matrix2):
//
//     ELEMENTS(sums), ELEMENT(sums, e)   the invocation's elements, and one of them
//     OF_ELEMENTS(sums, f, x)            replaces each element by f(row, column, element, x)
//     LARGEST_OF_ROWS, SUM_OF_ROWS(to, sums)   in all columns, of each row
//     TO_A(x, sums, place)               sums as F16; if emulated, in shared memory from `place` on, two vectors a row
//     LOAD_B_TURNED(y, at, stride)       rows of B, contiguous along N; for MULTIPLY_ADD_B_TURNED
//     MULTIPLY_ADD_B_TURNED(x, y, sums)
//
// Variants: as matrix.glsl.
#ifndef MATRIX_ROWS_GLSL
#define MATRIX_ROWS_GLSL

#include "matrix.glsl"

float larger(const in float x, const in float y) {
    return max(x, y);
}

float sum_of_two(const in float x, const in float y) {
    return x + y;
}

#ifdef EMULATED
#define ELEMENTS(sums) EACH
#define ELEMENT(sums, e) sums.of[e]
#define OF_ELEMENTS(sums, f, x)                                                                                        \
    [[unroll]] for (uint e = 0; e < EACH; e++) {                                                                       \
        sums.of[e] = f(sums_row(e), sums_column(e), sums.of[e], x);                                                    \
    }

// Lanes whose indices differ in bits 4 and 5 have elements of the same row.
#define ROWS_REDUCER(name, combine)                                                                                    \
    void name(out Sums to, Sums of) {                                                                                  \
        float x = of.of[0];                                                                                            \
        [[unroll]] for (uint e = 1; e < EACH; e++) {                                                                   \
            x = combine(x, of.of[e]);                                                                                  \
        }                                                                                                              \
        [[unroll]] for (uint lanes = MATRIX_M; lanes < LANES; lanes *= 2) {                                            \
            x = combine(x, subgroupShuffleXor(x, lanes));                                                              \
        }                                                                                                              \
        [[unroll]] for (uint e = 0; e < EACH; e++) {                                                                   \
            to.of[e] = x;                                                                                              \
        }                                                                                                              \
    }
ROWS_REDUCER(largest_of_rows, larger)
ROWS_REDUCER(sum_of_rows, sum_of_two)

// An invocation with an even column stores it and the next one.
void store_as_halves(Sums sums, uint place) {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        const float next = subgroupShuffleXor(sums.of[e], MATRIX_M);
        const uint column = sums_column(e);
        if (column % 2 == 0) {
            tiles[place + sums_row(e) * 2 + column / 8][column % 8 / 2] = packFloat2x16(f16vec2(sums.of[e], next));
        }
    }
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

void multiply_add_b_turned(Place a, Place b, inout Sums sums) {
    [[dont_unroll]] for (uint k = 0; k < MATRIX_K; k++) {
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            sums.of[e] += number_of(a.at + sums_row(e) * a.stride, k) * number_of(b.at + k * b.stride, sums_column(e));
        }
    }
}

#define LARGEST_OF_ROWS(to, sums) largest_of_rows(to, sums)
#define SUM_OF_ROWS(to, sums) sum_of_rows(to, sums)
#define TO_A(x, sums, place)                                                                                           \
    store_as_halves(sums, place);                                                                                      \
    x = Place(place, 2)
#define LOAD_B_TURNED(y, at, stride) y = Place(at, stride)
#define MULTIPLY_ADD_B_TURNED(x, y, sums) multiply_add_b_turned(x, y, sums)
#else
#extension GL_NV_cooperative_matrix2 : require
#define ELEMENTS(sums) sums.length()
#define ELEMENT(sums, e) sums[e]
#define OF_ELEMENTS(sums, f, x) coopMatPerElementNV(sums, sums, f, x)
#define LARGEST_OF_ROWS(to, sums) coopMatReduceNV(to, sums, gl_CooperativeMatrixReduceRowNV, larger)
#define SUM_OF_ROWS(to, sums) coopMatReduceNV(to, sums, gl_CooperativeMatrixReduceRowNV, sum_of_two)
#define TO_A(x, sums, place) x = MATRIX_A(sums)
#define LOAD_B_TURNED(y, at, stride) coopMatLoad(y, tiles, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define MULTIPLY_ADD_B_TURNED(x, y, sums) MULTIPLY_ADD(x, y, sums)
#endif

#endif
