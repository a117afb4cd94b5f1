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

/// Programs with fewer launches, of which none stand side by side, are launched one by one.
const WORTH_A_GRAPH: usize = 8;
/// Launches that a program with branches has for each of its graphs at least: between two of them all branches come to an end.
const OF_A_GRAPH: usize = 32;

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
        let branches = self.places.iter().any(|place| place.branch > 0);
        let worth = count >= WORTH_A_GRAPH || branches;
        if !wanted || !session.has_graphs() || !worth {
            return;
        }
        let graphs = if branches { (count / OF_A_GRAPH).clamp(1, GRAPHS) } else { GRAPHS };
        let part = count.div_ceil(graphs);
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
    let stands: Vec<Stand> = addressed[..of_steps].iter().map(|launch| Stand::of(plan, launch)).collect();
    // What brings results to the host comes after all.
    let mut places = places(&stands);
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

/// What decides where a launch stands in a graph.
#[derive(Clone, Copy)]
struct Stand {
    step: usize,
    level: usize,
    /// Whether it has scratch memory or counters, which are the program's.
    shares: bool,
}

impl Stand {
    fn of(plan: &Plan, launch: &Addressed) -> Stand {
        let shared = |operand: &Operand| matches!(operand, Operand::Scratch(..) | Operand::Counters(_));
        let shares = launch.launch.operands.iter().any(shared);
        Stand { step: launch.step, level: plan.steps[launch.step].level, shares }
    }
}

/// Where launches stand in a graph. Steps of a level do not depend on each other, and take branches by turns; but those that
/// share memory of the program stay in the first one.
fn places(launches: &[Stand]) -> Vec<graphs::Place> {
    let mut places = Vec::new();
    for level in launches.chunk_by(|a, b| a.level == b.level) {
        let mut next = 0;
        for step in level.chunk_by(|a, b| a.step == b.step) {
            let shares = step.iter().any(|launch| launch.shares);
            let place = graphs::Place { level: step[0].level, branch: if shares { 0 } else { next } };
            next = (next + usize::from(!shares)) % BRANCHES;
            places.extend(std::iter::repeat_n(place, step.len()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_level_stand_side_by_side() {
        let of = |launches: &[(usize, usize, bool)]| -> Vec<usize> {
            let stand = |&(step, level, shares)| Stand { step, level, shares };
            let stands: Vec<Stand> = launches.iter().map(stand).collect();
            let places = places(&stands);
            assert!(places.iter().zip(&stands).all(|(place, stand)| place.level == stand.level));
            places.iter().map(|place| place.branch).collect()
        };
        assert_eq!(of(&[(0, 0, false), (1, 1, false), (2, 2, false)]), [0, 0, 0]);
        // Both launches of a step in one branch; a later level begins with the first.
        assert_eq!(of(&[(0, 0, false), (1, 0, false), (1, 0, false), (2, 1, false)]), [0, 1, 1, 0]);
        // Scratch memory is there once.
        let shared = [(0, 0, true), (0, 0, false), (1, 0, true), (2, 0, false), (3, 0, false)];
        assert_eq!(of(&shared), [0, 0, 0, 0, 1]);
        let many: Vec<_> = (0..6).map(|step| (step, 0, false)).collect();
        assert_eq!(of(&many), [0, 1, 2, 3, 0, 1]);
    }
}
