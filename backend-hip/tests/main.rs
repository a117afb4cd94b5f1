//! Tests of the HIP backend, a module for each subject. One program, which is linked once.

#[cfg(feature = "virtual")]
mod attention;
#[cfg(feature = "virtual")]
mod attention_units;
#[cfg(feature = "virtual")]
mod conformance;
#[cfg(feature = "virtual")]
mod copies;
mod events;
#[cfg(feature = "virtual")]
mod fragments;
mod groups;
mod library;
mod missing;
#[cfg(feature = "virtual")]
mod products;
mod results;
#[cfg(feature = "virtual")]
mod shapes;
#[cfg(feature = "virtual")]
mod virtual_faults;
mod written;
