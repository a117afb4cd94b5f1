// How the rows of a tensor are spread over the grid.
//
// A grid has at most 65535 work-groups in a dimension on some devices, so that every dimension is a loop with the
// grid's extent as its step. Nearly always each loop runs once.
#ifndef GRID_GLSL
#define GRID_GLSL

// Rows: i1 over the grid's y, i2 and i3 together over its z.
#define FOR_EACH_ROW(i1, i2, i3, ne1, ne2, ne3)                                                                        \
    for (uint i23 = gl_WorkGroupID.z; i23 < (ne2) * (ne3); i23 += gl_NumWorkGroups.z)                                  \
        for (uint i3 = i23 / (ne2), i2 = i23 - i3 * (ne2), i1 = gl_WorkGroupID.y; i1 < (ne1); i1 += gl_NumWorkGroups.y)

// Columns of a row: one for each invocation of the grid's x.
#define FOR_EACH_COLUMN(i0, ne0)                                                                                       \
    for (uint i0 = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationIndex; i0 < (ne0);                        \
         i0 += gl_NumWorkGroups.x * gl_WorkGroupSize.x)

#endif
