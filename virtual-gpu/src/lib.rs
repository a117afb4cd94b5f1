//! AMD processor emulator: executes code objects for gfx900 (Vega 10: RX Vega 56 and 64), gfx906 (Vega 20: MI50, MI60,
//! Radeon VII), gfx1100 (Navi 31: RX 7900) and gfx1151 (Strix Halo) instruction by instruction, without a card or a
//! driver.
//!
//! ```no_run
//! use virtual_gpu::{Gpu, Launch, Options, Target};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gpu = Gpu::new(Target::Gfx906, Options::default());
//! let module = gpu.load(&std::fs::read("kernels.co")?)?;
//! let kernel = module.kernel("increment").ok_or("no such kernel")?;
//! let data = gpu.allocate(256 * 4)?;
//! let arguments = data.to_le_bytes();
//! let launch = Launch { groups: [4, 1, 1], threads: [64, 1, 1], dynamic_lds: 0, arguments: &arguments };
//! let counters = gpu.launch(&kernel, &launch)?;
//! println!("{} instructions, {} bytes read", counters.instructions, counters.global_read);
//! # Ok(())
//! # }
//! ```
//!
//! # Supported code
//!
//! The ELF files that a compiler emits for these processors (code object versions 3 to 5), as loaded by the
//! runtime of a real card: kernel descriptors, argument segments with hidden arguments, LDS, scratch, calls.
//! The decoder supports all formats that compilers emit: SOP1, SOP2, SOPC, SOPK, SOPP, SMEM, VOP1, VOP2,
//! VOPC, VOP3, VOP3P with their SDWA and DPP forms, DS, FLAT, GLOBAL, SCRATCH and MUBUF. Instructions for
//! images, exports and interpolation are illegal here. GFX11 adds wavefronts of 32 lanes, pairs (VOPD), DPP over 8 lanes,
//! literals and DPP in VOP3, matrices (WMMA) and, on gfx1151, scalar floats; it lacks SDWA. Typed buffers (MTBUF) and loads
//! from buffers to LDS are not decoded. An unsupported instruction or mode gives a
//! [`FaultKind::Unimplemented`] that names it.
//!
//! Machine code without an ELF file, as graphics drivers emit it, runs through [`Bare`]: the caller supplies the
//! initial registers and the memory they point to. A model of a kernel driver runs what a runtime does through
//! [`Gpu::launch_packet`]: packets (AQL), code and data lie in memory of the caller ([`Gpu::map`]).
//!
//! # Checks
//!
//! Every access is checked: unmapped or freed memory and misaligned atomic accesses are faults. [`Checks`]
//! adds races between wavefronts in LDS, reads of uninitialised LDS, misaligned LDS accesses, divergent
//! barriers, registers used before a wait for the load that fills them, and accesses beyond the end of a
//! buffer resource. A [`Fault`] contains kernel, address, instruction, work-group and wavefront. [`Counters`]
//! count the instructions and bytes of a launch.
//!
//! # Limits
//!
//! * Time, caches and occupancy are not modelled; instruction and byte counts are the only measure of
//!   performance.
//! * Load latency is not modelled: loads complete immediately. `s_waitcnt` does nothing, but the emulator
//!   checks that it is present where hardware needs it.
//! * Packed halves, mixed precision, `v_fma_f64` and unfused multiply-adds round to nearest only; another
//!   rounding mode is an error. Sums, products, fused multiply-adds and conversions support all modes.
//! * Floating-point exceptions, traps, debugging, priorities and graphics are not supported.
//! * Approximating instructions (`v_rcp_f32`, `v_exp_f32` ...) are correct to about the last bit; hardware
//!   may be off by one unit in the last place. They read F32 denormals as zeros, as hardware does.
//! * Sums of WMMA and of the dot products of floats are computed in F64 and rounded once, or in one order; AMD does not
//!   document what hardware does.
//! * `s_delay_alu`, `s_clause`, `s_waitcnt_depctr` and other hints of GFX11 do nothing, and their absence is not noticed.
//!
//! # Structure
//!
//! `isa::op` has one row per operation: name, operand types and formula. Each generation has a folder of tables, which
//! number and name the operations, and a decoder. `exec` knows operations only. It holds a wavefront's registers as arrays of 64 lanes and runs the wavefronts of a
//! work-group in turn, each to the next barrier; work-groups run in parallel. `memory` is the device memory,
//! `code` the loader, `packet` what a queue launches.
//!
//! Sources: AMD, ""Vega" Instruction Set Architecture Reference Guide", ""Vega" 7nm Instruction Set Architecture
//! Reference Guide", ""RDNA3" Instruction Set Architecture" and ""RDNA3.5" Instruction Set Architecture"; LLVM, "User Guide for AMDGPU Backend".
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
mod memory;
pub mod metadata;
#[cfg(feature = "processor")]
mod options;
#[cfg(feature = "processor")]
mod packet;
#[cfg(feature = "processor")]
mod spoil;

#[cfg(feature = "processor")]
pub use bare::{Bare, BareKernel, BareLaunch};
#[cfg(feature = "processor")]
pub use counters::Counters;
#[cfg(feature = "processor")]
pub use fault::{Access, Fault, FaultKind, Range, Result, Space};
#[cfg(feature = "processor")]
pub use footprint::Footprint;
#[cfg(feature = "processor")]
pub use gpu::{Gpu, Kernel, Launch, Line, MAX_LDS, MAX_THREADS, Module, disassemble};
#[cfg(feature = "processor")]
pub use isa::Target;
#[cfg(feature = "processor")]
pub use options::{Checks, Options};
#[cfg(feature = "processor")]
pub use packet::PacketCode;
