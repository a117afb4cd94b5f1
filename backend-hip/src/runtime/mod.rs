//! An open device: its driver thread, the session that the thread owns, memory and transfers.

pub(crate) mod copies;
pub(crate) mod device;
pub(crate) mod events;
pub(crate) mod memory;
pub(crate) mod monitor;
mod routes;
pub(crate) mod session;
pub(crate) mod shared;
pub(crate) mod staging;
pub(crate) mod thread;
mod transfer;
