#version 460
// FLASH_ATTN_EXT for few tokens (decode steps): one work-group for one token, a part of the positions and up to HEADS heads
// that share keys and values, so that each key and value is read once for all of them. Parts are whole steps, as even as
// possible. The last work-group joins them, in order, so that a result does not depend on which one is last.
//
// A set of LANES adjacent lanes of a subgroup has a position: each lane has PIECES pieces of eight elements of its key and its
// value, so that a set reads contiguous rows. KEYS positions of a set are in flight at a time, keys, values and mask together:
// nothing waits for memory twice. Products are added over the set by shuffles that turn them: of KEYS adjacent lanes each ends
// with the score of one of the positions, so mask, exponential and sum are computed once and not in all lanes. The weights
// then return to all lanes by shuffles. The soft-max is online: each set has its own sum of weights and sums of values, each
// subgroup its own maximum. Sums are rescaled only if a score exceeds the maximum by HEADROOM, which a ballot tells, so a weight
// may be that far above one. No subgroup waits for another before all positions are done. Then the sets of a subgroup are added
// by shuffles, and the subgroups combined through shared memory.
//
// A position is hidden from all heads of a work-group or from none, so HEADS is 1 if heads have masks of their own.
//
// Specialisation: work-group size, HEADS, KEYS (1, 2 or 4, not above LANES), LANES (a power of two, not above the smallest
// subgroup), PIECES (1 unless rows are long and subgroups small), SUBGROUPS (the largest number in a work-group), WHOLE (true if
// the rows of keys and values have as many elements as a set has room for).
// Variants: type of k and v. d and dv are multiples of 8; offsets and strides of q, and of k and v in F32, are multiples of 4,
// of k and v in F16 of 8.
// Shared memory: 4 * SUBGROUPS * HEADS * (8 * LANES * PIECES + 2) bytes: with 8 subgroups, 2 heads and rows of 128, 8.1 KiB.

#include "common.glsl"

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 1) const uint HEADS = 1;
layout(constant_id = 2) const uint KEYS = 4;
layout(constant_id = 3) const uint LANES = 8;
layout(constant_id = 4) const uint PIECES = 1;
layout(constant_id = 5) const uint SUBGROUPS = 1;
layout(constant_id = 6) const bool WHOLE = false;

#include "flash_attn.glsl"

// For every row of the result and every part: the sums of weighted values, then maximum and sum of weights. Without parts,
// neither this nor the counters are accessed.
layout(set = 0, binding = 6, std430) coherent buffer Scratch { float scratch[]; };
// Number of parts that have arrived, for each group of heads of each token; zero before and after.
layout(set = 0, binding = 7, std430) coherent buffer Arrived { uint arrived[]; };

#include "arrival.glsl"

const uint WG = gl_WorkGroupSize.x;
const uint SETS = WG / LANES;
const uint STEP = SETS * KEYS;
const uint ROW = 8 * LANES * PIECES;
// Largest number of parts that can be joined.
const uint MOST_PARTS = 64;

// For each subgroup and head: sums over positions; maximum and sum of weights. When parts are joined, the latter of these.
shared float values[SUBGROUPS * HEADS * ROW];
shared vec2 stats[SUBGROUPS > MOST_PARTS ? SUBGROUPS * HEADS : MOST_PARTS * HEADS];

// Parts whose sums are in flight at a time when they are joined.
const uint JOINED = 8;

// Place of a part's maximum and sum, after the sums of values of all parts.
uint place_of_stats(uint row, uint part, uint parts) {
    return p.ne_0 * p.ne_1 * p.ne_2 * parts * p.d_1 + 2 * (row * parts + part);
}

// Joins the parts of `count` rows of the result from `row` on: part by part, up to MOST_PARTS.
void join(uint row, uint count, uint parts) {
    const uint lane = gl_LocalInvocationIndex;
    for (uint i = lane; i < count * parts; i += WG) {
        const uint at = place_of_stats(row, i, parts);
        stats[i] = vec2(scratch[at], scratch[at + 1]);
    }
    barrier();
    for (uint i = lane; i < count * p.d_1; i += WG) {
        const uint of_row = i / p.d_1 * parts;
        const uint first = (row * parts + of_row) * p.d_1 + i % p.d_1;
        float largest = stats[of_row].x;
        for (uint part = 1; part < parts; part++) {
            largest = max(largest, stats[of_row + part].x);
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
                    const float factor = exp(stats[of_row + part + j].x - largest);
                    sum += factor * stats[of_row + part + j].y;
                    value += factor * sums[j];
                }
            }
        }
        d[p.off_5 + row * p.d_1 + i] = sum == 0.0 ? 0.0 : value / sum;
    }
}

