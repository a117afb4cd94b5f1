//! The HIP driver of Diptych: AMD GPUs through libamdhip64, which is loaded at run time.
//!
//! ```no_run
//! use backend_hip::{HipBackend, HipOptions};
//! let backend = HipBackend::open(HipOptions::from_env()?)?;
//! # Ok::<(), ggml_core::Error>(())
//! ```
//!
//! # Contract
//!
//! * Nothing of ROCm is needed to build this crate or an application that uses it. Where there is no library, no
//!   device, no permission or no code for the device, [`HipBackend::open`] says which of these it is and what was
//!   looked at.
//! * No call waits without a deadline. All calls into the runtime are made on one thread of the backend; a call that
//!   does not return in time becomes [`Error::Timeout`](ggml_core::Error::Timeout) with phase and node, and the backend
//!   is given up: later calls fail at once, nothing is freed behind the driver's back, the process goes on.
//!   A program that ends after that should end with `_exit`: the runtime's own exit handlers may wait for the device.
//! * A memory fault or a hang that the device reports is [`Error::DeviceLost`](ggml_core::Error::DeviceLost) with what
//!   was reported, and gives up every AMD backend of the process; see [Faults of the device](#faults-of-the-device) for
//!   what still ends the process.
//! * One allocation is one allocation of the driver; opening makes one more, for the ring of pinned memory that all
//!   transfers go through; a program makes one for its arena, unless the caller gives it one. A run makes none.
//! * Codes of the runtime are integers. A code that nobody knows is reported as it is.
//! * A launch passes what the code object declares, or it is refused before it reaches the runtime.
//!
//! # Layers
//!
//! Folders are floors, and imports go down only: the backend (and those of [`nvidia`] and [`virtual_gpu`]); `program`;
//! `runtime`, an open device; [`code`], where kernels come from; [`op`], which plans operations and knows a device only
//! as an [`arch::Profile`]; [`provider`], who implements [`driver::Driver`]; [`driver`]; and below it what needs no
//! driver.
//!
//! [`provider::amd::symbols`] declares C's functions; [`provider::amd`] loads them and implements the trait; the session
//! owns what the driver gave and keeps the promises that its unsafe methods ask for; the driver thread owns the session;
//! memory, programs and the backend above know no unsafe code.
//!
//! # Not used, and why
//!
//! * `hipMallocAsync`, `hipFreeAsync`, memory pools: `hipFreeAsync` deadlocks between threads (ROCm 5.7 to 6.0, 7.14),
//!   and pools gave wrong or no memory on gfx1030, gfx1100 and gfx90c. A device that reports support proves nothing.
//! * Many small `hipMalloc`s: each is a call into the kernel and a change of page tables, and hangs were reported.
//! * Pageable memory and file pages as ends of a copy: the runtime pins them on the fly, which faulted with several
//!   MI50 and hung with large mapped files on gfx1151. Weights are copied into pinned memory first; [`import`] is never
//!   taken up.
//! * `hipStreamSynchronize`, `hipDeviceSynchronize`, `hipEventSynchronize`: they wait for ever. Events are polled.
//! * Host callbacks (`hipLaunchHostFunc`): they run on a thread of the runtime that nobody can give up.
//! * `hipGetDeviceProperties` where `hipGetDevicePropertiesR0600` is there: the plain name fills the layout of HIP 5.
//! * rocBLAS, hipBLAS, hipBLASLt: current releases have no files for gfx900 and gfx906, and hipBLASLt stalls gfx1201.
//! * HIP graphs: replays were wrong and leaked in several releases. A program is a list of launches that is run again.
//! * Several streams: they share few hardware queues, and more than one keeps gfx11 and gfx12 at full load when idle.
//! * Virtual memory management (`hipMemMap`): broken from 7.0 on, wasteful before.
//! * `dlclose`: the runtime's threads and exit handlers outlive its last user.
//!
//! # Faults of the device
//!
//! What AMD's libraries do when a kernel goes wrong depends on their release:
//!
//! | what happens | before HIP 7 | from HIP 7 on |
//! | --- | --- | --- |
//! | memory fault, hang that ends in a reset | `abort()`, unless somebody takes the event: this crate does | an error |
//! | error of a queue: illegal instruction, refused packet | `abort()` in a handler of HIP's own | an error |
//!
//! The second row cannot be prevented from within: an application that must survive it opens the backend in a process
//! of its own, started by exec (a fork of a process that has touched a device inherits broken state), and reads results
//! from a pipe, as `diptych`'s `compare` does with every backend. A process that has lost a device gets it back only by
//! ending; its end should be `_exit` (`diptych::leave`), because the runtime's exit handlers may wait for the device.
//!
//! # Copies
//!
//! Bytes go to the device through pinned memory by `hipMemcpyAsync`, which the DMA engines (SDMA) do, or by a kernel
//! that reads that memory ([`HipOptions::copies`](options::HipOptions::copies)): on processors that share the host's
//! memory, and where a copy timed out when the device was last open in this process. On the former, weights lie in
//! pinned memory and are read in place ([`HipOptions::host_weights`](options::HipOptions::host_weights)).
//!
//! # Where kernels come from
//!
//! Code objects are built in for the targets of `DIPTYCH_HIP_TARGETS`. For a device of another target, or where the
//! build had no compiler, the embedded sources are compiled when the device is opened, if the machine has hiprtc, and
//! kept on disk. Where neither is so, the device is reported as unavailable with the targets that there are and the
//! places where hiprtc was looked for. [`HipOptions::rtc`](options::HipOptions::rtc) forces or forbids this.
//!
//! # NVIDIA
//!
//! [`provider::nvidia`] implements the same calls over libcuda, as HIP's NVIDIA platform does, with kernels as PTX: so one card
//! can be driven by Vulkan and by HIP. [`advice`] is the table of known hangs.
//!
//! [`import`]: ggml_core::backend::Backend::import
#![deny(missing_docs)]

pub mod advice;
pub mod arch;
pub mod backend;
pub mod code;
pub mod driver;
pub mod installed;
pub mod nvidia;
pub mod op;
pub mod options;
mod program;
pub mod provider;
mod runtime;
mod sync;
mod sys;
pub mod system;
#[cfg(test)]
mod tests;
pub mod tuning;
#[cfg(feature = "virtual")]
pub mod virtual_gpu;

pub use backend::{HipBackend, devices};
pub use options::HipOptions;

/// Targets that code objects are built in for.
pub fn built_in() -> &'static [&'static str] {
    hip_kernels::targets()
}
