// Activations in 8 bits: blocks of 32 signed bytes with an F32 scale, which is the largest magnitude divided by 127. A block
// with an infinity or a NaN gets a NaN as its scale, so that an earlier fault remains visible in the result; blocks whose
// magnitudes are all below SMALLEST become zeros. The including shader defines QUADS, the number of quads that an invocation
// rounds at a time: 2 or 4 of the 8 of a block.
#ifndef INT8_GLSL
#define INT8_GLSL

#extension GL_EXT_integer_dot_product : require
#extension GL_KHR_shader_subgroup_shuffle : require

// For smaller magnitudes, 127 divided by them could be infinite.
const float SMALLEST = 1e-36;

const uint ONES = 0x01010101u;

// Invocations that share a block while it is rounded.
const uint SHARERS = 8 / QUADS;

// Bits of the largest magnitude. As integers they are in the order of magnitudes, with infinity and NaN as the largest; with
// the sign bit, the largest of all is the negative number of the largest magnitude, or the largest number if none is negative.
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

// The same for the block that SHARERS adjacent invocations share.
uint largest_of_block(vec4 x[QUADS]) {
    uint bits = largest_bits(x);
    [[unroll]] for (uint lanes = 1; lanes < SHARERS; lanes *= 2) {
        bits = max(bits, subgroupShuffleXor(bits, lanes));
    }
    return bits;
}

// Factor of the numbers of a block before they are rounded, and the scale of their bytes.
float to_scale(uint bits) {
    const float most = uintBitsToFloat(bits);
    return most >= SMALLEST ? 127.0 / most : 0.0;
}

float scale_of(uint bits) {
    const float most = uintBitsToFloat(bits);
    const float finite = most >= SMALLEST ? most / 127.0 : 0.0;
    return bits < 0x7f800000u ? finite : uintBitsToFloat(0x7fc00000u);
}

// Four numbers times `scale`, at most 127, rounded to nearest, as bytes: the unit in the last place of a number near 1.5 * 2^23
// is 1. With 128 added to the numbers none is negative, and their bits add up without a borrow.
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
