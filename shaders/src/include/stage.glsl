// Shared memory of kernels whose weights pass through it as stored (mat_vec_staged.glsl; with NARROW mul_mat_narrow.comp).
// Parts with several views are blocks that all start where that memory does.
#ifndef STAGE_GLSL
#define STAGE_GLSL

#extension GL_EXT_shared_memory_block : require

// Half-words of a block, and weights that a subgroup has there at a time.
#if defined(A_Q8_0)
#define A_HALVES 17
#elif defined(A_Q4_0)
#define A_HALVES 9
#elif defined(A_Q4_1)
#define A_HALVES 10
#elif defined(A_Q5_0)
#define A_HALVES 11
#elif defined(A_Q5_1)
#define A_HALVES 12
#elif defined(A_Q4_K)
#define A_HALVES 72
#elif defined(A_Q5_K)
#define A_HALVES 88
#elif defined(A_Q6_K)
#define A_HALVES 105
#endif

#if defined(A_Q4_K) || defined(A_Q5_K) || defined(A_Q6_K)
#define STAGE_BLOCK 256
#else
#define STAGE_BLOCK 32
#endif

#if defined(A_Q8_0)
#define STAGE_WEIGHTS 2048
#else
#define STAGE_WEIGHTS 4096
#endif

// Invocations of a subgroup, and elements of a row in a step.
const uint LANES = gl_WorkGroupSize.x / SUBGROUPS;
const uint STEP = STAGE_WEIGHTS / ROWS;

// Groups of 16 bytes that cover a step of a row, wherever it starts.
const uint STEP_HALVES = STEP / STAGE_BLOCK * A_HALVES;
const uint ROW_SIXTEENS = A_HALVES % 8 == 0 ? STEP_HALVES / 8 : (STEP_HALVES + 7 + 7) / 8;

#ifdef NARROW

// Distance of rows: an odd number of groups of 16 bytes, which puts eight adjacent rows on different banks. Shared memory, in
// such groups: for each subgroup a step, or sums of 16 rows in its place; emulated units also have their matrices there.
const uint ROW_PITCH = ROW_SIXTEENS | 1;
const uint STAGE_AT = 0;
const uint OF_STEP = ROWS * ROW_PITCH;
#ifdef EMULATED
const uint STAGE_PITCH = OF_STEP + ROWS * 2 + COLUMNS * 4;
#else
const uint STAGE_PITCH = OF_STEP > COLUMNS * 4 ? OF_STEP : COLUMNS * 4;
#endif
const uint SIXTEENS = SUBGROUPS * STAGE_PITCH;

#else

const uint ROW_PITCH = ROW_SIXTEENS;
// Shared memory, in groups of 16 bytes: sums of up to 16 subgroups; the steps of all subgroups; for activations scales, for
// some types sums of 32, and bytes, in whole steps.
const uint STAGE_AT = 36;
const uint STAGE_PITCH = ROWS * ROW_PITCH;
const uint SCALE_AT = STAGE_AT + SUBGROUPS * STAGE_PITCH;
const uint SUM_AT = SCALE_AT + CHUNK / 128;
#if defined(A_Q4_K) || defined(A_Q5_K)
const uint BYTES_AT = SUM_AT + CHUNK / 128;
#else
const uint BYTES_AT = SUM_AT;
#endif
const uint SIXTEENS = BYTES_AT + CHUNK / 16;

shared Sums {
    float partial[128];
    float squares_of[16];
};

#endif

shared Words4 {
    uvec4 words4[SIXTEENS];
};

shared Words {
    uint words[SIXTEENS * 4];
};

shared Floats {
    float floats[SIXTEENS * 4];
};

shared Halves {
    uint16_t halves[SIXTEENS * 8];
};

shared Scales {
    float16_t scales[SIXTEENS * 8];
};

#endif
