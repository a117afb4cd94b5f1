// What fragment_matrix.glsl has units for, by the invocations of a subgroup: so that all that stands around them can be
// executed on devices without. Slow: each number is read again for every product.
//
// A matrix of operands is where it begins in shared memory. Of a matrix of sums an invocation has every LANES-th element,
// columns after each other.
#ifndef MATRIX_EMULATED_GLSL
#define MATRIX_EMULATED_GLSL

const uint EACH = MATRIX_M * MATRIX_N / LANES;

struct Sums {
    float of[EACH];
};

// The product of eight numbers with eight.
float dot_f16(uvec4 x, uvec4 y) {
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        sum += dot(unpackHalf2x16(x[i]), unpackHalf2x16(y[i]));
    }
    return sum;
}

void clear(inout Sums sums) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        sums.of[e] = 0.0;
    }
}

void multiply_add(uint a, uint b, inout Sums sums) {
    [[dont_unroll]] for (uint k = 0; k < MATRIX_K / 8; k++) {
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            const uint i = e * LANES + gl_SubgroupInvocationID;
            sums.of[e] += dot_f16(tiles[a + i % MATRIX_M * STRIDE + k], tiles[b + i / MATRIX_M * STRIDE + k]);
        }
    }
}

void store_strip(Sums sums, uint at) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        const uint i = e * LANES + gl_SubgroupInvocationID;
        const uint row = i % MATRIX_M;
        tiles[(at + i / MATRIX_M * TM + row) / 4][row % 4] = floatBitsToUint(sums.of[e]);
    }
}

#define MATRIX_A uint
#define MATRIX_B uint
#define MATRIX_SUMS Sums
#define LOAD_A(x, at) x = at
#define LOAD_B(y, at) y = at
#define CLEAR(sums) clear(sums)
#define MULTIPLY_ADD(x, y, sums) multiply_add(x, y, sums)
#define STORE_SUMS(sums, at) store_strip(sums, at)

#endif
