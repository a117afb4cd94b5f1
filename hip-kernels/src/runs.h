// Tokens of each slot (a sequence) in a batch, for operations with a state: `runs` is I32 [fields, slots]. The fourth field,
// where there is one, is the number of first tokens after which the state is stored: all but drafts.
#pragma once
#include "device.h"

// The run of a slot, limited to the tokens of the batch. Without tokens its state is unchanged; at position 0 it is zeros.
struct Run {
    u32 first, count, position, kept;
};

DEVICE Run run_of(const i32 *runs, u32 slot, u32 tokens, u32 fields = 3) {
    runs += (u64)slot * fields;
    Run run;
    run.first = minimum(runs[0] > 0 ? runs[0] : 0, tokens);
    run.count = minimum(runs[1] > 0 ? runs[1] : 0, tokens - run.first);
    run.position = runs[2] > 0 ? runs[2] : 0;
    run.kept = run.count;
    if (fields > 3) run.kept = minimum(runs[3] > 0 ? runs[3] : 0, run.count);
    return run;
}

// Returns the slot of a token; `slots` for a token without a slot.
DEVICE u32 slot_of(const i32 *runs, u32 slots, u32 token, u32 tokens, u32 fields) {
    u32 found = slots;
    for (u32 slot = 0; slot < slots; slot++) {
        Run run = run_of(runs, slot, tokens, fields);
        if (token - run.first < run.count) found = slot;
    }
    return found;
}
