#version 460
// FLASH_ATTN_EXT for few tokens (decoding): one work-group for one token, a part of the positions and up to HEADS heads
// that share keys and values, so that each key and value is read once for all of them. Parts are whole steps, as even as
// can be; the work-group that ends last joins them, in their order, so that a result does not depend on which it was.
//
// A step takes BC = work-group / 4 * KEYS positions.
//   Scores: four invocations share a key. Each reads every fourth piece of eight elements, so that the four read 64
//   (F32: 128) bytes without gaps, for KEYS keys at a time; a piece of q comes from shared memory once for KEYS keys.
//   The four partial products of a score meet in shared memory.
//   Mask: a position is hidden from all heads of a work-group or from none, so HEADS is 1 if heads have masks of their own.
//   Soft-max: each invocation has KEYS / 4 positions of every head; online normaliser, maximum over the work-group.
//   Values: an invocation owns eight columns and every n-th position, neighbours read neighbouring pieces; UNROLL
//   positions are under way at a time. Sums over positions stay in registers until the end.
//
// Specialisation: work-group size (a multiple of 16, at least dv / 8), HEADS, KEYS (4, or 1 or 2 for short code), UNROLL.
// Variants: type of k and v. d and dv are multiples of 8 and d no more than 256, offsets and strides of q, and of k and v
// of plain types, multiples of 4.
// Shared memory: HEADS * (20 * work-group + 1088) bytes for KEYS = 4: at 256 x 4 24.3 KiB.

#include "common.glsl"

layout(constant_id = 1) const uint HEADS = 1;
layout(constant_id = 2) const uint KEYS = 4;
layout(constant_id = 3) const uint UNROLL = 4;

#include "flash_attn.glsl"

// Of every row of the result and every part: the sums of weighted values, then maximum and sum of weights. Without parts
// neither this nor the counters are touched.
layout(set = 0, binding = 6, std430) coherent buffer Scratch { float scratch[]; };
// How many parts have arrived, for each group of heads of each token; zero before and after.
layout(set = 0, binding = 7, std430) coherent buffer Arrived { uint arrived[]; };

const uint WG = gl_WorkGroupSize.x;
const uint BC = WG / 4 * KEYS;
// Positions of an invocation in the soft-max.
const uint POSITIONS = (KEYS + 3) / 4;

// q, scaled by nothing: HEADS rows of up to 64 quads.
shared vec4 shared_q[HEADS * 64];
// Partial products, four for each score; later the sums over positions of one head, work-group * 8.
shared float partial[HEADS * BC * 4 > WG * 8 ? HEADS * BC * 4 : WG * 8];
// exp(score - maximum), the heads of a position together.
shared float weights[BC * HEADS];
shared float reduced[HEADS * 16];
shared bool arrived_last;

// Maximum or sum of HEADS values over the work-group, through `partial`.
#define REDUCE_HEADS(values, combine)                                                                                  \
    {                                                                                                                  \
        barrier();                                                                                                     \
        [[unroll]] for (uint h = 0; h < HEADS; h++) {                                                                  \
            partial[h * WG + lane] = values[h];                                                                        \
        }                                                                                                              \
        barrier();                                                                                                     \
        for (uint i = lane; i < HEADS * 16; i += WG) {                                                                 \
            float all = partial[i / 16 * WG + i % 16];                                                                 \
            for (uint j = 16; j < WG; j += 16) {                                                                       \
                all = combine(all, partial[i / 16 * WG + i % 16 + j]);                                                 \
            }                                                                                                          \
            reduced[i] = all;                                                                                          \
        }                                                                                                              \
        barrier();                                                                                                     \
        [[unroll]] for (uint h = 0; h < HEADS; h++) {                                                                  \
            float all = reduced[h * 16];                                                                               \
            [[unroll]] for (uint j = 1; j < 16; j++) {                                                                 \
                all = combine(all, reduced[h * 16 + j]);                                                               \
            }                                                                                                          \
            values[h] = all;                                                                                           \
        }                                                                                                              \
    }

float plus(float a, float b) {
    return a + b;
}

// Parts whose sums are under way at a time when they are joined.
const uint JOINED = 8;

// The place of a part's maximum and sum; the sums of values of all parts are before them.
uint place_of_stats(uint row, uint part, uint parts) {
    return p.ne_0 * p.ne_1 * p.ne_2 * parts * p.d_1 + 2 * (row * parts + part);
}

// Whether all other parts have written what they have, and this work-group may read it. `slot`: their counter.
bool is_last(uint slot, uint parts) {
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationIndex == 0) {
        memoryBarrierBuffer();
        arrived_last = atomicAdd(arrived[slot], 1) == parts - 1;
        memoryBarrierBuffer();
    }
    barrier();
    memoryBarrierBuffer();
    return arrived_last;
}

