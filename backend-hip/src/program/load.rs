//! Programs onto a device: memory had, constants uploaded, code objects loaded, arguments laid out.

use super::prepare::{Addressed, Draft, Host, Storage};
use crate::driver::Shape;
use crate::runtime::memory::{Memory, allocate};
use crate::runtime::session::Ready;
use crate::runtime::shared::Shared;
use crate::sync::lock;
use ggml_core::backend::{Bindings, Buffer, Usage};
use ggml_core::plan::Plan;
use ggml_core::{Graph, Phase, Result, phase};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// What a program runs, and the memory that its launches point at.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Places of root tensors.
    pub(crate) storage: Storage,
    /// The program's own memory: arena, constants, scratch.
    pub(crate) own: Option<Buffer>,
    /// The launches.
    pub(crate) launches: Launches,
}

/// The launches of a program.
#[derive(Debug)]
pub(crate) struct Launches {
    /// In order.
    pub(crate) ready: Vec<Ready>,
    /// For each launch its step.
    pub(crate) step: Vec<usize>,
    /// For each step its launches.
    pub(crate) of_step: Vec<Range<usize>>,
    /// For each step the node's name.
    pub(crate) names: Arc<[String]>,
}

/// Prepares a planned graph on a device.
pub(crate) fn load(shared: &Arc<Shared>, graph: &Graph, plan: &Plan, bindings: &Bindings) -> Result<Loaded> {
    let start = Instant::now();
    let host = Host { backend: shared.backend(), kernels: &shared.kernels, profile: &shared.profile };
    let draft = Draft::new(host, graph, plan, bindings)?;
    let own = match draft.bytes() {
        0 => None,
        bytes => Some(allocate(shared, bytes, Usage::Compute)?),
    };
    if let Some(own) = &own {
        for (at, data) in draft.constants() {
            shared.upload(Phase::Prepare, Memory::of(own, shared)?, at, data)?;
        }
    }
    let address = |buffer: &Buffer| Ok(Memory::of(buffer, shared)?.address());
    let (storage, addressed) = draft.place(bindings, own.as_ref(), &address)?;
    let names: Arc<[String]> = plan.steps.iter().map(|step| graph.tensor(step.node()).name.clone()).collect();
    let launches = compile(shared, addressed, names, start)?;
    let mut stats = lock(&shared.stats);
    stats.programs += 1;
    stats.recordings += 1;
    drop(stats);
    Ok(Loaded { storage, own, launches })
}

/// Loads code objects, finds kernels, lays out arguments.
fn compile(
    shared: &Arc<Shared>,
    addressed: Vec<Addressed>,
    names: Arc<[String]>,
    start: Instant,
) -> Result<Launches> {
    let _span = phase::enter(Phase::Compile, shared.backend());
    let limit = shared.deadlines().prepare;
    shared.thread.call_after(Phase::Compile, limit, start.elapsed(), move |session| {
        let mut launches =
            Launches { ready: Vec::new(), step: Vec::new(), of_step: vec![0..0; names.len()], names };
        for Addressed { step, launch, kernel, pointers } in &addressed {
            let shape = Shape { grid: launch.grid, block: launch.block, lds_bytes: launch.lds_bytes };
            let ready = session
                .ready(kernel, shape, pointers, &launch.params)
                .map_err(|e| e.with_node(&launches.names[*step]))?;
            let at = launches.ready.len();
            launches.ready.push(ready);
            launches.step.push(*step);
            let range = &mut launches.of_step[*step];
            *range = if range.start == range.end { at..at + 1 } else { range.start..at + 1 };
        }
        Ok(launches)
    })
}
