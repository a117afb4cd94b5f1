// Zeros in the result for tokens without a run, for operations whose state is stored in columns. The including shader has
// run.glsl, WG invocations, COLUMNS of a work-group, the result `d` and the parameters p: tokens, slots, d_1 elements of each
// of heads_1 heads, and off_7, the start of the result.
#ifndef OTHER_TOKENS_GLSL
#define OTHER_TOKENS_GLSL

// Writes zeros for tokens without a run, in the columns of a head from `first` on.
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
