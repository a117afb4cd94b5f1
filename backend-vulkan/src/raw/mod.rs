//! Owned types over ash: the only module of this crate with unsafe code.
//!
//! Every type here owns one kind of Vulkan object and gives it back when it is dropped, and every function is safe:
//! ranges, limits and states that the Vulkan specification makes the caller's duty are checked before the call, or
//! hold by construction. The rules that the `SAFETY` comments appeal to:
//!
//! * **Parents outlive children.** Each type holds an `Arc` of what it was made from, down to the library.
//! * **What the device may still use is not freed.** Recorded commands hold an `Arc` of everything that they name.
//!   Commands are dropped only after the timeline has reached their last submission; if it does not within
//!   [`GRACE`](device::GRACE), they and everything that they hold are leaked.
//! * **External synchronisation** is a `Mutex` (queue, allocator, command pool) or `&mut`.
//! * **The host touches mapped memory only through a buffer's own lock**, and callers wait for the buffer's last
//!   submission first.

pub(crate) mod buffer;
pub(crate) mod commands;
pub(crate) mod descriptors;
pub(crate) mod device;
mod fault;
#[cfg(test)]
pub(crate) mod faults;
pub(crate) mod features;
pub(crate) mod heaps;
pub(crate) mod import;
pub(crate) mod instance;
pub(crate) mod memory;
pub(crate) mod physical;
pub(crate) mod pipeline;
pub(crate) mod provider;
pub(crate) mod queries;
pub(crate) mod queue;
#[cfg(test)]
mod tests;
