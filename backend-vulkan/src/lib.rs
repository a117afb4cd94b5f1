//! The Vulkan driver of Diptych: a [`Backend`](ggml_core::backend::Backend) over any Vulkan 1.2 device that computes.
//!
//! # Contract
//!
//! * Nothing of Vulkan is linked: the loader is looked for when a backend is opened. Where it, a driver, a device, a
//!   permission or a feature is missing, [`VulkanBackend::open`] answers with `Error::Unavailable`, which tells them
//!   apart and says what was looked at.
//! * The chosen device is opened and no other. What the driver reports of subgroups is believed only where the lane
//!   probe, a tiny shader that runs at open, agrees.
//! * No call waits longer than the deadline of its phase. A `Timeout` or a `DeviceLost` error names the phase and, from
//!   the timeline or a breadcrumb, the node. After a timeout the backend can be used on; what the device may still use
//!   is leaked rather than freed.
//! * [`Program::run`](ggml_core::backend::Program::run) submits what was recorded: it allocates, compiles and records
//!   nothing.
//! * A shader never addresses memory outside the windows that its descriptors name; the library checks each range before
//!   the driver sees it.
//!
//! # What is guaranteed, and what is not
//!
//! * Opening, allocating, compiling and recording run on threads of their own, which are left behind when the deadline passes. Waits
//!   for the device end at the deadline. `vkQueueSubmit` alone is called on the thread of whoever runs a program or a
//!   transfer, because a thread between would cost every token: a driver that does not return from it holds up this
//!   caller, and nobody else. Other submissions end in a `Timeout`; polling, reading what is finished and dropping go on.
//! * What the device may still use is waited for when it is dropped, five seconds at the most, then leaked.
//! * After `DeviceLost` every call of this backend says so at once. A backend that is opened anew may work.
//! * Memory beyond the driver's budget is refused with `OutOfMemory` before the driver is asked
//!   ([`VulkanOptions::memory`]). The budget is a snapshot: other processes may take memory after it.
//! * Errors of a driver become errors of this library. A driver that ends the process (an assertion, a signal) cannot be
//!   stopped from within: run the backend in a child process, as the library's `compare` does.
//! * The tests run under the validation layer with synchronisation validation, and it says nothing.
//!
//! # How a graph gets to the device
//!
//! `op` plans each group of nodes as dispatches ([`op::plan_group`]) from the device's [`Profile`](tuning::Profile). `lower` gives
//! their operands windows in the arenas (`windows`). `pipeline` compiles what is missing, in parallel, with a cache on
//! disk (`cache`). `schedule` deals the dispatches out to units by estimated time (`cost`) and cuts long ones along axes
//! that allow it. `record` writes the commands of each unit, with barriers where `hazard` finds that something has to
//! wait, and the copies of inputs and outputs (`io`) where the host cannot reach the device's memory. `program` submits
//! them, several units at once on a device that turned out fast, waits, and finds out where the device was when it did
//! not come back (`breadcrumb`).
//!
//! `device` chooses and reports a device, `probe` asks it for the truth, `transfer` moves data, `audit` compiles every
//! pipeline without a device. All unsafe code is in `raw`, owned types over ash.
//!
//! # Memory
//!
//! An allocation is one buffer: one driver allocation, or none when it is small and fits a block that is already there.
//! Where the host can reach all of the device's memory (resizable BAR, shared memory, a processor) data is written in
//! place; else through a ring of staging memory, and programs copy their inputs and outputs themselves. Constants of
//! kernels have memory of their own, because a plan's arena may be shared with other programs.
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
mod sync;
#[cfg(test)]
mod tests;

pub use arch::{Matrices, SharedTiles};
pub use backend::VulkanBackend;
pub use device::tuning;
pub use device::{DeviceSummary, PCI_ADDRESS, enumerate};
pub use options::{MemoryBudget, VulkanOptions};
pub use pipeline::PipelineSpec;
pub use program::{ProgramStats, VulkanProgram};
pub use raw::physical::DeviceKind;
