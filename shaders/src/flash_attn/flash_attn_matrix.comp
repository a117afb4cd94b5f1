#version 460
// FLASH_ATTN_EXT for many tokens on matrix units (matrix.glsl), which multiply keys and values in F16. A work-group has some
// groups of 16 tokens of one head and steps through BC positions at a time. Sums, soft-max and result are F32.
//
// SHARES subgroups have the same 16 tokens in all steps, and each its share of the elements of rows: of the queries, which stay
// in its registers (multiplied by a power of two that brings the largest of a row to 2^14 .. 2^15), and of the results, which
// also do. One share if registers hold whole rows, more for longer ones. In a step
//
//   * keys and values pass through shared memory; meanwhile those of the next step are loaded, as stored. Blocks become F16
//     numbers when they are stored there, values sums of two each. A value outside the range of F16 becomes infinite, as in a
//     cache of F16. With two stages, those of the next step have a place of their own, and a step has one barrier; with more
//     than one share, values replace keys;
//   * scores are keys times queries. They go to shared memory, a row for each token, with the sums of each share. They are in
//     base 2: log2(e) is part of the scale and of the slope of the mask;
//   * soft-max: PARTS invocations share a row and add the shares, with a running maximum. Weights replace their scores,
//     multiplied by 2^15, as sums of two F16 numbers, so that nothing is rounded that F32 would keep;
//   * results are rescaled if the maximum has changed, and values times weights are added.
//
// Queries, and keys in blocks, are rounded to the nearest F16 number, by at most 2^-11 of each: an NMSE of 1e-8 with scores of
// some units, and more with larger ones (8e-7 with a standard deviation of 13). Rounded weights would add 4e-8.
//
// Positions at the beginning and at the end that the mask hides from all rows are skipped: half of a causal prompt, all but the
// window of a sliding one. Each subgroup checks 128 at a time. From the first infinite or NaN value on, products with values (of
// its stage) are computed one by one and skip the positions that are hidden from their row.
//
// If tokens and heads are too few for the device, the positions are divided as evenly as possible into up to MOST_SPLITS
// splits, each with its own work-groups. The last work-group of a head's tokens joins them, in order.
//
// Specialisation: work-group size; KD and VD: rows of k and of v in groups of 16, rounded up; BC: positions of a step, 16, 32
// or 64; SHARES, a power of two; SUBGROUPS, a multiple of it; STAGES, 1, or 2 for whole rows. Rows of q, k and v are multiples
// of eight elements; those of F16 start at such, those of q and the mask at multiples of four.
// Variants: type of k and v; matrix, or emulated, in which invocations compute what the matrix units would.
// Shared memory: with one share, four subgroups and 32 positions: 18.3 KiB for rows of 64, 26.3 for 128; with two stages 27.3
// and 43.3. Two shares, eight subgroups, 128 and 32: 27 KiB. Rows of 576, 16 positions, eight subgroups of four shares: 36.6
// KiB; sixteen of eight shares: 41. Emulated more, for the queries.

#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "common.glsl"

layout(constant_id = 1) const uint KD = 8;
layout(constant_id = 2) const uint VD = 8;
layout(constant_id = 3) const uint BC = 32;
layout(constant_id = 4) const uint SHARES = 1;
layout(constant_id = 5) const uint SUBGROUPS = 4;
layout(constant_id = 6) const uint STAGES = 1;

#include "flash_attn.glsl"

// For every row of the result and every split: the sums of weighted values, then the largest score and the sum of weights.
// Without splits, neither this nor the counters are accessed.
layout(set = 0, binding = 6, std430) coherent buffer Scratch { float scratch[]; };
layout(set = 0, binding = 6, std430) coherent buffer Scratch4 { vec4 scratch4[]; };
// Number of splits that have arrived, for each work-group's tokens of each head; zero before and after.
layout(set = 0, binding = 7, std430) coherent buffer Arrived { uint arrived[]; };

#include "arrival.glsl"

const uint WG = gl_WorkGroupSize.x;
const uint LANES = WG / SUBGROUPS;
const uint MATRIX_M = 16;
const uint MATRIX_N = 16;
const uint MATRIX_K = 16;

// Tokens of the subgroups that share rows, and of the work-group.
const uint ROWS = MATRIX_N;
const uint BR = SUBGROUPS / SHARES * ROWS;
const uint MOST_SPLITS = 8;
// Groups of 16 in a share.
const uint K_OWN = (KD + SHARES - 1) / SHARES;
const uint V_OWN = (VD + SHARES - 1) / SHARES;
// Invocations that load a row of queries, those that share one of scores, and quads of these in each.
const uint BRINGERS = SHARES * LANES / ROWS;
const uint PARTS = BRINGERS < BC / 4 ? BRINGERS : BC / 4;
const uint QUADS = BC / 4 / PARTS;

