// Conversions between F32 and the 16-bit types by integer arithmetic, with the same result on every driver: round to nearest,
// ties to even, subnormal numbers kept. (Vulkan leaves the rounding of a conversion to F16 to the driver.)
#ifndef CONVERT_GLSL
#define CONVERT_GLSL

// The bits of an F16 number.
uint f16_bits(float value) {
    const uint x = floatBitsToUint(value);
    const uint sign = (x >> 16) & 0x8000u;
    const uint a = x & 0x7fffffffu;
    // Normal: the exponent bias 127 becomes 15; half a unit is added, minus one if the last kept bit is even.
    uint bits = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
    if (a < 0x38800000u) {
        // Subnormal: the last bit of 0.5 + |x| has the value 2^-24, as that of a subnormal F16 number.
        bits = floatBitsToUint(uintBitsToFloat(a) + 0.5) - 0x3f000000u;
    } else if (a >= 0x47800000u) {
        bits = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    }
    return sign | bits;
}

// The bits of a BF16 number.
uint bf16_bits(float value) {
    const uint x = floatBitsToUint(value);
    const bool nan = (x & 0x7fffffffu) > 0x7f800000u;
    return nan ? (x >> 16) | 0x40u : (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
}

float bf16_value(uint bits) {
    return uintBitsToFloat(bits << 16);
}

#endif
