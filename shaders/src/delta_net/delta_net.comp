#version 460
// GATED_DELTA_NET: linear attention with a decaying state that corrects itself, token by token.
//
// One work-group for COLUMNS value columns (the grid's x) of one head (y) of one slot (z). Eight invocations share a column of
// the state, d_k elements. Each keeps QUADS quads of it in registers from the first token of the run to the last: the state is
// read and written once. Keys and queries of STEP tokens at a time pass through shared memory, 16 bytes in an invocation, zeros
// after d_k. A token needs S^T k before the state changes and S^T q afterwards; as
//
//     (S + k delta^T)^T q = S^T q + delta (k . q)
//
// all three sums are computed over the old state, and the eight partial sums are added through shared memory once for each
// token, with one barrier. If keys and queries are to be normed, the squares of both are summed with them. The work-groups of
// slot 0 also write zeros for tokens without a run. In a group (GROUP) the new state may also replace the old
// one: its columns belong to the work-group that has read them.
//
// Specialisation: work-group size (a multiple of 8), QUADS (d_k is at most 32 * QUADS).
// Shared memory: 1024 * QUADS + 42 * work-group + 32 bytes: 6.8 KiB with 64 and 4.

#include "common.glsl"
#include "activation.glsl"

layout(constant_id = 1) const uint QUADS = 4;

#include "delta_net.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 3, std430) readonly buffer G { float g[]; };
layout(set = 0, binding = 4, std430) readonly buffer Beta { float beta[]; };
layout(set = 0, binding = 5, std430) readonly buffer State { float state[]; };
layout(set = 0, binding = 6, std430) readonly buffer Runs { int runs[]; };
#ifdef GROUP
layout(set = 0, binding = 7, std430) readonly buffer Factors { float factors[]; };
layout(set = 0, binding = 8, std430) writeonly buffer D { float d[]; };
layout(set = 0, binding = 9, std430) writeonly buffer Own { float own[]; };
#else
layout(set = 0, binding = 7, std430) writeonly buffer D { float d[]; };
#endif

#include "run.glsl"

const uint WG = gl_WorkGroupSize.x;
const uint PARTS = 8;
const uint COLUMNS = WG / PARTS;
// Tokens that are staged at a time: an even number, so that the halves of `partial` alternate.
const uint STEP = 4;
const uint KEY_QUADS = PARTS * QUADS;

shared vec4 keys[STEP * KEY_QUADS];
shared vec4 queries[STEP * KEY_QUADS];
shared float values[STEP * COLUMNS];
// exp(g) and beta.
shared vec2 gates[STEP];
// S^T k, S^T q, k . q and k . k, of two tokens, and q . q.
shared vec4 partial[2 * WG];
shared float partial_q[2 * WG];

#include "other_tokens.glsl"

// Stages up to STEP tokens.
void load_tokens(uint first_token, uint count, uint head, uint first_column) {
    const uint lane = gl_LocalInvocationIndex;
    const uint head_k = head % p.heads_0;
    for (uint i = lane; i < STEP * KEY_QUADS; i += WG) {
        const uint token = first_token + min(i / KEY_QUADS, count - 1);
        const uint row_q = p.off_0 + head_k * p.nbq_0 + token * p.nbq_1;
        const uint row_k = p.off_1 + head_k * p.nbk_0 + token * p.nbk_1;
        vec4 query = vec4(0.0), key = vec4(0.0);
        [[unroll]] for (uint l = 0; l < 4; l++) {
            const uint element = i % KEY_QUADS * 4 + l;
            if (element < p.d_0) {
                query[l] = q[row_q + element];
                key[l] = k[row_k + element];
            }
        }
        queries[i] = query;
        keys[i] = key;
    }
    for (uint i = lane; i < STEP * COLUMNS; i += WG) {
        const uint token = first_token + min(i / COLUMNS, count - 1);
        const uint column = min(first_column + i % COLUMNS, p.d_1 - 1);
        values[i] = v[p.off_2 + head * p.nbv_0 + token * p.nbv_1 + column];
    }
    if (lane < count) {
        const uint at = (first_token + lane) * p.heads_1 + head;
        float decay = g[p.off_3 + at], share = beta[p.off_4 + at];
#ifdef GROUP
        if (p.gates != 0) {
            decay = softplus(decay) * factors[p.off_8 + head];
            share = times_sigmoid(1.0, share);
        }
#endif
        gates[lane] = vec2(exp(decay), share);
    }
}

#ifdef GROUP
#define KEEP(element, value) if (p.keeps != 0) own[p.off_9 + column_state + element] = value
#else
#define KEEP(element, value)
#endif

// Stores the state: after the last token that is no draft.
#define STORE_STATE                                                     \
    [[unroll]] for (uint i = 0; i < QUADS; i++) {                       \
        [[unroll]] for (uint l = 0; l < 4; l++) {                       \
            const uint element = (i * PARTS + part) * 4 + l;            \
            if (stored && element < p.d_0) {                            \
                d[column_d + element] = s[i][l];                        \
                KEEP(element, s[i][l]);                                 \
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
    const uint column_in_head = min(column, p.d_1 - 1);
    const Run run = run_of(slot, p.tokens);
    if (slot == 0) {
        clear_other_tokens(head, first_column);
    }

    const uint column_state = ((slot * p.heads_1 + head) * p.d_1 + column_in_head) * p.d_0;
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
            const vec2 gate = gates[n];
            vec4 key[QUADS];
            vec4 sums = vec4(0.0);
            float squares = 0.0;
            [[unroll]] for (uint i = 0; i < QUADS; i++) {
                const vec4 query = queries[n * KEY_QUADS + i * PARTS + part];
                key[i] = keys[n * KEY_QUADS + i * PARTS + part];
                s[i] *= gate.x;
                sums.x += dot(s[i], key[i]);
                sums.y += dot(s[i], query);
                sums.z += dot(key[i], query);
                sums.w += dot(key[i], key[i]);
                squares += dot(query, query);
            }
            const uint half_at = n % 2 * WG;
            partial[half_at + lane] = sums;
            partial_q[half_at + lane] = squares;
            barrier();
            // Each column starts with another part, so that the columns read different banks.
            vec4 all = vec4(0.0);
            squares = 0.0;
            [[unroll]] for (uint i = 0; i < PARTS; i++) {
                const uint at = half_at + lane - part + (i + lane / PARTS) % PARTS;
                all += partial[at];
                squares += partial_q[at];
            }
            // The norms of key and query are factors of the sums.
            float of_key = 1.0, of_query = 1.0;
            if (p.factor != 0.0) {
                of_key = p.factor * inversesqrt(all.w / float(p.d_0) + p.eps);
                of_query = p.factor * inversesqrt(squares / float(p.d_0) + p.eps);
            }
            all.xyz *= vec3(of_key, of_query, of_key * of_query);
            const float delta = gate.y * (values[n * COLUMNS + lane / PARTS] - all.x);
            [[unroll]] for (uint i = 0; i < QUADS; i++) {
                s[i] += delta * of_key * key[i];
            }
            if (n0 + n + 1 == run.kept) {
                STORE_STATE
            }
            if (part == 0 && stored) {
                const uint token = run.first + n0 + n;
                d[p.off_7 + (token * p.heads_1 + head) * p.d_1 + column] = p.scale * fma(delta, all.z, all.y);
            }
        }
    }
}
