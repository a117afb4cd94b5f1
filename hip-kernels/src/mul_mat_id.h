// The kernels of MUL_MAT_ID, by type: products with the matrices (experts) that a token's indices select, d[m, u, t] = sum over
// k of a[k, m, ids[u, t]] * b[k, u, t]. An index outside the experts is not followed; its results are zeros. The host binds one
// window for all experts.
//
// Few tokens: the kernels of MUL_MAT for one column (mat_vec.h), which look up the plane of the weights.
//
// `mat_tile_id_<type>`, for many tokens: tiles (mat_tile.h) whose columns are pairs of an index and a token with the same
// expert, so that a weight is read and decoded once for up to 32 of them. `gather_pairs` (mul_mat_id.hip) sorts the pairs
// first. `mat_tile_id_int8_<type>` is the same with activations in 8 bits (mat_tile_int8.h, mat_tile_int8_k.h), on targets with
// dot4; `mat_tile_id_half_<type>` with activations in F16 (mat_tile_half.h), on targets with matrix units, and
// `mat_tile_id_packed_<type>` (mat_tile_packed.h), on those that have neither.
#pragma once
#include "mat_tile_half.h"
#include "mat_tile_int8.h"
#include "mat_tile_int8_k.h"
#include "mat_tile_packed.h"

// The token and the index of a pair.
struct Place {
    u32 token, index;
};
DEVICE Place place(const MulMatIdParams &p, u32 pair) {
    u32 token = pair / p.used;
    return {token, pair - token * p.used};
}

// Returns its expert; the number of experts for an index outside of them.
DEVICE u32 expert_of(const MulMatIdParams &p, const i32 *ids, const Place &at) {
    return minimum((u32)ids[p.off2 + (u64)at.index * p.nb2[0] + (u64)at.token * p.nb2[1]], p.experts);
}

// Pairs of an expert that are the columns of a tile: entries first .. first + count of the sorted pairs.
struct TileOfPairs {
    u32 expert, first, count;
};

#define ID_COLUMNS 32u

// Sets the starts of the rows of a tile. Pairs without an expert get the rows of expert 0, but no product is computed.
template <class W, class T>
DEVICE void begin_rows(T &t, const u8 *a, const MulMatIdParams &p, const TileOfPairs &tile) {
    a += ((u64)p.off0 + (u64)(tile.expert < p.experts ? tile.expert : 0) * p.nb0[1]) * W::BYTES;
    UNROLL for (u32 i = 0; i < T::A_LOADS; i++) {
        t.a[i] = a + (u64)minimum(group_x() * T::BM + t.row(i), p.m - 1) * p.nb0[0] * W::BYTES;
    }
}

// Number of elements along k of a tile.
DEVICE u32 depth(const MulMatIdParams &p, const TileOfPairs &tile) { return tile.expert < p.experts ? p.k : 0; }

template <class T>
DEVICE void store_pairs(float *d, const MulMatIdParams &p, const u32 *sorted, const TileOfPairs &tile,
                        float (*sum)[T::TN]) {
    u32 row0 = group_x() * T::BM;
    UNROLL for (u32 j = 0; j < T::TN; j++) {
        u32 column = column_of<T>(T::n0(), j);
        if (column >= tile.count) continue;
        Place at = place(p, sorted[tile.first + column]);
        float *to = d + p.offd + (u64)at.index * p.nbd[0] + (u64)at.token * p.nbd[1];
        store_column<T>(to, row0 + T::m0(), p.m, row0 + T::BM <= p.m, j, sum);
    }
}

// group_x: tiles of rows; group_y: entries of `tiles`.
template <class W, class T>
DEVICE void mat_tile_id(const u8 *a, const float *b, const u32 *sorted, const TileOfPairs *tiles, float *d,
                        const MulMatIdParams &p, typename T::Shared *shared) {
    TileOfPairs tile = tiles[group_y()];
    if (tile.count == 0) return;
    T t;
    begin_rows<W>(t, a, p, tile);
    UNROLL for (u32 i = 0; i < T::B_LOADS; i++) {
        Place at = place(p, sorted[tile.first + minimum(t.row(i), tile.count - 1)]);
        t.b[i] = (const u8 *)(b + p.off1 + (u64)at.index * p.nb1[0] + (u64)at.token * p.nb1[1]);
    }
    typename T::Sums sum;
    walk(t, depth(p, tile), shared, sum);
    store_pairs<T>(d, p, sorted, tile, sum);
}

