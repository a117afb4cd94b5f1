// Angles of ROPE. A table has turns per position as high and low part (`ggml_core::kernel::rope`), so that large positions keep
// the fraction of a turn.
#pragma once
#include "device.h"

// Turns per position, divided by the factor of their pair.
DEVICE f32x2 divided(f32x2 turns, float factor) {
    float quotient = turns[0] / factor;
    return (f32x2){quotient, (fused(-quotient, factor, turns[0]) + turns[1]) / factor};
}

// Fraction of a turn at a position. The product is deliberately rounded once, and its error is recovered.
DEVICE float turn_of(float position, f32x2 turns) {
    float product = position * turns[0];
    float error = fused(position, turns[0], -product);
    float whole = __builtin_rintf(product);
    return (product - whole) + mad(position, turns[1], error);
}

// Rotates a pair at a position.
DEVICE f32x2 turned(f32x2 pair, float position, f32x2 turns, float magnitude) {
    float sine, cosine;
    sin_cos_turn(turn_of(position, turns), &sine, &cosine);
    sine *= magnitude;
    cosine *= magnitude;
    return (f32x2){pair[0] * cosine - pair[1] * sine, pair[0] * sine + pair[1] * cosine};
}
