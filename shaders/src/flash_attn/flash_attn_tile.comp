#version 460
#extension GL_KHR_memory_scope_semantics : require
// FLASH_ATTN_EXT for many tokens (prompts): one work-group for BR tokens of one head, in steps of BC positions.
//
// Scores (BR x BC) are a small matrix product: 32 elements of the BR queries and BC keys at a time pass through shared memory,
// and each invocation multiplies TM = BR / (work-group / SC) rows by BC / SC keys in registers, while the next elements are on
// their way to registers. Soft-max: the scores go to
// shared memory. PT = work-group / BR invocations share a row, each takes BC / PT adjacent positions, with a running maximum.
// Result (BR x dv): each invocation has the TM rows of its scores and QUADS groups of four columns, in registers from the first
// step to the last; VK positions of v at a time pass through shared memory. Steps that the mask excludes for all rows are
// skipped before anything else is read: half the work of a causal prompt. From the first infinite or NaN value on, products
// skip the positions that are hidden from their row.
//
// Specialisation: work-group size, BR, BC, SC, QUADS (at least dv / 4 / SC, rounded up), VK (divides BC), ALIGNED (offsets,
// strides and row lengths are multiples of four elements; for blocks those of q and of the result), AHEAD (true: the next elements
// are loaded while others are multiplied, and two quads are multiplied at a time; false: smaller code, for processors, whose
// compilers take long and whose threads wait for nothing).
// Variants: type of k and v.
// Shared memory: with 128, 32, 32, 16, 2, 8: 9.2 KiB of stage, 4.6 KiB of weights, 0.8 KiB for the rows.

#include "common.glsl"

layout(constant_id = 1) const uint BR = 32;
layout(constant_id = 2) const uint BC = 32;
layout(constant_id = 3) const uint SC = 16;
layout(constant_id = 4) const uint QUADS = 2;
layout(constant_id = 5) const uint VK = 8;
layout(constant_id = 6) const uint ALIGNED = 1;
layout(constant_id = 7) const bool AHEAD = true;

#include "flash_attn.glsl"

const uint WG = gl_WorkGroupSize.x;
const uint SR = WG / SC;
const uint TM = BR / SR;
const uint TN = BC / SC;
// Quads of k that are staged at a time, and the stride of a staged row: odd, so that rows are on different banks.
const uint DQ = 8;
const uint STRIDE = DQ + 1;
const uint V_STRIDE = QUADS * SC;
const uint STAGE_QK = (BR + BC) * STRIDE;
const uint STAGE_V = VK * V_STRIDE;
const uint W_STRIDE = BC / 4 + 1;
// Soft-max: invocations of a row, groups of four positions in each.
const uint PT = WG / BR;
const uint WQ = BC / 4 / PT;

shared vec4 stage[STAGE_QK > STAGE_V ? STAGE_QK : STAGE_V];
shared vec4 weights[BR * W_STRIDE];
shared float row_parts[BR * PT];
shared float row_factor[BR];
shared uint alive;
// True if a value is not finite; set while values are staged.
shared uint wild;

// True if rows of k and v are whole quads.
#ifdef KV_BLOCKS
#define QUADS_OF_KV true
#else
#define QUADS_OF_KV (ALIGNED != 0)
#endif

// Queries, keys and values that an invocation has on their way while others are multiplied: nothing waits for memory.
const uint Q_OWN = BR * DQ / WG;
const uint K_OWN = BC * DQ / WG;
const uint V_OWN = VK * V_STRIDE / WG;

// fetch_q, fetch_k, fetch_v: a quad of a row, without a branch; elements after the end of the row are any. kept: those are zeros.
vec4 fetch_q(uint row, uint quad) {
    if (ALIGNED != 0) {
        return q4[row / 4 + (quad * 4 < p.d_0 ? quad : 0)];
    }
    vec4 r;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        r[j] = q[row + min(quad * 4 + j, p.d_0 - 1)];
    }
    return r;
}

vec4 kept(vec4 x, uint quad, uint d) {
    if (ALIGNED != 0) {
        return quad * 4 < d ? x : vec4(0.0);
    }
    return mix(vec4(0.0), x, lessThan(quad * 4 + uvec4(0, 1, 2, 3), uvec4(d)));
}

#ifdef KV_BLOCKS
#define FETCHER(name, of_quad, plain, d)                                                                               \
    Quad name(uint row, uint quad) {                                                                                   \
        return of_quad(row, quad * 4 < d ? quad : 0);                                                                  \
    }
