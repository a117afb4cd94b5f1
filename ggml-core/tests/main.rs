//! Tests of the core, a module for each subject. One program, which is linked once.

mod cpu;
mod gguf;
mod schedule;
