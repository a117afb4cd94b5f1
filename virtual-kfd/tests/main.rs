//! The driver as a thunk uses it: structures made by hand, rings and signals in shared memory, and kernels of a few
//! words. None of ROCm is needed.

mod copies;
mod events;
mod faults;
mod memory;
mod packets;
mod stress;
mod thunk;
mod tools;
