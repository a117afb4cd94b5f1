// Fragments: the parts of two tiles of F16 in LDS that a wavefront multiplies at a time. The sums are F32.
//
// A tile has rows of TILE_K halves: weights of one row, or activations of one column. A fragment has
//
//   LANES     lanes of a wavefront
//   M, N, K   rows of weights, columns, and elements along k
//   Operand   the part of M or N rows of a tile in a lane; `weights` and `columns` load it
//   SUMS      number of sums in a lane; sum i belongs to weights m(i) and column n(i)
//   multiply  adds the products of two operands
//
// With NVIDIA's mma.sync, RDNA's WMMA and CDNA's MFMA, the rows of the first matrix are columns of activations, so that
// adjacent lanes have adjacent elements of a column of the result, which are stored together. With v_dot2_f32_f16 only, a lane
// has 4 x 4 sums.
#pragma once
#include "halves.h"

// True if one instruction adds the products of two pairs of F16 (v_dot2_f32_f16), and if there are matrix units. With
// HAS_MATRIX all types have tiles of F16, with HAS_DOT2 alone only F16 itself (for blocks, bytes are faster).
#define HAS_DOT2 (DEVICE_AMD && HAS_DOT4)
// True if blocks have tiles of F16 because there are no dot products (mat_tile_packed.h).
#define HAS_PACKED_HALVES (DEVICE_AMD && HAS_PACKED16 && !HAS_DOT4)
#define HAS_MATRIX 0
#if !DEVICE_AMD
#if __CUDA_ARCH__ >= 800
#undef HAS_MATRIX
#define HAS_MATRIX 1
#endif
#elif defined(__GFX11__) || defined(__GFX12__) || defined(__gfx908__) || defined(__gfx90a__) || \
    defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#undef HAS_MATRIX
#define HAS_MATRIX 1
#endif

typedef f16 f16x4 __attribute__((ext_vector_type(4)));
typedef f16 f16x8 __attribute__((ext_vector_type(8)));
typedef f16 f16x16 __attribute__((ext_vector_type(16)));
typedef float floats4 __attribute__((ext_vector_type(4)));
typedef float floats8 __attribute__((ext_vector_type(8)));

// NVIDIA's processors have long steps, one of them in LDS: the time goes into waiting for memory, and other work-groups need
// room for their loads. On AMD's processors, the registers of longer loads would leave half of the wavefronts, or one on a
// SIMD. (Tests of NVIDIA's fragments on AMD's processors define TILE_K themselves.)
#if defined(TILE_K)
#elif DEVICE_AMD
#define TILE_K 32u
#else
#define TILE_K 64u
#endif
#define HALF_STEPS (TILE_K == 64 ? 1 : 2)

// Returns the power of two for a row whose largest finite magnitude is `most`.
DEVICE float half_factor(float most) {
    u32 exponent = f32_bits(most) >> 23;
    return bits_f32(minimum(268 - exponent, 253) << 23);
}
// Returns the inverse of a power of two.
DEVICE float inverse_power(float x) { return bits_f32((254u << 23) - f32_bits(x)); }

// Offset of eight halves of a row in a tile: 16 bytes of 128 or 64. The order depends on the row, so that eight adjacent rows
// are on different banks.
DEVICE u32 eight_at(u32 row, u32 eight) {
    return row * TILE_K + (TILE_K == 64 ? (eight ^ row) % 8 : (eight ^ row / 2) % 4) * 8;
}
DEVICE f16x8 load_eight(const u16 *tile, u32 row, u32 eight) {
    return __builtin_bit_cast(f16x8, *(const lds_u32x4 *)(tile + eight_at(row, eight)));
}

// Elements that a lane holds for a matrix instruction of AMD's processors, all of 16 x 16 x 16. Of either operand: HALVES
// adjacent elements along k of one row (lanes 16 apart continue along k, or hold the same). Of the result: one column of the
// second operand, with rows of the first that are STEP apart; the rows of lanes 16 apart are BLOCK apart.
template <u32 LANES_, u32 HALVES_, u32 STEP_, u32 BLOCK> struct Layout {
    static constexpr u32 LANES = LANES_, HALVES = HALVES_, STEP = STEP_, SUMS = 256 / LANES;
    DEVICE u32 row(u32 lane) { return lane % 16; }
    DEVICE u32 k(u32 lane) { return lane / 16 * HALVES % 16; }
    DEVICE u32 result_row(u32 lane, u32 i) { return lane / 16 * BLOCK + i * STEP; }
    DEVICE u32 result_column(u32 lane) { return lane % 16; }
};
typedef Layout<32, 16, 2, 1> LayoutWmma11;
typedef Layout<32, 8, 1, 8> LayoutWmma12;
typedef Layout<64, 4, 1, 4> LayoutMfma;

