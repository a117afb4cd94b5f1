// The tokens of each slot (a sequence) in a batch, for operations with a state: `runs` is I32 [3, slots].
#pragma once
#include "device.h"

// The run of a slot, cut to the tokens that there are. Without tokens its state stays; at position 0 it is zeros.
struct Run {
    u32 first, count, position;
};

DEVICE Run run_of(const i32 *runs, u32 slot, u32 tokens) {
    runs += (u64)slot * 3;
    Run run;
    run.first = minimum(runs[0] > 0 ? runs[0] : 0, tokens);
    run.count = minimum(runs[1] > 0 ? runs[1] : 0, tokens - run.first);
    run.position = runs[2] > 0 ? runs[2] : 0;
    return run;
}

// The slot of a token; `slots` for a token of none.
DEVICE u32 slot_of(const i32 *runs, u32 slots, u32 token, u32 tokens) {
    u32 found = slots;
    for (u32 slot = 0; slot < slots; slot++) {
        Run run = run_of(runs, slot, tokens);
        if (token - run.first < run.count) found = slot;
    }
    return found;
}
