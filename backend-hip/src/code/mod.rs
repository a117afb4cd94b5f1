//! Code for devices: built-in code objects, compilation at run time, and metadata of code.

pub mod elf;
pub(crate) mod excerpt;
pub(crate) mod kernels;
pub(crate) mod ptx;
pub mod rtc;
