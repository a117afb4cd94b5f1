// Steps of rows of weights as stored: loads of 16 adjacent bytes by each invocation of a subgroup, and their place in shared
// memory (stage.glsl), for mat_vec_staged.glsl and mul_mat_narrow.comp.
#ifndef STAGE_LOADS_GLSL
#define STAGE_LOADS_GLSL

// Rows of a team that belong to the same matrix are adjacent; loads of these.
const uint USES = HAS_GLU ? 2 : 1;
const uint ALIKE = ROWS / USES;
const uint LOADS = (ALIKE * ROW_SIXTEENS + LANES - 1) / LANES;
const uint ALL_LOADS = USES * LOADS;

// Place of row r in a stage.
uint place_of(uint r) {
    return (HAS_GLU ? r % 2 * ALIKE + r / 2 : r) * ROW_PITCH;
}

// Issues the loads of the step at element `at`.
void load_step(uint from[ALL_LOADS], uint at, inout uvec4 raw[ALL_LOADS]) {
    const uint skip = at / A_BLOCK * A_HALVES;
    const uint left = (LENGTH - at) / A_BLOCK * A_HALVES;
    [[unroll]] for (uint use = 0; use < USES; use++) {
        matrix = MATRIX_OF(use);
        [[unroll]] for (uint n = 0; n < LOADS; n++) {
            const uint in_row = (n * LANES + gl_SubgroupInvocationID) % ROW_SIXTEENS;
            const uint here = from[use * LOADS + n] + skip;
            // After the end of the row, its last 16 bytes are loaded again: all invocations load. When a branch excluded some
            // of them, and the choice among several buffers was made at run time, an H200 (driver 580.159) hung.
            raw[use * LOADS + n] = A_OF(words4_of)[here / 8 - in_row + min(in_row, (left + here % 8 - 1) / 8)];
        }
    }
}

void store_step(uvec4 raw[ALL_LOADS]) {
    const uint stage_at = STAGE_AT + gl_SubgroupID * STAGE_PITCH;
    [[unroll]] for (uint use = 0; use < USES; use++) {
        [[unroll]] for (uint n = 0; n < LOADS; n++) {
            const uint i = n * LANES + gl_SubgroupInvocationID;
            if ((n + 1) * LANES <= ALIKE * ROW_SIXTEENS || i < ALIKE * ROW_SIXTEENS) {
                const uint place = i / ROW_SIXTEENS * ROW_PITCH + i % ROW_SIXTEENS;
                words4[stage_at + use * ALIKE * ROW_PITCH + (ROW_PITCH == ROW_SIXTEENS ? i : place)] = raw[use * LOADS + n];
            }
        }
    }
}

#endif
