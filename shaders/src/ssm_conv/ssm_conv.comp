#version 460
// SSM_CONV: the short causal convolution before a recurrent layer, with its state.
//
// The grid's x covers the channels, y the rows of the result: those of the tokens, then those of the new state, slot after
// slot. One element in each invocation; adjacent invocations have adjacent channels. A row of a token searches for its run (few
// slots, the same ones for all invocations: from the cache), and reads as many inputs as there are taps; all but one were also
// read for the token before. Nothing shared.

#include "common.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform SsmConvParams {
    uint channels;
    uint tokens;
    uint taps;
    uint slots;
    uint run_fields;
    uint nb0;
    uint off_0, off_1, off_2, off_3, off_4;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer W { float w[]; };
layout(set = 0, binding = 2, std430) readonly buffer State { float state[]; };
layout(set = 0, binding = 3, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 4, std430) writeonly buffer D { float d[]; };

#define RUNS(slot, field) runs[p.off_3 + p.run_fields * (slot) + (field)]
#include "run.glsl"

// Input of channel c at token j of a slot's run; the taps - 1 inputs before the first token are in the state, and zeros before
// the first position.
float input_at(Run run, uint slot, uint c, int j) {
    if (j >= 0) {
        return x[p.off_0 + (run.first + uint(j)) * p.nb0 + c];
    }
    if (run.count > 0 && int(run.position) + j < 0) {
        return 0.0;
    }
    return state[p.off_2 + (slot * (p.taps - 1) + uint(int(p.taps) - 1 + j)) * p.channels + c];
}

// The result for a token at channel c; zero for a token without a run.
float output_at(uint token, uint c) {
    for (uint slot = 0; slot < p.slots; slot++) {
        const Run run = run_of(slot, p.tokens);
        if (token - run.first < run.count) {
            const int j = int(token - run.first) + 1 - int(p.taps);
            float sum = 0.0;
            for (uint i = 0; i < p.taps; i++) {
                sum = fma(w[p.off_1 + c * p.taps + i], input_at(run, slot, c, j + int(i)), sum);
            }
            return sum;
        }
    }
    return 0.0;
}

void main() {
    const uint kept = p.taps - 1;
    FOR_EACH_ROW(row, i2, i3, p.tokens + kept * p.slots, 1, 1)
        FOR_EACH_COLUMN(c, p.channels)
            float value;
            if (row < p.tokens) {
                value = output_at(row, c);
            } else {
                const uint slot = (row - p.tokens) / kept;
                const Run run = run_of(slot, p.tokens);
                // The newest inputs; unchanged for a slot without tokens.
                const int j = int(run.kept + (row - p.tokens) - slot * kept) - int(kept);
                value = input_at(run, slot, c, j);
            }
            d[p.off_4 + row * p.channels + c] = value;
        END_EACH_COLUMN
    END_EACH_ROW
}
