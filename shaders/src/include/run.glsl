// The tokens of a slot (a sequence) in a batch: a column of the operand `runs`. The including shader defines
// RUNS(slot, field), which reads it.
#ifndef RUN_GLSL
#define RUN_GLSL

struct Run {
    // The first token's place in the batch.
    uint first;
    // Number of tokens; 0: the state stays.
    uint count;
    // The first token's position in its sequence; at 0 the state counts as zeros.
    uint position;
};

// The run of a slot, cut to the tokens that there are.
Run run_of(uint slot, uint tokens) {
    const uint first = min(uint(max(RUNS(slot, 0), 0)), tokens);
    const uint count = min(uint(max(RUNS(slot, 1), 0)), tokens - first);
    return Run(first, count, uint(max(RUNS(slot, 2), 0)));
}

#endif
