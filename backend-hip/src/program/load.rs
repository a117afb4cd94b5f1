//! Loading of programs onto a device: allocates memory, uploads constants and counters, loads code objects,
//! lays out arguments.

use super::inputs::Inputs;
use super::prepare::{Addressed, Draft, Host, Storage};
use super::results::Results;
use crate::code::kernels::Code;
use crate::driver::Shape;
use crate::op::Operand;
use crate::options::{Breadcrumbs, Graphs};
use crate::runtime::events::GRAPHS;
use crate::runtime::memory::{Memory, allocate};
use crate::runtime::session::{GraphId, PreparedLaunch, Session, graphs};
use crate::runtime::shared::Shared;
use ggml_core::backend::{Bindings, Buffer, Usage};
use ggml_core::plan::Plan;
use ggml_core::sync::lock;
use ggml_core::{Deadline, Graph, Phase, Result, phase};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Launches of a program, and the memory that they point at.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Locations of root tensors.
    pub(crate) storage: Storage,
    /// The program's own memory: arena, constants, counters, scratch.
    pub(crate) own: Option<Buffer>,
    /// The launches.
    pub(crate) launches: Launches,
    /// Inputs, some of which the first launches read.
    pub(crate) inputs: Inputs,
    /// Outputs that the launches copy to the host.
    pub(crate) results: Option<Results>,
}

/// The launches of a program.
#[derive(Debug)]
pub(crate) struct Launches {
    /// Launches in order.
    pub(crate) ready: Vec<PreparedLaunch>,
    /// Step of each launch.
    pub(crate) step: Vec<usize>,
    /// Launches of each step.
    pub(crate) of_step: Vec<Range<usize>>,
    /// True if any step may be run without the steps before it.
    pub(crate) alone: bool,
    /// Name of each step's node.
    pub(crate) names: Arc<[String]>,
    /// Position of each launch in a graph.
    positions: Vec<graphs::GraphPosition>,
    /// Graphs, each with its range of launches; empty if the launches are started one by one.
    pub(crate) graphs: Vec<(Range<usize>, GraphId)>,
}

/// Minimum number of launches for a graph, unless the program has branches.
const WORTH_A_GRAPH: usize = 8;
/// Minimum number of launches per graph of a program with branches: all branches end between two graphs.
const OF_A_GRAPH: usize = 32;

