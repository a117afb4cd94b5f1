// Loading of a step's keys and values into shared memory, for flash_attn_matrix.comp, whose constants give the places. An
// invocation issues the loads of its part, and stores it in shared memory when it has arrived. F16 is copied; keys in blocks
// become F16, and values in blocks become sums of two F16 numbers each.
#ifndef ATTENTION_ROWS_GLSL
#define ATTENTION_ROWS_GLSL

#ifdef KV_BLOCKS
layout(set = 0, binding = 1, std430) readonly buffer KWords { uint k_words[]; };
layout(set = 0, binding = 2, std430) readonly buffer VWords { uint v_words[]; };
#endif

// Rounds numbers to the nearest F16 number by their bits, because conversions to F16 may truncate, as AMD's conversions of two
// numbers do. With `half_step` 0 they are truncated: infinities and NaNs must be preserved.
const uint HALF_STEP = 0x1000u;
vec4 rounded(vec4 x, uvec4 half_step) {
    return uintBitsToFloat(floatBitsToUint(x) + half_step & 0xffffe000u);
}

// Numbers truncated to the precision of F16. Not written as a conversion to F16 and back, which a compiler may remove, as
// NVIDIA's does.
vec4 high_part(vec4 x) {
    return uintBitsToFloat(floatBitsToUint(x) & 0xffffe000u);
}

uvec2 halves_of(vec4 x) {
    return uvec2(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)));
}

// Part of a row that an invocation loads at a time, as stored (Stored): EIGHTS vectors of shared memory. rounded_eight(x, e)
// returns one of them; summand_of(x, e, i) one whose sum is more accurate. stored_k, stored_v: number i of the parts of the row
// that starts at `row` and has `length` elements; zeros after its end.
#ifdef KV_BLOCKS
// A block as the aligned words that cover it; `odd` if it starts with the upper half of the first. The second half of the last
// word may be after its end.
const uint EIGHTS = 4;
const uint BLOCK_WORDS = (BLOCK_HALVES + 1) / 2;
struct Stored {
    uint words[BLOCK_WORDS];
    bool odd;
};

#define STORED_READER(name, words_of, eights)                                                                          \
    Stored name(uint row, uint i, uint length) {                                                                       \
        const uint half_word = (row + i) * BLOCK_HALVES;                                                               \
        const bool there = SHARES == 1 || i * 32 < length;                                                             \
        Stored x;                                                                                                      \
        [[unroll]] for (uint w = 0; w < BLOCK_WORDS; w++) {                                                            \
            x.words[w] = there ? words_of[half_word / 2 + w] : 0;                                                      \
        }                                                                                                              \
        x.odd = (half_word & 1) != 0;                                                                                  \
        return x;                                                                                                      \
    }

// Half-words `at` and the next one; `at` is odd.
uint two_halves(Stored x, uint at) {
    const uint w = at / 2;
    return x.odd ? x.words[w + 1] : x.words[w] >> 16 | x.words[w + 1] << 16;
}

// Eight numbers, a quarter of a block.
struct Eight {
    vec4 lo, hi;
    bool finite;
};

Eight decoded(Stored x, uint e) {
    const uint scale = x.odd ? x.words[0] >> 16 : x.words[0];
    const uint lo = two_halves(x, HALVES_OF(e)), hi = two_halves(x, HALVES_OF(e) + 2);
    return Eight(
        from_block(uvec2(lo, lo >> 16), e, scale), from_block(uvec2(hi, hi >> 16), e, scale), (scale & 0x7c00u) != 0x7c00u);
}

uvec4 rounded_eight(Stored x, uint e) {
    const Eight eight = decoded(x, e);
    const uvec4 half_step = uvec4(eight.finite ? HALF_STEP : 0);
    return uvec4(halves_of(rounded(eight.lo, half_step)), halves_of(rounded(eight.hi, half_step)));
}

