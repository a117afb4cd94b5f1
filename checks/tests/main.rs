//! Tests that need tools which the programs are not built with. One program, which is linked once.

#[path = "../../tests/common/mod.rs"]
mod common;
mod drafts;
mod faults;
mod floors;
mod history;
mod imports;
mod predictor;
mod project;
mod requests;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod rocm_roots;
mod routes;
mod sampling;
mod sequences;
mod tidy;
mod tokenizer;
mod words;
