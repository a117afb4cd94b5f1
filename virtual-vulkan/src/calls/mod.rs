//! Vulkan's functions, as C calls them: the only module, beside [`radv`](crate::radv), with unsafe code. They turn pointers
//! into references and handles into objects; what they do is in the other modules.

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
