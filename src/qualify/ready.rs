//! Preparation of the checks on several threads: results of the reference, and compiled kernels.

use super::work::Work;
use ggml_core::backend::{Backend, Bindings, PrepareOptions, Slice, Usage};
use ggml_core::catalogue::{Case, Judged};
use ggml_core::evaluate::bind;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::{Deadline, Error, Result, Source, TensorId};
use rayon::prelude::*;

/// Has two devices compile what works need. Nothing runs, so all leaves of a device lie in the same memory.
pub(super) fn compile(devices: [&dyn Backend; 2], works: &[&Work]) -> Result<()> {
    let leaves = |work: &Work| -> Vec<TensorId> {
        let graph = &work.graph;
        graph.ids().filter(|&id| matches!(graph.tensor(id).source, Source::Weight | Source::State)).collect()
    };
    let span = |work: &&Work| leaves(work).into_iter().map(|id| work.graph.tensor(id).span_bytes()).max();
    let largest = works.iter().filter_map(span).max().unwrap_or(0).max(16);
    let memory = devices.map(|device| device.allocate(largest, Usage::Weights));
    let [first, second] = memory;
    let devices = [(devices[0], first?), (devices[1], second?)];
    let all: Vec<_> =
        works.iter().flat_map(|work| devices.iter().map(move |device| (*work, device))).collect();
    all.into_par_iter().try_for_each(|(work, (device, buffer))| {
        let slice = |id| (id, Slice { buffer: buffer.clone(), offset: 0 });
        let bindings =
            Bindings { leaves: leaves(work).into_iter().map(slice).collect(), ..Bindings::default() };
        let plan = Plan::fused(&work.graph, *device, Precision::Fast)?;
        device.prepare(&work.graph, &plan, &bindings, PrepareOptions::default()).map(|_| ())
    })
}

/// Computes the results of cases on the reference, and has the device compile what the cases need. When the time is over,
/// only the first cases are made ready.
pub(super) fn judged(
    device: &dyn Backend,
    cases: &[(Case, Precision)],
    deadline: &Deadline,
) -> Result<Vec<Judged>> {
    let one = |(case, precision): &(Case, Precision)| -> Result<Option<Judged>> {
        if deadline.passed() {
            return Ok(None);
        }
        let judged = Judged::new(case.clone(), &ReferenceBackend::default())?;
        let graph = judged.case.graph.clone()?;
        let bindings = bind(device, &graph, &judged.contents)?;
        let plan = Plan::fused(&graph, device, *precision)?;
        match device.prepare(&graph, &plan, &bindings, PrepareOptions::default()) {
            // The check of the case says so.
            Ok(_) | Err(Error::Unsupported { .. }) => Ok(Some(judged)),
            Err(error) => Err(error),
        }
    };
    let all: Vec<Option<Judged>> = cases.par_iter().map(one).collect::<Result<_>>()?;
    Ok(all.into_iter().map_while(|judged| judged).collect())
}
