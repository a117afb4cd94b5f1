// The fragments of every matrix unit on a processor that has none: what the instructions do is written out, element by
// element as their documents say, by exchange between lanes.
#pragma once
#include "fragment.h"

// The word of another lane of the same `LANES`.
template <u32 LANES> DEVICE u32 of_lane(u32 word, u32 lane) {
    return (u32)__builtin_amdgcn_ds_bpermute((i32)((thread_id() % 64 / LANES * LANES + lane) * 4), (i32)word);
}
DEVICE float low_half(u32 word) { return f16_to_f32((u16)word); }

// v_wmma_f32_16x16x16_f16 of RDNA 3 in wavefronts of 32: lanes 0 .. 16 hold a row of the first matrix, or a column of the
// second, whole; lanes 16 .. 32 the same again. Result: register i of lane l has row 2i + l / 16, column l % 16.
struct DocumentWmma11 {
    static constexpr u32 LANES = 32;
    DEVICE u32 lane(u32 row, u32 k) { return row + k % 2 * 16; }
    DEVICE u32 place(u32 k) { return k; }
    DEVICE u32 row(u32 lane, u32 i) { return 2 * i + lane / 16; }
    DEVICE u32 column(u32 lane) { return lane % 16; }
};
// Of RDNA 4: lanes 0 .. 16 hold elements 0 .. 8 along k, lanes 16 .. 32 elements 8 .. 16. Result: row 8 (l / 16) + i.
struct DocumentWmma12 {
    static constexpr u32 LANES = 32;
    DEVICE u32 lane(u32 row, u32 k) { return row + k / 8 * 16; }
    DEVICE u32 place(u32 k) { return k % 8; }
    DEVICE u32 row(u32 lane, u32 i) { return lane / 16 * 8 + i; }
    DEVICE u32 column(u32 lane) { return lane % 16; }
};
// v_mfma_f32_16x16x16_f16 in wavefronts of 64: four elements along k in each 16 lanes. Result: row 4 (l / 16) + i.
struct DocumentMfma {
    static constexpr u32 LANES = 64;
    DEVICE u32 lane(u32 row, u32 k) { return row + k / 4 * 16; }
    DEVICE u32 place(u32 k) { return k % 4; }
    DEVICE u32 row(u32 lane, u32 i) { return lane / 16 * 4 + i; }
    DEVICE u32 column(u32 lane) { return lane % 16; }
};

// A number as a unit takes it that FLUSHES.
template <bool FLUSHES> DEVICE float taken(u32 word) {
    float x = low_half(word);
    return FLUSHES && __builtin_fabsf(x) < 0x1p-14f ? 0.0f : x;
}

template <class DOCUMENT, bool FLUSHES_ = false> struct Written {
    static constexpr bool FLUSHES = FLUSHES_;
    template <class AB, class C> DEVICE C multiply(AB a, AB b, C c) {
        u32 lane = thread_id() % DOCUMENT::LANES;
        UNROLL for (u32 k = 0; k < 16; k++) {
            f16 of_a = a[DOCUMENT::place(k)], of_b = b[DOCUMENT::place(k)];
            u32 x = __builtin_bit_cast(u16, of_a), y = __builtin_bit_cast(u16, of_b);
            float right = taken<FLUSHES>(of_lane<DOCUMENT::LANES>(y, DOCUMENT::lane(DOCUMENT::column(lane), k)));
            UNROLL for (u32 i = 0; i < sizeof(C) / 4; i++) {
                u32 left = of_lane<DOCUMENT::LANES>(x, DOCUMENT::lane(DOCUMENT::row(lane, i), k));
                c[i] += taken<FLUSHES>(left) * right;
            }
        }
        return c;
    }
};

// ldmatrix: lane l gets of matrix i halves 2 (l % 4) and the next of row l / 4, or, turned, of column l / 4. mma.m16n8k16: of the first operand lane l
// has in register i row l / 4 + 8 (i % 2), elements 2 (l % 4) + 8 (i / 2) and the next along k; of the second in register i
// column l / 4, elements 2 (l % 4) + 8i and the next; of the result in register i row l / 4 + 8 (i / 2), column
// 2 (l % 4) + i % 2.
struct WrittenMma {
    DEVICE void copy_eight(u16 *to, const u8 *from, bool there) {
        lds_u32x4 zeros = {0, 0, 0, 0};
        *(lds_u32x4 *)to = there ? *(const lds_u32x4 *)from : zeros;
    }
    DEVICE void copied() {}
    DEVICE lds_u32x4 load_four(const u16 *row) {
        u32 lane = thread_id() % 32, at = (u32)(u64)(IN_LDS const u16 *)row;
        lds_u32x4 x;
        UNROLL for (u32 i = 0; i < 4; i++) {
            x[i] = ((IN_LDS const u32 *)(u64)of_lane<32>(at, i * 8 + lane / 4))[lane % 4];
        }
        return x;
    }
    DEVICE lds_u32x4 load_four_turned(const u16 *row) {
        u32 lane = thread_id() % 32, at = (u32)(u64)(IN_LDS const u16 *)row;
        lds_u32x4 x;
        UNROLL for (u32 i = 0; i < 4; i++) {
            u32 first = of_lane<32>(at, i * 8 + lane % 4 * 2), second = of_lane<32>(at, i * 8 + lane % 4 * 2 + 1);
            u32 low = ((IN_LDS const u16 *)(u64)first)[lane / 4], high = ((IN_LDS const u16 *)(u64)second)[lane / 4];
            x[i] = low | high << 16;
        }
        return x;
    }
    DEVICE void multiply(const lds_u32x4 &a, u32 b0, u32 b1, float *c) {
        u32 lane = thread_id() % 32;
        UNROLL for (u32 k = 0; k < 16; k++) {
            u32 holder = k % 8 / 2, shift = k % 2 * 16;
            UNROLL for (u32 i = 0; i < 4; i++) {
                u32 x = of_lane<32>(a[i / 2 + k / 8 * 2], lane / 4 * 4 + holder);
                u32 y = of_lane<32>(k < 8 ? b0 : b1, (lane % 4 * 2 + i % 2) * 4 + holder);
                c[i] += low_half(x >> shift) * low_half(y >> shift);
            }
        }
    }
};

typedef MatrixFragment<LayoutWmma11, Written<DocumentWmma11>> FragmentWmma11;
typedef MatrixFragment<LayoutWmma12, Written<DocumentWmma12>> FragmentWmma12;
typedef MatrixFragment<LayoutMfma, Written<DocumentMfma>> FragmentMfma;
// gfx90a's takes numbers below 2^-14 for zeros.
typedef MatrixFragment<LayoutMfma, Written<DocumentMfma, true>> FragmentMfma90a;
typedef MmaFragment<WrittenMma> FragmentMma;
