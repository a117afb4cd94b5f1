// Activations in 8 bits: blocks of 32 signed bytes with an F32 scale, the largest magnitude over 127. A block with an infinity
// or a NaN gets a NaN for its scale, so that a fault upstream shows in the result; blocks of magnitudes below SMALLEST become
// zeros. The including shader says with QUADS how many quads an invocation rounds at a time, 2 or 4 of the 8 of a block.
#ifndef INT8_GLSL
#define INT8_GLSL

#extension GL_EXT_integer_dot_product : require
#extension GL_KHR_shader_subgroup_shuffle : require

// Magnitude below which 127 over it could be infinite.
const float SMALLEST = 1e-36;

const uint ONES = 0x01010101u;

// Invocations that share a block when it is rounded.
const uint SHARERS = 8 / QUADS;

// The bits of the largest magnitude. As numbers they are in the order of magnitudes, infinity and NaN being the largest;
// with the sign the largest of all is the largest negative one, or the largest of all if none is negative.
uint largest_bits(vec4 x[QUADS]) {
    uint with_sign = 0;
    int positive = 0;
    [[unroll]] for (uint j = 0; j < QUADS; j++) {
        const uvec4 y = floatBitsToUint(x[j]);
        const ivec4 z = floatBitsToInt(x[j]);
        with_sign = max(max(max(with_sign, y.x), y.y), max(y.z, y.w));
        positive = max(max(max(positive, z.x), z.y), max(z.z, z.w));
    }
    return max(with_sign & 0x7fffffffu, uint(positive));
}

// The same of the block that SHARERS neighbouring invocations share.
uint largest_of_block(vec4 x[QUADS]) {
    uint bits = largest_bits(x);
    [[unroll]] for (uint lanes = 1; lanes < SHARERS; lanes *= 2) {
        bits = max(bits, subgroupShuffleXor(bits, lanes));
    }
    return bits;
}

// What the numbers of a block are multiplied with before they are rounded, and the scale of their bytes.
float to_scale(uint bits) {
    const float most = uintBitsToFloat(bits);
    return most >= SMALLEST ? 127.0 / most : 0.0;
}

float scale_of(uint bits) {
    const float most = uintBitsToFloat(bits);
    const float finite = most >= SMALLEST ? most / 127.0 : 0.0;
    return bits < 0x7f800000u ? finite : uintBitsToFloat(0x7fc00000u);
}

// Four numbers times `scale`, of no more than 127 then, rounded to nearest, as bytes: the unit of a number near 1.5 * 2^23
// is 1. With 128 more than the numbers none is negative, and their bits add up without borrowing.
uint to_bytes(vec4 x, float scale) {
    const uvec4 q = floatBitsToUint(x * scale + 12583040.0);
    // 0x4b400000 are the bits of 1.5 * 2^23, shifted as each number is.
    const uint sum = q.x + (q.y << 8) + (q.z << 16) + (q.w << 24) - (0x4b400000u + 0x40000000u);
    return sum ^ 0x80808080u;
}

int dot4(uint x, uint y, int sum) {
    return dotPacked4x8EXT(int(x), int(y)) + sum;
}

#endif
