// CPY and CONT: element n of the source becomes element n of the destination, converted if the types differ.
//
// `copy_<from>_<to>`: a thread moves four elements with consecutive numbers. It divides once to find the first of them in each
// tensor, and then increments the indices with carry. Where both tensors are dense, the four are one access. Types of equal
// width without conversion are copied as bits (`b32`: F32 and I32, `b16`: F16 and BF16).
//
// `gather_words`: copies up to four dense arrays to places in another one, which the host reads after a run. group_y: the
// array.
//
// `copy_transposed_<width>`: for sources whose second index is the dense one (a transposed view). A tile of 32 x 32 passes
// through LDS, so that adjacent lanes read and write adjacent elements; 4224 bytes, rows padded by one element against bank
// conflicts.
#include "index.h"
#include "params.h"

struct Cursor {
    u32 i0, i1, i2, i3;
    u64 at;
};

DEVICE u64 place(const Cursor &c, const u32 *nb) {
    return (u64)c.i0 * nb[0] + (u64)c.i1 * nb[1] + (u64)c.i2 * nb[2] + (u64)c.i3 * nb[3];
}

DEVICE Cursor cursor(u32 n, const u32 *ne, const u32 *nb, u32 off) {
    Cursor c = {n, 0, 0, 0, 0};
    if (ne[1] * ne[2] * ne[3] > 1) {
        u32 row = n / ne[0];
        Index i = row_index(row, ne);
        c.i0 = n - row * ne[0];
        c.i1 = i.i1;
        c.i2 = i.i2;
        c.i3 = i.i3;
    }
    c.at = off + place(c, nb);
    return c;
}

DEVICE void advance(Cursor *c, const u32 *ne, const u32 *nb, u32 off) {
    c->at += nb[0];
    if (++c->i0 < ne[0]) return;
    c->i0 = 0;
    if (++c->i1 == ne[1]) {
        c->i1 = 0;
        if (++c->i2 == ne[2]) {
            c->i2 = 0;
            c->i3++;
        }
    }
    c->at = off + place(*c, nb);
}

// For each type: its stored form, and its value during the copy.
struct B32 {
    typedef u32 T;
    typedef u32x4 T4;
    DEVICE u32 in(T x) { return x; }
    DEVICE T out(u32 x) { return x; }
};
struct B16 {
    typedef u16 T;
    typedef u16x4 T4;
    DEVICE u16 in(T x) { return x; }
    DEVICE T out(u16 x) { return x; }
};
struct F32 {
    typedef float T;
    typedef f32x4 T4;
    DEVICE float in(T x) { return x; }
    DEVICE T out(float x) { return x; }
};
struct F16 {
    typedef u16 T;
    typedef u16x4 T4;
    DEVICE float in(T x) { return f16_to_f32(x); }
    DEVICE T out(float x) { return f32_to_f16(x); }
};
struct BF16 {
    typedef u16 T;
    typedef u16x4 T4;
    DEVICE float in(T x) { return bf16_to_f32(x); }
    DEVICE T out(float x) { return f32_to_bf16(x); }
};

template <class S, class D> DEVICE void copy(const typename S::T *a, typename D::T *d, const CopyParams &p) {
    u32 n = (group_x() * ROW_THREADS + thread_id()) * 4;
    if (n >= p.count) return;
    Cursor from = cursor(n, p.ne0, p.nb0, p.off0), to = cursor(n, p.ned, p.nbd, p.offd);
    if (p.nb0[0] == 1 && p.nbd[0] == 1 && from.i0 + 4 <= p.ne0[0] && to.i0 + 4 <= p.ned[0]) {
        typename S::T4 x = *(const typename S::T4 *)(a + from.at);
        typename D::T4 y;
        UNROLL for (int j = 0; j < 4; j++) y[j] = D::out(S::in(x[j]));
        *(typename D::T4 *)(d + to.at) = y;
        return;
    }
    u32 count = minimum(p.count - n, 4);
    NO_UNROLL for (u32 j = 0; j < count; j++) {
        d[to.at] = D::out(S::in(a[from.at]));
        advance(&from, p.ne0, p.nb0, p.off0);
        advance(&to, p.ned, p.nbd, p.offd);
    }
}

#define COPY(name, S, D) \
    KERNEL(ROW_THREADS) copy_##name(const S::T *a, D::T *d, CopyParams p) { copy<S, D>(a, d, p); }
COPY(b32, B32, B32)
COPY(b16, B16, B16)
COPY(f32_f16, F32, F16)
COPY(f32_bf16, F32, BF16)
COPY(f16_f32, F16, F32)
COPY(bf16_f32, BF16, F32)
COPY(f16_bf16, F16, BF16)
COPY(bf16_f16, BF16, F16)

struct GatherParams {
    u32 words[4];
    u32 at[4];
};

KERNEL(ROW_THREADS) gather_words(const u32 *a0, const u32 *a1, const u32 *a2, const u32 *a3, u32 *d, GatherParams p) {
    u32 array = group_y(), i = group_x() * ROW_THREADS + thread_id();
    const u32 *a = array == 0 ? a0 : array == 1 ? a1 : array == 2 ? a2 : a3;
    if (i < p.words[array]) d[p.at[array] + i] = a[i];
}

// A tile of 32 columns by 32 rows of the destination: group_x counts tiles horizontally, group_y vertically, group_z planes.
template <class T> DEVICE void copy_transposed(const T *a, T *d, const CopyParams &p, T *tile) {
    u32 thread = thread_id(), across = thread % 32, down = thread / 32;
    u32 i3 = group_z() / p.ned[2], i2 = group_z() - i3 * p.ned[2];
    a += p.off0 + (u64)i2 * p.nb0[2] + (u64)i3 * p.nb0[3];
    d += p.offd + (u64)i2 * p.nbd[2] + (u64)i3 * p.nbd[3];
    u32 x = group_x() * 32, y = group_y() * 32;
    UNROLL for (u32 j = 0; j < 32; j += ROW_THREADS / 32) {
        u32 i0 = x + down + j, i1 = y + across;
        if (i0 < p.ne0[0] && i1 < p.ne0[1]) tile[(down + j) * 33 + across] = a[(u64)i0 * p.nb0[0] + (u64)i1 * p.nb0[1]];
    }
    barrier();
    UNROLL for (u32 j = 0; j < 32; j += ROW_THREADS / 32) {
        u32 i0 = x + across, i1 = y + down + j;
        if (i0 < p.ne0[0] && i1 < p.ne0[1]) d[(u64)i0 * p.nbd[0] + (u64)i1 * p.nbd[1]] = tile[across * 33 + down + j];
    }
}

KERNEL(ROW_THREADS) copy_transposed_b32(const u32 *a, u32 *d, CopyParams p) {
    LDS u32 tile[32 * 33];
    copy_transposed(a, d, p, tile);
}

KERNEL(ROW_THREADS) copy_transposed_b16(const u16 *a, u16 *d, CopyParams p) {
    LDS u16 tile[32 * 33];
    copy_transposed(a, d, p, tile);
}
