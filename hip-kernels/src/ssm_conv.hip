// SSM_CONV: the causal convolution before a recurrent layer, for each channel, and its new state. In a group also the bias and
// the activation after it, with the new state in place of the old one (`conv`).
//
// Memory-bound. A thread computes one channel of one row of the result: of a token, or of the new state; in a group, of several
// tokens, whose inputs it loads once. Adjacent threads have adjacent channels, so every access but that of the taps is
// contiguous; rows of x come from the caches for all taps but the first. The slot of a token is found by a search over the
// runs, the same ones for all threads of a work-group.
#include "activation.h"
#include "index.h"
#include "params.h"
#include "runs.h"

// Input of a channel at token `j` of its run: from the batch or, before it, from the state.
struct Inputs {
    const float *x, *state;
    Run run;
    u32 stride, channels, taps;
    INLINED float at(i32 j) const {
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
    u32 slot = is_token ? slot_of(runs, p.slots, row, p.tokens, p.run_fields) : of_state / kept;
    float sum = 0.0f;
    if (slot < p.slots) {
        Run run = run_of(runs, slot, p.tokens, p.run_fields);
        Inputs in = {x + p.off[0] + channel, state + p.off[2] + (u64)slot * kept * p.channels + channel, run, p.nb0,
                     p.channels, p.taps};
        if (is_token) {
            i32 first = (i32)(row - run.first) - (i32)kept;
            w += p.off[1] + (u64)channel * p.taps;
            for (u32 i = 0; i < p.taps; i++) sum = mad(w[i], in.at(first + (i32)i), sum);
        } else {
            sum = in.at((i32)(run.kept + of_state - slot * kept) - (i32)kept);
        }
    }
    d[p.off[4] + (u64)row * p.channels + channel] = sum;
}

// Largest number of taps of `conv`, and tokens of a thread.
#define CONV_TAPS 8u
#define CONV_TOKENS 8u

// The tokens begin .. begin + CONV_TOKENS, all of one run and after those that read the state: their inputs are loaded once,
// all at the same time. Absent taps are zeros before the others.
DEVICE void conv_tokens(const float *x, const float *w, float *d, const ConvParams &p, float add) {
    float input[CONV_TAPS + CONV_TOKENS - 1], tap[CONV_TAPS];
    u32 none = CONV_TAPS - p.taps;
    UNROLL for (u32 i = 0; i < CONV_TAPS + CONV_TOKENS - 1; i++) {
        input[i] = i >= none ? x[(u64)(i32)(i - (CONV_TAPS - 1)) * p.nb0] : 0.0f;
    }
    UNROLL for (u32 i = 0; i < CONV_TAPS; i++) tap[i] = i >= none ? w[i - none] : 0.0f;
    UNROLL for (u32 token = 0; token < CONV_TOKENS; token++) {
        float sum = 0.0f;
        UNROLL for (u32 i = 0; i < CONV_TAPS; i++) sum = mad(tap[i], input[token + i], sum);
        d[(u64)token * p.channels] = activation(p.op, p.bias ? sum + add : sum);
    }
}

// Writes the new state of a channel, which may overwrite the old one.
DEVICE void keep_state(const Inputs &in, float *state) {
    u32 kept = in.taps - 1;
    float fresh[CONV_TAPS - 1];
    UNROLL for (u32 i = 0; i < CONV_TAPS - 1; i++) {
        if (i < kept) fresh[i] = in.at((i32)(in.run.kept + i) - (i32)kept);
    }
    UNROLL for (u32 i = 0; i < CONV_TAPS - 1; i++) {
        if (i < kept) state[(u64)i * in.channels] = fresh[i];
    }
}

// A thread computes CONV_TOKENS tokens of a channel. The thread with the first token of a run computes all tokens that read the
// state, so that it can write the new state after it has read the old one: no other thread accesses them. group_x: groups of
// channels; group_y: groups of tokens.
KERNEL(ROW_THREADS)
conv(const float *x, const float *w, const i32 *runs, const float *bias, float *d, float *state, ConvParams p) {
    u32 channel = group_x() * ROW_THREADS + thread_id();
    if (channel >= p.channels) return;
    u32 kept = p.taps - 1, begin = group_y() * CONV_TOKENS, end = minimum(begin + CONV_TOKENS, p.tokens);
    x += p.off[0] + channel;
    w += p.off[1] + (u64)channel * p.taps;
    runs += p.off[2];
    d += p.off[4] + channel;
    state += p.off[5] + channel;
    float add = p.bias ? bias[p.off[3] + channel] : 0.0f;
    u64 slot_size = (u64)kept * p.channels;

    u32 slot = slot_of(runs, p.slots, begin, p.tokens, p.run_fields);
    Run run = slot < p.slots ? run_of(runs, slot, p.tokens, p.run_fields) : Run{0, 0, 0, 0};
    if (begin - run.first >= kept && run.first + run.count >= begin + CONV_TOKENS) {
        conv_tokens(x + (u64)begin * p.nb0, w, d + (u64)begin * p.channels, p, add);
        return;
    }
    Inputs in = {x, state, run, p.nb0, p.channels, p.taps};
    NO_UNROLL for (u32 token = begin; token < minimum(end + kept, p.tokens); token++) {
        slot = slot_of(runs, p.slots, token, p.tokens, p.run_fields);
        in.run = slot < p.slots ? run_of(runs, slot, p.tokens, p.run_fields) : Run{token, 0, 0, 0};
        u32 owner = token - in.run.first < kept ? in.run.first : token;
        if (owner < begin || owner >= end) continue;
        float sum = 0.0f;
        if (slot < p.slots) {
            in.state = state + slot * slot_size;
            i32 first = (i32)(token - in.run.first) - (i32)kept;
            NO_UNROLL for (u32 i = 0; i < p.taps; i++) sum = mad(w[i], in.at(first + (i32)i), sum);
        }
        d[(u64)token * p.channels] = activation(p.op, p.bias ? sum + add : sum);
    }
    NO_UNROLL for (slot = 0; slot < p.slots; slot++) {
        in.run = run_of(runs, slot, p.tokens, p.run_fields);
        if (in.run.count == 0 || in.run.first < begin || in.run.first >= end) continue;
        in.state = state + slot * slot_size;
        keep_state(in, state + slot * slot_size);
    }
}
