#version 460
// GATED_DELTA_NET by chunks, from chunk to chunk: see delta_chunks.glsl. A work-group for 16 value columns (the grid's x)
// of one head (y) of one slot (z).
//
// The columns of the state are in registers, a quad of one or two of them for an invocation. For a chunk they go through
// shared memory too; S^T k and S^T q, 64 x 16, are 16 sums of a quarter of their elements for an invocation, which meet in
// shared memory; then the products of the chunk's factors with R, a row of four columns for an invocation; then what the
// tokens write is added to the state. Keys, half of the queries, the state and the factors are in shared memory at a
// time; the first half of the keys comes back in place of the queries. While the later products run, the loads of the next
// chunk are in flight. The groups of slot 0 also write the zeros of tokens that belong to no run.
//
// Specialisation: see delta_chunks.glsl. Shared memory: 32 KiB (24 for DK = 64).

#include "common.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Q { float q[]; };
layout(set = 0, binding = 0, std430) readonly buffer Q4 { vec4 q4[]; };
layout(set = 0, binding = 1, std430) readonly buffer K { float k[]; };
layout(set = 0, binding = 1, std430) readonly buffer K4 { vec4 k4[]; };
layout(set = 0, binding = 2, std430) readonly buffer V { float v[]; };
layout(set = 0, binding = 3, std430) readonly buffer State { float state[]; };
layout(set = 0, binding = 4, std430) readonly buffer Runs { int runs[]; };
layout(set = 0, binding = 5, std430) readonly buffer Chunks { float chunks[]; };
layout(set = 0, binding = 5, std430) readonly buffer Chunks4 { vec4 chunks4[]; };
layout(set = 0, binding = 6, std430) writeonly buffer D { float d[]; };

#include "delta_chunks.glsl"
#include "run.glsl"

const uint WG = THREADS;
const uint COLUMNS = 16;
const uint QUADS = DK / 4;
// Columns of the state of which an invocation has a quad.
const uint OWN = COLUMNS * QUADS / THREADS;

// Places in shared memory, in quads. Behind the products with the state its place and that of the queries hold partial
// sums, 768 quads, then R and what is written.
const uint KEYS = 0;
const uint STATES = CHUNK * HALF;
const uint QUERIES = STATES + COLUMNS * QUADS;
const uint FACTORS = QUERIES + (COLUMNS * QUADS == 512 ? CHUNK * HALF : 768 - COLUMNS * QUADS);
const uint RESTS = STATES;
const uint WRITES = STATES + CHUNK * 4;
shared vec4 memory[FACTORS + 16 * CHUNK];

#include "other_tokens.glsl"

// Adds the products of half a key and half a query with the state.
void multiply_states(uint half_row, uint part, uint line, uint four, inout vec4 sums[4]) {
    [[unroll]] for (uint i = 0; i < HALF / 4; i++) {
        const uint quad = part * (HALF / 4) + i;
        const uint mixed = quad ^ line % 8;
        vec4 x[4];
        [[unroll]] for (uint m = 0; m < 4; m++) {
            x[m] = memory[(m < 2 ? KEYS : QUERIES) + (line + 16 * (m % 2)) * HALF + mixed];
        }
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const vec4 y = memory[STATES + (four * 4 + j) * QUADS + ((half_row * HALF + quad) ^ four)];
            [[unroll]] for (uint m = 0; m < 4; m++) {
                sums[m][j] = add_products(sums[m][j], x[m], y);
            }
        }
    }
}

// The sums of all quarters for the invocation's row.
vec4 join_quarters(vec4 sums[4], uint part, uint lane) {
    vec4 own = vec4(0.0);
    [[unroll]] for (uint m = 0; m < 4; m++) {
        if (m == part) {
            own = sums[m];
        } else {
            memory[STATES + ((part + 3 - m) % 4 * 4 + m) * 64 + lane] = sums[m];
        }
    }
    barrier();
    [[unroll]] for (uint i = 0; i < 3; i++) {
        own += memory[STATES + (i * 4 + part) * 64 + lane];
    }
    return own;
}

