//! Execution: a wavefront's registers, the instructions, a work-group's wavefronts and barriers.

mod approximate;
pub(crate) mod atomic;
mod buffer;
mod cdna;
mod cross;
mod dpp;
mod follow;
pub(crate) mod group;
mod history;
pub(crate) mod lds;
pub(crate) mod lds_ops;
mod location;
pub(crate) mod memory;
mod modifiers;
mod pair;
mod repeat;
pub(crate) mod rounding;
pub(crate) mod scalar;
pub(crate) mod simd;
pub(crate) mod sizes;
mod start;
mod tally;
mod track;
pub(crate) mod vector;
pub(crate) mod waits;
pub(crate) mod wave;
