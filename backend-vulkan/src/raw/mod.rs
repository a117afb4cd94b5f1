//! Owned types over ash: the only module of this crate with unsafe code.
//!
//! Every type here owns one kind of Vulkan object and destroys it when dropped, and every function is safe:
//! ranges, limits and states that the Vulkan specification makes the caller's duty are checked before the
//! call, or hold by construction. The `SAFETY` comments refer to these rules:
//!
//! * **Parents outlive children.** Each type holds an `Arc` of its parent, down to the library.
//! * **Resources that the device may still use are not freed.** Recorded commands hold an `Arc` of every
//!   object that they refer to. Commands are dropped only after the timeline has reached their last
//!   submission; if it does not within [`GRACE`](device::GRACE), they and everything that they hold are
//!   leaked.
//! * **External synchronisation** is a `Mutex` (queue, allocator, command pool) or `&mut`.
//! * **The host accesses mapped memory only under a buffer's own lock**, and callers wait for the buffer's
//!   last submission first.

pub(crate) mod buffer;
pub(crate) mod commands;
pub(crate) mod descriptors;
pub(crate) mod device;
pub(crate) mod export;
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
