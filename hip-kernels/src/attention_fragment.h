// Fragments (fragment.h) for attention: the matrix units return scores of 16 query rows and 16 positions in the layout in which
// they take weights, so scores and weights stay in the registers of a wavefront. An attention fragment has
//
//   ROWS             number of query rows, of 16, of which a lane has values: row_of_wave(r, lane); sum i belongs to row(i)
//   RUN              sums i .. i + RUN are adjacent if i is a multiple of RUN: positions, or columns of v, from place(i, lane) on
//   reduce           reduces over the lanes that have values of the same row; leads() is true in one of them
//   queries          16 rows and 16 elements of a tile of queries
//   keys             16 positions and 16 elements of a tile of keys
//   values           16 columns and 16 positions of v
//   LONGEST_AHEAD    longest rows for which registers hold the rows of the next step
//   LATENT_VALUES    columns of long rows that a wavefront takes at a time (attention_latent.h)
//   PIECE            elements of a block that a thread loads at a time
//   COPIES           true if rows of F16 are copied to LDS without registers: copy_eight starts a copy of eight of them, or of
//                    zeros if they are not `there`; copied waits for the copies of the thread
//   VALUES_TURNED    true if v is transposed in LDS: rows of a tile are columns of v, and positions are along k
//   multiply_keys, multiply_values   add products to scores, to results
//   REST_EXPONENT    rests of v are multiplied by 2 to this power in LDS, so that no matrix unit treats them as zeros
//   for_rests        the weights, as F16, for the products with these rests
//   weights          converts values in the layout of scores to two operands: the values as F16, and the rounding errors
#pragma once
#include "fragment.h"

template <class FRAGMENT> struct AttentionFragment;

// True if a condition holds in all lanes of a wavefront.
DEVICE bool in_all_lanes(bool x) {
#if !DEVICE_AMD
    return __nvvm_vote_all_sync(0xffffffffu, x);
#elif !__has_builtin(__builtin_amdgcn_ballot_w64)
    // The run-time compiler of ROCm 5.2: a comparison that gives the mask of its lanes. 33 is "not equal".
    return __builtin_amdgcn_uicmp((u32)!x, 0u, 33) == 0;
#elif WAVE == 64
    return __builtin_amdgcn_ballot_w64(!x) == 0;
#else
    return __builtin_amdgcn_ballot_w32(!x) == 0;
#endif
}

// barrier() for the lanes of a wavefront, for LDS that only they write.
DEVICE void wave_barrier() {
#if DEVICE_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    __nvvm_bar_warp_sync(0xffffffffu);
#endif
}

// Returns a value that is the same in all lanes of a wavefront. The compiler can deduce nothing else about it.
DEVICE u32 unknown(u32 x) {
#if DEVICE_AMD
    x = uniform(x);
    __asm__ volatile("" : "+s"(x));
#endif
    return x;
}

// Returns the number, computed before the code that follows. ONE_BY_ONE alone only orders instructions that access memory: the
// compiler may already have moved others after it.
DEVICE float computed_here(float x) {
#if DEVICE_AMD
    __asm__ volatile("" : "+v"(x));
#endif
    return x;
}
// The same for a fragment of sums.
template <class SUMS> DEVICE void sums_here([[maybe_unused]] SUMS &sums) {
#if DEVICE_AMD
    __asm__ volatile("" : "+v"(sums));
#endif
}

// NVIDIA: query rows are the columns of a fragment, positions its rows. Four adjacent lanes share two rows.
template <class INSTRUCTION> struct AttentionFragment<MmaFragment<INSTRUCTION>> {
    typedef MmaFragment<INSTRUCTION> F;
    typedef typename F::Operand Operand;
    typedef typename F::Sums Sums;
    static constexpr u32 LANES = F::LANES, SUMS = F::SUMS, ROWS = 2, RUN = 2;
    // Loads are words of 4 bytes at multiples of 4; a piece of a block takes one more word than it fills.
    static constexpr u32 PIECE = 16, LONGEST_AHEAD = 128, LATENT_VALUES = 64, REST_EXPONENT = 0;
    static constexpr bool VALUES_TURNED = false, COPIES = true;
    DEVICE void copy_eight(u16 *to, const u8 *from, bool there) { INSTRUCTION::copy_eight(to, from, there); }
    DEVICE void copied() { INSTRUCTION::copied(); }
    DEVICE u32 row(u32 i) { return i / 2 % 2; }
    DEVICE u32 row_of_wave(u32 r, u32 lane) { return lane / 4 + r * 8; }
    DEVICE u32 place(u32 i, u32 lane) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }
    DEVICE bool leads() { return F::lane() % 4 == 0; }
    template <class OP> DEVICE float reduce(float x) { return lanes_reduce<OP, 4>(x); }
    DEVICE Operand queries(const u16 *tile, u32 row, u32 k) { return F::columns(tile, row, k); }
    DEVICE Operand keys(const u16 *tile, u32 row, u32 k) { return F::weights(tile, row, k); }
    DEVICE Operand values(const u16 *tile, u32 position, u32 column) {
        return F::weights_turned(tile, position, column);
    }
    DEVICE void multiply_keys(const Operand &keys, const Operand &queries, Sums &scores) {
        F::multiply(keys, queries, scores);
    }
    DEVICE void multiply_values(const Operand &values, const Operand &weights, Sums &results) {
        F::multiply(values, weights, results);
    }
    DEVICE void weights(const Sums &s, Operand &rounded, Operand &rest) {
        UNROLL for (u32 i = 0; i < 4; i++) {
            rounded[i] = half_pair(s[2 * i], s[2 * i + 1]);
            rest[i] = rest_pair(s[2 * i], s[2 * i + 1], rounded[i]);
        }
    }
    DEVICE Operand for_rests(const Operand &weights) { return weights; }
};

