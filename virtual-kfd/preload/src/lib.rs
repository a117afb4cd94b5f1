//! [`virtual_kfd`] as a library to preload: programs that look for AMD's cards find virtual ones.
//!
//! `files` and `folders` answer for names of files, which `tree` has; `drm` stands for the functions of libdrm that the
//! runtime calls, `hsa` before those of the HSA runtime that allocate memory; `machine` holds the driver.
#![cfg(target_os = "linux")]
// Functions of C are exported by their names.
#![allow(unreachable_pub)]

mod drm;
mod files;
mod folders;
mod hsa;
mod machine;
mod tree;
