// Angles of ROPE: position * frequency.
//
// A table has turns (angle / 2 pi) per position as the sum of two F32 numbers, and everything that follows is exact up to the
// fraction of a turn: products are split into parts that F32 holds without rounding, because a driver may or may not round
// inside fma(). Sine and cosine are polynomials, because Vulkan guarantees only an error of 2^-11 for its own.
#ifndef ROPE_GLSL
#define ROPE_GLSL

// The upper 12 of the 24 bits of a number; the rest also has at most 12.
float upper(float v) {
    return uintBitsToFloat(floatBitsToUint(v) & 0xfffff000u);
}

// Rounding error of the product a * b. All four partial products are exact (Dekker 1971).
float product_error(float a, float b, float rounded) {
    precise const float ah = upper(a), bh = upper(b);
    precise const float al = a - ah, bl = b - bh;
    precise float e = ah * bh - rounded;
    e = e + ah * bl;
    e = e + al * bh;
    e = e + al * bl;
    return e;
}

// Turns per position, divided by the factor of their pair.
vec2 divided(vec2 turns, float factor) {
    precise const float quotient = turns.x / factor;
    precise const float product = quotient * factor;
    precise const float rest = (turns.x - product) - product_error(quotient, factor, product);
    precise const float low = (rest + turns.y) / factor;
    return vec2(quotient, low);
}

// Fraction of a turn at a position, in [-0.5, 0.5] plus a little.
float fraction_of_turn(float position, vec2 turns) {
    precise const float product = position * turns.x;
    precise const float low = product_error(position, turns.x, product) + position * turns.y;
    precise const float fraction = (product - round(product)) + low;
    return fraction;
}

// Cosine and sine of a number of turns in [-0.75, 0.75], with an error of about 1e-7: reduced to at most an eighth of a turn,
// then the minimax polynomials of Cephes' sinf and cosf.
vec2 cos_sin(float turn) {
    const float quarter = round(turn * 4.0);
    const float a = (turn - quarter * 0.25) * 6.28318530717958648;
    const float z = a * a;
    const float s = a + a * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    const float c = 1.0 - 0.5 * z
        + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    const int q = int(quarter) & 3;
    const vec2 cs = (q & 1) == 0 ? vec2(c, s) : vec2(-s, c);
    return (q & 2) == 0 ? cs : -cs;
}

#endif
