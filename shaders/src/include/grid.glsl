// Distribution of the rows of a tensor over the grid.
//
// Some devices allow at most 65535 work-groups in a dimension, so every dimension is a loop with the grid's extent as its step.
// Almost always a grid covers everything: then ONCE is 1, each loop ends after its first iteration, and the compiler removes
// it.
#ifndef GRID_GLSL
#define GRID_GLSL

// Rows: i1 over the grid's y, i2 and i3 together over its z. Ends with END_EACH_ROW.
#define FOR_EACH_ROW(i1, i2, i3, ne1, ne2, ne3)                                                                        \
    for (uint i23 = gl_WorkGroupID.z; i23 < (ne2) * (ne3); i23 += gl_NumWorkGroups.z) {                                \
        const uint i3 = i23 / (ne2), i2 = i23 - i3 * (ne2);                                                            \
        for (uint i1 = gl_WorkGroupID.y; i1 < (ne1); i1 += gl_NumWorkGroups.y) {

#define END_EACH_ROW                                                                                                   \
            if (ONCE != 0) {                                                                                           \
                break;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        if (ONCE != 0) {                                                                                               \
            break;                                                                                                     \
        }                                                                                                              \
    }

// Columns of a row: one for each invocation of the grid's x. Ends with END_EACH_COLUMN.
#define FOR_EACH_COLUMN(i0, ne0)                                                                                       \
    for (uint i0 = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationIndex; i0 < (ne0);                        \
         i0 += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {

#define END_EACH_COLUMN                                                                                                \
        if (ONCE != 0) {                                                                                               \
            break;                                                                                                     \
        }                                                                                                              \
    }

#endif
