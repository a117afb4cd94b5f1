//! Generated instructions are disassembled as llvm-objdump prints them.

mod cdna;
mod gfx11;