// The halves of a lane: twice 16 bytes, 16 bytes, or half of that.
template <u32 HALVES> struct Held { typedef f16 Type __attribute__((ext_vector_type(HALVES))); };
template <u32 HALVES> DEVICE typename Held<HALVES>::Type load_halves(const u16 *tile, u32 row, u32 k) {
    if constexpr (HALVES == 16) {
        f16x8 low = load_eight(tile, row, k / 8), high = load_eight(tile, row, k / 8 + 1);
        return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    } else if constexpr (HALVES == 8) {
        return load_eight(tile, row, k / 8);
    } else {
        return __builtin_bit_cast(f16x4, *(const lds_u32x2 *)(tile + eight_at(row, k / 8) + k % 8));
    }
}

// A fragment with one of these layouts; INSTRUCTION multiplies.
template <class L, class INSTRUCTION> struct MatrixFragment {
    static constexpr u32 LANES = L::LANES, M = 16, N = 16, K = 16, SUMS = L::SUMS;
    typedef typename Held<L::HALVES>::Type Operand;
    typedef float Sums __attribute__((ext_vector_type(L::SUMS)));
    DEVICE u32 lane() { return thread_id() % LANES; }
    DEVICE Operand weights(const u16 *tile, u32 row, u32 k) {
        return load_halves<L::HALVES>(tile, row + L::row(lane()), k + L::k(lane()));
    }
    DEVICE Operand columns(const u16 *tile, u32 row, u32 k) { return weights(tile, row, k); }
    DEVICE void multiply(const Operand &weights, const Operand &columns, Sums &sums) {
        sums = INSTRUCTION::multiply(columns, weights, sums);
    }
    DEVICE u32 m(u32) { return L::result_column(lane()); }
    DEVICE u32 n(u32 i) { return L::result_row(lane(), i); }
};

// 4 x 4 sums in a lane, over four elements along k: eight reads of 8 bytes for 32 instructions. Eight adjacent lanes have
// adjacent rows of weights; the rows of one lane are eight apart.
template <class PRODUCT> struct LaneFragment {
    static constexpr u32 LANES = WAVE, M = 32, N = LANES / 2, K = 4, SUMS = 16;
    struct Operand { f16x4 row[4]; };
    typedef float Sums __attribute__((ext_vector_type(16)));
    DEVICE u32 first_m() { return thread_id() % 8; }
    DEVICE u32 first_n() { return thread_id() % LANES / 8; }
    template <u32 APART> DEVICE Operand load(const u16 *tile, u32 row, u32 k) {
        Operand out;
        UNROLL for (u32 i = 0; i < 4; i++) out.row[i] = load_halves<4>(tile, row + i * APART, k);
        return out;
    }
    DEVICE Operand weights(const u16 *tile, u32 row, u32 k) { return load<8>(tile, row + first_m(), k); }
    DEVICE Operand columns(const u16 *tile, u32 row, u32 k) { return load<LANES / 8>(tile, row + first_n(), k); }
    DEVICE void multiply(const Operand &weights, const Operand &columns, Sums &sums) {
        // The reads of the next fragment, moved up to here, would take registers.
        ONE_BY_ONE();
        UNROLL for (u32 e = 0; e < 4; e += 2) UNROLL for (u32 i = 0; i < SUMS; i++) {
            f16x4 a = weights.row[i / 4], b = columns.row[i % 4];
            sums[i] = PRODUCT::of((f16x2){a[e], a[e + 1]}, (f16x2){b[e], b[e + 1]}, sums[i]);
        }
    }
    DEVICE u32 m(u32 i) { return first_m() + i / 4 * 8; }
    DEVICE u32 n(u32 i) { return first_n() + i % 4 * (LANES / 8); }
};

