// Zeros in the result for tokens of no run, of operations whose state lies in columns. The including shader has run.glsl,
// WG invocations, COLUMNS of a work-group, the result `d` and the parameters p: tokens, slots, d_1 elements of each of
// heads_1 heads, and off_7, where the result begins.
#ifndef OTHER_TOKENS_GLSL
#define OTHER_TOKENS_GLSL

// Zeros for tokens of no run, in the columns first .. of a head.
void clear_other_tokens(uint head, uint first) {
    uint taken = 0;
    for (uint slot = 0; slot < p.slots; slot++) {
        taken += run_of(slot, p.tokens).count;
    }
    if (taken >= p.tokens) {
        return;
    }
    for (uint token = gl_LocalInvocationIndex; token < p.tokens; token += WG) {
        bool other = true;
        for (uint slot = 0; slot < p.slots; slot++) {
            const Run run = run_of(slot, p.tokens);
            other = other && token - run.first >= run.count;
        }
        if (other) {
            for (uint j = first; j < min(first + COLUMNS, p.d_1); j++) {
                d[p.off_7 + (token * p.heads_1 + head) * p.d_1 + j] = 0.0;
            }
        }
    }
}

#endif
