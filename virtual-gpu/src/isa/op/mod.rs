//! Operations: what an instruction means, once for all generations, under its name. GFX9's name where GFX9 has it.
//!
//! How instructions are encoded and printed stands in the tables of each generation, which refer to these.
// Operations are named as their instructions are.
#![allow(non_upper_case_globals)]

pub(crate) mod binary;
pub(crate) mod cdna;
pub(crate) mod change;
pub(crate) mod compare;
pub(crate) mod file;
pub(crate) mod fp8;
pub(crate) mod half;
pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod matrix;
pub(crate) mod memory;
pub(crate) mod packed;
pub(crate) mod pick;
pub(crate) mod rdna;
pub(crate) mod run;
pub(crate) mod scalar;
pub(crate) mod scalar_file;
mod scalar_rdna;
pub(crate) mod ternary;
pub(crate) mod unary;
pub(crate) mod wmma;

pub(crate) use binary::*;
pub(crate) use cdna::*;
pub(crate) use compare::*;
pub(crate) use packed::*;
pub(crate) use rdna::*;
pub(crate) use scalar::*;
pub(crate) use scalar_rdna::*;
pub(crate) use ternary::*;
pub(crate) use unary::*;
