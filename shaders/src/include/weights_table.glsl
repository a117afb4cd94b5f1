// Types whose nibbles are indices into a table of 16 values in shared memory: sixteen adjacent words, so that the lookups of
// adjacent invocations have no bank conflicts, whatever their indices.
#ifndef WEIGHTS_TABLE_GLSL
#define WEIGHTS_TABLE_GLSL

#define HAS_TABLE

// Four signed bytes in a word, the first in the lowest bits.
#if defined(A_MXFP4) || defined(A_NVFP4)
// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, doubled.
const uvec4 VALUES_OF_NIBBLES = uvec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
#else
// IQ4_NL and IQ4_XS: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
const uvec4 VALUES_OF_NIBBLES = uvec4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
#endif

uint value_of(uint nibble) {
    const uvec4 v = VALUES_OF_NIBBLES;
    const uint w = nibble < 8 ? (nibble < 4 ? v.x : v.y) : (nibble < 12 ? v.z : v.w);
    return w >> nibble % 4 * 8 & 255u;
}

#ifdef INT8

// For each byte of two nibbles, the values of the lower and of the upper one as bytes 0 and 2.
shared uint pairs[256];

void prepare_weights() {
    for (uint i = gl_LocalInvocationIndex; i < 256; i += gl_WorkGroupSize.x) {
        pairs[i] = value_of(i & 15u) | value_of(i >> 4) << 16;
    }
    barrier();
}

// Values of the lower (0) or upper (1) nibbles of a word's bytes.
uint from_pairs(uint w, uint upper) {
    const uint first = pairs[w & 255u] | pairs[w >> 8 & 255u] << 8;
    const uint second = pairs[w >> 16 & 255u] | pairs[w >> 24] << 8;
    return upper == 0 ? first & 0xffffu | second << 16 : first >> 16 | second & 0xffff0000u;
}

#endif

shared float table[16];

#ifndef INT8
void prepare_weights() {
    for (uint i = gl_LocalInvocationIndex; i < 16; i += gl_WorkGroupSize.x) {
        table[i] = float(bitfieldExtract(int(value_of(i)), 0, 8));
    }
    barrier();
}
#endif

// Values of the lower nibbles of a word's bytes.
vec4 from_table(uint w) {
    return vec4(table[w & 15u], table[w >> 8 & 15u], table[w >> 16 & 15u], table[w >> 24 & 15u]);
}

#endif