// In vectors of 16 bytes: rows of keys and values; the distances of rows of keys, values and scores, all odd, so that eight
// adjacent rows are on different banks; the start of each part. A strip of results replaces keys or, where values do, scores of
// shares other than the first.
const uint K_EIGHTS = 2 * K_OWN * SHARES;
const uint V_EIGHTS = 2 * V_OWN * SHARES;
const uint K_STRIDE = K_EIGHTS + 1;
const uint V_STRIDE = V_EIGHTS + 1;
const uint S_STRIDE = BC / 4 + 1;
const uint STRIP = MATRIX_M * MATRIX_N / 4;
// Numbers whose sum is a value: that many matrices, in sequence.
#ifdef KV_BLOCKS
const uint SUMMANDS = 2;
#else
const uint SUMMANDS = 1;
#endif
const uint REST_V = BC * V_STRIDE;
const uint KEYS = BC * K_STRIDE;
const uint VALUES = SUMMANDS * REST_V;
const uint ALL_STRIPS = SUBGROUPS * STRIP;
const uint V0 = SHARES > 1 ? 0 : KEYS > ALL_STRIPS ? KEYS : ALL_STRIPS;
const uint STAGE = V0 + VALUES;
const uint S0 = SHARES > 1 ? (KEYS > VALUES ? KEYS : VALUES) : STAGES * STAGE;
const uint STRIPS = SHARES > 1 ? S0 + BR * S_STRIDE : 0;
const uint SCORES = SHARES * BR * S_STRIDE;
const uint WITH_STRIPS = SHARES > 1 ? BR * S_STRIDE + ALL_STRIPS : 0;
const uint FACTORS = S0 + (SCORES > WITH_STRIPS ? SCORES : WITH_STRIPS);
// Queries also pass through here: through all of it, or to a place of their own.
const uint END = FACTORS + BR / 4;
const uint QUERIES = BR * K_STRIDE;
#ifdef EMULATED
const uint Q0 = END;
#else
const uint Q0 = 0;
#endif
shared uvec4 tiles[Q0 + (END - Q0 > QUERIES ? END - Q0 : QUERIES)];
shared uint found;
// True if a value of a stage was not finite.
shared uint wild[STAGES];

#include "matrix.glsl"
#include "attention_rows.glsl"
#include "attention_scores.glsl"
#include "attention_splits.glsl"

// Makes writes to shared memory visible to the subgroups that share rows.
void shares_done() {
    if (SHARES > 1) {
        barrier();
    } else {
        subgroup_done();
    }
}

// Stores the loaded values of a stage.
void receive_values(uint stage) {
    if (receive_v(stage * STAGE + V0)) {
        atomicOr(wild[stage], 1u, gl_ScopeWorkgroup, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
    }
}

// Adds values times weights, without hidden ones, to a strip of results in shared memory. `row` and `column` are its first,
// `first` is the first position, whose values start at `values`.
void add_values_seen(uint strip, uint row, uint column, uint first, uint values, uint token0, uint head, uint batch) {
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < MATRIX_M * MATRIX_N; i += LANES) {
        const uint r = row + i / MATRIX_M;
        const uint c = column + i % MATRIX_M;
        const uint row_mask = mask_row(min(token0 + r, p.ne_0 - 1), head, batch);
        float total = uintBitsToFloat(tiles[strip + i / 4][i % 4]);
        [[dont_unroll]] for (uint key = 0; key < BC; key++) {
            if (!hides(row_mask, first + key)) {
                float value = 0.0;
                [[unroll]] for (uint n = 0; n < SUMMANDS; n++) {
                    const uint pair = tiles[values + n * REST_V + key * V_STRIDE + c / 8][c % 8 / 2];
                    value += unpackHalf2x16(pair >> c % 2 * 16).x;
                }
                total += weight_of(r, key) * value;
            }
        }
        tiles[strip + i / 4][i % 4] = floatBitsToUint(total);
    }
}

