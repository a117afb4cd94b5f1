//! Vulkan's functions with their C interface: the only module, besides [`radv`](crate::radv), with unsafe
//! code. They convert pointers to references and handles to objects; the other modules implement their
//! effects.

pub(crate) mod api;
mod commands;
mod descriptors;
mod device;
mod instance;
mod memory;
pub(crate) mod names;
mod physical;
mod pipeline;
mod queries;
mod queue;
mod semaphores;
mod terminal;
