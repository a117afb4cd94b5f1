// MUL_MAT_ID: products with the matrices (experts) that a token's indices choose: d[m, u, t] = sum over k of
// a[k, m, ids[u, t]] * b[k, u, t].
//
// `mat_vec_id_<type>_r<rows>`: a mat-vec (mat_vec.h) of one column for each pair of an index and a token, with the plane of
// the weights looked up. An index outside the experts is not followed: zeros.
#include "mat_vec.h"

// The product of a pair as a product of matrices; which planes it takes.
struct Pair {
    MulMatParams p;
    Plane plane;
};

DEVICE Pair pair(const MulMatIdParams &p, const i32 *ids) {
    u32 token = group_z() / p.used, index = group_z() - token * p.used;
    u32 expert = uniform((u32)ids[p.off2 + (u64)index * p.nb2[0] + (u64)token * p.nb2[1]]);
    Pair pair;
    pair.p = {p.m, 1, p.k, p.used, p.tokens, 1, 1, {p.nb0[0], p.nb0[1], 0}, {0, p.nb1[0], p.nb1[1]},
              {0, p.nbd[0], p.nbd[1]}, p.off0, p.off1, p.offd, 0};
    pair.plane = {index, token, expert, 0};
    return pair;
}

// group_x: groups of rows; group_z: pairs, the indices of a token one after the other.
template <class W, int R>
DEVICE void mat_vec_id(const u8 *a, const float *b, const i32 *ids, float *d, const MulMatIdParams &p) {
    constexpr u32 ROWS = VEC_THREADS / WAVE * R;
    Pair to = pair(p, ids);
    if (to.plane.a2 < p.experts) {
        mat_vec<W, 1, R, 1>(a, b, d, to.p, to.plane, nullptr);
    } else {
        u32 row = group_x() * ROWS + thread_id();
        if (thread_id() < ROWS && row < p.m) d[row_offset(p.offd, to.p.nbd, 0, to.plane.i2, to.plane.i3) + row] = 0.0f;
    }
}

#define MAT_VEC_ID(type, W, R) \
    KERNEL(VEC_THREADS) \
    mat_vec_id_##type##_r##R(const u8 *a, const float *b, const i32 *ids, float *d, MulMatIdParams p) { \
        mat_vec_id<W, R>(a, b, ids, d, p); \
    }
#define MUL_MAT_ID(type, W) MAT_VEC_ID(type, W, 1) MAT_VEC_ID(type, W, 4)

MUL_MAT_ID(f32, WeightF32)
MUL_MAT_ID(f16, WeightF16)
MUL_MAT_ID(bf16, WeightBF16)
MUL_MAT_ID(q8_0, WeightQ8_0)
MUL_MAT_ID(q4_0, WeightQ4_0)
MUL_MAT_ID(q4_1, WeightQ4_1)
MUL_MAT_ID(q5_0, WeightQ5_0)
MUL_MAT_ID(q5_1, WeightQ5_1)
MUL_MAT_ID(q2_k, WeightQ2_K)
MUL_MAT_ID(q3_k, WeightQ3_K)
MUL_MAT_ID(q4_k, WeightQ4_K)
MUL_MAT_ID(q5_k, WeightQ5_K)
MUL_MAT_ID(q6_k, WeightQ6_K)
MUL_MAT_ID(iq4_nl, WeightIQ4_NL)
MUL_MAT_ID(iq4_xs, WeightIQ4_XS)
MUL_MAT_ID(mxfp4, WeightMXFP4)
