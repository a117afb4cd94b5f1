//! Checks that a backend computes correct results, and measures its speed, with a small graph that goes
//! through every phase.

use ggml_core::backend::{Backend, PrepareOptions};
use ggml_core::encode::encode;
use ggml_core::evaluate::{Contents, bind, compare_backends, write_inputs};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use std::time::{Duration, Instant};

/// Rows and columns of the weights of the check; not a multiple of a tile.
const SMALL: usize = 96;

/// Rows and columns of each measured weight matrix, and the number of matrices. Together they exceed a
/// processor's cache, so the measurement is bound by memory bandwidth as generation is.
const LARGE: usize = 2048;
const LAYERS: usize = 8;

/// Tokens of the measured prompt.
const PROMPT: usize = 128;

/// Seconds that a backend took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    /// A decode step.
    pub(crate) step_s: f64,
    /// A prompt of 128 tokens.
    pub(crate) prompt_s: f64,
}

/// Computes a small graph as an inference would and compares the results with the reference backend's.
///
/// # Errors
/// Any error of the backend, in any phase; [`Error::InvalidArgument`] if its results are wrong.
pub(crate) fn check(backend: &dyn Backend) -> Result<()> {
    let (graph, data) = chain(SMALL, 2, 1)?;
    let reference = ReferenceBackend::default();
    for comparison in compare_backends(&[&reference, backend], &graph, &data, Precision::Fast)? {
        if !comparison.agrees() {
            let found = comparison.to_string();
            comparison.outputs?;
            return Err(Error::argument("results", found, "those of the reference"));
        }
    }
    Ok(())
}

/// Returns the seconds of one decode step and of a prompt through about 36 MB of Q8_0 weights. Each is the minimum over
/// the runs within half of the budget, after one run that does not count.
///
/// # Errors
/// Any error of the backend, in any phase.
pub(crate) fn speed(backend: &dyn Backend, budget: Duration) -> Result<Speed> {
    let step_s = seconds(backend, 1, budget / 2)?;
    Ok(Speed { step_s, prompt_s: seconds(backend, PROMPT, budget / 2)? })
}

/// Returns the seconds of a batch.
fn seconds(backend: &dyn Backend, tokens: usize, budget: Duration) -> Result<f64> {
    let (graph, data) = chain(LARGE, LAYERS, tokens)?;
    let bindings = bind(backend, &graph, &data)?;
    let plan = Plan::fused(&graph, backend, Precision::Fast)?;
    let mut program = backend.prepare(&graph, &plan, &bindings, PrepareOptions::default())?;
    write_inputs(program.as_mut(), &graph, &data)?;
    // The first run may still load code and raise clocks.
    program.run()?;
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    loop {
        best = best.min(program.run()?.host.as_secs_f64());
        if start.elapsed() >= budget {
            return Ok(best);
        }
    }
}

/// Builds a chain of alternating RMS_NORM and MUL_MAT, with contents for its leaves.
fn chain(n: usize, layers: usize, tokens: usize) -> Result<(Graph, Contents)> {
    let mut graph = Graph::new();
    let mut data = Contents::new();
    let x = graph.leaf("x", DType::F32, [n, tokens, 1, 1], Source::Input)?;
    let input: Vec<f32> = (0..n * tokens).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    data.insert(x, encode(DType::F32, n, &input)?);
    let mut y = x;
    for layer in 0..layers {
        let w = graph.leaf(&format!("w_{layer}"), DType::Q8_0, [n, n, 1, 1], Source::Weight)?;
        data.insert(w, weights(n, layer)?);
        y = product(&mut graph, w, y)?;
    }
    graph.output(y)?;
    Ok((graph, data))
}

fn product(graph: &mut Graph, w: TensorId, x: TensorId) -> Result<TensorId> {
    let normed = graph.rms_norm(x, 1e-6)?;
    graph.mul_mat(w, normed)
}

/// Encodes a few distinct rows and repeats them, because encoding is slow.
fn weights(n: usize, layer: usize) -> Result<Vec<u8>> {
    const ROWS: usize = 7;
    let values: Vec<f32> = (0..n * ROWS).map(|i| ((i * 29 + layer * 11) % 127) as f32 / 63.0 - 1.0).collect();
    let rows = encode(DType::Q8_0, n, &values)?;
    let row = rows.len() / ROWS;
    Ok(rows.iter().copied().cycle().take(row * n).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::cpu::{CpuBackend, CpuOptions};
    use ggml_core::null::{NullBackend, NullOptions};

    #[test]
    fn right_and_wrong_results() {
        let cpu = CpuBackend::open(CpuOptions::default()).unwrap();
        check(&cpu).unwrap();
        let Speed { step_s, prompt_s } = speed(&cpu, Duration::ZERO).unwrap();
        assert!(step_s > 0.0 && prompt_s > step_s && prompt_s.is_finite());
        let wrong = check(&NullBackend::open(NullOptions::default()).unwrap()).unwrap_err().to_string();
        assert!(
            wrong.starts_with("results: null: output '") && wrong.contains("those of the reference"),
            "{wrong}"
        );
    }
}