// Four numbers as F16, or the rounding errors; zeros where F16 has an infinity.
uvec2 summands(vec4 x, uint i) {
    const vec4 high = high_part(x);
    return halves_of(i == 0 ? high : mix(x - high, vec4(0.0), greaterThanEqual(abs(x), vec4(65536.0))));
}

uvec4 summand_of(Stored x, uint e, uint i) {
    const Eight eight = decoded(x, e);
    return uvec4(summands(eight.lo, i), summands(eight.hi, i));
}
#else
const uint EIGHTS = 1;
#define Stored uvec4
#define rounded_eight(x, e) (x)
#define summand_of(x, e, i) (x)
#define STORED_READER(name, words_of, eights)                                                                          \
    Stored name(uint row, uint i, uint length) {                                                                       \
        return i * 8 < length ? eights[row / 8 + i] : uvec4(0);                                                        \
    }
#endif
STORED_READER(stored_k, k_words, k8)
STORED_READER(stored_v, v_words, v8)

// Parts of a row of keys and of values; parts of a step that an invocation loads.
const uint EACH_K = K_EIGHTS / EIGHTS;
const uint EACH_V = V_EIGHTS / EIGHTS;
const uint LOADS_K = (BC * EACH_K + WG - 1) / WG;
const uint LOADS_V = (BC * EACH_V + WG - 1) / WG;
Stored next_k[LOADS_K];
Stored next_v[LOADS_V];

// Issues the loads of the step's rows from position `first` on. Positions after the end are replaced by the last one, and are
// hidden. Surplus invocations load the same as others.
void send_k(uint first, uint base) {
    [[unroll]] for (uint n = 0; n < LOADS_K; n++) {
        const uint i = min(gl_LocalInvocationIndex + n * WG, BC * EACH_K - 1);
        const uint key = min(first + i / EACH_K, p.kv_0 - 1);
        next_k[n] = stored_k(base + key * p.nbk_0, i % EACH_K, p.d_0);
    }
}

void send_v(uint first, uint base) {
    [[unroll]] for (uint n = 0; n < LOADS_V; n++) {
        const uint i = min(gl_LocalInvocationIndex + n * WG, BC * EACH_V - 1);
        const uint key = min(first + i / EACH_V, p.kv_0 - 1);
        next_v[n] = stored_v(base + key * p.nbv_0, i % EACH_V, p.d_1);
    }
}

// Sets bits 15 and 31 in one of the words if one of eight F16 numbers is infinite or NaN.
uint wild_bits(uvec4 w) {
    const uvec4 carried = (w & 0x7c007c00u) + 0x04000400u;
    return carried.x | carried.y | carried.z | carried.w;
}

// Stores the loaded data in shared memory, from `place` on. receive_v returns true if a value is not finite.
void receive_k(uint place) {
    [[unroll]] for (uint n = 0; n < LOADS_K; n++) {
        const uint i = gl_LocalInvocationIndex + n * WG;
        if (BC * EACH_K % WG == 0 || i < BC * EACH_K) {
            [[unroll]] for (uint e = 0; e < EIGHTS; e++) {
                tiles[place + i / EACH_K * K_STRIDE + i % EACH_K * EIGHTS + e] = rounded_eight(next_k[n], e);
            }
        }
    }
}

bool receive_v(uint place) {
    uint bits = 0;
    [[unroll]] for (uint n = 0; n < LOADS_V; n++) {
        const uint i = gl_LocalInvocationIndex + n * WG;
        if (BC * EACH_V % WG == 0 || i < BC * EACH_V) {
            [[unroll]] for (uint e = 0; e < EIGHTS * SUMMANDS; e++) {
                const uvec4 eight = summand_of(next_v[n], e % EIGHTS, e / EIGHTS);
                tiles[place + e / EIGHTS * REST_V + i / EACH_V * V_STRIDE + i % EACH_V * EIGHTS + e % EIGHTS] = eight;
                bits |= wild_bits(eight);
            }
        }
    }
    return (bits & 0x80008000u) != 0;
}

#endif
