//! The `cpu` backend: SIMD chosen at run time, threads, and weights that are read where they are.
//!
//! * [`CpuBackend::open`] finds the best instruction set ([`Isa`]) and makes a pool of threads.
//! * A memory map becomes device memory without a copy; products read its quantised blocks in place.
//! * Preparing a program resolves every operand to an address with checked bounds; running it has nothing left that
//!   could fail but its deadline.
//!
//! Kernels are written once over a vector type (`simd`) and compiled for each instruction set. Results depend on the
//! instruction set, because it decides in which order F32 numbers are added, but neither on the number of threads nor
//! on where operands lie nor on how many columns a product has: every element of a result is computed by one thread,
//! in an order that only the length of the rows decides. With 8-bit activations ([`Precision::Fast`]) and quantised
//! weights products do not even depend on the instruction set.
//!
//! `unsafe` code is in `memory` and `window` (pointers to tensors), `simd` and `dot` (vector loads), and `crew` (work of
//! other threads). Each states its invariants.
//!
//! [`Precision::Fast`]: crate::precision::Precision::Fast

use crate::backend::Stats;
use std::sync::{Arc, Mutex, PoisonError};

mod backend;
mod bind;
mod crew;
mod decode;
mod dot;
mod gate;
mod host;
mod isa;
mod memory;
mod op;
mod program;
mod run;
mod simd;
mod window;

pub use backend::{CpuBackend, CpuOptions};
pub(crate) use decode::decode_blocks;
pub use isa::Isa;

/// The backend's name.
const NAME: &str = "cpu";

/// Counters shared by a backend, its memory and its programs.
#[derive(Clone, Debug, Default)]
struct SharedStats(Arc<Mutex<Stats>>);

impl SharedStats {
    fn change(&self, f: impl FnOnce(&mut Stats)) {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn now(&self) -> Stats {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
