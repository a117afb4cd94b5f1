//! Programs onto a device: memory had, constants and counters uploaded, code objects loaded, arguments laid out.

use super::prepare::{Addressed, Draft, Host, Storage};
use super::results::Results;
use crate::driver::Shape;
use crate::op::Operand;
use crate::options::{Breadcrumbs, Graphs};
use crate::runtime::events::GRAPHS;
use crate::runtime::memory::{Memory, allocate};
use crate::runtime::session::{GraphId, Ready, Session, graphs};
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
    /// The program's own memory: arena, constants, counters, scratch.
    pub(crate) own: Option<Buffer>,
    /// The launches.
    pub(crate) launches: Launches,
    /// Outputs that the launches bring to the host.
    pub(crate) results: Option<Results>,
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
    /// Whether any step may be run without those before.
    pub(crate) alone: bool,
    /// For each step the node's name.
    pub(crate) names: Arc<[String]>,
    /// For each launch its place in a graph.
    places: Vec<graphs::Place>,
    /// The launches as graphs, each with those that it has; none where they are launched one by one.
    pub(crate) graphs: Vec<(Range<usize>, GraphId)>,
}

/// Launches that a graph has at least; programs with fewer, of which none stand side by side, are launched one by one.
const WORTH_A_GRAPH: usize = 8;

impl Launches {
    /// Makes graphs of the launches, where that is wanted and the runtime can. Without them everything works too.
    fn capture(&mut self, session: &mut Session, wanted_by: Graphs) {
        let known_to_work = || session.major().is_none_or(|major| major >= 6);
        let wanted = match wanted_by {
            Graphs::Off => false,
            Graphs::On => true,
            Graphs::Auto => known_to_work(),
        };
        // Branches of HIP's only where the user wants them: there they are streams of their own, which not every release is
        // known to run well.
        if !session.has_branches() || wanted_by != Graphs::On && session.major().is_some() {
            self.places.iter_mut().for_each(|place| place.branch = 0);
        }
        let count = self.ready.len();
        let worth = count >= WORTH_A_GRAPH || self.places.iter().any(|place| place.branch > 0);
        if !wanted || !session.has_graphs() || !worth {
            return;
        }
        let part = count.div_ceil((count / WORTH_A_GRAPH).clamp(1, GRAPHS));
        for (i, (launches, places)) in self.ready.chunks(part).zip(self.places.chunks(part)).enumerate() {
            match session.capture(launches, places) {
                Ok(graph) => self.graphs.push((i * part..i * part + launches.len(), graph)),
                Err(error) => {
                    tracing::warn!(target: "diptych::hip", "launches are no graph: {error}");
                    for (_, graph) in self.graphs.drain(..) {
                        // What cannot be given back now is when the session closes.
                        let _ = session.free_graph(graph);
                    }
                    return;
                }
            }
        }
    }
}

/// Prepares a planned graph on a device.
pub(crate) fn load(
    shared: &Arc<Shared>,
    graph: &Graph,
    plan: &Plan,
    bindings: &Bindings,
    stepwise: bool,
) -> Result<Loaded> {
    let start = Instant::now();
    let host = Host { backend: shared.backend(), kernels: &shared.kernels, profile: &shared.profile };
    let draft = Draft::new(host, graph, plan, bindings)?;
    let own = match draft.bytes() {
        0 => None,
        bytes => Some(allocate(shared, bytes, Usage::Compute)?),
    };
    if let Some(own) = &own {
        for (at, data) in draft.contents() {
            shared.upload(Phase::Prepare, Memory::of(own, shared)?, at, data)?;
        }
    }
    let address = |buffer: &Buffer| Ok(Memory::of(buffer, shared)?.address());
    let (storage, mut addressed) = draft.place(bindings, own.as_ref(), &address, stepwise)?;
    let of_steps = addressed.len();
    let mut results = None;
    if let (Some(last), false) = (addressed.last(), stepwise) {
        results = Results::new(shared, graph, &storage, last.step)?.map(|(results, gathering)| {
            addressed.extend(gathering);
            results
        });
    }
    let names: Arc<[String]> = plan.steps.iter().map(|step| graph.tensor(step.node()).name.clone()).collect();
    let marks = stepwise || shared.options.breadcrumbs == Breadcrumbs::EveryLaunch;
    let graphs = (!marks).then_some(shared.options.graphs);
    let mut places = places(plan, &addressed[..of_steps]);
    places.resize(addressed.len(), graphs::Place { level: usize::MAX, branch: 0 });
    let mut launches = compile(shared, (addressed, of_steps, places), names, start, graphs)?;
    launches.alone = stepwise;
    let mut stats = lock(&shared.stats);
    stats.programs += 1;
    stats.recordings += 1;
    drop(stats);
    Ok(Loaded { storage, own, launches, results })
}

/// Branches of a level at the most.
const BRANCHES: usize = 4;

/// Where launches stand in a graph. Steps of a level do not depend on each other; but those that have scratch memory or
/// counters, which are the program's, stay in the first branch.
fn places(plan: &Plan, addressed: &[Addressed]) -> Vec<graphs::Place> {
    let level_of = |launch: &Addressed| plan.steps[launch.step].level;
    let mut places = Vec::new();
    for level in addressed.chunk_by(|a, b| level_of(a) == level_of(b)) {
        let mut branch = 0;
        for launches in level.chunk_by(|a, b| a.step == b.step) {
            let own = |operand: &Operand| matches!(operand, Operand::Scratch(..) | Operand::Counters(_));
            let alone = launches.iter().all(|launch| !launch.launch.operands.iter().any(own));
            let place =
                graphs::Place { level: level_of(&launches[0]), branch: if alone { branch } else { 0 } };
            branch = (branch + usize::from(alone)) % BRANCHES;
            places.extend(std::iter::repeat_n(place, launches.len()));
        }
    }
    places
}

/// Loads code objects, finds kernels, lays out arguments. The launches behind the first `of_steps` are not run with
/// their step alone.
fn compile(
    shared: &Arc<Shared>,
    (addressed, of_steps, places): (Vec<Addressed>, usize, Vec<graphs::Place>),
    names: Arc<[String]>,
    start: Instant,
    graphs: Option<Graphs>,
) -> Result<Launches> {
    let _span = phase::enter(Phase::Compile, shared.backend());
    let limit = shared.deadlines().prepare;
    shared.thread.call_after(Phase::Compile, limit, start.elapsed(), move |session| {
        let mut launches = Launches {
            ready: Vec::new(),
            step: Vec::new(),
            of_step: vec![0..0; names.len()],
            alone: false,
            names,
            places,
            graphs: Vec::new(),
        };
        for Addressed { step, launch, kernel, pointers } in &addressed {
            let shape = Shape { grid: launch.grid, block: launch.block, lds_bytes: launch.lds_bytes };
            let ready = session
                .ready(kernel, shape, pointers, &launch.params)
                .map_err(|e| e.with_node(&launches.names[*step]))?;
            let at = launches.ready.len();
            launches.ready.push(ready);
            launches.step.push(*step);
            if at < of_steps {
                let range = &mut launches.of_step[*step];
                *range = if range.start == range.end { at..at + 1 } else { range.start..at + 1 };
            }
        }
        if let Some(wanted) = graphs {
            launches.capture(session, wanted);
        }
        Ok(launches)
    })
}
