// SSM_CONV: the causal convolution in front of a recurrent layer, channel by channel, and its new state; of few tokens
// with the bias and the activation behind it, and the new state where the old one was (`conv_step`).
//
// Memory-bound. A thread computes one channel of one row of the result: of a token, or of the new state. Neighbours are
// channels, so every access but that of the taps is a run of memory; rows of x come from the caches for all taps but
// the first. The slot of a token is found by going through the runs, the same ones for all threads of a work-group.
#include "activation.h"
#include "index.h"
#include "params.h"
#include "runs.h"

// Input of a channel at token `j` of its run: of the batch, or before it, of the state.
struct Inputs {
    const float *x, *state;
    Run run;
    u32 stride, channels, taps;
    __attribute__((device, always_inline)) float at(i32 j) const {
        if (j >= 0) return x[(u64)(run.first + j) * stride];
        if (run.count > 0 && (i32)run.position + j < 0) return 0.0f;
        return state[(u64)(taps - 1 + j) * channels];
    }
};

// group_x: groups of channels; group_y: rows of the result.
KERNEL(ROW_THREADS)
ssm_conv(const float *x, const float *w, const float *state, const i32 *runs, float *d, SsmConvParams p) {
    u32 channel = group_x() * ROW_THREADS + thread_id(), row = group_y();
    if (channel >= p.channels) return;
    runs += p.off[3];
    u32 kept = p.taps - 1, of_state = row - p.tokens;
    bool is_token = row < p.tokens;
    u32 slot = is_token ? slot_of(runs, p.slots, row, p.tokens) : of_state / kept;
    float sum = 0.0f;
    if (slot < p.slots) {
        Run run = run_of(runs, slot, p.tokens);
        Inputs in = {x + p.off[0] + channel, state + p.off[2] + (u64)slot * kept * p.channels + channel, run, p.nb0,
                     p.channels, p.taps};
        if (is_token) {
            i32 first = (i32)(row - run.first) - (i32)kept;
            w += p.off[1] + (u64)channel * p.taps;
            for (u32 i = 0; i < p.taps; i++) sum = mad(w[i], in.at(first + (i32)i), sum);
        } else {
            sum = in.at((i32)(run.count + of_state - slot * kept) - (i32)kept);
        }
    }
    d[p.off[4] + (u64)row * p.channels + channel] = sum;
}

// Taps of conv_step, at the most.
#define STEP_TAPS 8

// A thread computes all rows of a channel, and then the state that nobody else reads. group_x: groups of channels.
KERNEL(ROW_THREADS)
conv_step(const float *x, const float *w, const i32 *runs, const float *bias, float *d, float *state, ConvParams p) {
    u32 channel = group_x() * ROW_THREADS + thread_id();
    if (channel >= p.channels) return;
    u32 kept = p.taps - 1;
    w += p.off[1] + (u64)channel * p.taps;
    runs += p.off[2];
    state += p.off[5] + channel;
    float add = p.bias ? bias[p.off[3] + channel] : 0.0f;
    Inputs in = {x + p.off[0] + channel, state, {0, 0, 0}, p.nb0, p.channels, p.taps};
    NO_UNROLL for (u32 token = 0; token < p.tokens; token++) {
        u32 slot = slot_of(runs, p.slots, token, p.tokens);
        float sum = 0.0f;
        if (slot < p.slots) {
            in.run = run_of(runs, slot, p.tokens);
            in.state = state + (u64)slot * kept * p.channels;
            i32 first = (i32)(token - in.run.first) - (i32)kept;
            NO_UNROLL for (u32 i = 0; i < p.taps; i++) sum = mad(w[i], in.at(first + (i32)i), sum);
        }
        d[p.off[4] + (u64)token * p.channels + channel] = activation(p.op, p.bias ? sum + add : sum);
    }
    NO_UNROLL for (u32 slot = 0; slot < p.slots; slot++) {
        in.run = run_of(runs, slot, p.tokens);
        if (in.run.count == 0) continue;
        in.state = state + (u64)slot * kept * p.channels;
        float fresh[STEP_TAPS - 1];
        UNROLL for (u32 i = 0; i < STEP_TAPS - 1; i++) {
            if (i < kept) fresh[i] = in.at((i32)(in.run.count + i) - (i32)kept);
        }
        UNROLL for (u32 i = 0; i < STEP_TAPS - 1; i++) {
            if (i < kept) state[((u64)slot * kept + i) * p.channels] = fresh[i];
        }
    }
}
