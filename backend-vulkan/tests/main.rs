//! Tests of the Vulkan backend, a module for each subject. One program, which is linked once; tests that need a process
//! of their own have a program in a file beside this one.

#[path = "common/catalogue.rs"]
mod agreement;
mod attention;
mod common;
mod conformance;
mod faults;
mod lanes;
mod products;
mod program;
#[path = "common/radv.rs"]
mod radv;
mod radv_audit;
mod radv_counts;
mod validation;
