// Tokens of a slot (a sequence) in a batch: a column of the operand `runs`. The including shader defines RUNS(slot, field),
// which reads it.
#ifndef RUN_GLSL
#define RUN_GLSL

struct Run {
    // Index of the first token in the batch.
    uint first;
    // Number of tokens; 0: the state is unchanged.
    uint count;
    // Position of the first token in its sequence; at 0 the state counts as zeros.
    uint position;
    // Number of first tokens after which the state is stored: all but drafts.
    uint kept;
};

// The run of a slot, limited to the tokens of the batch.
Run run_of(uint slot, uint tokens) {
    const uint first = min(uint(max(RUNS(slot, 0), 0)), tokens);
    const uint count = min(uint(max(RUNS(slot, 1), 0)), tokens - first);
    const uint kept = p.run_fields > 3 ? min(uint(max(RUNS(slot, 3), 0)), count) : count;
    return Run(first, count, uint(max(RUNS(slot, 2), 0)), kept);
}

#endif
