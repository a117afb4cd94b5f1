#version 460
// SSM_CONV with a bias, an activation, and the new state in place of the old one.
//
// An invocation computes TOKENS tokens of a channel (the grid's y); adjacent invocations have adjacent channels (x). The
// invocation with the first token of a run computes all tokens that read the state, so that it can write the new state after it
// has read the old one: no other one accesses them. Other tokens that all belong to one run have their inputs loaded once, all
// at the same time. Nothing shared.

#include "common.glsl"
#include "activation.glsl"
#include "grid.glsl"

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform ConvParams {
    uint channels;
    uint tokens;
    uint taps;
    uint slots;
    uint run_fields;
    uint nb0;
    uint op;
    uint bias;
    uint off_0, off_1, off_2, off_3, off_4, off_5;
} p;

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer W { float w[]; };
layout(set = 0, binding = 2, std430) readonly buffer Runs { int runs[]; };
// The taps if there is no bias: not read then.
layout(set = 0, binding = 3, std430) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 4, std430) writeonly buffer D { float d[]; };
layout(set = 0, binding = 5, std430) buffer State { float state[]; };

#define RUNS(slot, field) runs[p.off_2 + p.run_fields * (slot) + (field)]
#include "run.glsl"

// Tokens of an invocation, and largest number of taps.
const uint TOKENS = 8;
const uint MOST = 8;

uint state_at(uint slot, uint c, uint row) {
    return p.off_5 + (slot * (p.taps - 1) + row) * p.channels + c;
}

uint x_at(uint token, uint c) {
    return p.off_0 + token * p.nb0 + c;
}

// Input of channel c at token j of a slot's run; the taps - 1 inputs before the first token are in the state, and zeros before
// the first position.
float input_at(Run run, uint slot, uint c, int j) {
    if (j >= 0) {
        return x[x_at(run.first + uint(j), c)];
    }
    if (int(run.position) + j < 0) {
        return 0.0;
    }
    return state[state_at(slot, c, uint(int(p.taps) - 1 + j))];
}

// The slot of a token; `slots` for a token without a slot.
uint slot_of(uint token) {
    for (uint slot = 0; slot < p.slots; slot++) {
        const Run run = run_of(slot, p.tokens);
        if (token - run.first < run.count) {
            return slot;
        }
    }
    return p.slots;
}

void store(uint token, uint c, float sum, float add) {
    d[p.off_4 + token * p.channels + c] = activate(p.op, p.bias != 0 ? sum + add : sum);
}

// Tokens from `begin` on, all of one run and after those that read the state. Absent taps are zeros before the others.
void all_of_one_run(uint begin, uint c, float add) {
    const uint none = MOST - p.taps;
    float inputs[MOST + TOKENS - 1], tap[MOST];
    [[unroll]] for (uint i = 0; i < MOST + TOKENS - 1; i++) {
        inputs[i] = i >= none ? x[x_at(begin + i - (MOST - 1), c)] : 0.0;
    }
    [[unroll]] for (uint i = 0; i < MOST; i++) {
        tap[i] = i >= none ? w[p.off_1 + c * p.taps + i - none] : 0.0;
    }
    [[unroll]] for (uint token = 0; token < TOKENS; token++) {
        float sum = 0.0;
        [[unroll]] for (uint i = 0; i < MOST; i++) {
            sum = fma(tap[i], inputs[token + i], sum);
        }
        store(begin + token, c, sum, add);
    }
}

// Any tokens begin .. end, and the state of the runs that start there.
void any_tokens(uint begin, uint end, uint c, float add) {
    const uint kept = p.taps - 1;
    for (uint token = begin; token < min(end + kept, p.tokens); token++) {
        const uint slot = slot_of(token);
        Run run = Run(token, 0, 0, 0);
        if (slot < p.slots) {
            run = run_of(slot, p.tokens);
        }
        const uint owner = token - run.first < kept ? run.first : token;
        if (owner < begin || owner >= end) {
            continue;
        }
        float sum = 0.0;
        if (slot < p.slots) {
            const int j = int(token - run.first) - int(kept);
            for (uint i = 0; i < p.taps; i++) {
                sum = fma(w[p.off_1 + c * p.taps + i], input_at(run, slot, c, j + int(i)), sum);
            }
        }
        store(token, c, sum, add);
    }
    for (uint slot = 0; slot < p.slots; slot++) {
        const Run run = run_of(slot, p.tokens);
        if (run.count == 0 || run.first < begin || run.first >= end) {
            continue;
        }
        float fresh[MOST - 1];
        [[unroll]] for (uint i = 0; i < MOST - 1; i++) {
            fresh[i] = i < kept ? input_at(run, slot, c, int(run.kept + i) - int(kept)) : 0.0;
        }
        [[unroll]] for (uint i = 0; i < MOST - 1; i++) {
            if (i < kept) {
                state[state_at(slot, c, i)] = fresh[i];
            }
        }
    }
}

void main() {
    FOR_EACH_ROW(tile, i2, i3, (p.tokens + TOKENS - 1) / TOKENS, 1, 1)
        const uint begin = tile * TOKENS, end = min(begin + TOKENS, p.tokens);
        const uint slot = slot_of(begin);
        bool inside = false;
        if (slot < p.slots) {
            const Run run = run_of(slot, p.tokens);
            inside = begin - run.first >= p.taps - 1 && run.first + run.count >= begin + TOKENS;
        }
        FOR_EACH_COLUMN(c, p.channels)
            const float add = p.bias != 0 ? bias[p.off_3 + c] : 0.0;
            if (inside) {
                all_of_one_run(begin, c, add);
            } else {
                any_tokens(begin, end, c, add);
            }
        END_EACH_COLUMN
    END_EACH_ROW
}
