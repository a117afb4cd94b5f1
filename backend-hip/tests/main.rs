//! Tests of the HIP backend, a module for each subject. One program, which is linked once; tests that need a process
//! of their own have a program in a file beside this one.

#[cfg(feature = "virtual")]
mod attention;
#[cfg(feature = "virtual")]
mod attention_units;
#[cfg(feature = "virtual")]
mod begun;
#[cfg(feature = "virtual")]
mod conformance;
#[cfg(feature = "virtual")]
mod copies;
#[cfg(feature = "virtual")]
mod fragments;
mod groups;
mod inputs;
#[cfg(feature = "virtual")]
mod matrix_units;
mod missing;
#[cfg(feature = "virtual")]
mod products;
mod results;
#[cfg(feature = "virtual")]
mod shapes;
#[cfg(feature = "virtual")]
mod virtual_faults;
#[cfg(feature = "virtual")]
mod windows;
mod written;
