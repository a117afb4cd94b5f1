// The operations of matrix.glsl, computed by the invocations of a subgroup, so that the surrounding code can be executed on
// devices without matrix units. Slow: each number is read again for every product.
//
// A matrix of operands is its start in shared memory, which must stay unchanged, and its stride. Of a matrix of sums an
// invocation has every LANES-th element, column by column.
#ifndef MATRIX_EMULATED_GLSL
#define MATRIX_EMULATED_GLSL

const uint EACH = MATRIX_M * MATRIX_N / LANES;

struct Sums {
    float of[EACH];
};

struct Place {
    uint at;
    uint stride;
};

// Row and column of element e.
uint sums_row(uint e) {
    return (e * LANES + gl_SubgroupInvocationID) % MATRIX_M;
}

uint sums_column(uint e) {
    return (e * LANES + gl_SubgroupInvocationID) / MATRIX_M;
}

// Product of eight numbers with eight.
float dot_f16(uvec4 x, uvec4 y) {
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        sum += dot(unpackHalf2x16(x[i]), unpackHalf2x16(y[i]));
    }
    return sum;
}

// Number i of those that start at `at`.
float number_of(uint at, uint i) {
    const uint both = tiles[at + i / 8][i % 8 / 2];
    return unpackHalf2x16(both >> 16 * (i % 2)).x;
}

void clear(inout Sums sums) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        sums.of[e] = 0.0;
    }
}

void multiply_add(Place a, Place b, inout Sums sums) {
    [[dont_unroll]] for (uint k = 0; k < MATRIX_K / 8; k++) {
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            sums.of[e] += dot_f16(tiles[a.at + sums_row(e) * a.stride + k], tiles[b.at + sums_column(e) * b.stride + k]);
        }
    }
}

void multiply_add_turned(Place a, Place b, inout Sums sums) {
    [[dont_unroll]] for (uint k = 0; k < MATRIX_K; k++) {
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            sums.of[e] += number_of(a.at + k * a.stride, sums_row(e)) * number_of(b.at + sums_column(e) * b.stride, k);
        }
    }
}

void store_all(Sums sums, uint at, uint stride) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        const uint row = sums_row(e);
        tiles[at + sums_column(e) * stride + row / 4][row % 4] = floatBitsToUint(sums.of[e]);
    }
}

void load_all(out Sums sums, uint at, uint stride) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        const uint row = sums_row(e);
        sums.of[e] = uintBitsToFloat(tiles[at + sums_column(e) * stride + row / 4][row % 4]);
    }
}

void scale_all(inout Sums sums, uint at) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        const uint column = sums_column(e);
        sums.of[e] *= uintBitsToFloat(tiles[at + column / 4][column % 4]);
    }
}

#define MATRIX_A Place
#define MATRIX_B Place
#define MATRIX_SUMS Sums
#define LOAD_A(x, at, stride) x = Place(at, stride)
#define LOAD_A_TURNED(x, at, stride) x = Place(at, stride)
#define LOAD_B(y, at, stride) y = Place(at, stride)
#define CLEAR(sums) clear(sums)
#define MULTIPLY_ADD(x, y, sums) multiply_add(x, y, sums)
#define MULTIPLY_ADD_TURNED(x, y, sums) multiply_add_turned(x, y, sums)
#define STORE_SUMS(sums, at, stride) store_all(sums, at, stride)
#define LOAD_SUMS(sums, at, stride) load_all(sums, at, stride)
#define MATRIX_FACTORS uint
#define LOAD_FACTORS(factors, at) factors = at
#define SCALE_SUMS(sums, factors) scale_all(sums, factors)

#endif