// Row of a pair in activations that were rounded before: one for each token, or for each of its indices.
DEVICE u64 rounded_row(const MulMatIdParams &p, const Place &at) {
    return p.nb1[0] == 0 ? at.token : (u64)at.token * p.used + at.index;
}

// The same with activations in 8 bits.
template <class W, class T>
DEVICE void mat_tile_id_int8(const u8 *a, const u8 *q, const float *scale, const u32 *sorted, const TileOfPairs *tiles,
                             float *d, const MulMatIdParams &p, typename T::Shared *shared) {
    TileOfPairs tile = tiles[group_y()];
    if (tile.count == 0) return;
    T t;
    begin_rows<W>(t, a, p, tile);
    UNROLL for (u32 i = 0; i < T::B_LOADS; i++) {
        Place at = place(p, sorted[tile.first + minimum(t.row(i), tile.count - 1)]);
        u64 row = rounded_row(p, at);
        t.b[i] = {q + row * p.k, scale + row * (p.k / 32)};
    }
    typename T::Sums sum;
    walk(t, depth(p, tile), shared, sum);
    store_pairs<T>(d, p, sorted, tile, sum);
}

// The same for weights that have HeadK.
template <class W, class T>
DEVICE void mat_tile_id_int8_k(const u8 *a, const u8 *q, const float *blocks, const u32 *sorted,
                               const TileOfPairs *tiles, float *d, const MulMatIdParams &p,
                               typename T::Shared *shared) {
    TileOfPairs tile = tiles[group_y()];
    u32 first = group_x() * T::BM;
    if (tile.count == 0 || first >= p.m) return;
    T t;
    u32 expert = tile.expert < p.experts ? tile.expert : 0;
    a += ((u64)p.off0 + (u64)expert * p.nb0[1] + (u64)first * p.nb0[0]) * W::BYTES;
    t.rows(a, p.nb0[0] * W::BYTES, p.m - 1 - first);
    Place at = place(p, sorted[tile.first + minimum(T::column(), tile.count - 1)]);
    t.columns(q, blocks, 0, (u32)rounded_row(p, at), p.k);
    typename T::Sums sum;
    t.walk(depth(p, tile), shared, sum);
    store_pairs<T>(d, p, sorted, tile, sum);
}

// Results of a tile of pairs.
struct PairsOfHalf {
    float *d;
    const float *scale;
    const u32 *sorted;
    const MulMatIdParams &p;
    u32 count;
    INLINED bool has(u32 n) const { return n < count; }
    INLINED float *column(u32 n) const {
        Place at = place(p, sorted[n]);
        return d + p.offd + (u64)at.index * p.nbd[0] + (u64)at.token * p.nbd[1];
    }
    INLINED float factor(u32 n) const { return scale[rounded_row(p, place(p, sorted[n]))]; }
};

// The same with activations in F16.
template <class W, class T>
DEVICE void mat_tile_id_half(const u8 *a, const u16 *x, const float *scale, const u32 *sorted, const TileOfPairs *tiles,
                             float *d, const MulMatIdParams &p, typename T::Shared *shared) {
    TileOfPairs tile = tiles[group_y()];
    if (tile.count == 0) return;
    sorted += tile.first;
    T t;
    begin_rows<W>(t, a, p, tile);
    UNROLL for (u32 i = 0; i < T::B_LOADS; i++) {
        Place at = place(p, sorted[minimum(t.row(i), tile.count - 1)]);
        t.b[i] = (const u8 *)(x + rounded_row(p, at) * half_pitch(p.k));
    }
    typename T::Sums sums;
    walk(t, depth(p, tile), shared, sums);
    store_sums<T>(PairsOfHalf{d, scale, sorted, p, tile.count}, group_x() * T::BM, p.m, sums);
}

#if HAS_PACKED_HALVES
// The same with the integers of the weights.
template <class W, class T>
DEVICE void mat_tile_id_packed(const u8 *a, const u16 *x, const float *scale, const u32 *sorted, const TileOfPairs *tiles,
                               float *d, const MulMatIdParams &p, typename T::Shared *shared) {
    TileOfPairs tile = tiles[group_y()];
    if (tile.count == 0) return;
    T t;
    begin_rows<W>(t, a, p, tile);
    Place first = place(p, sorted[tile.first + minimum(t.row(), tile.count - 1)]);
    t.b[0] = {(const u8 *)(x + rounded_row(p, first) * half_pitch(p.k))};
    typename T::Sums sum;
    walk(t, depth(p, tile), shared, sum);
    UNROLL for (u32 j = 0; j < T::TN; j++) {
        Place at = place(p, sorted[tile.first + minimum(column_of<T>(T::n0(), j), tile.count - 1)]);
        scale_column<T>(j, scale[rounded_row(p, at)], sum);
    }
    store_pairs<T>(d, p, sorted, tile, sum);
}
#endif

