#version 460
// The sum over a token's experts after their products in tiles: d[i, t] = sum over u of w[u, t] * a[i, u, t], plus a residual.
//
// One element in each invocation, adjacent ones in adjacent invocations; the grid's x covers the elements, y the tokens. Memory-
// bound: all products are read once, FOUR loads in flight, and nothing but the sum is written.
// Specialisation: work-group size, RESIDUAL (1 if there is one).

#include "common.glsl"

layout(constant_id = 1) const uint RESIDUAL = 0;

layout(push_constant, std430) uniform ExpertSumParams {
    uint m, used, tokens;
    uint nb0;
    uint nbf_0, nbf_1;
    uint nbr, nbd;
    uint offf, offr, offd;
} p;

layout(set = 0, binding = 0, std430) readonly buffer A { float a[]; };
layout(set = 0, binding = 1, std430) readonly buffer Weights { float weights[]; };
layout(set = 0, binding = 2, std430) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 3, std430) writeonly buffer D { float d[]; };

const uint FOUR = 4;

void main() {
    const uint i = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    const uint token = gl_WorkGroupID.y;
    if (i >= p.m) {
        return;
    }
    const uint of_token = p.offf + token * p.nbf_1;
    const uint column = token * p.nb0 + i;
    float sum = 0.0;
    for (uint first = 0; first < p.used; first += FOUR) {
        float x[FOUR];
        [[unroll]] for (uint j = 0; j < FOUR; j++) {
            x[j] = a[column + min(first + j, p.used - 1) * p.m];
        }
        [[unroll]] for (uint j = 0; j < FOUR; j++) {
            if (first + j < p.used) {
                sum += weights[of_token + (first + j) * p.nbf_0] * x[j];
            }
        }
    }
    if (RESIDUAL != 0) {
        sum += residual[p.offr + token * p.nbr + i];
    }
    d[p.offd + token * p.nbd + i] = sum;
}