// Distance of a score to the maximum from which on sums are rescaled: weights stay below e^8, far from the limits of F32.
const float HEADROOM = 8.0;

// x of the lane whose number differs in the bit `lanes`. AMD's adders read lanes of a quad, and mirrored ones, directly: that
// with bit 2 changed is the mirrored one of eight of the mirrored one of four.
float other(float x, uint lanes) {
    return lanes == 4 ? subgroupShuffleXor(subgroupShuffleXor(x, 3), 7) : subgroupShuffleXor(x, lanes);
}

// Adds KEYS numbers over a set: a lane gets the sum of number lane % KEYS.
float turned_sum(float x[KEYS]) {
    const uint lane = gl_SubgroupInvocationID;
    [[unroll]] for (uint level = 1; level < KEYS; level *= 2) {
        const bool upper = (lane & level) != 0;
        [[unroll]] for (uint j = 0; j < KEYS / (2 * level); j++) {
            const float kept = upper ? x[2 * j + 1] : x[2 * j];
            const float given = upper ? x[2 * j] : x[2 * j + 1];
            x[j] = kept + other(given, level);
        }
    }
    float sum = x[0];
    [[unroll]] for (uint lanes = KEYS; lanes < LANES; lanes *= 2) {
        sum += other(sum, lanes);
    }
    return sum;
}

// Gives all lanes the numbers of KEYS adjacent ones.
void spread(float x, out float all[KEYS]) {
    [[unroll]] for (uint j = 0; j < KEYS; j++) {
        all[j] = KEYS == 1 ? x : subgroupShuffle(x, (gl_SubgroupInvocationID & ~(KEYS - 1)) + j);
    }
}

// Largest number of a subgroup.
float largest_of_all(float x) {
    for (uint lanes = 1; lanes < gl_SubgroupSize; lanes *= 2) {
        x = max(x, subgroupShuffleXor(x, lanes));
    }
    return x;
}