#define TILE_ID_THREADS 128
#define MAT_TILE_ID(type, W) \
    KERNEL(TILE_ID_THREADS) \
    mat_tile_id_##type(const u8 *a, const float *b, const u32 *sorted, const TileOfPairs *tiles, float *d, \
                       MulMatIdParams p) { \
        typedef MatTile<W, 64, ID_COLUMNS, 32, 4, 4> T; \
        LDS T::Shared shared; \
        mat_tile_id<W, T>(a, b, sorted, tiles, d, p, &shared); \
    }

#define MAT_TILE_ID_INT8(type, W) \
    KERNEL(TILE_ID_THREADS) \
    mat_tile_id_int8_##type(const u8 *a, const u8 *q, const float *scale, const u32 *sorted, \
                            const TileOfPairs *tiles, float *d, MulMatIdParams p) { \
        typedef TileInt8<W, 64, ID_COLUMNS, 4, 4> T; \
        LDS T::Shared shared; \
        mat_tile_id_int8<W, T>(a, q, scale, sorted, tiles, d, p, &shared); \
    }

#define MAT_TILE_ID_INT8_K(type, W) \
    KERNEL(TILE_ID_THREADS) \
    mat_tile_id_int8_##type(const u8 *a, const u8 *q, const float *blocks, const u32 *sorted, \
                            const TileOfPairs *tiles, float *d, MulMatIdParams p) { \
        typedef TileInt8K<W, 64, ID_COLUMNS, 4, 4> T; \
        LDS T::Shared shared; \
        mat_tile_id_int8_k<W, T>(a, q, blocks, sorted, tiles, d, p, &shared); \
    }

#define MAT_TILE_ID_HALF(type, W) \
    KERNEL(TILE_ID_THREADS) \
    mat_tile_id_half_##type(const u8 *a, const u16 *x, const float *scale, const u32 *sorted, \
                            const TileOfPairs *tiles, float *d, MulMatIdParams p) { \
        typedef TileHalf<W, Fragment, 64, ID_COLUMNS, TILE_ID_THREADS> T; \
        LDS T::Shared shared[T::STEPS_IN_LDS]; \
        mat_tile_id_half<W, T>(a, x, scale, sorted, tiles, d, p, shared); \
    }

#define MAT_TILE_ID_PACKED(type, W) \
    KERNEL(TILE_ID_THREADS) \
    mat_tile_id_packed_##type(const u8 *a, const u16 *x, const float *scale, const u32 *sorted, \
                              const TileOfPairs *tiles, float *d, MulMatIdParams p) { \
        typedef TilePacked<W, 64, ID_COLUMNS, 4, 4> T; \
        LDS T::Shared shared; \
        mat_tile_id_packed<W, T>(a, x, scale, sorted, tiles, d, p, &shared); \
    }

#define MUL_MAT_ID(type, W) MAT_TILE_ID(type, W)
#if HAS_DOT4
#define MUL_MAT_ID_BLOCKS(type, W) MUL_MAT_ID(type, W) MAT_TILE_ID_INT8(type, W)
#define MUL_MAT_ID_BLOCKS_K(type, W) MUL_MAT_ID(type, W) MAT_TILE_ID_INT8_K(type, W)
#elif HAS_PACKED_HALVES
#define MUL_MAT_ID_BLOCKS(type, W) MUL_MAT_ID(type, W) MAT_TILE_ID_PACKED(type, W)
#define MUL_MAT_ID_BLOCKS_K(type, W) MUL_MAT_ID_BLOCKS(type, W)
#else
#define MUL_MAT_ID_BLOCKS(type, W) MUL_MAT_ID(type, W)
#define MUL_MAT_ID_BLOCKS_K(type, W) MUL_MAT_ID(type, W)
#endif
#if HAS_MATRIX
#define MUL_MAT_ID_HALF(type, W) MAT_TILE_ID_HALF(type, W)
#else
#define MUL_MAT_ID_HALF(type, W)
#endif
