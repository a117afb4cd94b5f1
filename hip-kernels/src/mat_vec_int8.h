// Products of quantised weights with few columns of activations in 8 bits. Rows, lanes and loads are those of mat_vec.h.
// Sixteen products take four dot4 and three operations for the scales, instead of about 35 with F32.
//
//   * One or two columns: the work-group rounds the activations itself while it brings them into LDS. That takes about 4
//     operations for each element of a column, shared by all rows of the work-group, and saves a launch and its wait, which
//     would take longer than the reading of a small matrix.
//   * More columns: the product is limited by arithmetic. A launch of its own rounds them first (`quantize_int8`,
//     `normalize_int8`) into scratch: rows of bytes, then a scale for each 32 of them.
#pragma once
#include "int8.h"
#include "mat_vec.h"

// A column in 8 bits; see ColumnF32. E adjacent elements have one scale.
template <class PLACE> struct ColumnInt8 {
    static constexpr bool IS_LDS = PLACE::IS_LDS, ONE_LOOP = DEVICE_AMD && IS_LDS;
    typename PLACE::Bytes q;
    typename PLACE::Floats scale;
    template <int E> struct Raw {
        Bytes<E> q;
        float scale;
    };
    template <int E> INLINED Raw<E> fetch(u32 base, u32 k) const {
        return {*(typename PLACE::template Words<E>)(q + base + k), (scale + base / 32)[k / 32]};
    }
    // An integer, because the sum of products starts with it; for an offset, the sum of the activations.
    template <class W, class B> DEVICE auto bias(const B &b) {
        if constexpr (W::OFFSET) {
            return b.scale * (float)int8_sum<1>(b.q);
        } else {
            return int8_sum<-(int)W::BIAS>(b.q);
        }
    }
    template <class W, class A, class B, class S> DEVICE void add(const A &raw, const B &b, S bias, float *sum) {
        auto q = W::bytes(raw);
        i32 s = W::OFFSET ? 0 : (i32)bias;
        UNROLL for (u32 i = 0; i < sizeof(q) / 4; i++) s = dot4(q[i], b.q[i], s);
        if constexpr (W::OFFSET) *sum = mad(W::offset(raw), bias, *sum);
        *sum = mad(W::factor(raw) * b.scale, (float)s, *sum);
    }
};

// Columns that were rounded before.
template <int N> struct FromMemoryInt8 {
    typedef ColumnInt8<InMemory> Column;
    static constexpr u32 CHUNK = ~0u;
    static constexpr int WIDE = 16;
    struct Shared {};
    const u8 *q;
    const float *scales;
    u64 first;
    INLINED void begin(const VecOperands &o, const VecParams &p, const UseStart &z) {
        first = (u64)z.number * p.p.n;
        q = o.b;
        scales = o.w;
    }
    template <bool> INLINED void bring(const VecOperands &, const VecParams &, Shared *, u32, u32) {}
    INLINED Column column(const VecParams &p, Shared *, u32 n) const {
        u64 at = first + minimum(group_y() * N + n, p.p.n - 1);
        return {q + at * p.p.k, scales + at * (p.p.k / 32)};
    }
    DEVICE float scale(const VecParams &, const Shared *, u32) { return 1.0f; }
};

// Columns that are rounded on their way into LDS.
struct FormInt8 {
    // NVIDIA's processors have more LDS. The host's mat_vec.rs has the same numbers.
    static constexpr u32 CHUNK = DEVICE_AMD ? 14336 : 16384;
    static constexpr int WIDE = 16;
    template <int N> struct __attribute__((aligned(16))) Chunk {
        u8 q[N][CHUNK / N];
        float scale[N][CHUNK / N / 32];
    };
    typedef ColumnInt8<InLds> Column;
    // Four adjacent lanes hold a block.
    template <int N> DEVICE void stage(Chunk<N> *chunk, u32 n, u32 at, const WeightF32::Raw &y) {
        EightInt8 eight = quantize_eight(y);
        *(lds_u32x2 *)(chunk->q[n] + at) = eight.q;
        if (at % 32 == 0) chunk->scale[n][at / 32] = eight.scale;
    }
    template <int N> DEVICE Column column(Chunk<N> *chunk, u32 n) {
        return {(InLds::Bytes)chunk->q[n], (InLds::Floats)chunk->scale[n]};
    }
};
