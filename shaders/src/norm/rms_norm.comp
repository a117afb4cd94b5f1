#version 460
// RMS_NORM: v / sqrt(mean(v^2) + eps) for each row, where v is x, or x + y, which is then also a result; multiplied by a factor
// and a weight, plus a third tensor, or with that as its gate.
//
// One work-group for each row, quads of elements in each invocation. A row that fits is read once: its quads, those of the
// weight and of the added tensor stay in registers while the work-group sums squares (WHOLE). Longer rows take several
// iterations and are read again, 16 KiB of them from the first-level cache. An invocation writes only elements that no other
// one reads, after it has read them, so the result may replace the operand.
//
// A quad is four adjacent elements, 16 bytes at a time, if all rows allow it (ALIGNED), otherwise four elements at distances of
// the work-group size. For quads after the end of a row, its last elements are read again, so that no load is behind a branch;
// values are computed before the test whether they are written.
//
// Variants: lds and subgroup, the way in which the work-group is summed. Shared memory: 4 bytes for each invocation.

#include "common.glsl"
#include "activation.glsl"
#include "grid.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint ONCE = 0;
// Operations besides the norm: the sum before it, the product with its weight, the sum after it, its gate.
layout(constant_id = 2) const uint PARTS = 0;
layout(constant_id = 3) const uint ALIGNED = 0;
// Quads of an invocation at a time.
layout(constant_id = 4) const uint QUADS = 1;
// 1: these are all; 2: and none is after the end of a row.
layout(constant_id = 5) const uint WHOLE = 0;

#define SUM 1
#define WEIGHT 2
#define RESIDUAL 4
#define GATE 8

layout(push_constant, std430) uniform NormParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint nb0_0, nb0_1, nb0_2;
    uint nb1_0, nb1_1, nb1_2;
    uint nb2_0, nb2_1, nb2_2;
    uint nbd_0, nbd_1, nbd_2;
    uint off0, off1, off2, offw, offr, offd;
    float eps;
    float factor;
    uint op;
    uint parts;
} p;

// Absent operands are replaced by other buffers.
layout(set = 0, binding = 0, std430) readonly buffer X { float x[]; };
layout(set = 0, binding = 0, std430) readonly buffer X4 { vec4 x4[]; };
layout(set = 0, binding = 1, std430) readonly buffer Y { float y[]; };
layout(set = 0, binding = 1, std430) readonly buffer Y4 { vec4 y4[]; };
layout(set = 0, binding = 2, std430) readonly buffer W { float w[]; };
layout(set = 0, binding = 2, std430) readonly buffer W4 { vec4 w4[]; };
layout(set = 0, binding = 3, std430) readonly buffer Z { float z[]; };
layout(set = 0, binding = 3, std430) readonly buffer Z4 { vec4 z4[]; };
layout(set = 0, binding = 4, std430) writeonly buffer R { float r[]; };
layout(set = 0, binding = 4, std430) writeonly buffer R4 { vec4 r4[]; };
layout(set = 0, binding = 5, std430) writeonly buffer D { float d[]; };
layout(set = 0, binding = 5, std430) writeonly buffer D4 { vec4 d4[]; };

const uint WG = gl_WorkGroupSize.x;
// Elements of an iteration, and the distance of the elements of a quad.
const uint ROUND = 4 * WG * QUADS;
const uint STEP = ALIGNED != 0 ? 1 : WG;

// First element of a quad in an iteration.
uint first_of(uint begin, uint quad) {
    const uint lane = gl_LocalInvocationIndex;
    return begin + 4 * WG * quad + (ALIGNED != 0 ? 4 * lane : lane);
}

bool is_inside(uint element) {
    return WHOLE == 2 || element < p.ne_0;
}

