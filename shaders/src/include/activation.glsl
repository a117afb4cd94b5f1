// Activation functions, safe for arguments of any size and accurate in their tails: relative errors of a few 1e-7, plus the
// error of exp.
#ifndef ACTIVATION_GLSL
#define ACTIVATION_GLSL

// The numbers of ggml_core::op::Activation.
#define SILU 0u
#define GELU 1u
#define GELU_ERF 2u
#define GELU_QUICK 3u
#define RELU 4u
#define SIGMOID 5u
#define SOFTPLUS 6u
#define TANH 7u

// GLSL's own tanh may overflow: drivers that compute exp(x) / exp(-x) give NaN for large arguments. Here infinity is handled,
// and NaN is kept, which clamp() would lose.
float safe_tanh(float x) {
    return 1.0 - 2.0 / (exp(2.0 * x) + 1.0);
}

// Complementary error function of x >= 0 with a relative error below 1.2e-7 (plus that of exp). Source: Press et al.,
// "Numerical Recipes", section 6.2 (Chebyshev fit).
float erfc_positive(float x) {
    const float t = 1.0 / (1.0 + 0.5 * x);
    float r = fma(t, 0.17087277, -0.82215223);
    r = fma(t, r, 1.48851587);
    r = fma(t, r, -1.13520398);
    r = fma(t, r, 0.27886807);
    r = fma(t, r, -0.18628806);
    r = fma(t, r, 0.09678418);
    r = fma(t, r, 0.37409196);
    r = fma(t, r, 1.00002368);
    return t * exp(fma(t, r, -1.26551223) - x * x);
}

// x times the normal distribution function of x.
float times_normal(float x) {
    const float tail = 0.5 * erfc_positive(min(0.70710678118654752 * abs(x), 12.0));
    return x * (x < 0.0 ? tail : 1.0 - tail);
}

// x / (1 + exp(-y)), with an exponential that stays finite; NaN is kept, which min() would lose.
float times_sigmoid(float x, float y) {
    return x / (1.0 + exp(y < -88.0 ? 88.0 : -y));
}

// ln(1 + exp(x)): max(x, 0) + ln(1 + e) with e = exp(-|x|), and ln(1 + e) = 2 artanh(e / (2 + e)) as a series, whose terms
// decrease by a factor of nine or more. Keeps its relative error where the result is tiny.
float softplus(float x) {
    const float e = exp(-abs(x));
    const float s = e / (2.0 + e);
    const float z = s * s;
    float r = fma(z, 1.0 / 13.0, 1.0 / 11.0);
    r = fma(z, r, 1.0 / 9.0);
    r = fma(z, r, 1.0 / 7.0);
    r = fma(z, r, 1.0 / 5.0);
    r = fma(z, r, 1.0 / 3.0);
    return max(x, 0.0) + 2.0 * fma(s * z, r, s);
}

// Hyperbolic tangent, accurate for small arguments too: a polynomial below 0.625. Source: Moshier, "Methods and programs for
// mathematical functions" (Cephes, tanhf).
float tanh_of(float x) {
    const float z = x * x;
    float r = fma(z, -5.70498872745e-3, 2.06390887954e-2);
    r = fma(z, r, -5.37397155531e-2);
    r = fma(z, r, 1.33314422036e-1);
    r = fma(z, r, -3.33332819422e-1);
    return abs(x) < 0.625 ? fma(x * z, r, x) : safe_tanh(x);
}

// SILU, GELU and GELU_QUICK: products with the logistic function.
float activate_by_sigmoid(uint op, float x) {
    // 0.5 * (1 + tanh(u)) is the logistic function of 2 u.
    const float gelu = 1.5957691216057308 * x * (1.0 + 0.044715 * x * x);
    return times_sigmoid(x, op == SILU ? x : op == GELU ? gelu : 1.702 * x);
}

float activate(uint op, float x) {
    switch (op) {
    case SILU:
    case GELU:
    case GELU_QUICK: return activate_by_sigmoid(op, x);
    case GELU_ERF: return times_normal(x);
    // If the exponential is infinite, the quotient is 0; NaN is kept.
    case SIGMOID: return 1.0 / (1.0 + exp(-x));
    case SOFTPLUS: return softplus(x);
    case TANH: return tanh_of(x);
    default: return max(x, 0.0);
    }
}

// SWIGLU_OAI, which clamps both and adds one to `up`.
float gated_in_bounds(float alpha, float limit, float x, float up) {
    const float gate = min(x, limit);
    return times_sigmoid(gate, alpha * gate) * (1.0 + clamp(up, -limit, limit));
}

// GLU of a product's gate and `up`: a function based on the logistic one or, with a limit, SWIGLU_OAI.
float gated_product(uint op, float alpha, float limit, float x, float up) {
    return limit > 0.0 ? gated_in_bounds(alpha, limit, x, up) : activate_by_sigmoid(op, x) * up;
}

#endif
