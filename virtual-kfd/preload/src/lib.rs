//! [`virtual_kfd`] as a library to preload: programs that look for AMD's cards find virtual ones.
//!
//! `files` redirects names of files, `drm` stands for the functions of libdrm that the runtime calls, `machine` holds
//! the driver.
#![cfg(target_os = "linux")]
// Functions of C are exported by their names.
#![allow(unreachable_pub)]

mod drm;
mod files;
mod machine;
