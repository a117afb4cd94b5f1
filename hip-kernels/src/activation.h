// The activation functions. The numbers are those of `ggml_core::op::Activation`.
#pragma once
#include "device.h"

enum { SILU = 0, GELU = 1, GELU_ERF = 2, GELU_QUICK = 3, RELU = 4, SCALE = 100 };

// x / (1 + e^-s): where e^-s overflows the quotient is a zero of x's sign, as it should be.
DEVICE float times_sigmoid(float x, float s) { return x / (1.0f + exp_f32(-s)); }

// x (1 + erf(x / sqrt 2)) / 2, from erfc of the magnitude so that the negative side keeps its relative precision.
DEVICE float gelu_erf(float x) {
    float tail = 0.5f * erfc_f32(__builtin_fabsf(x) * 0.70710678118654752440f);
    return x < 0.0f ? x * tail : x - x * tail;
}

// `op` is the same for all threads, so the branches cost nothing. GELU: (1 + tanh u) / 2 is the sigmoid of 2u.
DEVICE float activation(u32 op, float x) {
    switch (op) {
    case SILU: return times_sigmoid(x, x);
    case GELU: return times_sigmoid(x, 1.59576912160573071176f * mad(0.044715f * x * x, x, x));
    case GELU_ERF: return gelu_erf(x);
    case GELU_QUICK: return times_sigmoid(x, 1.702f * x);
    default: return larger(x, 0.0f);
    }
}