#else
#ifdef KV_F16
#define QUAD_OF(x) uvec2(packHalf2x16((x).xy), packHalf2x16((x).zw))
#else
#define QUAD_OF(x) (x)
#endif
#define FETCHER(name, of_quad, plain, d)                                                                               \
    Quad name(uint row, uint quad) {                                                                                   \
        if (QUADS_OF_KV) {                                                                                             \
            return of_quad(row, quad * 4 < d ? quad : 0);                                                              \
        }                                                                                                              \
        vec4 r;                                                                                                        \
        [[unroll]] for (uint j = 0; j < 4; j++) {                                                                      \
            r[j] = float(plain[row + min(quad * 4 + j, d - 1)]);                                                       \
        }                                                                                                              \
        return QUAD_OF(r);                                                                                             \
    }
#endif
FETCHER(fetch_k, k_quad, k, p.d_0)
FETCHER(fetch_v, v_quad, v, p.d_1)

vec4 kept_of_kv(Quad w, uint quad, uint d) {
    if (QUADS_OF_KV) {
        return numbers_of(w, quad, quad * 4 < d);
    }
    return kept(numbers_of(w, quad, true), quad, d);
}

// Bits of infinity: a sum of magnitudes reaches it if an element is not finite.
const uint NOT_FINITE = 0x7f800000u;
uint size_bits(vec4 v) {
    return floatBitsToUint((abs(v.x) + abs(v.y)) + (abs(v.z) + abs(v.w)));
}