// Stores a strip of results, multiplied by the factors of their rows, or a split's sums of it.
void store_strip(uint strip, uint row, uint column, uint token0, uint head, uint batch, Split of) {
    for (uint i = gl_SubgroupInvocationID; i < MATRIX_M * MATRIX_N; i += LANES) {
        const uint r = row + i / MATRIX_M;
        const uint c = column + i % MATRIX_M;
        if (token0 + r < p.ne_0 && c < p.d_1) {
            const float result = uintBitsToFloat(tiles[strip + i / 4][i % 4]);
            const uint result_row = (batch * p.ne_0 + token0 + r) * p.ne_1 + head;
            if (of.count == 1) {
                d[p.off_5 + result_row * p.d_1 + c] = result * uintBitsToFloat(tiles[FACTORS + r / 4][r % 4]);
            } else {
                scratch[(result_row * of.count + of.index) * p.d_1 + c] = result;
            }
        }
    }
}

// Products of the keys from `keys` on with queries go to shared memory, to rows from `scores` on. Two groups of 16 positions
// alternate: consecutive operations on the same sums would wait.
void multiply_keys(MATRIX_B queries[K_OWN], uint keys, uint scores) {
    [[unroll]] for (uint i = 0; i < BC; i += 2 * MATRIX_M) {
        MATRIX_SUMS products[2];
        CLEAR(products[0]);
        CLEAR(products[1]);
        [[unroll]] for (uint k = 0; k < K_OWN; k++) {
            [[unroll]] for (uint of = 0; of < 2; of++) {
                if (i + of * MATRIX_M < BC) {
                    MATRIX_A part;
                    LOAD_A(part, keys + (i + of * MATRIX_M) * K_STRIDE + 2 * k, K_STRIDE);
                    MULTIPLY_ADD(part, queries[k], products[of]);
                }
            }
        }
        [[unroll]] for (uint of = 0; of < 2; of++) {
            if (i + of * MATRIX_M < BC) {
                STORE_SUMS(products[of], scores + (i + of * MATRIX_M) / 4, S_STRIDE);
            }
        }
    }
}

