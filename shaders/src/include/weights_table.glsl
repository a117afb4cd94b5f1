// Types whose nibbles are indices into a table of 16 values, which lies in shared memory: sixteen neighbouring words,
// so that the lookups of neighbouring invocations, whatever their indices, meet in no bank.
#ifndef WEIGHTS_TABLE_GLSL
#define WEIGHTS_TABLE_GLSL

#define HAS_TABLE

shared float table[16];

void prepare_weights() {
    if (gl_LocalInvocationIndex == 0) {
        // Four signed bytes in a word, the first in the lowest.
#if defined(A_MXFP4)
        // E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, doubled.
        const uint bytes[4] = uint[](0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
#else
        // IQ4_NL and IQ4_XS: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
        const uint bytes[4] = uint[](0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
#endif
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const vec4 v = from_signed_bytes(bytes[i]);
            [[unroll]] for (uint j = 0; j < 4; j++) {
                table[4 * i + j] = v[j];
            }
        }
    }
    barrier();
}

// Values of the lower nibbles of a word's bytes.
vec4 from_table(uint w) {
    return vec4(table[w & 15u], table[w >> 8 & 15u], table[w >> 16 & 15u], table[w >> 24 & 15u]);
}

#endif
