//! Tests of the kernels and of the build script, a module for each subject. One program, which is linked once.

mod arrival;
mod barriers;
mod build;
mod code_object;
mod prebuilt;
mod resources;
mod sources;