impl Launches {
    /// Captures the launches in graphs if that is wanted and the runtime supports it. The program also works
    /// without graphs.
    fn capture(&mut self, session: &mut Session, wanted_by: Graphs) {
        let wanted = wanted_by != Graphs::Off;
        // Branches are a route of their own: they are streams, which not every release of HIP is known to run correctly.
        if !session.has_branches() || wanted_by != Graphs::On {
            self.positions.iter_mut().for_each(|position| position.branch = 0);
        }
        let count = self.ready.len();
        let branches = self.positions.iter().any(|position| position.branch > 0);
        let worth = count >= WORTH_A_GRAPH || branches;
        if !wanted || !session.has_graphs() || !worth {
            return;
        }
        let graphs = if branches { (count / OF_A_GRAPH).clamp(1, GRAPHS) } else { GRAPHS };
        let length = count.div_ceil(graphs);
        for (i, (launches, positions)) in
            self.ready.chunks(length).zip(self.positions.chunks(length)).enumerate()
        {
            match session.capture(launches, positions) {
                Ok(graph) => self.graphs.push((i * length..i * length + launches.len(), graph)),
                Err(error) => {
                    tracing::warn!(target: "diptych::hip", "the launches were not captured as a graph: {error}");
                    for (_, graph) in self.graphs.drain(..) {
                        // A graph that cannot be freed now is freed when the session closes.
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
    let (storage, of_steps) = draft.place(bindings, own.as_ref(), &address, stepwise)?;
    let mut inputs = Inputs::new(shared, graph, !bindings.compute.is_empty());
    let mut addressed = match of_steps.first() {
        Some(first) if !stepwise => inputs.launches(shared, graph, &storage, first.step)?,
        _ => Vec::new(),
    };
    let of_inputs = addressed.len();
    addressed.extend(of_steps);
    let of_steps = of_inputs..addressed.len();
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
    let infos: Vec<LaunchInfo> =
        addressed[of_steps.clone()].iter().map(|launch| LaunchInfo::of(plan, launch)).collect();
    // The launches that read inputs come first, those that copy results to the host last.
    let level = |level: usize| graphs::GraphPosition { level, branch: 0 };
    let mut all = vec![level(usize::MAX - 1); of_inputs];
    all.extend(positions(&infos));
    all.resize(addressed.len(), level(usize::MAX));
    let mut launches = compile(shared, (addressed, of_steps, all), names, start, graphs)?;
    launches.alone = stepwise;
    let mut stats = lock(&shared.stats);
    stats.programs += 1;
    stats.recordings += 1;
    drop(stats);
    Ok(Loaded { storage, own, launches, inputs, results })
}

/// Maximum number of branches of a level.
const BRANCHES: usize = 4;

/// Properties of a launch that determine its position in a graph.
#[derive(Clone, Copy)]
struct LaunchInfo {
    step: usize,
    level: usize,
    /// True if the launch uses the program's scratch memory or counters.
    shares: bool,
}

impl LaunchInfo {
    fn of(plan: &Plan, launch: &Addressed) -> LaunchInfo {
        let shared = |operand: &Operand| matches!(operand, Operand::Scratch(..) | Operand::Counters(_));
        let shares = launch.launch.operands.iter().any(shared);
        LaunchInfo { step: launch.step, level: plan.steps[launch.step].level, shares }
    }
}

/// Assigns launches to positions in a graph. Steps of a level do not depend on each other and are assigned to
/// the branches in turn. Steps that share memory of the program stay in the first branch.
fn positions(launches: &[LaunchInfo]) -> Vec<graphs::GraphPosition> {
    let mut positions = Vec::new();
    for level in launches.chunk_by(|a, b| a.level == b.level) {
        let mut next = 0;
        for step in level.chunk_by(|a, b| a.step == b.step) {
            let shares = step.iter().any(|launch| launch.shares);
            let position =
                graphs::GraphPosition { level: step[0].level, branch: if shares { 0 } else { next } };
            next = (next + usize::from(!shares)) % BRANCHES;
            positions.extend(std::iter::repeat_n(position, step.len()));
        }
    }
    positions
}

/// Loads kernels that are text with several threads, in which the driver compiles them.
fn load_excerpts(
    shared: &Arc<Shared>,
    addressed: &[Addressed],
    names: &[String],
    deadline: &Deadline,
) -> Result<()> {
    let Some(loader) = &shared.loader else { return Ok(()) };
    let start = Instant::now();
    let excerpt = |launch: &Addressed| match &launch.kernel.code {
        Code::Excerpt(excerpt) => {
            Some((excerpt.clone(), names.get(launch.step).cloned().unwrap_or_default()))
        }
        Code::Object(_) => None,
    };
    let excerpts = addressed.iter().filter_map(excerpt).collect();
    let loaded = loader.load(shared.backend(), excerpts, deadline);
    lock(&shared.stats).compile_time += start.elapsed();
    loaded.map_err(|node| deadline.missed(shared.backend(), node))
}

/// Loads code objects, finds kernels, lays out arguments. The launches other than `of_steps` are left out when a single step
/// is run.
fn compile(
    shared: &Arc<Shared>,
    (addressed, of_steps, positions): (Vec<Addressed>, Range<usize>, Vec<graphs::GraphPosition>),
    names: Arc<[String]>,
    start: Instant,
    graphs: Option<Graphs>,
) -> Result<Launches> {
    let _span = phase::enter(Phase::Compile, shared.backend());
    let limit = shared.deadlines().prepare;
    load_excerpts(shared, &addressed, &names, &Deadline::new(Phase::Compile, limit).after(start.elapsed()))?;
    shared.thread.call_after(Phase::Compile, limit, start.elapsed(), move |session| {
        let mut launches = Launches {
            ready: Vec::new(),
            step: Vec::new(),
            of_step: vec![0..0; names.len()],
            alone: false,
            names,
            positions,
            graphs: Vec::new(),
        };
        for Addressed { step, launch, kernel, pointers } in &addressed {
            let shape = Shape { grid: launch.grid, block: launch.block, lds_bytes: launch.lds_bytes };
            let ready = session
                .prepare_launch(kernel, shape, (pointers, launch.written), &launch.params)
                .map_err(|e| e.with_node(&launches.names[*step]))?;
            let at = launches.ready.len();
            launches.ready.push(ready);
            launches.step.push(*step);
            if of_steps.contains(&at) {
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
    fn steps_of_a_level_are_in_different_branches() {
        let of = |launches: &[(usize, usize, bool)]| -> Vec<usize> {
            let info = |&(step, level, shares)| LaunchInfo { step, level, shares };
            let infos: Vec<LaunchInfo> = launches.iter().map(info).collect();
            let positions = positions(&infos);
            assert!(positions.iter().zip(&infos).all(|(position, info)| position.level == info.level));
            positions.iter().map(|position| position.branch).collect()
        };
        assert_eq!(of(&[(0, 0, false), (1, 1, false), (2, 2, false)]), [0, 0, 0]);
        // Both launches of a step are in one branch; a later level starts with the first branch.
        assert_eq!(of(&[(0, 0, false), (1, 0, false), (1, 0, false), (2, 1, false)]), [0, 1, 1, 0]);
        // There is only one scratch memory.
        let shared = [(0, 0, true), (0, 0, false), (1, 0, true), (2, 0, false), (3, 0, false)];
        assert_eq!(of(&shared), [0, 0, 0, 0, 1]);
        let many: Vec<_> = (0..6).map(|step| (step, 0, false)).collect();
        assert_eq!(of(&many), [0, 1, 2, 3, 0, 1]);
    }
}
