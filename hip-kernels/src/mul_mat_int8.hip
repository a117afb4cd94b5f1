// MUL_MAT where rounding is allowed: quantised weights times activations in blocks of 8 bits (int8.h). Products are
// summed exactly within a block, blocks in F32.
//
// `mat_vec_rounding_<type>_n<columns>_r<rows>` for one or two columns, which it rounds itself, `mat_vec_int8_...` for
// few (mat_vec_int8.h), `mat_tile_int8_<type>_<rows>x<columns>` for many (mat_tile_int8.h); these two read what
// `quantize_int8` wrote to scratch.
#include "mat_tile_int8.h"
#include "mat_vec_int8.h"

// A thread rounds eight neighbours of a row of b; rows follow each other in scratch.
KERNEL(ROW_THREADS) quantize_int8(const float *b, u8 *q, float *scale, MulMatParams p) {
    const u32 ne[4] = {p.k, p.n, p.ne2, p.ne3};
    Piece piece = row_piece(p.k / 8);
    if (piece.unit >= p.k / 8 || piece.row >= p.n * p.ne2 * p.ne3) return;
    Index i = row_index(piece.row, ne);
    b += row_offset(p.off1, p.nb1, i.i1, i.i2, i.i3);
    EightInt8 eight = quantize_eight(WeightF32::fetch((const u8 *)b, piece.unit * 8));
    *(lds_u32x2 *)(q + (u64)piece.row * p.k + piece.unit * 8) = eight.q;
    if (piece.unit % 4 == 0) scale[(u64)piece.row * (p.k / 32) + piece.unit / 4] = eight.scale;
}

#define MAT_VEC_CHUNKS(type, W, N, R) \
    KERNEL(INT8_THREADS) \
    mat_vec_rounding_##type##_n##N##_r##R(const u8 *a, const float *b, float *d, MulMatParams p) { \
        LDS Chunk<N> shared; \
        mat_vec_chunks<W, N, R>(a, b, d, p, &shared); \
    }

#define INT8_OPERANDS const u8 *a, const u8 *q, const float *scale, float *d, MulMatParams p

#define MAT_VEC_COLUMNS(type, W, N, R) \
    KERNEL(INT8_THREADS) mat_vec_int8_##type##_n##N##_r##R(INT8_OPERANDS) { \
        mat_vec_columns<W, N, R>(a, q, scale, d, p); \
    }

#define MAT_TILE(type, W, FORM, BM, BN, TM, TN) \
    KERNEL(BM / TM * (BN / TN)) mat_tile_int8_##type##_##BM##x##BN(INT8_OPERANDS) { \
        typedef TileInt8<W, FORM, BM, BN, TM, TN> T; \
        LDS T::Shared shared; \
        mat_tile_int8<W, T>(a, q, scale, d, p, &shared); \
    }

#define MAT_VECS(type, W) \
    MAT_VEC_CHUNKS(type, W, 1, 2) \
    MAT_VEC_CHUNKS(type, W, 1, 4) \
    MAT_VEC_CHUNKS(type, W, 2, 4) \
    MAT_VEC_COLUMNS(type, W, 4, 4) \
    MAT_VEC_COLUMNS(type, W, 8, 4)

#define MAT_TILES(type, W, FORM) \
    MAT_TILE(type, W, FORM, 64, 32, 4, 4) \
    MAT_TILE(type, W, FORM, 64, 64, 4, 4) \
    MAT_TILE(type, W, FORM, 128, 64, 8, 4)

// A target has the kernels that are faster than those for F32 there; the host's tuning.rs has the counts.
#if HAS_DOT4
MAT_VECS(q8_0, WeightQ8_0)
MAT_VECS(q4_0, WeightQ4_0)
MAT_VECS(q6_k, WeightQ6_K)
MAT_TILES(q8_0, WeightQ8_0, Quads)
MAT_TILES(q4_0, WeightQ4_0, Quads)
MAT_TILES(q6_k, WeightQ6_K, Quads)
#elif HAS_PACKED16
MAT_TILES(q4_0, WeightQ4_0, Pairs)
MAT_TILES(q6_k, WeightQ6_K, Pairs)
#endif
