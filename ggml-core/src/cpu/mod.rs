//! The `cpu` backend: SIMD selected at run time, threads, and weights that are read in place.
//!
//! * [`CpuBackend::open`] selects the best instruction set ([`Isa`]) and starts a pool of threads.
//! * A memory map becomes device memory without a copy; products read its quantised blocks in place.
//! * Preparing a program resolves every operand to an address with checked bounds. A run can only fail at its
//!   deadline.
//!
//! Kernels are written once over a vector type (`simd`) and compiled for each instruction set. Results depend
//! on the instruction set, because it determines the order in which F32 values are added. They do not depend
//! on the number of threads, the addresses of operands or the number of columns of a product: every element
//! of a result is computed by one thread, in an order determined by the row length only. Products of
//! quantised weights with 8-bit activations ([`Precision::Fast`]) do not depend on the instruction set
//! either. One result depends on the number of columns: with AMX and [`Precision::Fast`], products of F16 and BF16
//! weights with many columns have activations of 16 bits, in place of F32.
//!
//! `unsafe` code is in `memory` and `window` (pointers to tensors), `simd` and `dot` (vector loads, tile
//! registers), `isa` (what the processor and the kernel allow), and `crew` (jobs shared between threads). Each
//! module states its invariants.
//!
//! [`Precision::Fast`]: crate::precision::Precision::Fast

use crate::backend::Stats;
use std::sync::{Arc, Mutex, PoisonError};

mod backend;
mod bind;
mod crew;
mod decode;
mod dot;
mod execution;
mod gate;
mod host;
mod isa;
mod memory;
mod op;
mod program;
mod simd;
mod window;

pub use backend::{CpuBackend, CpuOptions};
pub(crate) use decode::decode_blocks;
pub use isa::Isa;

/// Name of the backend.
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
