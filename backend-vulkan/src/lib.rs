//! The Vulkan driver of Diptych: a [`Backend`](ggml_core::backend::Backend) over any Vulkan 1.2 device that
//! supports compute.
//!
//! # Contract
//!
//! * The crate does not link against Vulkan: it loads the Vulkan loader when a backend is opened. If the
//!   loader, a driver, a device, a permission or a feature is missing, [`VulkanBackend::open`] returns
//!   `Error::Unavailable`. The error distinguishes these cases and lists the paths and devices that were
//!   checked.
//! * Only the chosen device is opened. The driver's report on subgroup operations is used only where the lane
//!   probe, a tiny shader that runs at open, confirms it.
//! * No call waits longer than the deadline of its phase. A `Timeout` or a `DeviceLost` error names the phase
//!   and, from the timeline or a breadcrumb, the node. After a timeout the backend stays usable; resources
//!   that the device may still use are leaked rather than freed.
//! * [`Program::run`](ggml_core::backend::Program::run) submits recorded command buffers: it allocates,
//!   compiles and records nothing.
//! * A shader never addresses memory outside the windows in its descriptors; the library checks each range
//!   before passing it to the driver.
//!
//! # Guarantees and their limits
//!
//! * Opening, allocating, compiling and recording run on separate threads, which are abandoned when the
//!   deadline passes. Waits for the device end at the deadline. Only `vkQueueSubmit` is called on the thread
//!   that runs a program or a transfer, because a hand-over to another thread would cost time for every
//!   token: a driver that does not return from it blocks this caller only. Other submissions end in a
//!   `Timeout`; polling, reading finished results and dropping still work.
//! * Dropping waits up to five seconds for the device to finish with a resource, then leaks the resource.
//! * After `DeviceLost` every call of this backend fails immediately with that error. Opening a new backend
//!   may work.
//! * Memory beyond the driver's budget is refused with `OutOfMemory` before the driver is called
//!   ([`VulkanOptions::memory`]). The budget is a snapshot: other processes may allocate memory after it.
//! * Errors of a driver become errors of this library. A driver that ends the process (an assertion, a
//!   signal) cannot be stopped from within: run the backend in a child process, as the library's `compare`
//!   does.
//! * The tests run without messages under the validation layer with synchronisation validation.
//!
//! # From a graph to the device
//!
//! `op` plans each group of nodes as dispatches ([`op::plan_group`]) from the device's
//! [`Profile`](profile::Profile). `lower` assigns their operands windows in the arenas (`windows`). `pipeline`
//! compiles missing pipelines in parallel, with a cache on disk (`cache`). `schedule` distributes the
//! dispatches over segments by estimated time (`cost`) and splits long ones along axes that allow it. `record`
//! writes the commands of each segment, with barriers where `hazard` finds a dependency, and the copies of
//! inputs and outputs (`io`) where the host cannot access the device's memory. `program` submits the segments,
//! several per submission on a device that was measured to be fast, and waits for them. After a failed wait
//! it finds the node that the device was executing (`breadcrumb`).
//!
//! `device` chooses and reports a device, `probe` checks its subgroup operations, `transfer` moves data, and
//! `audit` compiles every pipeline without a device. All unsafe code is in `raw`, owned types over ash.
//!
//! # Memory
//!
//! An allocation is one buffer: one driver allocation, or none if it is small and fits an existing block.
//! Where the host can access all of the device's memory (resizable BAR, shared memory, a CPU device) data is
//! written in place; otherwise it goes through a ring of staging memory, and programs copy their inputs and
//! outputs themselves. Constants of kernels have their own memory, because a plan's arena may be shared with
//! other programs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod arch;
pub mod audit;
mod backend;
mod context;
mod deadline;
mod device;
mod environment;
mod error;
mod memory;
pub mod op;
mod options;
mod pipeline;
mod program;
#[allow(unsafe_code)]
mod raw;
mod route;
#[cfg(test)]
mod tests;

pub use arch::{Matrices, SharedTiles};
pub use backend::VulkanBackend;
pub use device::{DeviceSummary, PCI_ADDRESS, enumerate};
pub use device::{candidates, profile, tuning};
pub use options::{MemoryBudget, VulkanOptions};
pub use pipeline::PipelineSpec;
pub use program::{ProgramStats, VulkanProgram};
pub use raw::physical::DeviceKind;
pub use route::Route;
