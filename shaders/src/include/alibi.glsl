// Linear bias of attention (ALiBi; Press et al. 2022).
#ifndef ALIBI_GLSL
#define ALIBI_GLSL

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

// Slope of a head; 1 without ALiBi. `heads_log2`: the largest power of two that is not above the number of heads.
float alibi_slope(float max_bias, uint head, uint heads_log2) {
    if (max_bias <= 0.0) {
        return 1.0;
    }
    const float step = max_bias / float(heads_log2);
    return head < heads_log2 ? exp2(-step * float(head + 1)) : exp2(-0.5 * step * float(2 * (head - heads_log2) + 1));
}

#endif
