#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![deny(unsafe_code)]

#[cfg(feature = "processor")]
mod bare;
#[cfg(feature = "processor")]
mod code;
#[cfg(feature = "processor")]
mod counters;
#[cfg(feature = "processor")]
mod exec;
#[cfg(feature = "processor")]
mod fault;
pub mod faults;
#[cfg(feature = "processor")]
mod footprint;
#[cfg(feature = "processor")]
mod foreign;
#[cfg(feature = "processor")]
mod gpu;
#[cfg(feature = "processor")]
mod instructions;
#[cfg(feature = "processor")]
mod isa;
#[cfg(feature = "processor")]
mod lines;
#[cfg(feature = "processor")]
mod memory;
pub mod metadata;
#[cfg(feature = "processor")]
mod options;
#[cfg(feature = "processor")]
mod order;
#[cfg(feature = "processor")]
mod packet;
#[cfg(feature = "processor")]
mod preload;
#[cfg(feature = "processor")]
mod random;
#[cfg(feature = "processor")]
mod spoil;

#[cfg(feature = "processor")]
pub use bare::{Bare, BareKernel, BareLaunch};
#[cfg(feature = "processor")]
pub use counters::Counters;
#[cfg(feature = "processor")]
pub use fault::{Access, Fault, FaultKind, Origin, Other, Range, Result, Space};
#[cfg(feature = "processor")]
pub use footprint::Footprint;
#[cfg(feature = "processor")]
pub use gpu::{Gpu, Kernel, Launch, Line, MAX_LDS, MAX_THREADS, Module, disassemble};
#[cfg(feature = "processor")]
pub use isa::Target;
#[cfg(feature = "processor")]
pub use memory::{MemoryFile, SharedMemory, Window};
#[cfg(feature = "processor")]
pub use options::{Checks, Options, Random};
#[cfg(feature = "processor")]
pub use packet::PacketCode;
