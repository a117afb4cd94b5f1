// From chunk to chunk (chunks.glsl). A work-group has 16 columns of the state (the grid's x) of one head (y) of one slot (z).
//
// The columns of the state are in registers: an invocation has a quad of one or two of them. For each chunk they also pass
// through shared memory. S^T k and S^T q, 64 x 16, take 16 sums over a quarter of the elements in an invocation; the quarters
// are added in shared memory. Then follow the products of the chunk's factors with R, a row of four columns in an invocation,
// and the updates of the tokens are added to the state. Shared memory holds half of the keys and of the queries, the state and
// the factors at a time; finally the first half of the keys replaces the queries. During the later products, the loads of the
// next chunk are in flight. The work-groups of slot 0 also write zeros for tokens without a run.
//
// The including shader has what chunks.glsl needs; values v, the state, scratch as `chunks` and `chunks4`, the result d;
// K_BEGIN, Q_BEGIN and V_BEGIN, the starts of keys, queries and values of a head, and V_STRIDE.
//
// Shared memory: 32 KiB (24 for DK = 64).
#ifndef CHUNK_WALK_GLSL
#define CHUNK_WALK_GLSL

#include "chunks.glsl"

const uint WG = THREADS;
const uint COLUMNS = 16;
const uint QUADS = DK / 4;
// Columns of the state of which an invocation has a quad.
const uint OWN = COLUMNS * QUADS / THREADS;

// Places in shared memory, in quads. After the products with the state, its place and that of the queries hold partial sums,
// 768 quads, then R and the updates.
const uint KEYS = 0;
const uint STATES = CHUNK * HALF;
const uint QUERIES = STATES + COLUMNS * QUADS;
const uint FACTORS = QUERIES + (COLUMNS * QUADS == 512 ? CHUNK * HALF : 768 - COLUMNS * QUADS);
// Factors that are not read, of two loads in each invocation: without A those for U.
const uint UNREAD = WITH_A ? 0 : 1;
const uint RESTS = STATES;
const uint WRITES = STATES + CHUNK * 4;
shared vec4 memory[FACTORS + 16 * CHUNK];

#include "other_tokens.glsl"

// Rows of sums of an invocation: of keys and queries, or of queries only.
const uint FROM = WITH_A ? 0 : 2;

// Adds the products of a quad of keys and queries with the state.
void multiply_quad(uint half_row, uint quad, uint line, uint four, inout vec4 sums[4]) {
    const uint mixed = quad ^ line % 8;
    vec4 x[4];
    [[unroll]] for (uint m = FROM; m < 4; m++) {
        x[m] = memory[(m < 2 ? KEYS : QUERIES) + (line + 16 * (m % 2)) * HALF + mixed];
    }
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const vec4 y = memory[STATES + (four * 4 + j) * QUADS + ((half_row * HALF + quad) ^ four)];
        [[unroll]] for (uint m = FROM; m < 4; m++) {
            sums[m][j] = add_products(sums[m][j], x[m], y);
        }
    }
}

// Adds the products of an invocation's quarter of half a row. Two quads at a time: more compile slowly and take registers.
void multiply_states(uint half_row, uint part, uint line, uint four, inout vec4 sums[4]) {
    const uint first = part * (HALF / 4);
    [[dont_unroll]] for (uint quad = first; quad < first + HALF / 4; quad += 2) {
        [[unroll]] for (uint i = 0; i < 2; i++) {
            multiply_quad(half_row, quad + i, line, four, sums);
        }
    }
}

// Adds the sums of all quarters for the invocation's row.
vec4 join_quarters(vec4 sums[4], uint part, uint lane) {
    vec4 own = vec4(0.0);
    [[unroll]] for (uint m = FROM; m < 4; m++) {
        if (m == part) {
            own = sums[m];
        } else {
            memory[STATES + ((part + 3 - m) % 4 * 4 + m) * 64 + lane] = sums[m];
        }
    }
    barrier();
    if (part >= FROM) {
        [[unroll]] for (uint i = 0; i < 3; i++) {
            own += memory[STATES + (i * 4 + part) * 64 + lane];
        }
    }
    return own;
}

// Products of a row of factors with R, up to its own token.
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
    const uint first_k = K_BEGIN(head) + run.first * K_STRIDE;
    const uint first_q = Q_BEGIN(head) + run.first * Q_STRIDE;
    const uint first_v = V_BEGIN(head) + run.first * V_STRIDE + first_column;

    // Role in the products with the state: a quarter of each half of a key, rows `line` and `line + 16` of keys and of queries,
    // four columns. The invocation completes one of these rows, `row`; keys come before queries.
    const uint part = thread / 64;
    const uint lane = thread % 64;
    const uint line = lane / 4;
    const uint four = lane % 4;
    const uint row = part * 16 + line;
    const uint token = row % CHUNK;
    // Role in the state: a quad of `OWN` columns.
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
        LOAD_ROWS(next_k0, key_quad, first_k + before * K_STRIDE, K_STRIDE, here, 0)                                     \
        LOAD_ROWS(next_q0, query_quad, first_q + before * Q_STRIDE, Q_STRIDE, here, 0)                                   \
        LOAD_ROWS(next_k1, key_quad, first_k + before * K_STRIDE, K_STRIDE, here, 1)                                     \
        LOAD_ROWS(next_q1, query_quad, first_q + before * Q_STRIDE, Q_STRIDE, here, 1)                                   \
        const uint from = (first_chunk + (number)) * CHUNK_QUADS;                                                      \
        [[unroll]] for (uint i = UNREAD; i < 2; i++) {                                                                 \
            factors[i] = chunks4[from + thread + i * THREADS];                                                         \
        }                                                                                                              \
        decay = chunks[(from + 16 * CHUNK) * 4 + row];                                                                 \
        all = chunks[(from + 16 * CHUNK) * 4 + (WITH_A ? CHUNK : 2 * CHUNK) - 1];                                      \
        const uint from_v = first_v + (before + min(token, here - 1)) * V_STRIDE + four * 4;                            \
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
        [[unroll]] for (uint i = UNREAD; i < 2; i++) {
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
        vec4 written = vec4(0.0);
        if (part < 2) {
            const vec4 rest = token < left ? values : vec4(0.0);
            memory[RESTS + row * 4 + four] = WITH_A ? rest - own : rest;
            written = decay * rest;
        }
        barrier();
        STORE_ROWS(QUERIES, next_k0, left)
        const float all_decay = all;
        // After the last chunk, loads it again: a value that may stay unchanged would occupy its registers all the time.
        const uint following = min(chunk + 1, chunks_of_run - 1);
        LOAD_CHUNK(following)
        vec4 products = vec4(0.0);
        if (WITH_A || part >= 2) {
            products = multiply_rests(row, four);
        }
        if (part < 2) {
            memory[WRITES + row * 4 + four] = WITH_A ? products : written;
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

#endif