#define LOAD(name, one, four)                                                                                          \
    vec4 name(uint row, uint at) {                                                                                     \
        if (ALIGNED != 0) {                                                                                            \
            return four[(row + (WHOLE == 2 ? at : min(at, p.ne_0 - 4))) / 4];                                          \
        }                                                                                                              \
        vec4 v;                                                                                                        \
        [[unroll]] for (uint j = 0; j < 4; j++) {                                                                      \
            v[j] = one[row + (WHOLE == 2 ? at + j * STEP : min(at + j * STEP, p.ne_0 - 1))];                           \
        }                                                                                                              \
        return v;                                                                                                      \
    }

LOAD(load_x, x, x4)
LOAD(load_y, y, y4)
LOAD(load_w, w, w4)
LOAD(load_z, z, z4)

#define STORE(name, one, four)                                                                                         \
    void name(uint row, uint at, vec4 v) {                                                                             \
        if (ALIGNED != 0) {                                                                                            \
            if (is_inside(at)) {                                                                                       \
                four[(row + at) / 4] = v;                                                                              \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        [[unroll]] for (uint j = 0; j < 4; j++) {                                                                      \
            if (is_inside(at + j * STEP)) {                                                                            \
                one[row + at + j * STEP] = v[j];                                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }

STORE(store_r, r, r4)
STORE(store_d, d, d4)

// Quads of an iteration: the normed elements, the weight, and the tensor that is added to their product, or its gate.
#define LOAD_ROUND(begin)                                                                                              \
    [[unroll]] for (uint q = 0; q < QUADS; q++) {                                                                      \
        const uint at = first_of(begin, q);                                                                            \
        v[q] = load_x(row_x, at);                                                                                      \
        if ((PARTS & SUM) != 0) {                                                                                      \
            v[q] += load_y(row_y, at);                                                                                 \
        }                                                                                                              \
        if ((PARTS & WEIGHT) != 0) {                                                                                   \
            weight[q] = load_w(p.offw, at);                                                                            \
        }                                                                                                              \
        if ((PARTS & (RESIDUAL | GATE)) != 0) {                                                                        \
            added[q] = load_z(row_z, at);                                                                              \
        }                                                                                                              \
    }

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const uint row_x = p.off0 + i1 * p.nb0_0 + i2 * p.nb0_1 + i3 * p.nb0_2;
        const uint row_y = p.off1 + i1 * p.nb1_0 + i2 * p.nb1_1 + i3 * p.nb1_2;
        const uint row_z = p.off2 + i1 * p.nb2_0 + i2 * p.nb2_1 + i3 * p.nb2_2;
        const uint row_d = i1 * p.nbd_0 + i2 * p.nbd_1 + i3 * p.nbd_2;
        vec4 v[QUADS], weight[QUADS], added[QUADS];
        float sum = 0.0;
        for (uint begin = 0; begin < p.ne_0; begin += ROUND) {
            LOAD_ROUND(begin)
            [[unroll]] for (uint q = 0; q < QUADS; q++) {
                [[unroll]] for (uint j = 0; j < 4; j++) {
                    sum += is_inside(first_of(begin, q) + j * STEP) ? v[q][j] * v[q][j] : 0.0;
                }
            }
            if (WHOLE != 0) {
                break;
            }
        }
        const float scale = p.factor * inversesqrt(workgroup_sum(sum) / float(p.ne_0) + p.eps);
        for (uint begin = 0; begin < p.ne_0; begin += ROUND) {
            if (WHOLE == 0) {
                LOAD_ROUND(begin)
            }
            [[unroll]] for (uint q = 0; q < QUADS; q++) {
                const uint at = first_of(begin, q);
                if ((PARTS & SUM) != 0) {
                    store_r(p.offr + row_d, at, v[q]);
                }
                vec4 result = v[q] * scale;
                if ((PARTS & WEIGHT) != 0) {
                    result *= weight[q];
                }
                if ((PARTS & RESIDUAL) != 0) {
                    result += added[q];
                }
                if ((PARTS & GATE) != 0) {
                    [[unroll]] for (uint j = 0; j < 4; j++) {
                        result[j] *= activate(p.op, added[q][j]);
                    }
                }
                store_d(p.offd + row_d, at, result);
            }
            if (WHOLE != 0) {
                break;
            }
        }
    END_EACH_ROW
}
