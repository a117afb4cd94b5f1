#version 460
// Operations between the projections and attention: heads of q, k and v are normed, rotated as in ROPE, and stored, those of k
// and v as parts of cache rows at the given cells.
//
// A work-group takes one head of one token: the heads of all parts in sequence along the grid's y, tokens along z. An
// invocation keeps PAIRS pairs of elements in registers: the pairs that ROPE rotates or, without rotation, adjacent elements.
// All loads are issued before the first wait. The results are exchanged through shared memory, from which adjacent invocations
// write adjacent elements, or one invocation each block of 32. A cell outside the cache is not written.
//
// Variants: lds and subgroup, the way in which squares are summed. Shared memory: 4 bytes for each element of a head and for
// each invocation.

#include "common.glsl"
#include "blocks.glsl"
#include "grid.glsl"
#include "reduce.glsl"
#include "rope.glsl"

#extension GL_EXT_shader_16bit_storage : require

layout(constant_id = 1) const uint ONCE = 0;
layout(constant_id = 2) const uint PAIRS = 1;

layout(push_constant, std430) uniform HeadsParams {
    uint d;
    uint tokens;
    uint heads_0, heads_1, heads_2;
    uint nbh_0, nbh_1, nbh_2;
    uint nbt_0, nbt_1, nbt_2;
    uint nbd_0, nbd_1, nbd_2;
    uint parts;
    uint rows;
    uint n_dims;
    uint neox;
    uint has_factors;
    float magnitude;
    float eps;
    uint offx_0, offx_1, offx_2;
    uint offw_0, offw_1;
    uint offd_0, offd_1, offd_2;
    uint off_positions;
    uint off_cells;
    uint off_factors;
} p;

// Absent operands are replaced by other buffers.
layout(set = 0, binding = 0, std430) readonly buffer X0 { float x0[]; };
layout(set = 0, binding = 1, std430) readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 2, std430) readonly buffer X2 { float x2[]; };
layout(set = 0, binding = 3, std430) readonly buffer W0 { float w0[]; };
layout(set = 0, binding = 4, std430) readonly buffer W1 { float w1[]; };
layout(set = 0, binding = 5, std430) readonly buffer Positions { int positions[]; };
layout(set = 0, binding = 6, std430) readonly buffer Cells { int cells[]; };
layout(set = 0, binding = 7, std430) readonly buffer Table { float table[]; };
layout(set = 0, binding = 8, std430) readonly buffer Factors { float factors[]; };
layout(set = 0, binding = 9, std430) writeonly buffer D0 { float d0[]; };
layout(set = 0, binding = 9, std430) writeonly buffer D0Halves { uint16_t halves0[]; };
layout(set = 0, binding = 10, std430) writeonly buffer D1 { float d1[]; };
layout(set = 0, binding = 10, std430) writeonly buffer D1Halves { uint16_t halves1[]; };
layout(set = 0, binding = 11, std430) writeonly buffer D2 { float d2[]; };
layout(set = 0, binding = 11, std430) writeonly buffer D2Halves { uint16_t halves2[]; };

const uint WG = gl_WorkGroupSize.x;

// Flags in a part's eight bits of `parts`; from bit 4 on the type in which it is stored.
#define NORMED 1
#define TURNED 2
#define STORED 4
#define F16 1
#define Q8_0 2
#define Q4_0 3

shared float results[2 * PAIRS * WG];

#define OF_PART(name) (part == 0 ? p.name##_0 : part == 1 ? p.name##_1 : p.name##_2)

#define LOAD(from, row, to)                                                                                            \
    [[unroll]] for (uint j = 0; j < PAIRS; j++) {                                                                      \
        const uvec2 i = (row) + min(at[j], p.d - 1);                                                                   \
        to[j] = vec2(from[i.x], from[i.y]);                                                                            \
    }

void store(uint part, uint i, float value) {
    if (part == 0) {
        d0[i] = value;
    } else if (part == 1) {
        d1[i] = value;
    } else {
        d2[i] = value;
    }
}

void store_half(uint part, uint i, uint value) {
    if (part == 0) {
        halves0[i] = uint16_t(value);
    } else if (part == 1) {
        halves1[i] = uint16_t(value);
    } else {
        halves2[i] = uint16_t(value);
    }
}