void main() {
    const uint head = gl_WorkGroupID.y;
    const uint batch = gl_WorkGroupID.z;
    const uint head_kv = head / (p.ne_1 / p.kv_1);
    const Split split = this_split();
    const uint token0 = split.tile * BR;
    const uint base_k = p.off_1 + head_kv * p.nbk_1 + batch * p.nbk_2;
    const uint base_v = p.off_2 + head_kv * p.nbv_1 + batch * p.nbv_2;

    // The subgroup's share and its first row; this invocation's row and part of it, if it has one.
    const uint share = gl_SubgroupID % SHARES;
    const uint row0 = gl_SubgroupID / SHARES * ROWS;
    const uint of_rows = share * LANES + gl_SubgroupInvocationID;
    const bool scores = ROWS * PARTS == SHARES * LANES || of_rows < ROWS * PARTS;
    const uint row = row0 + min(of_rows / PARTS, ROWS - 1);
    const uint part = of_rows % PARTS;
    const uint row_mask = mask_row(min(token0 + row, p.ne_0 - 1), head, batch);
    const float slope = alibi_slope(p.max_bias, head, p.heads_log2) * LOG2_E;

    const uint brought = row0 + of_rows / BRINGERS;
    const uint bringer = of_rows % BRINGERS;
    const uint row_q = p.off_0 + head * p.nbq_1 + batch * p.nbq_2 + min(token0 + brought, p.ne_0 - 1) * p.nbq_0;
    const uint exponent = exponent_of(row_q, bringer, BRINGERS);
    MATRIX_B queries[K_OWN];
    put_queries(row_q, brought, bringer, uintBitsToFloat(exponent << 23));
    shares_done();
    [[unroll]] for (uint k = 0; k < K_OWN; k++) {
        LOAD_B(queries[k], Q0 + row0 * K_STRIDE + 2 * (K_OWN * share + k), K_STRIDE);
    }
    // The exponent belongs to the row that this invocation loaded.
    float inverse = uintBitsToFloat((254 - exponent) << 23);
    if (BRINGERS != PARTS) {
        barrier();
        if (bringer == 0) {
            tiles[FACTORS + brought / 4][brought % 4] = floatBitsToUint(inverse);
        }
        barrier();
        inverse = uintBitsToFloat(tiles[FACTORS + row / 4][row % 4]);
    }
    const float to_score = p.logit_softcap != 0.0 ? LOG2_E : inverse * p.scale * LOG2_E;

    uint begin = split.begin;
    uint end = split.end;
    skip_hidden(begin, end, token0, head, batch);
    if (gl_LocalInvocationIndex < STAGES) {
        wild[gl_LocalInvocationIndex] = 0;
    }

    const float sink = split.index == 0 ? sink_of(head) * LOG2_E : MINUS_INFINITY;
    largest = max(LOWEST, sink);
    sum = part == 0 ? exp2(sink - (largest - WEIGHT_EXPONENT)) : 0.0;
    MATRIX_SUMS results[V_OWN];
    [[unroll]] for (uint j = 0; j < V_OWN; j++) {
        CLEAR(results[j]);
    }
    const uint strip = STRIPS + gl_SubgroupID * STRIP;
    const uint column0 = share * V_OWN * MATRIX_M;

    send_k(begin, base_k);
    if (SHARES == 1) {
        send_v(begin, base_v);
    }
    send_mask(begin, part, row_mask, slope);
    uint stage = 0;
    if (STAGES > 1) {
        // Queries have been read.
        barrier();
        receive_k(0);
        receive_values(0);
    }
    [[dont_unroll]] for (uint first = begin; first < end; first += BC) {
        if (STAGES == 1) {
            barrier();
            receive_k(0);
            if (SHARES == 1) {
                receive_values(0);
            }
        }
        barrier();
        const bool more = first + BC < end;
        if (SHARES > 1) {
            send_v(first, base_v);
        } else if (more) {
            send_k(first + BC, base_k);
            send_v(first + BC, base_v);
        }

        const uint of_stage = stage * STAGE;
        multiply_keys(queries, of_stage + 2 * K_OWN * share, S0 + (share * BR + row0) * S_STRIDE);
        shares_done();
        if (SHARES > 1) {
            receive_values(0);
            if (more) {
                send_k(first + BC, base_k);
            }
        }
        if (scores) {
            weigh(row, part, to_score, inverse);
        }
        send_mask(first + BC, part, row_mask, slope);
        shares_done();

        MATRIX_FACTORS factors;
        LOAD_FACTORS(factors, FACTORS + row0 / 4);
        [[unroll]] for (uint j = 0; j < V_OWN; j++) {
            SCALE_SUMS(results[j], factors);
        }
        if (wild[stage] == 0) {
            [[unroll]] for (uint i = 0; i < BC; i += MATRIX_K) {
                MATRIX_B weights, rest;
                LOAD_B(weights, S0 + row0 * S_STRIDE + i / 8, S_STRIDE);
                LOAD_B(rest, S0 + row0 * S_STRIDE + BC / 8 + i / 8, S_STRIDE);
                [[unroll]] for (uint j = 0; j < V_OWN; j++) {
                    const uint at = of_stage + V0 + i * V_STRIDE + 2 * (V_OWN * share + j);
                    MATRIX_A values;
                    LOAD_A_TURNED(values, at, V_STRIDE);
                    MULTIPLY_ADD_TURNED(values, weights, results[j]);
                    MULTIPLY_ADD_TURNED(values, rest, results[j]);
                    if (SUMMANDS > 1) {
                        LOAD_A_TURNED(values, REST_V + at, V_STRIDE);
                        MULTIPLY_ADD_TURNED(values, weights, results[j]);
                    }
                }
            }
        } else {
            // Keys are not read any more.
            barrier();
            [[unroll]] for (uint j = 0; j < V_OWN; j++) {
                STORE_SUMS(results[j], of_stage + strip, MATRIX_M / 4);
                subgroup_done();
                const uint column = column0 + j * MATRIX_M;
                add_values_seen(of_stage + strip, row0, column, first, of_stage + V0, token0, head, batch);
                subgroup_done();
                LOAD_SUMS(results[j], of_stage + strip, MATRIX_M / 4);
                subgroup_done();
            }
        }
        if (STAGES > 1 && more) {
            stage = 1 - stage;
            receive_k(stage * STAGE);
            receive_values(stage);
        }
    }

    const float total = sum_of(sum, PARTS);
    shares_done();
    if (part == 0 && scores) {
        tiles[FACTORS + row / 4][row % 4] = floatBitsToUint(total == 0.0 ? 0.0 : 1.0 / total);
        if (split.count > 1 && token0 + row < p.ne_0) {
            store_statistics((batch * p.ne_0 + token0 + row) * p.ne_1 + head, split, largest, total);
        }
    }
    barrier();
    [[unroll]] for (uint j = 0; j < V_OWN; j++) {
        STORE_SUMS(results[j], strip, MATRIX_M / 4);
        subgroup_done();
        store_strip(strip, row0, column0 + j * MATRIX_M, token0, head, batch, split);
        subgroup_done();
    }
    if (split.count > 1) {
        join_splits(token0, head, batch, split);
    }
}