// Joins the parts of `count` rows of the result from `row` on: part by part, with up to 64 of them.
void join(uint row, uint count, uint parts) {
    const uint lane = gl_LocalInvocationIndex;
    for (uint i = lane; i < count * parts * 2; i += WG) {
        partial[i] = scratch[place_of_stats(row, 0, parts) + i];
    }
    barrier();
    for (uint i = lane; i < count * p.d_1; i += WG) {
        const uint stats = i / p.d_1 * parts * 2;
        const uint column = i % p.d_1;
        const uint first = (row + i / p.d_1) * parts * p.d_1 + column;
        float largest = partial[stats];
        for (uint part = 1; part < parts; part++) {
            largest = max(largest, partial[stats + 2 * part]);
        }
        float sum = 0.0;
        float value = 0.0;
        for (uint part = 0; part < parts; part += JOINED) {
            float sums[JOINED];
            [[unroll]] for (uint j = 0; j < JOINED; j++) {
                sums[j] = scratch[first + min(part + j, parts - 1) * p.d_1];
            }
            [[unroll]] for (uint j = 0; j < JOINED; j++) {
                if (part + j < parts) {
                    const float factor = exp(partial[stats + 2 * (part + j)] - largest);
                    sum += factor * partial[stats + 2 * (part + j) + 1];
                    value += factor * sums[j];
                }
            }
        }
        d[p.off_5 + row * p.d_1 + i] = sum == 0.0 ? 0.0 : value / sum;
    }
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint heads = p.ne_1;
    const uint per_kv = heads / p.kv_1;
    // x: groups of heads, those of a key head after each other, all of a part before the next; y: tokens; z: batches.
    const uint groups = (per_kv + HEADS - 1) / HEADS;
    const uint all_groups = groups * p.kv_1;
    const uint parts = gl_NumWorkGroups.x / all_groups;
    const uint part = gl_WorkGroupID.x / all_groups;
    const uint group = gl_WorkGroupID.x % all_groups;
    const uint head_kv = group / groups;
    const uint first = group % groups * HEADS;
    const uint token = gl_WorkGroupID.y;
    const uint batch = gl_WorkGroupID.z;
    // Heads beyond the group repeat its last one and are not stored.
    uint head[HEADS];
    float slope[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        head[h] = head_kv * per_kv + min(first + h, per_kv - 1);
        slope[h] = alibi_slope(p.max_bias, head[h], p.heads_log2);
    }
    const uint base_k = p.off_1 + head_kv * p.nbk_1 + batch * p.nbk_2;
    const uint base_v = p.off_2 + head_kv * p.nbv_1 + batch * p.nbv_2;

    for (uint i = lane; i < HEADS * (p.d_0 / 4); i += WG) {
        const uint h = i / (p.d_0 / 4);
        const uint quad = i - h * (p.d_0 / 4);
        const uint row = head_kv * per_kv + min(first + h, per_kv - 1);
        shared_q[h * 64 + quad] = q4[(p.off_0 + token * p.nbq_0 + row * p.nbq_1 + batch * p.nbq_2) / 4 + quad];
    }

    const uint pieces_v = p.d_1 / 8;
    const uint stripes = WG / pieces_v;
    const uint stripe = lane / pieces_v;
    const uint piece_v = lane - stripe * pieces_v;

    float largest[HEADS];
    float sum[HEADS];
    vec4 out_lo[HEADS], out_hi[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        const float sink = part == 0 ? sink_of(head[h]) : MINUS_INFINITY;
        largest[h] = max(LOWEST, sink);
        sum[h] = lane == 0 ? exp(sink - largest[h]) : 0.0;
        out_lo[h] = vec4(0.0);
        out_hi[h] = vec4(0.0);
    }

    const uint steps = (p.kv_0 + BC - 1) / BC;
    const uint part_keys = (steps + parts - 1) / parts * BC;
    const uint end_key = min(p.kv_0, (part + 1) * part_keys);
    for (uint first_key = part * part_keys; first_key < end_key; first_key += BC) {
        // Partial products of KEYS keys, WG / 4 apart, with HEADS heads.
        float products[KEYS * HEADS];
        uint row_k[KEYS];
        [[unroll]] for (uint i = 0; i < KEYS; i++) {
            row_k[i] = base_k + min(first_key + lane / 4 + i * (WG / 4), p.kv_0 - 1) * p.nbk_0;
            [[unroll]] for (uint h = 0; h < HEADS; h++) {
                products[i * HEADS + h] = 0.0;
            }
        }
        barrier();
        for (uint piece = lane % 4; piece < p.d_0 / 8; piece += 4) {
            vec4 lo[KEYS], hi[KEYS];
            [[unroll]] for (uint i = 0; i < KEYS; i++) {
                lo[i] = k_quad(row_k[i], piece, 0, true);
                hi[i] = k_quad(row_k[i], piece, 1, true);
            }
            [[unroll]] for (uint h = 0; h < HEADS; h++) {
                const vec4 q_lo = shared_q[h * 64 + 2 * piece];
                const vec4 q_hi = shared_q[h * 64 + 2 * piece + 1];
                [[unroll]] for (uint i = 0; i < KEYS; i++) {
                    products[i * HEADS + h] += dot(lo[i], q_lo) + dot(hi[i], q_hi);
                }
            }
        }
        [[unroll]] for (uint h = 0; h < HEADS; h++) {
            [[unroll]] for (uint i = 0; i < KEYS; i++) {
                partial[h * BC * 4 + i * WG + lane] = products[i * HEADS + h];
            }
        }
        barrier();

        // Scores: position lane + j * WG of this step.
        float scores[POSITIONS * HEADS];
        bool seen[POSITIONS];
        float step_largest[HEADS];
        [[unroll]] for (uint h = 0; h < HEADS; h++) {
            step_largest[h] = LOWEST;
        }
        [[unroll]] for (uint j = 0; j < POSITIONS; j++) {
            const uint position = lane + j * WG;
            const uint key = first_key + position;
            float bias = 0.0;
            if (MASK_TYPE != NO_MASK) {
                bias = mask_at(mask_row(token, head[0], batch) + min(key, p.kv_0 - 1));
            }
            seen[j] = key < p.kv_0 && position < BC && bias != MINUS_INFINITY;
            [[unroll]] for (uint h = 0; h < HEADS; h++) {
                const uint at = (h * BC + min(position, BC - 1)) * 4;
                float s = score_of((partial[at] + partial[at + 1]) + (partial[at + 2] + partial[at + 3]));
                s = mix(MINUS_INFINITY, s + slope[h] * bias, seen[j]);
                scores[j * HEADS + h] = s;
                step_largest[h] = max(step_largest[h], s);
            }
        }
        REDUCE_HEADS(step_largest, max)
        [[unroll]] for (uint h = 0; h < HEADS; h++) {
            const float now = max(largest[h], step_largest[h]);
            const float factor = exp(largest[h] - now);
            largest[h] = now;
            sum[h] *= factor;
            out_lo[h] *= factor;
            out_hi[h] *= factor;
            [[unroll]] for (uint j = 0; j < POSITIONS; j++) {
                const float w = exp(scores[j * HEADS + h] - now);
                sum[h] += w;
                if (lane + j * WG < BC) {
                    weights[(lane + j * WG) * HEADS + h] = seen[j] ? w : HIDDEN;
                }
            }
        }
        barrier();

        if (stripe < stripes) {
            const uint end = min(BC, p.kv_0 - first_key);
            for (uint position = stripe; position < end; position += UNROLL * stripes) {
                // In a loop of its own, so that no load waits for shared memory.
                bool used[UNROLL];
                [[unroll]] for (uint j = 0; j < UNROLL; j++) {
                    const uint at = min(position + j * stripes, end - 1) * HEADS;
                    const bool hidden = is_hidden(weights[at]);
                    used[j] = position + j * stripes < end && !hidden;
                }
                vec4 lo[UNROLL], hi[UNROLL];
                [[unroll]] for (uint j = 0; j < UNROLL; j++) {
                    const uint key = first_key + min(position + j * stripes, end - 1);
                    const uint row_v = base_v + key * p.nbv_0;
                    lo[j] = v_quad(row_v, piece_v, 0, used[j]);
                    hi[j] = v_quad(row_v, piece_v, 1, used[j]);
                }
                [[unroll]] for (uint j = 0; j < UNROLL; j++) {
                    const uint at = min(position + j * stripes, end - 1) * HEADS;
                    [[unroll]] for (uint h = 0; h < HEADS; h++) {
                        const float w = weights[at + h];
                        out_lo[h] += w * lo[j];
                        out_hi[h] += w * hi[j];
                    }
                }
            }
        }
    }

    REDUCE_HEADS(sum, plus)
    const uint row = (batch * p.ne_0 + token) * heads + head[0];
    const uint count = min(HEADS, per_kv - first);
    // Sums over positions: the stripes meet in shared memory, one head after the other.
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        barrier();
        [[unroll]] for (uint j = 0; j < 4; j++) {
            partial[stripe * p.d_1 + piece_v * 8 + j] = out_lo[h][j];
            partial[stripe * p.d_1 + piece_v * 8 + 4 + j] = out_hi[h][j];
        }
        barrier();
        const float factor = sum[h] == 0.0 ? 0.0 : 1.0 / sum[h];
        for (uint column = lane; column < p.d_1; column += WG) {
            float value = 0.0;
            for (uint s = 0; s < stripes; s++) {
                value += partial[s * p.d_1 + column];
            }
            if (h < count && parts == 1) {
                d[p.off_5 + (row + h) * p.d_1 + column] = value * factor;
            } else if (h < count) {
                scratch[((row + h) * parts + part) * p.d_1 + column] = value;
            }
        }
        if (lane == 0 && h < count && parts > 1) {
            const uint stats = place_of_stats(row + h, part, parts);
            scratch[stats] = largest[h];
            scratch[stats + 1] = sum[h];
        }
    }
    const uint slot = (batch * p.ne_0 + token) * all_groups + group;
    if (parts > 1 && is_last(slot, parts)) {
        join(row, count, parts);
        if (lane == 0) {
            arrived[slot] = 0;
        }
    }
}