// Writes a head to the part of a row that starts at an element, for quantised types at a block.
void store_head(uint part, uint type, uint row) {
    const uint lane = gl_LocalInvocationIndex;
    if (type < Q8_0) {
        for (uint i = lane; i < p.d; i += WG) {
            if (type == F16) {
                store_half(part, row + i, f16_bits(results[i]));
            } else {
                store(part, row + i, results[i]);
            }
        }
        return;
    }
    for (uint block = lane; block < p.d / 32; block += WG) {
        float x[32];
        [[unroll]] for (uint j = 0; j < 32; j++) {
            x[j] = results[32 * block + j];
        }
        if (type == Q8_0) {
            uint halves[17];
            q8_0_block(x, halves);
            [[unroll]] for (uint j = 0; j < 17; j++) {
                store_half(part, (row + block) * 17 + j, halves[j]);
            }
        } else {
            uint halves[9];
            q4_0_block(x, halves);
            [[unroll]] for (uint j = 0; j < 9; j++) {
                store_half(part, (row + block) * 9 + j, halves[j]);
            }
        }
    }
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    FOR_EACH_ROW(index, token, none, p.heads_0 + p.heads_1 + p.heads_2, p.tokens, 1)
        const uint part = index < p.heads_0 ? 0 : index < p.heads_0 + p.heads_1 ? 1 : 2;
        const uint head = index - (part == 0 ? 0 : part == 1 ? p.heads_0 : p.heads_0 + p.heads_1);
        const uint what = p.parts >> (8 * part);
        const uint pairs = (what & TURNED) != 0 ? p.n_dims / 2 : 0;

        uvec2 at[PAIRS];
        [[unroll]] for (uint j = 0; j < PAIRS; j++) {
            const uint unit = lane + j * WG;
            at[j] = unit < pairs && p.neox != 0 ? uvec2(unit, unit + pairs) : uvec2(2 * unit, 2 * unit + 1);
        }
        vec2 v[PAIRS], weight[PAIRS], turns[PAIRS];
        const uint row_x = OF_PART(offx) + head * OF_PART(nbh) + token * OF_PART(nbt);
        if (part == 0) {
            LOAD(x0, row_x, v)
        } else if (part == 1) {
            LOAD(x1, row_x, v)
        } else {
            LOAD(x2, row_x, v)
        }
        if ((what & NORMED) != 0) {
            if (part == 0) {
                LOAD(w0, p.offw_0, weight)
            } else {
                LOAD(w1, p.offw_1, weight)
            }
        }
        uint row = token;
        if ((what & STORED) != 0) {
            row = uint(cells[p.off_cells + token]);
        }
        float position = 0.0;
        if (pairs != 0) {
            position = float(positions[p.off_positions + token]);
            [[unroll]] for (uint j = 0; j < PAIRS; j++) {
                const uint pair = min(lane + j * WG, pairs - 1);
                turns[j] = vec2(table[2 * pair], table[2 * pair + 1]);
                if (p.has_factors != 0) {
                    turns[j] = divided(turns[j], factors[p.off_factors + pair]);
                }
            }
        }

        if ((what & NORMED) != 0) {
            float sum = 0.0;
            [[unroll]] for (uint j = 0; j < PAIRS; j++) {
                sum += at[j].x < p.d ? v[j].x * v[j].x : 0.0;
                sum += at[j].y < p.d ? v[j].y * v[j].y : 0.0;
            }
            const float scale = inversesqrt(workgroup_sum(sum) / float(p.d) + p.eps);
            [[unroll]] for (uint j = 0; j < PAIRS; j++) {
                v[j] *= scale * weight[j];
            }
        }
        if (pairs != 0) {
            [[unroll]] for (uint j = 0; j < PAIRS; j++) {
                const vec2 cs = cos_sin(fraction_of_turn(position, turns[j])) * p.magnitude;
                const vec2 turned = vec2(v[j].x * cs.x - v[j].y * cs.y, v[j].x * cs.y + v[j].y * cs.x);
                v[j] = lane + j * WG < pairs ? turned : v[j];
            }
        }

        // The previous head has been written.
        barrier();
        [[unroll]] for (uint j = 0; j < PAIRS; j++) {
            results[at[j].x] = v[j].x;
            results[at[j].y] = v[j].y;
        }
        barrier();
        if ((what & STORED) == 0 || row < p.rows) {
            const uint type = what >> 4 & 3;
            const uint unit = type < Q8_0 ? 1 : 32;
            store_head(part, type, OF_PART(offd) + row * OF_PART(nbd) + head * (p.d / unit));
        }
    END_EACH_ROW
}
