//! Tests of the shaders, a module for each subject. One program, which is linked once.

mod reflect;
mod stale;