// Two adjacent mma.m16n8k16 of NVIDIA's. Lane l has rows l / 4 and l / 4 + 8 of the result, columns 2 (l % 4) and the next.
// `load_four` (ldmatrix) loads four matrices of 8 x 8 in the layout of the operands; lanes 8i .. 8i + 8 give the rows of matrix
// i.
template <class INSTRUCTION> struct MmaFragment {
    static constexpr u32 LANES = 32, M = 16, N = 16, K = 16, SUMS = 8;
    typedef lds_u32x4 Operand;
    typedef float Sums __attribute__((ext_vector_type(8)));
    DEVICE u32 lane() { return thread_id() % LANES; }
    // Two groups of eight rows, both groups of eight elements of each.
    DEVICE Operand weights(const u16 *tile, u32 row, u32 k) {
        return INSTRUCTION::load_four(tile + eight_at(row + lane() / 16 * 8 + lane() % 8, k / 8 + lane() / 8 % 2));
    }
    // The first eight elements of two groups of eight rows, then the second.
    DEVICE Operand columns(const u16 *tile, u32 row, u32 k) {
        return INSTRUCTION::load_four(tile + eight_at(row + lane() % 16, k / 8 + lane() / 16));
    }
    // `weights` of a tile whose rows are elements along k.
    DEVICE Operand weights_turned(const u16 *tile, u32 k, u32 row) {
        return INSTRUCTION::load_four_turned(tile + eight_at(k + lane() % 16, row / 8 + lane() / 16));
    }
    DEVICE void multiply(const Operand &weights, const Operand &columns, Sums &sums) {
        UNROLL for (u32 i = 0; i < 8; i += 4) {
            float four[4] = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
            INSTRUCTION::multiply(columns, weights[i / 2], weights[i / 2 + 1], four);
            UNROLL for (u32 j = 0; j < 4; j++) sums[i + j] = four[j];
        }
    }
    DEVICE u32 m(u32 i) { return i / 4 * 8 + lane() % 4 * 2 + i % 2; }
    DEVICE u32 n(u32 i) { return lane() / 4 + i / 2 % 2 * 8; }
};

#if HAS_DOT2
struct Dot2 {
    DEVICE float of(f16x2 a, f16x2 b, float c) { return __builtin_amdgcn_fdot2(a, b, c, false); }
};
#endif

// FLUSHES: true if the matrix unit treats F16 numbers below 2^-14 as zeros, which AMD documents for gfx90a only.
#if !DEVICE_AMD && HAS_MATRIX
struct Mma {
    DEVICE lds_u32x4 load_four(const u16 *row) {
        lds_u32x4 x;
        u32 at = (u32)(u64)(IN_LDS const u16 *)row;
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
        return x;
    }
    // Loads four matrices, each transposed.
    DEVICE lds_u32x4 load_four_turned(const u16 *row) {
        lds_u32x4 x;
        u32 at = (u32)(u64)(IN_LDS const u16 *)row;
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
        return x;
    }
    // Copies 16 bytes of memory to LDS, both at multiples of 16; zeros if they are not `there`.
    DEVICE void copy_eight(u16 *to, const u8 *from, bool there) {
        u32 at = (u32)(u64)(IN_LDS const u16 *)to;
        __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
    }
    DEVICE void copied() { __asm__ volatile("cp.async.wait_all;" : : : "memory"); }
    DEVICE void multiply(const lds_u32x4 &a, u32 b0, u32 b1, float *c) {
        __asm__("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
typedef MmaFragment<Mma> Fragment;
#elif defined(__GFX11__)
struct Wmma {
    static constexpr bool FLUSHES = false;
    DEVICE floats8 multiply(f16x16 a, f16x16 b, floats8 c) { return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c); }
};
typedef MatrixFragment<LayoutWmma11, Wmma> Fragment;
#elif defined(__GFX12__)
struct Wmma {
    static constexpr bool FLUSHES = false;
    DEVICE floats8 multiply(f16x8 a, f16x8 b, floats8 c) {
        return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
    }
};
typedef MatrixFragment<LayoutWmma12, Wmma> Fragment;
#elif HAS_MATRIX
struct Mfma {
#if defined(__gfx90a__)
    static constexpr bool FLUSHES = true;
#else
    static constexpr bool FLUSHES = false;
#endif
    DEVICE floats4 multiply(f16x4 a, f16x4 b, floats4 c) {
        return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
    }
};
typedef MatrixFragment<LayoutMfma, Mfma> Fragment;
#elif HAS_DOT2
typedef LaneFragment<Dot2> Fragment;
#endif
