// Rounds rows to blocks of 32: the half-words of a block, from 32 adjacent elements. The scale is stored as F16, but the values
// are computed with the scale before that rounding.
#ifndef BLOCKS_GLSL
#define BLOCKS_GLSL

#include "convert.glsl"

// Factor of the elements; 0 if the scale is 0.
float inverse(float scale) {
    return scale == 0.0 ? 0.0 : 1.0 / scale;
}

// A byte: rounded to nearest, halves away from zero.
uint q8_0_byte(float x) {
    return uint(int(x + (x < 0.0 ? -0.5 : 0.5))) & 255u;
}

// A nibble with an offset of 8.
uint q4_0_nibble(float x) {
    return uint(clamp(x + 8.5, 0.0, 15.0));
}

// Scale, then two signed bytes in each half-word.
void q8_0_block(float x[32], out uint halves[17]) {
    float most = 0.0;
    [[unroll]] for (uint j = 0; j < 32; j++) {
        most = max(most, abs(x[j]));
    }
    const float scale = most / 127.0;
    const float f = inverse(scale);
    halves[0] = f16_bits(scale);
    [[unroll]] for (uint j = 0; j < 16; j++) {
        halves[1 + j] = q8_0_byte(x[2 * j] * f) | q8_0_byte(x[2 * j + 1] * f) << 8;
    }
}

// Scale, then two bytes in each half-word: elements 0 to 15 in the lower nibbles, 16 to 31 in the upper ones.
void q4_0_block(float x[32], out uint halves[9]) {
    // The first element of the largest magnitude becomes -8.
    float most = 0.0;
    [[unroll]] for (uint j = 0; j < 32; j++) {
        most = abs(x[j]) > abs(most) ? x[j] : most;
    }
    const float scale = most / -8.0;
    const float f = inverse(scale);
    halves[0] = f16_bits(scale);
    [[unroll]] for (uint j = 0; j < 8; j++) {
        const uint low = q4_0_nibble(x[2 * j] * f) | q4_0_nibble(x[2 * j + 1] * f) << 8;
        const uint high = q4_0_nibble(x[2 * j + 16] * f) | q4_0_nibble(x[2 * j + 17] * f) << 8;
        halves[1 + j] = low | high << 4;
    }
}

#endif
