//! A GFX9 processor in software: executes AMD code objects of gfx900 (Vega 10: RX Vega 56 and 64) and gfx906 (Vega 20:
//! MI50, MI60, Radeon VII) instruction by instruction, with no card and no driver.
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
//! # What it executes
//!
//! The ELF files that a compiler makes for these processors (code object versions 3 to 5), as they are given to the
//! runtime of a real card: kernel descriptors, argument segments with hidden arguments, LDS, scratch, calls. All formats
//! that compilers emit are decoded: SOP1, SOP2, SOPC, SOPK, SOPP, SMEM, VOP1, VOP2, VOPC, VOP3, VOP3P with their SDWA and
//! DPP forms, DS, FLAT, GLOBAL, SCRATCH and MUBUF. Also machine code with no ELF file around it, as graphics drivers make
//! it ([`Bare`]): registers at the start and the memory they point to are the caller's. Images, exports and interpolation
//! are not there: they are no instructions here. An instruction or a mode that is not executed is a
//! [`FaultKind::Unimplemented`] that names it.
//!
//! # What it reports
//!
//! Every access is checked: memory that is not there or was freed, atomic accesses that are not aligned. With
//! [`Checks`], also races between wavefronts in LDS, reads of LDS that nobody wrote, misaligned LDS, barriers that not
//! all wavefronts reach, registers that are used before the load that fills them is waited for, and accesses beyond what a
//! buffer resource describes. A [`Fault`] names kernel, address, instruction, work-group and wavefront. [`Counters`] tell
//! what a launch did.
//!
//! # What it does not model
//!
//! * Time, caches, occupancy: counts of instructions and bytes are all it says of performance.
//! * When loads return: they are complete at once. `s_waitcnt` waits for nothing; that it stands where hardware needs it
//!   is checked.
//! * Rounding modes other than to the nearest for packed halves, mixed precision, `v_fma_f64` and the unfused products
//!   and sums: such an instruction in such a mode is an error. Sums, products, fused ones and conversions have all modes.
//! * Floating-point exceptions, traps, debugging, priorities, the graphics parts.
//! * The last bit of approximating instructions (`v_rcp_f32`, `v_exp_f32` ...): they are right to the last bit or so
//!   here, where hardware is allowed one unit in the last place. They take F32 denormals for zeros, as hardware does.
//!
//! # How it is made
//!
//! `isa` has one row for each opcode: number, name, types of its operands and formula. Decoding, printing and execution
//! read the same row. `exec` has a wavefront's registers as arrays of 64 lanes and runs the wavefronts of a work-group
//! in turn from barrier to barrier; work-groups run in parallel. `memory` and `code` are device memory and the loader.
//!
//! Sources: AMD, ""Vega" Instruction Set Architecture Reference Guide" and ""Vega" 7nm Instruction Set Architecture
//! Reference Guide"; LLVM, "User Guide for AMDGPU Backend".
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
mod gpu;
#[cfg(feature = "processor")]
mod isa;
#[cfg(feature = "processor")]
mod memory;
pub mod metadata;
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
pub use gpu::{Checks, Gpu, Kernel, Launch, Line, MAX_LDS, MAX_THREADS, Module, Options, disassemble};
#[cfg(feature = "processor")]
pub use isa::Target;
