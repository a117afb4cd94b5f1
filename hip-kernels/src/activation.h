// Activation functions. Their numbers are those of `ggml_core::op::Activation`.
#pragma once
#include "device.h"

enum { SILU = 0, GELU = 1, GELU_ERF = 2, GELU_QUICK = 3, RELU = 4, SIGMOID = 5, SOFTPLUS = 6, TANH = 7, SCALE = 100 };

// x / (1 + e^-s). Where e^-s overflows, the quotient is a zero with the sign of x, which is correct.
DEVICE float times_sigmoid(float x, float s) { return x / (1.0f + exp_f32(-s)); }

// x (1 + erf(x / sqrt 2)) / 2, computed from erfc of the magnitude, which keeps the relative precision on the negative side.
DEVICE float gelu_erf(float x) {
    float tail = 0.5f * erfc_f32(__builtin_fabsf(x) * 0.70710678118654752440f);
    return x < 0.0f ? x * tail : x - x * tail;
}

// ln(1 + e^x) = max(x, 0) + ln(1 + u) with u = e^-|x|. The logarithm is 2 artanh s with s = u / (2 + u) <= 1/3, by eight terms
// of its series (the next term is 1.4e-9 of the first). This keeps the relative precision where u is small.
DEVICE float softplus(float x) {
    float u = exp_f32(-__builtin_fabsf(x)), s = u / (2.0f + u), z = s * s;
    float sum = 1.0f / 15.0f;
    UNROLL for (int n = 13; n > 0; n -= 2) sum = mad(sum, z, 1.0f / (float)n);
    return mad(2.0f * s, sum, larger(x, 0.0f));
}

// Hyperbolic tangent: below 1, Lambert's continued fraction to its seventh term (error 1e-9); above, (1 - u) / (1 + u) with
// u = e^-2|x|.
DEVICE float tanh_f32(float x) {
    float a = __builtin_fabsf(x), z = x * x, u = exp_f32(-2.0f * a);
    float above = a * mad(mad(z + 378.0f, z, 17325.0f), z, 135135.0f);
    float below = mad(mad(mad(28.0f, z, 3150.0f), z, 62370.0f), z, 135135.0f);
    bool small = a < 1.0f;
    return __builtin_copysignf((small ? above : 1.0f - u) / (small ? below : 1.0f + u), x);
}

// GELU: (1 + tanh u) / 2 is the sigmoid of 2u, which this returns.
DEVICE float gelu_slope(float x) { return 1.59576912160573071176f * mad(0.044715f * x * x, x, x); }

// `op` is the same for all threads, so the branches cost nothing.
DEVICE float activation(u32 op, float x) {
    switch (op) {
    case SILU: return times_sigmoid(x, x);
    case GELU: return times_sigmoid(x, gelu_slope(x));
    case GELU_ERF: return gelu_erf(x);
    case GELU_QUICK: return times_sigmoid(x, 1.702f * x);
    case SIGMOID: return times_sigmoid(1.0f, x);
    case SOFTPLUS: return softplus(x);
    case TANH: return tanh_f32(x);
    default: return larger(x, 0.0f);
    }
}

// Gated linear unit of gate x and up y. SWIGLU_OAI (a limit other than 0): x / (1 + e^(-alpha x)) (1 + y), with gate and up
// clamped. P: a parameter structure with `op`, `alpha` and `limit`.
//
// Only for functions of the form x times a sigmoid: SILU, GELU and GELU_QUICK. This is little code, for kernels that have no
// registers for more.
template <class P> DEVICE float gated_by_sigmoid(const P &p, float x, float y) {
    float slope = x;
    if (p.limit != 0.0f) {
        x = smaller(x, p.limit);
        slope = p.alpha * x;
        y = larger(smaller(y, p.limit), -p.limit) + 1.0f;
    } else if (p.op == GELU) {
        slope = gelu_slope(x);
    } else if (p.op == GELU_QUICK) {
        slope = 1.702f * x;
    }
    return times_sigmoid(x, slope) * y;
}

// The same for all functions.
template <class P> DEVICE float gated(const P &p, float x, float y) {
    return p.limit == 0.0f ? activation(p.op, x) * y : gated_by_sigmoid(p, x, y);
}
