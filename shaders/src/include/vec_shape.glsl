// Specialisation of the mat-vec kernels: see mat_vec.glsl. Constants of a kernel are 9 and up.
#ifndef VEC_SHAPE_GLSL
#define VEC_SHAPE_GLSL

layout(constant_id = 1) const uint ROWS = 2;
layout(constant_id = 2) const uint COLS = 1;
layout(constant_id = 3) const uint ALIGNED = 0;
layout(constant_id = 4) const uint EVEN = 0;
layout(constant_id = 5) const uint TEAMS = 1;
layout(constant_id = 6) const uint SUBGROUPS = 1;
layout(constant_id = 7) const uint CHUNK = 4096;
layout(constant_id = 8) const uint QUADS = 4;

#define EVEN_ROWS (EVEN != 0)

#endif
