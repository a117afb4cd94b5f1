// Activation functions, safe for arguments of any size, with an absolute error of a few 1e-7 of the argument.
#ifndef ACTIVATION_GLSL
#define ACTIVATION_GLSL

// The numbers of ggml_core::op::Activation.
#define SILU 0u
#define GELU 1u
#define GELU_ERF 2u
#define GELU_QUICK 3u
#define RELU 4u

// GLSL's own may overflow: drivers that compute exp(x) / exp(-x) give NaN for large arguments.
float safe_tanh(float x) {
    const float e = exp(2.0 * clamp(x, -15.0, 15.0));
    return 1.0 - 2.0 / (e + 1.0);
}

// Error function: odd polynomial below 0.93, 1 - exp(polynomial) above. Source: N. Juffa's single-precision
// minimax coefficients; error below 1.2 units in the last place with exact exp.
float error_function(float x) {
    const float t = min(abs(x), 10.0);
    const float s = t * t;
    float r;
    if (t > 0.927734375) {
        r = fma(-1.72853470e-5, t, 3.83197126e-4);
        r = fma(r, s, fma(-3.88396438e-3, t, 2.42546219e-2));
        r = fma(r, t, -1.06777877e-1);
        r = fma(r, t, -6.34846687e-1);
        r = fma(r, t, -1.28717512e-1);
        r = 1.0 - exp(fma(r, t, -t));
    } else {
        r = fma(-5.96761703e-4, s, 4.99119423e-3);
        r = fma(r, s, -2.67681349e-2);
        r = fma(r, s, 1.12819925e-1);
        r = fma(r, s, -3.76125336e-1);
        r = fma(r, s, 1.28379166e-1);
        r = fma(r, t, t);
    }
    return x < 0.0 ? -r : r;
}

// x / (1 + exp(-y)): the denominator overflows to infinity for large -y, and the quotient is 0 as it should be.
float times_sigmoid(float x, float y) {
    return x / (1.0 + exp(min(-y, 88.0)));
}

float activate(uint op, float x) {
    switch (op) {
    case SILU: return times_sigmoid(x, x);
    case GELU: return 0.5 * x * (1.0 + safe_tanh(0.79788456080286536 * x * (1.0 + 0.044715 * x * x)));
    case GELU_ERF: return 0.5 * x * (1.0 + error_function(0.70710678118654752 * x));
    case GELU_QUICK: return times_sigmoid(x, 1.702 * x);
    default: return max(x, 0.0);
    }
}

#endif