// Returns the word of the lane whose index differs in bit 4.
DEVICE u32 word_xor_16(u32 x) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, false, false);
#elif DEVICE_AMD
    return f32_bits(lanes_xor_16(bits_f32(x)));
#else
    return x;
#endif
}
DEVICE float number_xor_32(float x) {
#if DEVICE_AMD
    return bits_f32((u32)__builtin_amdgcn_ds_bpermute((i32)((thread_id() % 64 ^ 32) * 4), (i32)f32_bits(x)));
#else
    return x;
#endif
}

// AMD: positions are the rows of the first operand, query rows those of the second, which become the columns of the result, one
// for each lane. A lane has values of one query row; lanes 16 apart have other positions. With MFMA and on RDNA4, the positions
// that a lane holds of a result are those that it holds of an operand. On RDNA3, the lanes of a half have every other row of
// the result and hold all 16 of an operand. There, the keys are permuted so that a lane has groups of four adjacent positions,
// and the halves exchange weights.
template <class L, class INSTRUCTION> struct AttentionFragment<MatrixFragment<L, INSTRUCTION>> {
    typedef MatrixFragment<L, INSTRUCTION> F;
    typedef typename F::Operand Operand;
    typedef typename F::Sums Sums;
    static constexpr bool VALUES_TURNED = true, COPIES = false, DEALT = L::STEP == 2;
    static constexpr u32 LANES = F::LANES, SUMS = F::SUMS, ROWS = 1, RUN = 4;
    static constexpr u32 PIECE = 8, LONGEST_AHEAD = DEALT ? 64 : 128, LATENT_VALUES = DEALT ? 32 : 64;
    // Rests are multiples of 2^-24, as all F16 numbers are, and at most 16.
    static constexpr u32 REST_EXPONENT = INSTRUCTION::FLUSHES ? 11 : 0;
    DEVICE u32 row(u32) { return 0; }
    DEVICE u32 row_of_wave(u32, u32 lane) { return lane % 16; }
    DEVICE u32 place(u32 i, u32 lane) { return DEALT ? lane / 16 * 4 + i / 4 * 8 + i % 4 : L::result_row(lane, i); }
    DEVICE bool leads() { return F::lane() < 16; }
    template <class OP> DEVICE float reduce(float x) {
        x = OP::of(x, bits_f32(word_xor_16(f32_bits(x))));
        return LANES == 64 ? OP::of(x, number_xor_32(x)) : x;
    }
    // Returns the position in row `slot` of a result.
    DEVICE u32 dealt(u32 slot) { return DEALT ? slot % 2 * 4 + slot / 8 * 8 + slot / 2 % 4 : slot; }
    DEVICE Operand queries(const u16 *tile, u32 row, u32 k) { return F::weights(tile, row, k); }
    DEVICE Operand keys(const u16 *tile, u32 row, u32 k) {
        // Fragments start at multiples of 16 rows, so one address of the lane serves all of them.
        return load_halves<L::HALVES>(tile + row * TILE_K, dealt(F::lane() % 16), k + L::k(F::lane()));
    }
    DEVICE Operand values(const u16 *tile, u32 position, u32 column) { return keys(tile, column, position); }
    DEVICE void multiply_keys(const Operand &keys, const Operand &queries, Sums &scores) {
        F::multiply(queries, keys, scores);
    }
    DEVICE void multiply_values(const Operand &values, const Operand &weights, Sums &results) {
        F::multiply(weights, values, results);
    }
    DEVICE void weights(const Sums &s, Operand &rounded, Operand &rest) {
        typedef u32 Words __attribute__((ext_vector_type(SUMS / 2)));
        Words words, left;
        UNROLL for (u32 i = 0; i < SUMS / 2; i++) {
            words[i] = half_pair(s[2 * i], s[2 * i + 1]);
            left[i] = rest_pair(s[2 * i], s[2 * i + 1], words[i]);
        }
        rounded = whole(words);
        rest = whole(left);
    }
    DEVICE Operand for_rests(const Operand &weights) {
        if constexpr (REST_EXPONENT == 0) return weights;
        return weights * (f16)(1.0f / (1u << REST_EXPONENT));
    }
    // Makes an operand from the lane's own half of the values.
    template <class WORDS> DEVICE Operand whole(const WORDS &own) {
        if constexpr (DEALT) {
            bool upper = F::lane() / 16 % 2;
            typedef u32 Words __attribute__((ext_vector_type(8)));
            Words words;
            UNROLL for (u32 i = 0; i < 4; i++) {
                u32 other = word_xor_16(own[i]);
                // The lower half has positions 8 (i / 2) .. + 4, the upper half the next four.
                words[i / 2 * 4 + i % 2] = upper ? other : own[i];
                words[i / 2 * 4 + i % 2 + 2] = upper ? own[i] : other;
            }
            return __builtin_bit_cast(Operand, words);
        } else {
            return __builtin_bit_cast(Operand, own);
        }
    }
};
