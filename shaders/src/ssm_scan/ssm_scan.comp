#version 460
// SSM_SCAN: the selective state space of Mamba-2, token by token.
//
// One work-group for COLUMNS channels (the grid's x) of one head (y) of one slot (z). Eight invocations share a channel's
// state, d_0 elements. Each keeps QUADS quads of it in registers from the first token of the run to the last: the state is read
// and written once. b and c of STEP tokens at a time pass through shared memory, 16 bytes in an invocation, zeros after d_0. A
// state does not depend on the results, so the partial sums of STEP tokens are added through shared memory at once. The
// work-groups of slot 0 also write zeros for tokens without a run.
//
// Specialisation: work-group size (a multiple of 8), QUADS (d_0 is at most 32 * QUADS).
// Shared memory: 1024 * QUADS + 18 * work-group + 32 bytes: 5.2 KiB with 64 and 4.

#include "common.glsl"
#include "activation.glsl"

layout(constant_id = 1) const uint QUADS = 4;

#include "ssm_scan.glsl"

layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 1, std430) readonly buffer Dt { float dt[]; };
layout(set = 0, binding = 2, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 3, std430) readonly buffer B { float b[]; };
layout(set = 0, binding = 4, std430) readonly buffer C { float c[]; };
layout(set = 0, binding = 5, std430) readonly buffer State { float state[]; };
layout(set = 0, binding = 6, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 7, std430) writeonly buffer D { float d[]; };

#include "run.glsl"

const uint WG = gl_WorkGroupSize.x;
const uint PARTS = 8;
const uint COLUMNS = WG / PARTS;
// Tokens that are staged at a time.
const uint STEP = 4;
const uint STATE_QUADS = PARTS * QUADS;

shared vec4 writes[STEP * STATE_QUADS];
shared vec4 reads[STEP * STATE_QUADS];
// x times the step.
shared float values[STEP * COLUMNS];
shared float decays[STEP];
shared float partial[STEP * WG];

#include "other_tokens.glsl"

// Stages up to STEP tokens.
void load_tokens(uint first_token, uint count, uint head, uint first_column) {
    const uint lane = gl_LocalInvocationIndex;
    const uint group = head / (p.heads_1 / p.heads_0);
    for (uint i = lane; i < STEP * STATE_QUADS; i += WG) {
        const uint token = first_token + min(i / STATE_QUADS, count - 1);
        const uint row_b = p.off_3 + group * p.nbb_0 + token * p.nbb_1;
        const uint row_c = p.off_4 + group * p.nbc_0 + token * p.nbc_1;
        vec4 to = vec4(0.0), from = vec4(0.0);
        [[unroll]] for (uint l = 0; l < 4; l++) {
            const uint element = i % STATE_QUADS * 4 + l;
            if (element < p.d_0) {
                to[l] = b[row_b + element];
                from[l] = c[row_c + element];
            }
        }
        writes[i] = to;
        reads[i] = from;
    }
    for (uint i = lane; i < STEP * COLUMNS; i += WG) {
        const uint token = first_token + min(i / COLUMNS, count - 1);
        const uint column = min(first_column + i % COLUMNS, p.d_1 - 1);
        const float step_size = softplus(dt[p.off_1 + token * p.heads_1 + head]);
        values[i] = step_size * x[p.off_0 + head * p.nbx_0 + token * p.nbx_1 + column];
        if (i % COLUMNS == 0) {
            decays[i / COLUMNS] = exp(step_size * a[p.off_2 + head]);
        }
    }
}

// Stores the state: after the last token that is no draft.
#define STORE_STATE                                                     \
    [[unroll]] for (uint i = 0; i < QUADS; i++) {                       \
        [[unroll]] for (uint l = 0; l < 4; l++) {                       \
            const uint element = (i * PARTS + part) * 4 + l;            \
            if (stored && element < p.d_0) {                            \
                d[column_d + element] = s[i][l];                        \
            }                                                           \
        }                                                               \
    }

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint part = lane % PARTS;
    const uint first_column = gl_WorkGroupID.x * COLUMNS;
    const uint column = first_column + lane / PARTS;
    const uint head = gl_WorkGroupID.y;
    const uint slot = gl_WorkGroupID.z;
    // Columns after the end repeat the last one and are not stored.
    const bool stored = column < p.d_1;
    const Run run = run_of(slot, p.tokens);
    if (slot == 0) {
        clear_other_tokens(head, first_column);
    }

    const uint column_state = ((slot * p.heads_1 + head) * p.d_1 + min(column, p.d_1 - 1)) * p.d_0;
    const bool keep = run.count == 0 || run.position > 0;
    vec4 s[QUADS];
    [[unroll]] for (uint i = 0; i < QUADS; i++) {
        [[unroll]] for (uint l = 0; l < 4; l++) {
            const uint element = (i * PARTS + part) * 4 + l;
            s[i][l] = keep && element < p.d_0 ? state[p.off_5 + column_state + element] : 0.0;
        }
    }

    const uint column_d = p.off_7 + p.tokens * p.heads_1 * p.d_1 + column_state;
    if (run.kept == 0) {
        STORE_STATE
    }
    for (uint n0 = 0; n0 < run.count; n0 += STEP) {
        const uint count = min(STEP, run.count - n0);
        barrier();
        load_tokens(run.first + n0, count, head, first_column);
        barrier();
        [[dont_unroll]] for (uint n = 0; n < count; n++) {
            const float decay = decays[n], value = values[n * COLUMNS + lane / PARTS];
            float sum = 0.0;
            [[unroll]] for (uint i = 0; i < QUADS; i++) {
                const uint at = n * STATE_QUADS + i * PARTS + part;
                s[i] = s[i] * decay + writes[at] * value;
                sum += dot(s[i], reads[at]);
            }
            if (n0 + n + 1 == run.kept) {
                STORE_STATE
            }
            partial[n * WG + lane] = sum;
        }
        barrier();
        for (uint i = lane; i < count * COLUMNS; i += WG) {
            const uint n = i / COLUMNS, j = i % COLUMNS;
            // Each column starts with another part, so that the columns read different banks.
            float all = 0.0;
            [[unroll]] for (uint k = 0; k < PARTS; k++) {
                all += partial[n * WG + j * PARTS + (k + j) % PARTS];
            }
            if (first_column + j < p.d_1) {
                const uint token = run.first + n0 + n;
                d[p.off_7 + (token * p.heads_1 + head) * p.d_1 + first_column + j] = all;
            }
        }
    }
}
