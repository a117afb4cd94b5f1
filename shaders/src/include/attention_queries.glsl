// Queries of the attention kernels on matrix units, whose constants give the places: BRINGERS adjacent invocations load a row; and
// the search for positions that a row sees.
#ifndef ATTENTION_QUERIES_GLSL
#define ATTENTION_QUERIES_GLSL

layout(set = 0, binding = 3, std430) readonly buffer Mask4 { vec4 mask4[]; };
layout(set = 0, binding = 3, std430) readonly buffer MaskPairs { uvec2 mask_pairs[]; };

const float LOG2_E = 1.4426950408889634;

// Weights and their sum are multiplied by two to this power.
const float WEIGHT_EXPONENT = 15.0;

vec4 from_halves(uvec2 w) {
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
}

// Maximum over `count` adjacent invocations; their sum.
float largest_of(float x, const uint count) {
    [[unroll]] for (uint lanes = 1; lanes < count; lanes *= 2) {
        x = max(x, subgroupShuffleXor(x, lanes));
    }
    return x;
}

float sum_of(float x, const uint count) {
    [[unroll]] for (uint lanes = 1; lanes < count; lanes *= 2) {
        x += subgroupShuffleXor(x, lanes);
    }
    return x;
}

// Four queries as F16.
uvec2 queries_of(vec4 x) {
    const bvec4 finite = lessThan(floatBitsToUint(x) & 0x7f800000u, uvec4(0x7f800000u));
    return halves_of(rounded(x, mix(uvec4(0), uvec4(HALF_STEP), finite)));
}

// Stores the queries of a row of the work-group. `at`: start of the row in q; `bringer`: index of this invocation among those
// that load the row.
void put_queries(uint at, uint row, uint bringer, float factor) {
    [[unroll]] for (uint n = 0; n < (K_EIGHTS + BRINGERS - 1) / BRINGERS; n++) {
        const uint eight = bringer + n * BRINGERS;
        vec4 lo = vec4(0.0), hi = vec4(0.0);
        if (eight * 8 < p.d_0) {
            lo = q4[at / 4 + 2 * eight] * factor;
            hi = q4[at / 4 + 2 * eight + 1] * factor;
        }
        if (eight < K_EIGHTS) {
            tiles[Q0 + row * K_STRIDE + eight] = uvec4(queries_of(lo), queries_of(hi));
        }
    }
}

// Returns the power of two for a row of q, as bits of its exponent; with more than BRINGERS `lanes`, for the rows that they load.
uint exponent_of(uint at, uint bringer, const uint lanes) {
    float most = 0.0;
    [[unroll]] for (uint n = 0; n < (2 * K_EIGHTS + BRINGERS - 1) / BRINGERS; n++) {
        const uint quad = bringer + n * BRINGERS;
        const vec4 x = quad * 4 < p.d_0 ? abs(q4[at / 4 + quad]) : vec4(0.0);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            most = floatBitsToUint(x[j]) < 0x7f800000u ? max(most, x[j]) : most;
        }
    }
    return min(268 - (floatBitsToUint(largest_of(most, lanes)) >> 23), 253);
}

// Positions that a subgroup checks together for visibility to any row of the work-group; splits are multiples of these.
const uint SOUGHT = 128;
// Loads for a check: an invocation loads four elements of the mask at a time.
const uint CHECKS = BR * (SOUGHT / 4) / LANES;
// Loads that are issued before the first is used.
const uint AT_ONCE = CHECKS < 16 ? CHECKS : 16;

// Returns the place of load `i` in the mask, in units of four elements. The last rows come first: if the mask is causal, they see
// the most.
uint check_place(uint i, uint first, uint token0, uint mask0) {
    const uint at = min(i, CHECKS - 1) * LANES + gl_SubgroupInvocationID;
    const uint row = mask0 + min(token0 + BR - 1 - at / (SOUGHT / 4), p.ne_0 - 1) * p.nbm_0;
    return (row + min(first + at % (SOUGHT / 4) * 4, p.kv_0 - 4)) / 4;
}

// Returns true if a row of the work-group sees one of SOUGHT positions from `first` on, or one of the last four. The type of the
// mask is tested once: a branch for each load would wait for it.
bool is_seen(uint first, uint token0, uint mask0) {
    bool seen = false;
    [[dont_unroll]] for (uint i0 = 0; i0 < CHECKS && !seen; i0 += AT_ONCE) {
        bool some = false;
        if (MASK_TYPE == MASK_F32) {
            vec4 masks[AT_ONCE];
            [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
                masks[n] = mask4[check_place(i0 + n, first, token0, mask0)];
            }
            [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
                some = some || any(notEqual(masks[n], vec4(MINUS_INFINITY)));
            }
        } else {
            uvec2 masks[AT_ONCE];
            [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
                masks[n] = mask_pairs[check_place(i0 + n, first, token0, mask0)];
            }
            [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
                some = some || any(notEqual(masks[n], uvec2(0xfc00fc00u)));
            }
        }
        seen = subgroupBallot(some) != uvec4(0);
    }
    return seen;
}

// Skips positions at the beginning and at the end that the mask hides from all rows. Each subgroup checks others. All invocations
// take part.
void skip_hidden(inout uint begin, inout uint end, uint token0, uint head, uint batch) {
    if (MASK_TYPE == NO_MASK) {
        return;
    }
    const uint mask0 = mask_row(0, head, batch);
    const uint own = gl_SubgroupID * SOUGHT;
    [[dont_unroll]] for (uint side = 0; side < 2; side++) {
        bool more = begin < end;
        [[dont_unroll]] while (more) {
            barrier();
            if (gl_LocalInvocationIndex == 0) {
                found = SUBGROUPS;
            }
            barrier();
            const uint first = side == 0 ? begin + own : end - min(own + SOUGHT, end - begin);
            if (begin + own < end && is_seen(first, token0, mask0)) {
                atomicMin(found, gl_SubgroupID, gl_ScopeWorkgroup, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
            }
            barrier();
            const uint hidden = min(found * SOUGHT, end - begin);
            if (side == 0) {
                begin += hidden;
            } else {
                end -= hidden;
            }
            more = found == SUBGROUPS && begin < end;
        }
    }
}

// Makes the writes of a subgroup to shared memory visible to all of it.
void subgroup_done() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

// Returns true if position `key` is hidden from the row whose mask is at `row_mask`.
bool hides(uint row_mask, uint key) {
    return key >= p.kv_0 || mask_at(row_mask + min(key, p.kv_0 - 1)) == MINUS_INFINITY;
}

#endif
