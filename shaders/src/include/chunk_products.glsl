// Part that does not depend on the state (chunks.glsl): products of the keys and queries of a chunk with its keys; half of the
// elements at a time pass through shared memory. An invocation has four rows of two columns: one of keys, one of queries;
// without A, of one column of queries. The including shader has what chunks.glsl needs, run.glsl, and TABLES, the number of
// quads of shared memory that it uses itself.
#ifndef CHUNK_PRODUCTS_GLSL
#define CHUNK_PRODUCTS_GLSL

#include "chunks.glsl"

shared vec4 memory[64 * HALF > TABLES ? 64 * HALF : TABLES];
// Rows of D, each followed by an element of G.
const uint DECAYS = CHUNK + 1;
shared float decay[CHUNK * DECAYS];
// Decay and beta of each token.
shared float gate[CHUNK];
shared float share[CHUNK];

// Place of an invocation's sums: columns `column` and `column + 16`, rows from `4 * quad` on.
const uint SUMS = WITH_A ? 2 : 1;
const uint ACROSS = CHUNK / SUMS;
struct Part {
    uint column, quad;
    bool queries;
};
Part own_part() {
    const uint lane = gl_LocalInvocationIndex;
    return Part(lane % ACROSS, lane / ACROSS % 8, !WITH_A || lane >= THREADS / 2);
}

// First token of this work-group's chunk, and number of tokens; none if there are fewer chunks.
uvec2 find_chunk() {
    uint chunk = gl_WorkGroupID.x;
    for (uint slot = 0; slot < p.slots; slot++) {
        const Run run = run_of(slot, p.tokens);
        const uint count = chunks_of(run.count);
        if (chunk < count) {
            return uvec2(run.first + chunk * CHUNK, min(run.count - chunk * CHUNK, CHUNK));
        }
        chunk -= count;
    }
    return uvec2(0);
}

// Column j of D or, after the last one, G.
void decay_column(uint j) {
    const uint first = j < CHUNK ? j + 1 : 0;
    float product = 1.0;
    [[dont_unroll]] for (uint i = 0; i < CHUNK; i++) {
        product = i < first ? 1.0 : product * gate[i];
        decay[i * DECAYS + j] = product;
    }
}

// Computes the sums, multiplied by their decays. Keys and queries start at the chunk. `gate` and `share` must have been
// written.
void chunk_products(uint first_k, uint first_q, uint left, const Part part, out vec4 sums[SUMS]) {
    [[unroll]] for (uint j = 0; j < SUMS; j++) {
        sums[j] = vec4(0.0);
    }
    [[dont_unroll]] for (uint half_row = 0; half_row < 2; half_row++) {
        vec4 next_k[EACH], next_q[EACH];
        LOAD_ROWS(next_k, key_quad, first_k, K_STRIDE, left, half_row)
        LOAD_ROWS(next_q, query_quad, first_q, Q_STRIDE, left, half_row)
        barrier();
        STORE_ROWS(0, next_k, left)
        STORE_ROWS(CHUNK * HALF, next_q, left)
        if (half_row == 0 && gl_LocalInvocationIndex <= CHUNK) {
            decay_column(gl_LocalInvocationIndex);
        }
        barrier();
        [[dont_unroll]] for (uint i = 0; i < HALF; i++) {
            vec4 y[SUMS];
            [[unroll]] for (uint j = 0; j < SUMS; j++) {
                y[j] = memory[(part.column + ACROSS * j) * HALF + (i ^ part.column % 8)];
            }
            [[unroll]] for (uint r = 0; r < 4; r++) {
                const uint row = part.quad * 4 + r;
                const vec4 x = memory[(part.queries ? CHUNK * HALF : 0) + row * HALF + (i ^ row % 8)];
                [[unroll]] for (uint j = 0; j < SUMS; j++) {
                    sums[j][r] = add_products(sums[j][r], x, y[j]);
                }
            }
        }
    }
    [[unroll]] for (uint j = 0; j < SUMS; j++) {
        [[unroll]] for (uint r = 0; r < 4; r++) {
            sums[j][r] *= decay[(part.quad * 4 + r) * DECAYS + part.column + ACROSS * j];
        }
    }
}

// First element of a chunk in scratch.
uint chunk_begin(uint head) {
    return (head * all_chunks() + gl_WorkGroupID.x) * CHUNK_QUADS * 4;
}

#endif
