// Operations between the projections and attention: heads of q, k and v are normed, rotated as in ROPE, and stored, those of k
// and v as parts of cache rows at the given cells. Absent operands are replaced by other pointers.
//
// A wavefront takes one head of one token: first the heads of all parts, then the next token. A lane has pairs of elements: the
// pairs that ROPE rotates or, without rotation, adjacent elements. All loads are issued before the first wait. The results are
// exchanged through LDS, 1 KiB for each wavefront, from which each lane writes eight adjacent elements. A cell outside the
// cache is not written.
#include "index.h"
#include "params.h"
#include "put.h"
#include "rope.h"

#define LONGEST 256
#define PAIRS (LONGEST / 2 / WAVE)
#define WAVES (ROW_THREADS / WAVE)

// Flags in a part's eight bits of `parts`; from bit 4 on the type in which it is stored.
enum { NORMED = 1, TURNED = 2, STORED = 4 };

// Selects one of three values by a number that is the same in all lanes.
template <class T> DEVICE T of_part(u32 part, T first, T second, T third) {
    return part == 0 ? first : part == 1 ? second : third;
}
#define OF_PART(field) of_part(part, p.field[0], p.field[1], p.field[2])

// Writes eight elements of a head, `begin` elements after the start of row, up to the end of the head. Rows are counted in
// blocks.
template <class B> DEVICE void put_head(u8 *d, u64 row, u32 begin, u32 n, const float *x) {
    u32 k = lane_id() * 8;
    if (k >= n) return;
    float eight[8];
    UNROLL for (int j = 0; j < 8; j++) eight[j] = x[minimum(k + j, n - 1)];
    B::put(d + row * B::BYTES, begin + k, eight, begin + n);
}

KERNEL(ROW_THREADS)
heads(const float *x0, const float *x1, const float *x2, const float *w0, const float *w1, const i32 *positions,
      const i32 *cells, const float *table, const float *factors, u8 *d0, u8 *d1, u8 *d2, HeadsParams p) {
    LDS float results[WAVES][LONGEST];
    u32 all = p.heads[0] + p.heads[1] + p.heads[2], index = group_x() * WAVES + wave_id();
    bool there = index < all * p.tokens;
    u32 token = there ? index / all : 0, number = there ? index - token * all : 0;
    u32 part = number < p.heads[0] ? 0 : number < p.heads[0] + p.heads[1] ? 1 : 2;
    u32 head = number - of_part(part, 0u, p.heads[0], p.heads[0] + p.heads[1]);
    u32 what = p.parts >> (8 * part), pairs = what & TURNED ? p.n_dims / 2 : 0;

    const float *x = of_part(part, x0, x1, x2) + OF_PART(offx) + (u64)head * OF_PART(nbh) + (u64)token * OF_PART(nbt);
    const float *w = part == 0 ? w0 + p.offw[0] : w1 + p.offw[1];

    // Elements of a pair; after the end of a head the last one, which is not written.
    u32 first[PAIRS], second[PAIRS];
    f32x2 v[PAIRS], weight[PAIRS], turns[PAIRS];
    auto pair_of = [&](const float *row, int j) {
        return (f32x2){row[minimum(first[j], p.d - 1)], row[minimum(second[j], p.d - 1)]};
    };
    UNROLL for (int j = 0; j < PAIRS; j++) {
        u32 unit = lane_id() + j * WAVE;
        bool halves = unit < pairs && p.neox;
        first[j] = halves ? unit : 2 * unit;
        second[j] = halves ? unit + pairs : 2 * unit + 1;
        v[j] = pair_of(x, j);
    }
    if (what & NORMED) UNROLL for (int j = 0; j < PAIRS; j++) weight[j] = pair_of(w, j);
    u32 row = what & STORED ? (u32)cells[p.off_cells + token] : token;
    float position = 0.0f;
    if (pairs) {
        position = (float)positions[p.off_positions + token];
        UNROLL for (int j = 0; j < PAIRS; j++) {
            u32 pair = minimum(lane_id() + j * WAVE, pairs - 1);
            turns[j] = *(const f32x2 *)(table + pair * 2);
            if (p.has_factors) turns[j] = divided(turns[j], factors[p.off_factors + pair]);
        }
    }

    if (what & NORMED) {
        float sum = 0.0f;
        UNROLL for (int j = 0; j < PAIRS; j++) {
            sum += first[j] < p.d ? v[j][0] * v[j][0] : 0.0f;
            sum += second[j] < p.d ? v[j][1] * v[j][1] : 0.0f;
        }
        float scale = 1.0f / __builtin_sqrtf(wave_reduce<Sum>(sum) / (float)p.d + p.eps);
        UNROLL for (int j = 0; j < PAIRS; j++) v[j] *= scale * weight[j];
    }
    if (pairs) {
        UNROLL for (int j = 0; j < PAIRS; j++) {
            f32x2 y = turned(v[j], position, turns[j], p.magnitude);
            if (lane_id() + j * WAVE < pairs) v[j] = y;
        }
    }

    UNROLL for (int j = 0; j < PAIRS; j++) {
        results[wave_id()][first[j]] = v[j][0];
        results[wave_id()][second[j]] = v[j][1];
    }
    barrier();
    if (!there || (what & STORED && row >= p.rows)) return;
    const float *from = results[wave_id()];
    u8 *d = of_part(part, d0, d1, d2);
    u64 at = (u64)row * OF_PART(nbd) + OF_PART(offd);
    switch (what >> 4 & 3) {
    case 0: put_head<Plain<float>>(d, at, head * p.d, p.d, from); break;
    case 1: put_head<Plain<u16>>(d, at, head * p.d, p.d, from); break;
    case 2: put_head<BlockQ8_0>(d, at, head * p.d, p.d, from); break;
    default: put_head<BlockQ4_0>(d, at, head * p.d, p.d, from); break;
    }
}
