// Arguments and rows of the kernels for products with few columns (mat_vec.h): what is the same in all lanes.
#pragma once
#include "arguments.h"
#include "index.h"
#include "params.h"

#define VEC_THREADS 256
#define VEC_WAVES (VEC_THREADS / WAVE)

struct VecParams {
    ProductsParams p;
    MatVecParams v;
};
enum { PART_BIAS = 1, PART_RESIDUAL = 8, PART_NORM = 16, PART_GLU = 32 };

// Pointers of absent operands are arbitrary.
struct VecOperands {
    const u8 *a[3];
    // The input, with `w` as the norm's weight; or its columns in 8 bits and their scales.
    const u8 *b;
    const float *w;
    const float *bias[3];
    const float *residual;
    // Experts: their indices, and their weights in a sum.
    const i32 *ids;
    const float *factor;
    float *d[3];
};
#define VEC_ARGUMENTS \
    const u8 *a0, const u8 *a1, const u8 *a2, const u8 *b, const float *w, const float *bias0, const float *bias1, \
        const float *bias2, const float *residual, const i32 *ids, const float *factor, float *d0, float *d1, \
        float *d2, VecParams p
#define VEC_OPERANDS {{a0, a1, a2}, b, w, {bias0, bias1, bias2}, residual, ids, factor, {d0, d1, d2}}

typedef Arguments<VecOperands, VecParams> VecArguments;

// Reads one of the elements of an array among the arguments again: one load in place of choosing between all of them.
template <class T, u32 COUNT> DEVICE T one_of([[maybe_unused]] const VecArguments &known, const T (&all)[COUNT], u32 which) {
#if DEVICE_AMD
    auto at = known.at + ((const u8 *)&all - (const u8 *)&known);
    if constexpr (sizeof(T) == 8) {
        return (T)(const IN_GLOBAL u8 *)((const IN_CONSTANT u64 *)at)[which];
    } else {
        return ((const IN_CONSTANT T *)at)[which];
    }
#else
    T one = all[0];
    UNROLL for (u32 i = 1; i < COUNT; i++) one = which == i ? all[i] : one;
    return one;
#endif
}

// ---- Work of a work-group: the same in all lanes ----

// Rows `row` .. `row` + of_wave of a matrix of m rows, for a GLU also of the second matrix: the rows of a wavefront in a pass,
// out of the R rows whose sums it computes. `which`: the matrix. Its arguments are read again where they are needed, because
// they would take scalar registers throughout the loop over k.
struct Rows {
    u32 which, m, first, row, of_wave;
    // The rows of a work-group start at `first`.
    DEVICE Rows of_group(const VecArguments &known, u32 most, u32 pass) {
        const VecParams &p = known.p;
        u32 group = group_x(), waves = VEC_WAVES >> p.v.split;
        Rows r;
        u32 begin = group < p.v.begin[0] ? 0 : group < p.v.begin[1] ? p.v.begin[0] : p.v.begin[1];
        r.which = group < p.v.begin[0] ? 0 : group < p.v.begin[1] ? 1 : 2;
        r.m = one_of(known, p.p.m, r.which);
        r.of_wave = p.p.parts & PART_GLU ? most / 2 : most;
        r.first = ((group - begin) * p.v.passes + pass) * waves * r.of_wave;
        r.row = r.first + (wave_id() >> p.v.split) * r.of_wave;
        return r;
    }
    INLINED bool done() const { return first >= m; }
    // The memory of the matrix and its offset there in blocks; `second`: of the second one, which may be another part of the
    // same memory.
    INLINED const u8 *memory(const VecArguments &known, bool second) const {
        return second ? known.o.a[1] : one_of(known, known.o.a, which);
    }
    INLINED u32 offset(const VecArguments &known, bool second) const {
        return second ? known.p.p.off0[1] : one_of(known, known.p.p.off0, which);
    }
    INLINED const float *bias(const VecArguments &known) const {
        return one_of(known, known.o.bias, which) + one_of(known, known.p.p.offb, which);
    }
};

// Planes of the input and of the weights.
struct Plane {
    u32 i2, i3, a2, a3;
};

// n / d, for numbers that are the same in all lanes. One iteration for each bit of the quotient, which is small here: little
// code, while the usual division has about thirty instructions.
DEVICE u32 quotient(u32 n, u32 d) {
    u32 q = 0;
    NO_UNROLL for (u32 bit = n < d ? 0 : 1u << (__builtin_clz(d) - __builtin_clz(n)); bit > 0; bit >>= 1) {
        if (n >= d * bit) {
            n -= d * bit;
            q += bit;
        }
    }
    return q;
}

DEVICE Plane plane(u32 number, u32 ne2, u32 r2, u32 r3) {
    if (number == 0) return {0, 0, 0, 0};
    u32 i3 = quotient(number, ne2), i2 = number - i3 * ne2;
    return {i2, i3, quotient(i2, r2), quotient(i3, r3)};
}

// Where a use begins: use number `use` of a sum over experts; otherwise there is only one. The offsets of the matrix in blocks,
// of the input and of the expert's weight in elements; the number of the plane of columns, and that of the matrix. All are
// zeros for the only plane of a product without experts, which is found with one comparison.
struct UseStart {
    u64 matrix, input, factor;
    u32 number, a2;
    // An index outside of the experts: the products are zeros.
    bool absent;
};
DEVICE UseStart start_of_use(const VecOperands &o, const VecParams &p, u32 use) {
    UseStart at = {};
    if (group_z() | p.v.experts) {
        at.number = p.v.summed ? p.v.summed * group_z() + use : group_z();
        Plane z = plane(at.number, p.p.ne2, p.p.r2, p.v.r3);
        if (p.v.experts) {
            i32 index = o.ids[(u64)z.i2 * p.v.nb2[0] + (u64)z.i3 * p.v.nb2[1]];
            z.a2 = uniform(minimum((u32)index, p.v.experts));
            z.a3 = 0;
            at.absent = z.a2 == p.v.experts;
        }
        at.matrix = (u64)z.a2 * p.p.nb0[1] + (u64)z.a3 * p.v.nb03;
        at.input = (u64)z.i2 * p.p.nb1[1] + (u64)z.i3 * p.v.nb13;
        at.factor = (u64)z.i2 * p.v.nbf[0] + (u64)z.i3 * p.v.nbf[1];
        at.a2 = z.a2;
    }
    return at;
}
