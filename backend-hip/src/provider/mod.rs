//! Providers of HIP's functions: AMD's runtime, NVIDIA's driver, an emulated processor.

pub mod amd;
mod external;
mod ffi;
pub mod nvidia;
#[cfg(feature = "virtual")]
pub mod virtual_gpu;
