#version 460
// SET_ROWS: writes rows of a matrix by index, converted to its type.
//
// The grid's x covers the columns of a row, y the indices, z the batches. One element in each invocation, for quantised types
// one block of 32: an invocation reads 128 bytes, keeps them in registers and writes 34 or 18, so that the largest magnitude
// needs no exchange. An index outside the matrix writes nothing. Nothing shared.
//
// Variants: the type of the matrix.

#include "common.glsl"
#include "blocks.glsl"
#include "convert.glsl"
#include "grid.glsl"

#extension GL_EXT_shader_16bit_storage : require

layout(constant_id = 1) const uint ONCE = 0;

layout(push_constant, std430) uniform SetRowsParams {
    uint ne_0, ne_1, ne_2, ne_3;
    uint rows;
    uint ids_ne_0, ids_ne_1;
    uint nb0_0, nb0_1, nb0_2;
    uint nb1_0, nb1_1, nb1_2;
    uint nbd_0, nbd_1, nbd_2;
    uint off0, off1, offd;
} p;

layout(set = 0, binding = 0, std430) readonly buffer Values { float values[]; };
layout(set = 0, binding = 1, std430) readonly buffer Ids { int ids[]; };
#if defined(D_Q8_0) || defined(D_Q4_0)
// Elements of an invocation.
#define TAKEN 32
#else
#define TAKEN 1
#endif
#if defined(D_F16) || TAKEN > 1
layout(set = 0, binding = 2, std430) writeonly buffer D { uint16_t d[]; };
#else
layout(set = 0, binding = 2, std430) writeonly buffer D { float d[]; };
#endif

// Writes an invocation's elements of a row.
void store(uint row_v, uint row_d, uint i) {
#if TAKEN > 1
    float x[TAKEN];
    [[unroll]] for (uint j = 0; j < TAKEN; j++) {
        x[j] = values[row_v + TAKEN * i + j];
    }
#ifdef D_Q8_0
    uint halves[17];
    q8_0_block(x, halves);
#else
    uint halves[9];
    q4_0_block(x, halves);
#endif
    [[unroll]] for (uint j = 0; j < halves.length(); j++) {
        d[(row_d + i) * halves.length() + j] = uint16_t(halves[j]);
    }
#elif defined(D_F16)
    d[row_d + i] = uint16_t(f16_bits(values[row_v + i]));
#else
    d[row_d + i] = values[row_v + i];
#endif
}

void main() {
    FOR_EACH_ROW(i1, i2, i3, p.ne_1, p.ne_2, p.ne_3)
        const int id = ids[p.off1 + i1 * p.nb1_0 + i2 % p.ids_ne_0 * p.nb1_1 + i3 % p.ids_ne_1 * p.nb1_2];
        if (id >= 0 && uint(id) < p.rows) {
            const uint row_v = p.off0 + i1 * p.nb0_0 + i2 * p.nb0_1 + i3 * p.nb0_2;
            const uint row_d = p.offd + uint(id) * p.nbd_0 + i2 * p.nbd_1 + i3 * p.nbd_2;
            FOR_EACH_COLUMN(i, p.ne_0 / TAKEN)
                store(row_v, row_d, i);
            END_EACH_COLUMN
        }
    END_EACH_ROW
}
