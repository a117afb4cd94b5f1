//! Programs of works.

use super::work::Work;
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Program};
use ggml_core::evaluate::{bind, write_inputs};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Result};
use std::sync::Arc;

/// Programs of one work or case, each in other memory, or those of a group of works.
pub(super) type Programs = Vec<Box<dyn Program>>;

/// Uploads the weights of a work, and prepares it.
pub(super) fn prepared(backend: &dyn Backend, work: &Work) -> Result<Box<dyn Program>> {
    prepared_in(backend, work, &bind(backend, &work.graph, &work.data)?)
}

/// Uploads the weights that works have in common, and prepares them so many times.
pub(super) fn of_group(backend: &dyn Backend, works: &[Arc<Work>], times: usize) -> Result<Programs> {
    let Some(first) = works.first() else { return Ok(Vec::new()) };
    let bindings = bind(backend, &first.graph, &first.data)?;
    (0..times).flat_map(|_| works).map(|work| prepared_in(backend, work, &bindings)).collect()
}

/// Prepares a work whose weights are in memory already.
fn prepared_in(backend: &dyn Backend, work: &Work, bindings: &Bindings) -> Result<Box<dyn Program>> {
    let plan = Plan::fused(&work.graph, backend, Precision::Fast)?;
    let mut program = backend.prepare(&work.graph, &plan, bindings, PrepareOptions::default())?;
    write_inputs(program.as_mut(), &work.graph, &work.data)?;
    Ok(program)
}

/// Runs a program, and reads its result.
pub(super) fn run(program: &mut dyn Program, work: &Work) -> Result<Vec<f32>> {
    decoded(&run_undecoded(program, work)?)
}

/// Runs a program, and reads the bytes of its result.
pub(super) fn run_undecoded(program: &mut dyn Program, work: &Work) -> Result<Vec<u8>> {
    program.run()?;
    read(program, work)
}

/// Reads the bytes of the result of a program that has run.
pub(super) fn read(program: &mut dyn Program, work: &Work) -> Result<Vec<u8>> {
    let mut bytes = vec![0; work.graph.tensor(work.node).dense_bytes()];
    program.read(work.node, &mut bytes)?;
    Ok(bytes)
}

/// Returns the values of a result.
pub(super) fn decoded(bytes: &[u8]) -> Result<Vec<f32>> {
    ggml_core::decode::decode(DType::F32, bytes)
}
