//! A GFX9 processor in software: executes AMD code objects for gfx900 and gfx906, instruction by instruction.
#![deny(missing_docs)]
#![deny(unsafe_code)]

mod code;
mod counters;
mod exec;
mod fault;
mod gpu;
mod isa;
mod memory;

pub use counters::Counters;
pub use fault::{Access, Fault, FaultKind, Range, Result, Space};
pub use gpu::{Checks, Gpu, Kernel, Launch, MAX_LDS, MAX_THREADS, Module, Options};
pub use isa::Target;