void main() {
    const uint heads = p.ne_1;
    const uint per_kv = heads / p.kv_1;
    // x: groups of heads of a key head; y: key heads; z: parts of the positions, those of a token in sequence. (A single token
    // is the usual case, and divisions are slow.)
    const uint head_kv = gl_WorkGroupID.y;
    const uint first_head = gl_WorkGroupID.x * HEADS;
    uint parts = gl_NumWorkGroups.z;
    uint part = gl_WorkGroupID.z;
    uint token = 0;
    uint batch = 0;
    if (p.ne_0 * p.ne_2 > 1) {
        parts /= p.ne_0 * p.ne_2;
        batch = part / (parts * p.ne_0);
        token = part / parts - batch * p.ne_0;
        part = part % parts;
    }
    const uint lane = gl_SubgroupInvocationID % LANES;
    const uint set = (gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID) / LANES;

    // Heads after the group's last repeat it and are not stored.
    float slope[HEADS], largest[HEADS], sum[HEADS];
    vec4 q_lo[HEADS * PIECES], q_hi[HEADS * PIECES], out_lo[HEADS * PIECES], out_hi[HEADS * PIECES];
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        const uint head = head_kv * per_kv + min(first_head + h, per_kv - 1);
        slope[h] = alibi_slope(p.max_bias, head, p.heads_log2);
        const float sink = part == 0 ? sink_of(head) : MINUS_INFINITY;
        largest[h] = max(LOWEST, sink);
        // Of KEYS adjacent lanes each has the weights of other positions; the first ones of the first set have the sink's, too.
        sum[h] = set == 0 && lane % KEYS == 0 ? exp(sink - largest[h]) : 0.0;
        const uint row = (p.off_0 + token * p.nbq_0 + head * p.nbq_1 + batch * p.nbq_2) / 4;
        [[unroll]] for (uint i = 0; i < PIECES; i++) {
            const uint piece = lane + i * LANES;
            const bool there = piece < p.d_0 / 8;
            const uint quad = there ? row + 2 * piece : row;
            q_lo[h * PIECES + i] = mix(vec4(0.0), q4[quad], bvec4(there));
            q_hi[h * PIECES + i] = mix(vec4(0.0), q4[quad + 1], bvec4(there));
            out_lo[h * PIECES + i] = vec4(0.0);
            out_hi[h * PIECES + i] = vec4(0.0);
        }
    }

    const uint base_k = p.off_1 + head_kv * p.nbk_1 + batch * p.nbk_2;
    const uint base_v = p.off_2 + head_kv * p.nbv_1 + batch * p.nbv_2;
    const uint base_mask = mask_row(token, head_kv * per_kv + first_head, batch);
    const uint steps = (p.kv_0 + STEP - 1) / STEP;
    const uint part_keys = (steps + parts - 1) / parts * STEP;
    const uint end_key = min(p.kv_0, (part + 1) * part_keys);
    const uint pieces_k = p.d_0 / 8;
    const uint pieces_v = p.d_1 / 8;
    const uint of_set_k = set * p.nbk_0;
    const uint of_set_v = set * p.nbv_0;
    for (uint first_key = part * part_keys; first_key < end_key; first_key += STEP) {
        // Lanes after the end of a row read its beginning, multiplied by zero.
        Piece k_pieces[KEYS * PIECES], v_pieces[KEYS * PIECES];
        [[unroll]] for (uint j = 0; j < KEYS; j++) {
            // Offset of the first set's row, which is a scalar, and that of this set's from there: no multiplication by lanes. In
            // place of positions after the last one, the last one is read.
            const uint key = min(first_key + j * SETS, p.kv_0 - 1);
            const uint after = p.kv_0 - 1 - key;
            const uint row_k = base_k + key * p.nbk_0 + min(of_set_k, after * p.nbk_0);
            const uint row_v = base_v + key * p.nbv_0 + min(of_set_v, after * p.nbv_0);
            [[unroll]] for (uint i = 0; i < PIECES; i++) {
                const uint piece = lane + i * LANES;
                k_pieces[j * PIECES + i] = k_piece(row_k, WHOLE || piece < pieces_k ? piece : 0);
                v_pieces[j * PIECES + i] = v_piece(row_v, WHOLE || piece < pieces_v ? piece : 0);
            }
        }
        // The position whose scores this lane gets.
        const uint own_key = first_key + set + lane % KEYS * SETS;
        const float bias = mask_at(base_mask + min(own_key, p.kv_0 - 1));
        const bool seen = own_key < p.kv_0 && bias != MINUS_INFINITY;

        float products[HEADS * KEYS];
        [[unroll]] for (uint j = 0; j < KEYS; j++) {
            [[unroll]] for (uint h = 0; h < HEADS; h++) {
                products[h * KEYS + j] = 0.0;
            }
            [[unroll]] for (uint i = 0; i < PIECES; i++) {
                vec4 lo, hi;
                numbers_of(k_pieces[j * PIECES + i], lane + i * LANES, WHOLE || lane + i * LANES < pieces_k, lo, hi);
                [[unroll]] for (uint h = 0; h < HEADS; h++) {
                    // One sum, not two that are added.
                    [[unroll]] for (uint e = 0; e < 4; e++) {
                        products[h * KEYS + j] += lo[e] * q_lo[h * PIECES + i][e];
                    }
                    [[unroll]] for (uint e = 0; e < 4; e++) {
                        products[h * KEYS + j] += hi[e] * q_hi[h * PIECES + i][e];
                    }
                }
            }
        }
        float weights[HEADS * KEYS];
        [[unroll]] for (uint h = 0; h < HEADS; h++) {
            float of_head[KEYS];
            [[unroll]] for (uint j = 0; j < KEYS; j++) {
                of_head[j] = products[h * KEYS + j];
            }
            float score = turned_sum(of_head) * p.scale;
            [[dont_flatten]] if (p.logit_softcap != 0.0) {
                score = capped(score);
            }
            score = seen ? score + slope[h] * bias : MINUS_INFINITY;
            if (subgroupBallot(score > largest[h] + HEADROOM) != uvec4(0)) {
                const float now = max(largest[h], largest_of_all(score));
                const float factor = exp(largest[h] - now);
                largest[h] = now;
                sum[h] *= factor;
                [[unroll]] for (uint i = 0; i < PIECES; i++) {
                    out_lo[h * PIECES + i] *= factor;
                    out_hi[h * PIECES + i] *= factor;
                }
            }
            const float weight = exp(score - largest[h]);
            sum[h] += weight;
            spread(seen ? weight : HIDDEN, of_head);
            [[unroll]] for (uint j = 0; j < KEYS; j++) {
                weights[h * KEYS + j] = of_head[j];
            }
        }
        [[unroll]] for (uint j = 0; j < KEYS; j++) {
            [[unroll]] for (uint i = 0; i < PIECES; i++) {
                vec4 lo, hi;
                numbers_of(v_pieces[j * PIECES + i], lane + i * LANES, !is_hidden(weights[j]), lo, hi);
                [[unroll]] for (uint h = 0; h < HEADS; h++) {
                    out_lo[h * PIECES + i] += weights[h * KEYS + j] * lo;
                    out_hi[h * PIECES + i] += weights[h * KEYS + j] * hi;
                }
            }
        }
    }

    // The sets of a subgroup, whose lanes have the same columns.
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        [[unroll]] for (uint lanes = 1; lanes < KEYS; lanes *= 2) {
            sum[h] += other(sum[h], lanes);
        }
        for (uint lanes = LANES; lanes < gl_SubgroupSize; lanes *= 2) {
            sum[h] += subgroupShuffleXor(sum[h], lanes);
        }
        [[unroll]] for (uint i = 0; i < PIECES; i++) {
            vec4 lo = out_lo[h * PIECES + i];
            vec4 hi = out_hi[h * PIECES + i];
            for (uint lanes = LANES; lanes < gl_SubgroupSize; lanes *= 2) {
                lo += subgroupShuffleXor(lo, lanes);
                hi += subgroupShuffleXor(hi, lanes);
            }
            const uint at = (gl_SubgroupID * HEADS + h) * ROW + 8 * (lane + i * LANES);
            if (gl_SubgroupInvocationID < LANES) {
                [[unroll]] for (uint e = 0; e < 4; e++) {
                    values[at + e] = lo[e];
                    values[at + 4 + e] = hi[e];
                }
            }
        }
        if (gl_SubgroupInvocationID == 0) {
            stats[gl_SubgroupID * HEADS + h] = vec2(largest[h], sum[h]);
        }
    }
    barrier();

    // The subgroups.
    const uint row = (batch * p.ne_0 + token) * heads + head_kv * per_kv + first_head;
    const uint count = min(HEADS, per_kv - first_head);
    for (uint i = gl_LocalInvocationIndex; i < count * p.d_1; i += WG) {
        const uint h = i / p.d_1;
        const uint column = i - h * p.d_1;
        float all_largest = stats[h].x;
        for (uint s = 1; s < gl_NumSubgroups; s++) {
            all_largest = max(all_largest, stats[s * HEADS + h].x);
        }
        float all_sum = 0.0;
        float value = 0.0;
        for (uint s = 0; s < gl_NumSubgroups; s++) {
            const float factor = exp(stats[s * HEADS + h].x - all_largest);
            all_sum += factor * stats[s * HEADS + h].y;
            value += factor * values[(s * HEADS + h) * ROW + column];
        }
        if (parts == 1) {
            d[p.off_5 + row * p.d_1 + i] = all_sum == 0.0 ? 0.0 : value / all_sum;
        } else {
            scratch[((row + h) * parts + part) * p.d_1 + column] = value;
            if (column == 0) {
                const uint at = place_of_stats(row + h, part, parts);
                scratch[at] = all_largest;
                scratch[at + 1] = all_sum;
            }
        }
    }
    const uint slot = ((batch * p.ne_0 + token) * p.kv_1 + head_kv) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (parts > 1 && is_last(slot, parts)) {
        join(row, count, parts);
        if (gl_LocalInvocationIndex == 0) {
            arrived[slot] = 0;
        }
    }
}
