// GATED_DELTA_NET and SSM_SCAN for prompts, by chunks of tokens. Sources: Yang, Kautz and Hatamizadeh, "Gated delta networks:
// improving Mamba2 with delta rule" (2024), section 3.3 (the inverse is the UT transform of Joffrain et al., 2006); Dao and Gu,
// "Transformers are SSMs" (2024), section 6.
//
// In a chunk, let a_i be the decay of token i, D_ij the product of a_l for j < l <= i, G_i that of all up to a_i, H_i that of
// all after a_i, and S the state before the chunk. The updates of the tokens of a delta net are the rows u_i of U with
//
//     (I + A) U = diag(beta) R,  R_i = v_i - G_i S^T k_i,  A_ij = beta_i D_ij (k_i . k_j) for j < i
//
// and with T = (I + A)^-1 and P_ij = D_ij (q_i . k_j) for j <= i
//
//     out_i = scale (G_i S^T q_i + (P T diag(beta) R)_i),  S becomes G_last S + K^T (diag(H) T diag(beta) R)
//
// A state space model has b as k, c as q, x as v and steps as beta, but neither A nor a scale: T = I, R_i = v_i.
//
// T and P T do not depend on the state: `delta_chunk` and `scan_chunk` compute them for all chunks at once. `delta_walk` and
// `scan_walk` then process the chunks of a sequence in order, with some columns of the state. Decays are products of numbers up
// to 1, never differences of logarithms, so gates of zero and of minus infinity need no special case.
//
// Tokens after the end of a run count as zeros with beta 0 and decay 1. Products with the zeros outside a triangle are not
// added, so a NaN affects only its own token and later ones.
//
// The including shader has the parameters p, keys and queries as k, k4, q, q4, their strides of tokens as K_STRIDE and
// Q_STRIDE, WITH_A, and the constants of all four shaders: work-group size (256), DK (64 or 128, at least the length of a key),
// ALIGNED (offsets, strides and the length are multiples of four).
#ifndef CHUNKS_GLSL
#define CHUNKS_GLSL

layout(constant_id = 1) const uint DK = 128;
layout(constant_id = 2) const uint ALIGNED = 1;

// Tokens of a chunk: `ggml_core::kernel::chunks::TOKENS`.
const uint CHUNK = 32;
// Quads of a chunk in scratch: the factors of R (32 rows for U, 32 for the results), 32 decays G of S^T k, 32 of S^T q with the
// scale. Without A the factors for U are a diagonal, which replaces the first decays.
const uint CHUNK_QUADS = 16 * CHUNK + 16;
// Invocations of a work-group, whatever the specialisation says.
const uint THREADS = 256;
// Quads of half a row, and the number that an invocation loads.
const uint HALF = DK / 8;
const uint EACH = CHUNK * HALF / THREADS;

uint chunks_of(uint count) {
    return (count + CHUNK - 1) / CHUNK;
}

// Largest number of chunks that runs with this many tokens can have.
uint all_chunks() {
    return (p.tokens + p.slots * (CHUNK - 1)) / CHUNK;
}

// A function that reads a quad of a row that starts at element `row`: zeros after its end.
#define ROW_QUAD(name, elements, quads)                                                                                \
    vec4 name(uint row, uint quad) {                                                                                   \
        if (ALIGNED != 0) {                                                                                            \
            return quad * 4 < p.d_0 ? quads[row / 4 + quad] : vec4(0.0);                                               \
        }                                                                                                              \
        vec4 x = vec4(0.0);                                                                                            \
        [[unroll]] for (uint l = 0; l < 4; l++) {                                                                      \
            if (quad * 4 + l < p.d_0) {                                                                                \
                x[l] = elements[row + quad * 4 + l];                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        return x;                                                                                                      \
    }
ROW_QUAD(key_quad, k, k4)
ROW_QUAD(query_quad, q, q4)

// Adds four products to `sum`, each fused: one instruction on most processors.
float add_products(float sum, vec4 x, vec4 y) {
    [[unroll]] for (uint l = 0; l < 4; l++) {
        sum += x[l] * y[l];
    }
    return sum;
}

// Loads keys or queries of a chunk: half of their elements at a time.
#define LOAD_ROWS(to, reader, first, stride, left, half_row)                                                           \
    [[unroll]] for (uint i = 0; i < EACH; i++) {                                                                       \
        const uint at = gl_LocalInvocationIndex + i * THREADS;                                                         \
        to[i] = reader((first) + min(at / HALF, (left) - 1) * (stride), (half_row) * HALF + at % HALF);                \
    }

// Stores the quads of a row in shared memory in the order `quad ^ row % 8`, so that eight rows are on different banks.
#define STORE_ROWS(to, from, left)                                                                                     \
    [[unroll]] for (uint i = 0; i < EACH; i++) {                                                                       \
        const uint at = gl_LocalInvocationIndex + i * THREADS;                                                         \
        memory[(to) + (at ^ at / HALF % 8)] = at / HALF < (left) ? from[i] : vec4(0.0);                                \
    }

#endif
