// Fragments (fragment.h) as attention uses them: scores of 16 query rows and 16 positions come out of the units where weights
// go in, so that a wavefront's scores and weights stay in its registers. An attention fragment has
//
//   ROWS      of the 16 query rows a lane has numbers of so many, row_of_wave(r, lane); sum i is of its row row(i)
//   RUN       sums i .. i + RUN, i a multiple of RUN, are neighbours: positions, or columns of v, from place(i, lane) on
//   reduce    over the lanes that have numbers of the same row; leads() is true in one of them
//   queries   16 rows and 16 elements of a tile of queries
//   keys      16 positions and 16 elements of a tile of keys
//   values    16 columns and 16 positions of v
//   LONGEST_AHEAD   rows up to which registers hold those of the next step
//   LATENT_VALUES   columns of long rows that a wavefront takes at a time (attention_latent.h)
//   PIECE     elements of a block that a thread loads at a time
//   COPIES    whether rows of F16 go into LDS past the registers: copy_eight begins with eight of them, or zeros where they
//             are not `there`; copied waits for what the thread began
//   VALUES_TURNED whether v lies in LDS turned: rows of a tile are columns of v, and along k are positions
//   multiply_keys, multiply_values   add products to scores, to results
//   REST_EXPONENT   rests of v lie in LDS times two to the power of it, so that no unit takes them for zeros;
//   for_rests       the weights, as F16, that such rests are multiplied by
//   weights   from a fragment of numbers in the place of scores to two operands: the numbers as F16, and what rounding left
#pragma once
#include "fragment.h"

template <class FRAGMENT> struct AttentionFragment;

// Whether something is so in all lanes of a wavefront.
DEVICE bool in_all_lanes(bool x) {
#if !DEVICE_AMD
    return __nvvm_vote_all_sync(0xffffffffu, x);
#elif WAVE == 64
    return __builtin_amdgcn_ballot_w64(!x) == 0;
#else
    return __builtin_amdgcn_ballot_w32(!x) == 0;
#endif
}

// barrier() for the lanes of a wavefront, about LDS that nobody else writes.
DEVICE void wave_barrier() {
#if DEVICE_AMD
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    __nvvm_bar_warp_sync(0xffffffffu);
#endif
}

// What is the same in all lanes of a wavefront, of which the compiler knows no more.
DEVICE u32 unknown(u32 x) {
#if DEVICE_AMD
    x = uniform(x);
    __asm__ volatile("" : "+s"(x));
#endif
    return x;
}

// The number, computed before what comes after it. ONE_BY_ONE alone holds nothing that takes no memory: the compiler may
// have put it behind all of it before it looks there.
DEVICE float computed_here(float x) {
#if DEVICE_AMD
    __asm__ volatile("" : "+v"(x));
#endif
    return x;
}
// The same of a fragment of sums.
template <class SUMS> DEVICE void sums_here(SUMS &sums) {
#if DEVICE_AMD
    __asm__ volatile("" : "+v"(sums));
#endif
}

// NVIDIA's: query rows are the columns of a fragment, positions its rows. Four lanes side by side share two rows.
template <class INSTRUCTION> struct AttentionFragment<MmaFragment<INSTRUCTION>> {
    typedef MmaFragment<INSTRUCTION> F;
    typedef typename F::Operand Operand;
    typedef typename F::Sums Sums;
    static constexpr u32 LANES = F::LANES, SUMS = F::SUMS, ROWS = 2, RUN = 2;
    // Loads are words of 4 bytes at multiples of 4, of which blocks take one more than they fill.
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

// A word of the lane 16 further on or back.
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

// AMD's: positions are the first operand's rows, query rows the second's, which is the result's column of a lane: a lane
// has numbers of one query row, lanes 16 apart those of other positions. MFMA's and RDNA4's lanes have the positions
// of a result that they hold of an operand. RDNA3's lanes of a half have every other row of the result, and hold all 16
// of an operand: keys are dealt to the rows so that a lane's are fours of neighbours, and the halves exchange weights.
template <class L, class INSTRUCTION> struct AttentionFragment<MatrixFragment<L, INSTRUCTION>> {
    typedef MatrixFragment<L, INSTRUCTION> F;
    typedef typename F::Operand Operand;
    typedef typename F::Sums Sums;
    static constexpr bool VALUES_TURNED = true, COPIES = false, DEALT = L::STEP == 2;
    static constexpr u32 LANES = F::LANES, SUMS = F::SUMS, ROWS = 1, RUN = 4;
    static constexpr u32 PIECE = 8, LONGEST_AHEAD = DEALT ? 64 : 128, LATENT_VALUES = DEALT ? 32 : 64;
    // Rests are multiples of 2^-24, as all F16 numbers are, and at the most 16.
    static constexpr u32 REST_EXPONENT = INSTRUCTION::FLUSHES ? 11 : 0;
    DEVICE u32 row(u32) { return 0; }
    DEVICE u32 row_of_wave(u32, u32 lane) { return lane % 16; }
    DEVICE u32 place(u32 i, u32 lane) { return DEALT ? lane / 16 * 4 + i / 4 * 8 + i % 4 : L::result_row(lane, i); }
    DEVICE bool leads() { return F::lane() < 16; }
    template <class OP> DEVICE float reduce(float x) {
        x = OP::of(x, bits_f32(word_xor_16(f32_bits(x))));
        return LANES == 64 ? OP::of(x, number_xor_32(x)) : x;
    }
    // What the place is of row `slot` of a result.
    DEVICE u32 dealt(u32 slot) { return DEALT ? slot % 2 * 4 + slot / 8 * 8 + slot / 2 % 4 : slot; }
    DEVICE Operand queries(const u16 *tile, u32 row, u32 k) { return F::weights(tile, row, k); }
    DEVICE Operand keys(const u16 *tile, u32 row, u32 k) {
        // Fragments begin at multiples of 16 rows: so an address of the lane serves all of them.
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
    // An operand from a lane's own halves.
    template <class WORDS> DEVICE Operand whole(const WORDS &own) {
        if constexpr (DEALT) {
            bool upper = F::lane() / 16 % 2;
            typedef u32 Words __attribute__((ext_vector_type(8)));
            Words words;
            UNROLL for (u32 i = 0; i < 4; i++) {
                u32 other = word_xor_16(own[i]);
                // Positions 8 (i / 2) .. + 4 are the lower half's, the next four the upper's.
                words[i / 2 * 4 + i % 2] = upper ? other : own[i];
                words[i / 2 * 4 + i % 2 + 2] = upper ? own[i] : other;
            }
            return __builtin_bit_cast(Operand, words);
        } else {
            return __builtin_bit_cast(Operand, own);
        }
    }
};
