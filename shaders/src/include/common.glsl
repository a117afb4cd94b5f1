// Included by every shader.
#ifndef COMMON_GLSL
#define COMMON_GLSL

#extension GL_EXT_control_flow_attributes : require

// Specialisation constant 0 is the size of a work-group, 64 by default; it is read as gl_WorkGroupSize.x.
layout(local_size_x = 64, local_size_x_id = 0) in;

#endif
