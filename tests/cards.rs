//! Tests that open a virtual card in their own process. A program of its own: while RADV enumerates null devices, the
//! environment makes it do so for the whole process.
#![cfg(feature = "virtual")]

mod common;
#[cfg(feature = "compare")]
mod compare;
mod counts;
