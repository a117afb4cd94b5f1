//! The outline of a plan, computed without memory for it.

use super::hazard::Tracker;
use super::lower::{Lowered, lower};
use super::target::Target;
use super::windows::{BufferRef, Storage};
use ggml_core::backend::StepOutline;
use ggml_core::plan::Plan;
use ggml_core::{Graph, Result, Source, TensorId};
use std::collections::HashMap;

/// Returns the dispatches and barriers of each step, assuming that all of them are in one segment.
pub(crate) fn outline(target: &Target<'_>, graph: &Graph, plan: &Plan) -> Result<Vec<StepOutline>> {
    let lowering = lower(target, graph, plan, &imagined(graph, plan), false)?;
    let mut steps = vec![StepOutline::default(); plan.steps.len()];
    let mut tracker = Tracker::default();
    for dispatch in &lowering.dispatches {
        let step = &mut steps[dispatch.step];
        step.dispatches += 1;
        step.barriers += usize::from(tracker.must_wait(&dispatch.reads, &dispatch.writes));
    }
    Ok(steps)
}

/// Returns the pipeline and the grid of each dispatch.
pub(crate) fn kernels(target: &Target<'_>, graph: &Graph, plan: &Plan) -> Result<Vec<String>> {
    let lowering = lower(target, graph, plan, &imagined(graph, plan), false)?;
    let of = |dispatch: &Lowered| {
        let pipeline = lowering.pipelines.get(dispatch.pipeline).map(|(spec, _)| spec.to_string());
        format!("{} {:?}", pipeline.unwrap_or_default(), dispatch.grid)
    };
    Ok(lowering.dispatches.iter().map(of).collect())
}

/// Returns imaginary storage: the arena in its buffers, and a separate buffer for every weight and state
/// tensor.
fn imagined(graph: &Graph, plan: &Plan) -> HashMap<TensorId, Storage> {
    let roots = graph.ids().filter(|&id| graph.tensor(id).root == id);
    let storage = roots.enumerate().filter_map(|(i, id)| {
        let tensor = graph.tensor(id);
        let bytes = tensor.span_bytes() as u64;
        let bound = matches!(tensor.source, Source::Weight | Source::State);
        let (number, offset, room) = match plan.region(graph, id) {
            _ if bound => (plan.arena.len() + i, 0, bytes.next_multiple_of(4)),
            Some(place) => (place.buffer, place.offset as u64, *plan.arena.get(place.buffer)? as u64),
            None => return None,
        };
        let (buffer, writable) = (BufferRef::Bound(number), tensor.source != Source::Weight);
        Some((id, Storage { buffer, room, offset, bytes, writable }))
    });
    storage.collect()
}
