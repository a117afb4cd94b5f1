// What every shader starts with.
#ifndef COMMON_GLSL
#define COMMON_GLSL

#extension GL_EXT_control_flow_attributes : require

// Specialisation constant 0 is the size of a workgroup, 64 if it is not given; read it as gl_WorkGroupSize.x.
layout(local_size_x = 64, local_size_x_id = 0) in;

#endif
