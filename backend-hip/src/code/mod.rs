//! Code for devices: what is built in, what is compiled at run time, and what code says of itself.

pub mod elf;
pub(crate) mod kernels;
pub(crate) mod ptx;
pub mod rtc;
