//! HIP driver of Diptych: AMD GPUs through libamdhip64, which is loaded at run time.
//!
//! ```no_run
//! use backend_hip::{HipBackend, HipOptions};
//! let backend = HipBackend::open(HipOptions::from_env()?)?;
//! # Ok::<(), ggml_core::Error>(())
//! ```
//!
//! # Contract
//!
//! * No part of ROCm is needed to build this crate or an application that uses it. If the library, a device,
//!   a permission or code for the device is missing, [`HipBackend::open`] reports which one, and everything
//!   that was checked.
//! * Every wait has a deadline. All calls into the runtime are made on one thread of the backend. A call that
//!   does not return in time becomes [`Error::Timeout`](ggml_core::Error::Timeout) with phase and node, and
//!   the backend is given up: later calls fail immediately, nothing more is freed through the driver, and the
//!   process continues. The program should then end with `_exit`, because the runtime's exit handlers may
//!   wait for the device.
//! * A memory fault or a hang that the device reports becomes
//!   [`Error::DeviceLost`](ggml_core::Error::DeviceLost) with the driver's report, and gives up every AMD
//!   backend of the process; see [Faults of the device](#faults-of-the-device) for the faults that still end
//!   the process.
//! * Each allocation of the backend is one allocation of the driver. Opening makes one more, for the ring of
//!   pinned memory that all transfers use. A program makes one for its arena, unless the caller provides the
//!   arena. A run makes none.
//! * Codes of the runtime are integers. An unknown code is reported unchanged.
//! * A launch whose arguments differ from those that the code object declares is refused before it reaches
//!   the runtime.
//!
//! # Layers
//!
//! Imports go down this list of layers only: the backend (and those of [`nvidia`] and [`virtual_gpu`]);
//! `program`; `runtime`, an open device; [`code`], the source of kernels; [`op`], which plans operations and
//! sees a device only as an [`arch::Profile`]; [`provider`], the implementations of [`driver::Driver`];
//! [`driver`]; below it, modules that need no driver.
//!
//! [`provider::amd::symbols`] declares the C functions; [`provider::amd`] loads them and implements the
//! trait; the session owns the driver's handles and upholds the safety contracts of the driver's unsafe
//! methods; the driver thread owns the session; memory, programs and the backend above contain no unsafe
//! code.
//!
//! # Not used, and why
//!
//! * `hipMallocAsync`, `hipFreeAsync`, memory pools: `hipFreeAsync` deadlocks between threads (ROCm 5.7 to
//!   6.0, 7.14), and pools returned wrong memory or none on gfx1030, gfx1100 and gfx90c. A device that
//!   reports support may still fail.
//! * Many small `hipMalloc`s: each enters the kernel and changes page tables, and hangs were reported.
//! * Pageable memory and file pages as source or destination of a copy: the runtime pins them on the fly,
//!   which faulted with several MI50 and hung with large mapped files on gfx1151. Weights are copied into
//!   pinned memory first; [`import`] always returns `None`.
//! * `hipStreamSynchronize`, `hipDeviceSynchronize`, `hipEventSynchronize`: they wait without a timeout.
//!   Events are polled.
//! * Host callbacks (`hipLaunchHostFunc`): they run on a thread of the runtime that cannot be given up.
//! * `hipGetDeviceProperties` if `hipGetDevicePropertiesR0600` exists: the plain name fills the layout of HIP
//!   5.
//! * rocBLAS, hipBLAS, hipBLASLt: current releases have no files for gfx900 and gfx906, and hipBLASLt stalls
//!   gfx1201.
//! * HIP graphs before HIP 6.0: replays were wrong and leaked in several releases. A program is then a list
//!   of launches that is run again.
//! * Several streams, except for branches of graphs: they share few hardware queues, and more than one keeps
//!   gfx11 and gfx12 at full load when idle.
//! * Virtual memory management (`hipMemMap`): broken from 7.0 on, wasteful before.
//! * `dlclose`: the runtime's threads and exit handlers outlive its last user.
//!
//! # Faults of the device
//!
//! The effect of a kernel fault depends on the release of AMD's libraries:
//!
//! | fault | before HIP 7 | from HIP 7 on |
//! | --- | --- | --- |
//! | memory fault, hang that ends in a reset | `abort()`, unless a handler takes it, as here | error |
//! | error of a queue: illegal instruction, refused packet | `abort()` in a handler of HIP's own | error |
//!
//! The second row cannot be prevented within the process. An application that must survive it opens the
//! backend in a child process started by exec and reads results from a pipe, as `diptych`'s `compare` does
//! with every backend. (A fork of a process that has used a device inherits broken state.) A process that has
//! lost a device recovers it only by ending. It should end with `_exit` (`diptych::leave`), because the
//! runtime's exit handlers may wait for the device.
//!
//! # Copies
//!
//! Bytes reach the device through pinned memory. Either `hipMemcpyAsync` copies them with the DMA engines
//! (SDMA), or a kernel reads that memory ([`HipOptions::copies`](options::HipOptions::copies)). The kernel is
//! used on processors that share the host's memory, and after a copy timed out when the device was last open
//! in this process. On processors that share the host's memory, weights that the device's own part of it does not hold
//! are stored in pinned memory and read in place ([`HipOptions::host_weights`](options::HipOptions::host_weights)).
//!
//! # Where kernels come from
//!
//! Code objects are built in for the targets of `DIPTYCH_HIP_TARGETS`. For a device of another target, or if
//! the build had no compiler, the embedded sources are compiled with hiprtc when the device is opened, and
//! stored on disk. If hiprtc is missing too, the device is reported as unavailable, with the available
//! targets and the paths that were searched for hiprtc. [`HipOptions::rtc`](options::HipOptions::rtc) forces
//! or forbids this.
//!
//! # NVIDIA
//!
//! [`provider::nvidia`] implements the same calls over libcuda, as HIP's NVIDIA platform does, with kernels
//! as PTX. One card can thus be driven by both Vulkan and HIP. [`advice`] is the table of known hangs.
//!
//! [`import`]: ggml_core::backend::Backend::import
#![cfg_attr(docsrs, feature(doc_cfg))]
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
mod route;
mod runtime;
mod sys;
pub mod system;
#[cfg(test)]
mod tests;
pub mod tuning;
#[cfg(feature = "virtual")]
pub mod virtual_gpu;

pub use backend::{HipBackend, devices};
pub use options::HipOptions;
pub use route::Route;

/// Returns the targets that code objects are built in for.
pub fn built_in() -> &'static [&'static str] {
    hip_kernels::targets()
}
