//! Vectors for each instruction: a kernel executes it once on many operands, and the results are compared
//! with formulas from the instruction set documents.

mod buffers;
mod cdna;
mod control;
mod coverage;
mod coverage_cdna;
mod division;
mod expected;
mod gfx11;
mod harness;
mod lanes;
mod lds;
mod matrix;
mod memory;
mod modifiers;
mod numbers;
mod operands;
mod rdna;
mod scalar;
mod shapes;
mod vop1;
mod vop2;
mod vop3;
mod vop3p;
mod vopc;
