#version 460
// SSM_CONV of few tokens, with a bias, an activation, and the new state in the place of the old one.
//
// An invocation computes all rows of a channel, the tokens' first, and then the state, which no other one reads; neighbouring
// channels for neighbouring invocations. Nothing shared.

#include "common.glsl"
#include "activation.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform ConvParams {
    uint channels;
    uint tokens;
    uint taps;
    uint slots;
    uint nb0;
    uint op;
    uint bias;
    uint off_0, off_1, off_2, off_3, off_4, off_5;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer W { float w[]; };
layout(set = 0, binding = 2, std430) readonly buffer Runs { int runs[]; };
// The taps where there is no bias: nobody reads them here.
layout(set = 0, binding = 3, std430) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 4, std430) writeonly buffer D { float d[]; };
layout(set = 0, binding = 5, std430) buffer State { float state[]; };

#define RUNS(slot, field) runs[p.off_2 + 3 * (slot) + (field)]
#include "run.glsl"

// Taps, at the most.
const uint MOST = 8;

uint state_at(uint slot, uint c, uint row) {
    return p.off_5 + (slot * (p.taps - 1) + row) * p.channels + c;
}

// Input of channel c at token j of a slot's run; the taps - 1 before the first are in the state, and zeros before the
// first position.
float input_at(Run run, uint slot, uint c, int j) {
    if (j >= 0) {
        return x[p.off_0 + (run.first + uint(j)) * p.nb0 + c];
    }
    if (int(run.position) + j < 0) {
        return 0.0;
    }
    return state[state_at(slot, c, uint(int(p.taps) - 1 + j))];
}

// The result for a token at channel c; zero for a token of no run.
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
    FOR_EACH_ROW(row, i2, i3, 1, 1, 1)
        FOR_EACH_COLUMN(c, p.channels)
            const float add = p.bias != 0 ? bias[p.off_3 + c] : 0.0;
            for (uint token = 0; token < p.tokens; token++) {
                const float sum = output_at(token, c);
                d[p.off_4 + token * p.channels + c] = activate(p.op, p.bias != 0 ? sum + add : sum);
            }
            for (uint slot = 0; slot < p.slots; slot++) {
                const Run run = run_of(slot, p.tokens);
                if (run.count == 0) {
                    continue;
                }
                float fresh[MOST - 1];
                [[unroll]] for (uint i = 0; i < MOST - 1; i++) {
                    fresh[i] = i < kept ? input_at(run, slot, c, int(run.count + i) - int(kept)) : 0.0;
                }
                [[unroll]] for (uint i = 0; i < MOST - 1; i++) {
                    if (i < kept) {
                        state[state_at(slot, c, i)] = fresh[i];
                    }
                }
            }
        END_EACH_COLUMN
    END_EACH_ROW
}
