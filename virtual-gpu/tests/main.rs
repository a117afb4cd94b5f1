//! Tests of the processor, a module for each subject. One program, which is linked once.

mod bare;
mod counters;
mod disassembly;
mod fuzz;
mod generated;
mod packets;
mod planted;
mod programs;
mod readme;
mod support;
mod vectors;