// Start of the row of v of the position that invocation `i` stages.
uint row_of_v(uint base, uint first, uint i) {
    return base + min(first + i / V_STRIDE, p.kv_0 - 1) * p.nbv_0;
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint head = gl_WorkGroupID.y;
    const uint batch = gl_WorkGroupID.z;
    const uint head_kv = head / (p.ne_1 / p.kv_1);
    const uint token0 = gl_WorkGroupID.x * BR;
    const uint base_q = p.off_0 + head * p.nbq_1 + batch * p.nbq_2;
    const uint base_k = p.off_1 + head_kv * p.nbk_1 + batch * p.nbk_2;
    const uint base_v = p.off_2 + head_kv * p.nbv_1 + batch * p.nbv_2;
    const uint last_token = p.ne_0 - 1;
    const uint last_key = p.kv_0 - 1;

    // Place in the products: rows tr + i * SR, keys and column groups tc + j * SC.
    const uint tr = lane / SC;
    const uint tc = lane % SC;
    // Place in the soft-max.
    const uint row = lane / PT;
    const uint part = lane % PT;
    const uint row_mask = mask_row(min(token0 + row, last_token), head, batch);
    const float slope = alibi_slope(p.max_bias, head, p.heads_log2);

    uint row_q[Q_OWN];
    [[unroll]] for (uint n = 0; n < Q_OWN; n++) {
        row_q[n] = base_q + min(token0 + (lane + n * WG) / DQ, last_token) * p.nbq_0;
    }

    const float sink = sink_of(head);
    float largest = max(LOWEST, sink);
    float sum = part == 0 ? exp(sink - largest) : 0.0;
    vec4 result[TM * QUADS];
    [[unroll]] for (uint i = 0; i < TM * QUADS; i++) {
        result[i] = vec4(0.0);
    }

    if (lane == 0) {
        wild = 0;
    }
    for (uint first_key = 0; first_key < p.kv_0; first_key += BC) {
        // The mask of this step; minus infinity for positions after the end.
        const uint first = first_key + part * WQ * 4;
        vec4 bias[WQ];
        if (MASK_TYPE == MASK_F32) {
            [[unroll]] for (uint j = 0; j < WQ * 4; j++) {
                bias[j / 4][j % 4] = mask[row_mask + min(first + j, last_key)];
            }
        } else if (MASK_TYPE != NO_MASK) {
            [[unroll]] for (uint j = 0; j < WQ * 4; j++) {
                bias[j / 4][j % 4] = float(mask16[row_mask + min(first + j, last_key)]);
            }
        } else {
            [[unroll]] for (uint w = 0; w < WQ; w++) {
                bias[w] = vec4(0.0);
            }
        }
        [[unroll]] for (uint j = 0; j < WQ * 4; j++) {
            bias[j / 4][j % 4] = first + j <= last_key ? bias[j / 4][j % 4] * slope : MINUS_INFINITY;
        }
        if (MASK_TYPE != NO_MASK) {
            bool seen = false;
            [[unroll]] for (uint w = 0; w < WQ; w++) {
                seen = seen || any(notEqual(bias[w], vec4(MINUS_INFINITY)));
            }
            barrier();
            if (lane == 0) {
                alive = 0;
            }
            barrier();
            if (seen) {
                atomicOr(alive, 1u, gl_ScopeWorkgroup, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
            }
            barrier();
            if (alive == 0) {
                continue;
            }
        }

        float scores[TM * TN];
        [[unroll]] for (uint i = 0; i < TM * TN; i++) {
            scores[i] = 0.0;
        }
        vec4 next_q[Q_OWN];
        Quad next_k[K_OWN];
        uint row_k[K_OWN];
        [[unroll]] for (uint n = 0; n < K_OWN; n++) {
            row_k[n] = base_k + min(first_key + (lane + n * WG) / DQ, last_key) * p.nbk_0;
        }
        if (AHEAD) {
            [[unroll]] for (uint n = 0; n < K_OWN; n++) {
                next_k[n] = fetch_k(row_k[n], lane % DQ);
            }
            [[unroll]] for (uint n = 0; n < Q_OWN; n++) {
                next_q[n] = fetch_q(row_q[n], lane % DQ);
            }
        }
        for (uint quad0 = 0; quad0 * 4 < p.d_0; quad0 += DQ) {
            // Quads of an invocation are DQ apart, as WG is a multiple of it.
            const uint quad = quad0 + lane % DQ;
            if (!AHEAD) {
                [[unroll]] for (uint n = 0; n < Q_OWN; n++) {
                    next_q[n] = fetch_q(row_q[n], quad);
                }
                [[unroll]] for (uint n = 0; n < K_OWN; n++) {
                    next_k[n] = fetch_k(row_k[n], quad);
                }
            }
            barrier();
            [[unroll]] for (uint n = 0; n < Q_OWN; n++) {
                stage[(lane + n * WG) / DQ * STRIDE + lane % DQ] = kept(next_q[n], quad, p.d_0);
            }
            [[unroll]] for (uint n = 0; n < K_OWN; n++) {
                stage[(BR + (lane + n * WG) / DQ) * STRIDE + lane % DQ] = kept_of_kv(next_k[n], quad, p.d_0);
            }
            barrier();
            if (AHEAD && (quad0 + DQ) * 4 < p.d_0) {
                [[unroll]] for (uint n = 0; n < Q_OWN; n++) {
                    next_q[n] = fetch_q(row_q[n], quad + DQ);
                }
                [[unroll]] for (uint n = 0; n < K_OWN; n++) {
                    next_k[n] = fetch_k(row_k[n], quad + DQ);
                }
            }
            [[dont_unroll]] for (uint c0 = 0; c0 < DQ; c0 += AHEAD ? 2 : 1) {
                [[unroll]] for (uint n = 0; n < 2; n++) {
                    const uint c = c0 + n;
                    if (!AHEAD && n > 0) {
                        continue;
                    }
                    vec4 x[TM];
                    [[unroll]] for (uint i = 0; i < TM; i++) {
                        x[i] = stage[(tr + i * SR) * STRIDE + c];
                    }
                    [[unroll]] for (uint j = 0; j < TN; j++) {
                        const vec4 y = stage[(BR + tc + j * SC) * STRIDE + c];
                        [[unroll]] for (uint e = 0; e < 4; e++) {
                            [[unroll]] for (uint i = 0; i < TM; i++) {
                                scores[j * TM + i] += x[i][e] * y[e];
                            }
                        }
                    }
                }
            }
        }
        // Values of the first positions come while the soft-max is computed.
        Quad next_v[V_OWN];
        if (AHEAD) {
            [[unroll]] for (uint n = 0; n < V_OWN; n++) {
                next_v[n] = fetch_v(row_of_v(base_v, first_key, lane + n * WG), (lane + n * WG) % V_STRIDE);
            }
        }
        [[unroll]] for (uint j = 0; j < TN; j++) {
            [[unroll]] for (uint i = 0; i < TM; i++) {
                const uint key = tc + j * SC;
                weights[(tr + i * SR) * W_STRIDE + key / 4][key % 4] = scores[j * TM + i];
            }
        }
        barrier();

        float most = LOWEST;
        vec4 s[WQ];
        [[unroll]] for (uint w = 0; w < WQ; w++) {
            const bvec4 hidden = equal(bias[w], vec4(MINUS_INFINITY));
            s[w] = mix(bias[w] + scores_of(weights[row * W_STRIDE + part * WQ + w]), vec4(MINUS_INFINITY), hidden);
            most = max(max(most, max(s[w].x, s[w].y)), max(s[w].z, s[w].w));
        }
        row_parts[lane] = most;
        barrier();
        float now = largest;
        [[unroll]] for (uint j = 0; j < PT; j++) {
            now = max(now, row_parts[row * PT + j]);
        }
        const float factor = exp(largest - now);
        largest = now;
        sum *= factor;
        [[unroll]] for (uint w = 0; w < WQ; w++) {
            const vec4 e = exp(s[w] - now);
            sum += (e.x + e.y) + (e.z + e.w);
            weights[row * W_STRIDE + part * WQ + w] = mix(e, vec4(HIDDEN), equal(bias[w], vec4(MINUS_INFINITY)));
        }
        if (part == 0) {
            row_factor[row] = factor;
        }
        barrier();

        [[unroll]] for (uint i = 0; i < TM; i++) {
            const float f = row_factor[tr + i * SR];
            [[unroll]] for (uint c = 0; c < QUADS; c++) {
                result[i * QUADS + c] *= f;
            }
        }
        [[dont_unroll]] for (uint position0 = 0; position0 < BC; position0 += VK) {
            if (position0 > 0) {
                barrier();
            }
            if (!AHEAD) {
                [[unroll]] for (uint n = 0; n < V_OWN; n++) {
                    const uint i = lane + n * WG;
                    next_v[n] = fetch_v(row_of_v(base_v, first_key + position0, i), i % V_STRIDE);
                }
            }
            uint most_bits = 0;
            [[unroll]] for (uint n = 0; n < VK * V_STRIDE / WG; n++) {
                const uint i = lane + n * WG;
                const vec4 y = kept_of_kv(next_v[n], i % V_STRIDE, p.d_1);
                stage[i] = y;
                most_bits = max(most_bits, size_bits(y));
            }
            if (most_bits >= NOT_FINITE) {
                atomicOr(wild, 1u, gl_ScopeWorkgroup, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
            }
            barrier();
            if (AHEAD && position0 + VK < BC) {
                [[unroll]] for (uint n = 0; n < V_OWN; n++) {
                    const uint i = lane + n * WG;
                    next_v[n] = fetch_v(row_of_v(base_v, first_key + position0 + VK, i), i % V_STRIDE);
                }
            }
            if (wild != 0) {
                [[dont_unroll]] for (uint j = 0; j < VK; j++) {
                    float w[TM];
                    [[unroll]] for (uint i = 0; i < TM; i++) {
                        w[i] = weights[(tr + i * SR) * W_STRIDE + (position0 + j) / 4][(position0 + j) % 4];
                    }
                    [[unroll]] for (uint c = 0; c < QUADS; c++) {
                        const vec4 y = stage[j * V_STRIDE + c * SC + tc];
                        [[unroll]] for (uint i = 0; i < TM; i++) {
                            result[i * QUADS + c] += is_hidden(w[i]) ? vec4(0.0) : w[i] * y;
                        }
                    }
                }
                continue;
            }
            [[dont_unroll]] for (uint j0 = 0; j0 < VK; j0 += 4) {
                vec4 w[TM];
                [[unroll]] for (uint i = 0; i < TM; i++) {
                    w[i] = weights[(tr + i * SR) * W_STRIDE + (position0 + j0) / 4];
                }
                [[unroll]] for (uint j = 0; j < 4; j++) {
                    [[unroll]] for (uint c = 0; c < QUADS; c++) {
                        const vec4 y = stage[(j0 + j) * V_STRIDE + c * SC + tc];
                        [[unroll]] for (uint i = 0; i < TM; i++) {
                            result[i * QUADS + c] += w[i][j] * y;
                        }
                    }
                }
            }
        }
    }

    barrier();
    row_parts[lane] = sum;
    barrier();
    [[unroll]] for (uint i = 0; i < TM; i++) {
        const uint r = tr + i * SR;
        float total = 0.0;
        [[unroll]] for (uint j = 0; j < PT; j++) {
            total += row_parts[r * PT + j];
        }
        const float factor = total == 0.0 ? 0.0 : 1.0 / total;
        const uint row_d = p.off_5 + ((batch * p.ne_0 + token0 + r) * p.ne_1 + head) * p.d_1;
        [[unroll]] for (uint c = 0; c < QUADS; c++) {
            const uint column = (c * SC + tc) * 4;
            if (token0 + r >= p.ne_0) {
                continue;
            }
            if (ALIGNED != 0) {
                if (column < p.d_1) {
                    d4[(row_d + column) / 4] = result[i * QUADS + c] * factor;
                }
                continue;
            }
            [[unroll]] for (uint j = 0; j < 4; j++) {
                if (column + j < p.d_1) {
                    d[row_d + column + j] = result[i * QUADS + c][j] * factor;
                }
            }
        }
    }
}