// The products of a row of factors with R, up to its own token.
vec4 multiply_rests(uint row, uint four) {
    const uint count = row % CHUNK + 1;
    vec4 sum = vec4(0.0);
    [[dont_unroll]] for (uint i = 0; i < count / 4; i++) {
        const vec4 factor = memory[FACTORS + row * 8 + (i ^ row % 8)];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            sum += factor[j] * memory[RESTS + (i * 4 + j) * 4 + four];
        }
    }
    const vec4 factor = memory[FACTORS + row * 8 + (min(count / 4, 7) ^ row % 8)];
    [[unroll]] for (uint j = 0; j < 3; j++) {
        if (j < count % 4) {
            sum += factor[j] * memory[RESTS + (count / 4 * 4 + j) * 4 + four];
        }
    }
    return sum;
}

void main() {
    const uint thread = gl_LocalInvocationIndex;
    const uint first_column = gl_WorkGroupID.x * COLUMNS;
    const uint head = gl_WorkGroupID.y;
    const uint slot = gl_WorkGroupID.z;
    const Run run = run_of(slot, p.tokens);
    if (slot == 0) {
        clear_other_tokens(head, first_column);
    }
    uint first_chunk = head * all_chunks();
    for (uint i = 0; i < slot; i++) {
        first_chunk += chunks_of(run_of(i, p.tokens).count);
    }
    const uint head_k = head % p.heads_0;
    const uint first_q = p.off_0 + head_k * p.nbq_0 + run.first * p.nbq_1;
    const uint first_k = p.off_1 + head_k * p.nbk_0 + run.first * p.nbk_1;
    const uint first_v = p.off_2 + head * p.nbv_0 + run.first * p.nbv_1 + first_column;

    // As a part of products with the state: a quarter of each half of a key, lines `line` and `line + 16` of keys and of
    // queries, four columns. And the one of these lines, `row`, keys before queries, that it finishes.
    const uint part = thread / 64;
    const uint lane = thread % 64;
    const uint line = lane / 4;
    const uint four = lane % 4;
    const uint row = part * 16 + line;
    const uint token = row % CHUNK;
    // As a part of the state: a quad of `OWN` columns.
    const uint quad = thread % 8 + thread / 32 % (QUADS / 8) * 8;
    const uint column = (thread / 8 % 4 + thread / (4 * QUADS) * 4) * OWN;

    const uint place = ((slot * p.heads_1 + head) * p.d_1 + first_column + column) * p.d_0;
    const bool keep = run.count == 0 || run.position > 0;
    vec4 s[OWN];
    [[unroll]] for (uint c = 0; c < OWN; c++) {
        [[unroll]] for (uint l = 0; l < 4; l++) {
            const bool there = first_column + column + c < p.d_1 && quad * 4 + l < p.d_0;
            s[c][l] = keep && there ? state[p.off_5 + place + c * p.d_0 + quad * 4 + l] : 0.0;
        }
    }

    vec4 next_k0[EACH], next_k1[EACH], next_q0[EACH], next_q1[EACH], factors[2];
    vec4 values = vec4(0.0);
    float decay = 0.0, all = 0.0;
#define LOAD_CHUNK(number)                                                                                             \
    {                                                                                                                  \
        const uint before = (number) * CHUNK;                                                                          \
        const uint here = min(run.count - before, CHUNK);                                                              \
        LOAD_ROWS(next_k0, key_quad, first_k + before * p.nbk_1, p.nbk_1, here, 0)                                     \
        LOAD_ROWS(next_q0, query_quad, first_q + before * p.nbq_1, p.nbq_1, here, 0)                                   \
        LOAD_ROWS(next_k1, key_quad, first_k + before * p.nbk_1, p.nbk_1, here, 1)                                     \
        LOAD_ROWS(next_q1, query_quad, first_q + before * p.nbq_1, p.nbq_1, here, 1)                                   \
        const uint from = (first_chunk + (number)) * CHUNK_QUADS;                                                      \
        [[unroll]] for (uint i = 0; i < 2; i++) {                                                                      \
            factors[i] = chunks4[from + thread + i * THREADS];                                                         \
        }                                                                                                              \
        decay = chunks[(from + 16 * CHUNK) * 4 + row];                                                                 \
        all = chunks[(from + 16 * CHUNK) * 4 + CHUNK - 1];                                                             \
        const uint from_v = first_v + (before + min(token, here - 1)) * p.nbv_1 + four * 4;                            \
        [[unroll]] for (uint l = 0; l < 4; l++) {                                                                      \
            values[l] = first_column + four * 4 + l < p.d_1 ? v[from_v + l] : 0.0;                                     \
        }                                                                                                              \
    }
    if (run.count > 0) {
        LOAD_CHUNK(0)
    }
    const uint chunks_of_run = chunks_of(run.count);
    [[dont_unroll]] for (uint chunk = 0; chunk < chunks_of_run; chunk++) {
        const uint left = min(run.count - chunk * CHUNK, CHUNK);
        [[unroll]] for (uint c = 0; c < OWN; c++) {
            memory[STATES + (column + c) * QUADS + (quad ^ (column + c) / 4)] = s[c];
        }
        [[unroll]] for (uint i = 0; i < 2; i++) {
            const uint at = thread + i * THREADS;
            memory[FACTORS + (at ^ at / 8 % 8)] = factors[i];
        }
        vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
        STORE_ROWS(KEYS, next_k0, left)
        STORE_ROWS(QUERIES, next_q0, left)
        barrier();
        multiply_states(0, part, line, four, sums);
        barrier();
        STORE_ROWS(KEYS, next_k1, left)
        STORE_ROWS(QUERIES, next_q1, left)
        barrier();
        multiply_states(1, part, line, four, sums);
        barrier();
        const vec4 own = decay * join_quarters(sums, part, lane);
        if (part < 2) {
            memory[RESTS + row * 4 + four] = token < left ? values - own : vec4(0.0);
        }
        barrier();
        STORE_ROWS(QUERIES, next_k0, left)
        const float all_decay = all;
        // The last one again behind the last one: what may keep its value would need its registers all the time.
        const uint following = min(chunk + 1, chunks_of_run - 1);
        LOAD_CHUNK(following)
        const vec4 products = multiply_rests(row, four);
        if (part < 2) {
            memory[WRITES + row * 4 + four] = products;
        } else if (token < left) {
            const uint to = p.off_7 + ((run.first + chunk * CHUNK + token) * p.heads_1 + head) * p.d_1 + first_column;
            [[unroll]] for (uint l = 0; l < 4; l++) {
                if (first_column + four * 4 + l < p.d_1) {
                    d[to + four * 4 + l] = own[l] + products[l];
                }
            }
        }
        barrier();
        const uint lines = (quad < HALF ? QUERIES : KEYS);
        [[unroll]] for (uint c = 0; c < OWN; c++) {
            s[c] *= all_decay;
        }
        [[dont_unroll]] for (uint j = 0; j < CHUNK; j += 4) {
            [[unroll]] for (uint i = 0; i < 4; i++) {
                const vec4 key = memory[lines + (j + i) * HALF + (quad % HALF ^ (j + i) % 8)];
                [[unroll]] for (uint c = 0; c < OWN; c++) {
                    s[c] += key * memory[WRITES + (j + i) * 4 + (column + c) / 4][(column + c) % 4];
                }
            }
        }
        barrier();
    }

    const uint column_d = p.off_7 + p.tokens * p.heads_1 * p.d_1 + place;
    [[unroll]] for (uint c = 0; c < OWN; c++) {
        [[unroll]] for (uint l = 0; l < 4; l++) {
            if (first_column + column + c < p.d_1 && quad * 4 + l < p.d_0) {
                d[column_d + c * p.d_0 + quad * 4 + l] = s[c][l];
            }
        }
    }
}
