//! Plans: the steps that compute a graph, and the layout of its tensors in one arena.
//!
//! A step is a group of nodes ([`crate::fuse`]) that a backend computes together, often one node. Steps have
//! levels. Steps of one level do not depend on each other and share no memory that one of them writes, so
//! they may run at the same time or in any order.
//!
//! A plan assigns a region of the compute arena to every input and every result of a step; intermediate
//! results of a step have none. The arena is one buffer, or several if it exceeds the device's largest; no
//! region lies in two. A region is reused when its contents are not needed any more. An operation
//! whose definition allows it takes over the region of an operand of which it is the last reader. Inputs
//! retain their regions, so that a program can be run again without writing unchanged inputs; outputs retain
//! theirs until the next run. The constants of kernels belong to the backends
//! ([`Constants`](crate::kernel::Constants)), because an arena may be shared with other programs.
//!
//! A debug plan ([`Plan::debug`]) has a step for each node, in the order of the graph, and gives every tensor
//! its own region, so that each can be read after a run. [`Plan::fused_debug`] has the steps of
//! [`Plan::fused`] and retains their results.
//!
//! Weights and state are not in the arena: they are bound by the caller.

use crate::buffers::BufferLimits;
use crate::error::{Error, Result};
use crate::fuse::{self, Group};
use crate::graph::Graph;
use crate::precision::Precision;
use crate::tensor::{Source, TensorId};
use std::fmt::Write;

mod arena;
mod lifetimes;
mod step;

pub use arena::Region;
pub use step::Step;

use arena::Arena;
use lifetimes::Uses;

/// Properties of a device that planning depends on. Every [`Backend`](crate::backend::Backend) implements
/// this trait.
pub trait Target {
    /// Returns the rules for the layout of the arena.
    fn buffer_limits(&self) -> BufferLimits;

    /// True if the device computes the nodes of `group` as one step.
    fn fuses(&self, graph: &Graph, group: &Group, precision: Precision) -> bool;
}

/// Steps and arena layout for one graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// All computing nodes, in groups, sorted by level.
    pub steps: Vec<Step>,
    /// Lengths in bytes of the arena's buffers: one, unless the arena exceeds the device's largest.
    pub arena: Vec<usize>,
    /// Alignment of regions in bytes.
    pub alignment: usize,
    /// Allowed rounding.
    pub precision: Precision,
    /// True if every tensor has its own region.
    pub debug: bool,
    regions: Vec<Option<Region>>,
}

impl Plan {
    /// Creates a plan that reuses memory and computes node by node. `limits` are those of the device, or its
    /// alignment only, if the length of a buffer does not matter.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the alignment is no power of two, or if the graph needs more memory than
    /// can be addressed. The same applies to the other constructors.
    pub fn new(graph: &Graph, limits: impl Into<BufferLimits>, precision: Precision) -> Result<Plan> {
        Plan::build(graph, limits.into(), precision, false, by_level(graph, &|_| false)?)
    }

    /// Creates the plan for normal use: it reuses memory and computes together the groups that the backend
    /// joins.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn fused(graph: &Graph, target: &(impl Target + ?Sized), precision: Precision) -> Result<Plan> {
        Plan::for_target(graph, target, precision, false)
    }

    /// Creates a plan with the steps of [`Plan::fused`] that retains all their results.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn fused_debug(graph: &Graph, target: &(impl Target + ?Sized), precision: Precision) -> Result<Plan> {
        Plan::for_target(graph, target, precision, true)
    }

    /// Creates a plan that computes node by node, in the order of the graph, and retains every tensor.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn debug(graph: &Graph, limits: impl Into<BufferLimits>, precision: Precision) -> Result<Plan> {
        let one_by_one = graph.computed().enumerate();
        let steps = one_by_one.map(|(level, id)| Step { group: Group::Node(id), level }).collect();
        Plan::build(graph, limits.into(), precision, true, steps)
    }

    fn for_target(
        graph: &Graph,
        target: &(impl Target + ?Sized),
        precision: Precision,
        debug: bool,
    ) -> Result<Plan> {
        let fuses = |group: &Group| target.fuses(graph, group, precision);
        Plan::build(graph, target.buffer_limits(), precision, debug, by_level(graph, &fuses)?)
    }

    fn build(
        graph: &Graph,
        limits: BufferLimits,
        precision: Precision,
        debug: bool,
        steps: Vec<Step>,
    ) -> Result<Plan> {
        let alignment = limits.alignment;
        if !alignment.is_power_of_two() {
            return Err(Error::argument("alignment", alignment, "a power of two"));
        }
        let regions = vec![None; graph.tensors().len()];
        let mut plan = Plan { steps, arena: Vec::new(), alignment, precision, debug, regions };
        let mut arena = Arena::new(limits);
        plan.place_inputs(graph, &mut arena)?;
        plan.place_results(graph, &mut arena)?;
        plan.arena = arena.into_lengths();
        Ok(plan)
    }

    fn place_inputs(&mut self, graph: &Graph, arena: &mut Arena) -> Result<()> {
        for id in graph.ids() {
            let tensor = graph.tensor(id);
            if tensor.source == Source::Input {
                self.regions[id.index()] = Some(arena.allocate(tensor.span_bytes()).ok_or_else(too_large)?);
            }
        }
        Ok(())
    }

    /// Assigns regions level by level: regions of tensors whose last use is in a level are free after it.
    fn place_results(&mut self, graph: &Graph, arena: &mut Arena) -> Result<()> {
        let uses = Uses::new(graph, &self.steps);
        let steps = std::mem::take(&mut self.steps);
        for level in steps.chunk_by(|a, b| a.level == b.level) {
            let mut dead: Vec<TensorId> = Vec::new();
            let mut kept: Vec<TensorId> = Vec::new();
            for step in level {
                for id in step.group.results() {
                    let tensor = graph.tensor(id);
                    dead.push(tensor.root);
                    if tensor.root != id {
                        continue;
                    }
                    let taken_over = self.reusable(graph, step, &uses).filter(|root| !kept.contains(root));
                    let place = match taken_over {
                        Some(root) => {
                            kept.push(root);
                            self.regions[root.index()]
                        }
                        None => arena.allocate(tensor.span_bytes()),
                    };
                    self.regions[id.index()] = Some(place.ok_or_else(too_large)?);
                }
                dead.extend(step.group.operands(graph).into_iter().map(|id| graph.tensor(id).root));
            }
            if self.debug {
                continue;
            }
            dead.sort_unstable();
            dead.dedup();
            for root in dead {
                if is_node(graph, root)
                    && uses.last[root.index()] <= level[0].level
                    && !kept.contains(&root)
                    && let Some(place) = self.regions[root.index()]
                {
                    arena.free(place);
                }
            }
        }
        self.steps = steps;
        Ok(())
    }

    /// Returns the root of an operand whose region the result of a single node may take over.
    fn reusable(&self, graph: &Graph, step: &Step, uses: &Uses) -> Option<TensorId> {
        let Group::Node(id) = step.group else { return None };
        if self.debug {
            return None;
        }
        let tensor = graph.tensor(id);
        let candidates = tensor.op()?.definition().in_place();
        let others_read = |root: TensorId, except: usize| {
            tensor.src().iter().enumerate().any(|(i, &s)| i != except && graph.tensor(s).root == root)
        };
        candidates.iter().filter(|&&i| i < tensor.src().len()).find_map(|&i| {
            let operand = graph.tensor(tensor.src()[i]);
            let root = graph.tensor(operand.root);
            let whole = operand.offset == 0 && operand.nb == tensor.nb && operand.ne == tensor.ne;
            let fits = whole && operand.dtype == tensor.dtype && root.span_bytes() == tensor.span_bytes();
            let free = is_node(graph, operand.root) && uses.is_last(operand.root, step.level);
            (fits && free && !others_read(operand.root, i) && self.regions[operand.root.index()].is_some())
                .then_some(operand.root)
        })
    }

    /// Returns the plan of the one step that computes a node; `None` if no step does.
    pub fn of_step(&self, node: TensorId) -> Option<Plan> {
        let step = self.steps.iter().find(|step| step.group.nodes().contains(&node))?;
        Some(Plan { steps: vec![step.clone()], ..self.clone() })
    }

    /// Returns the length of the arena in bytes.
    pub fn arena_bytes(&self) -> usize {
        self.arena.iter().sum()
    }

    /// Returns the region of a tensor's storage (that of its root), if it is in the arena. With a plan that
    /// reuses memory, the region holds the contents from the step that computes the tensor to its last use.
    pub fn region(&self, graph: &Graph, id: TensorId) -> Option<Region> {
        self.regions.get(graph.tensor(id).root.index()).copied().flatten()
    }

    /// Formats the plan, one line for each step.
    pub fn describe(&self, graph: &Graph) -> String {
        let levels = self.steps.last().map_or(0, |step| step.level + 1);
        let mut text = format!(
            "{} steps, {levels} levels, arena {} bytes, {}{}\n",
            self.steps.len(),
            self.arena_bytes(),
            self.precision.name(),
            if self.debug { ", debug" } else { "" }
        );
        for (i, step) in self.steps.iter().enumerate() {
            let operands = step.group.operands(graph);
            let operands: Vec<&str> = operands.iter().map(|&id| graph.tensor(id).name.as_str()).collect();
            let results: Vec<String> =
                step.group.results().iter().map(|&id| self.describe_result(graph, id)).collect();
            let (level, name) = (step.level, step.group.name(graph));
            let (results, operands) = (results.join("; "), operands.join(", "));
            let _ = writeln!(text, "{i:5} {level:4} {name:15} {results} <- {operands}");
        }
        text
    }

    fn describe_result(&self, graph: &Graph, id: TensorId) -> String {
        let tensor = graph.tensor(id);
        match self.region(graph, id) {
            Some(p) if p.buffer > 0 => {
                format!("{} @ {}:{}+{}", tensor.describe(), p.buffer, p.offset, p.bytes)
            }
            Some(p) => format!("{} @ {}+{}", tensor.describe(), p.offset, p.bytes),
            None => format!("{} in {}", tensor.describe(), graph.tensor(tensor.root).name),
        }
    }
}

/// Returns the steps of a graph, for the groups that `joins` accepts.
fn by_level(graph: &Graph, joins: &dyn Fn(&Group) -> bool) -> Result<Vec<Step>> {
    let groups = fuse::groups(graph, joins);
    let circle = || Error::argument("graph", "groups that wait for each other", "");
    let leveled = fuse::levels(graph, groups).ok_or_else(circle)?;
    Ok(leveled.into_iter().map(|(group, level)| Step { group, level }).collect())
}

fn too_large() -> Error {
    Error::argument("graph", "too large", "a size that can be addressed")
}

fn is_node(graph: &Graph, id: TensorId) -> bool {
    matches!(graph.tensor(id).source, Source::Node { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    fn chain(n: usize) -> Graph {
        let mut g = Graph::new();
        let w = g.leaf("w", DType::F32, [64, 64, 1, 1], Source::Weight).unwrap();
        let mut x = g.leaf("x", DType::F32, [64, 2, 1, 1], Source::Input).unwrap();
        for _ in 0..n {
            let y = g.mul_mat(w, x).unwrap();
            x = g.rms_norm(y, 1e-5).unwrap();
        }
        g.output(x).unwrap();
        g
    }

    fn apart(a: Region, b: Region) -> bool {
        a.buffer != b.buffer || a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset
    }

    /// Replays a plan and checks that no step overwrites what a later step or the caller reads.
    fn check(graph: &Graph, plan: &Plan) {
        let mut owner: Vec<(Region, TensorId)> = Vec::new();
        let claim = |owner: &mut Vec<(Region, TensorId)>, place: Region, id: TensorId| {
            owner.retain(|(p, _)| apart(*p, place));
            owner.push((place, id));
        };
        for id in graph.ids().filter(|&id| graph.tensor(id).source == Source::Input) {
            claim(&mut owner, plan.regions[id.index()].unwrap(), id);
        }
        for level in plan.steps.chunk_by(|a, b| a.level == b.level) {
            // In any order: operands exist before the level, and no step writes what another one reads.
            for step in level {
                for s in step.group.operands(graph).into_iter().map(|id| graph.tensor(id)) {
                    if matches!(graph.tensor(s.root).source, Source::Weight | Source::State) {
                        continue;
                    }
                    let name = &graph.tensor(step.node()).name;
                    assert!(owner.iter().any(|&(_, o)| o == s.root), "{} is gone before {name}", s.name);
                }
            }
            for (i, step) in level.iter().enumerate() {
                for id in step.group.results() {
                    let Some(place) = plan.regions[graph.tensor(id).root.index()] else { continue };
                    assert!(place.offset + place.bytes <= plan.arena[place.buffer]);
                    for (_, other) in level.iter().enumerate().filter(|(j, _)| *j != i) {
                        let of = other.group.operands(graph).into_iter().chain(other.group.results());
                        for used in of.filter_map(|id| plan.regions[graph.tensor(id).root.index()]) {
                            assert!(apart(place, used), "{step:?} and {other:?}");
                        }
                    }
                    if graph.tensor(id).root == id {
                        claim(&mut owner, place, id);
                    }
                }
            }
        }
        for &out in graph.outputs() {
            assert!(owner.iter().any(|&(_, o)| o == graph.tensor(out).root));
        }
    }

    #[test]
    fn memory_is_reused() {
        let (short, long) = (chain(2), chain(40));
        let plan = |g: &Graph| Plan::new(g, 256, Precision::Exact).unwrap();
        check(&long, &plan(&long));
        assert_eq!(plan(&short).arena_bytes(), plan(&long).arena_bytes());
        assert_eq!(plan(&long).arena_bytes(), 3 * 512);
        let debug = Plan::debug(&long, 256, Precision::Exact).unwrap();
        check(&long, &debug);
        assert_eq!(debug.arena_bytes(), 81 * 512);
        assert!(plan(&short).describe(&short).contains("RMS_NORM"));
    }

    /// An arena beyond the device's largest buffer has several; no tensor lies in two.
    #[test]
    fn an_arena_has_as_many_buffers_as_it_needs() {
        let graph = chain(40);
        let limits = |largest| BufferLimits { alignment: 256, largest };
        for (largest, arena, debug) in [
            (1536, vec![1536], vec![1536; 27]),
            (1535, vec![1024, 512], [vec![1024; 40], vec![512]].concat()),
            (512, vec![512; 3], vec![512; 81]),
            // The device refuses buffers for tensors that are larger than any.
            (256, vec![512; 3], vec![512; 81]),
        ] {
            let plan = Plan::new(&graph, limits(largest), Precision::Exact).unwrap();
            check(&graph, &plan);
            assert_eq!(plan.arena, arena, "{largest}");
            let plan = Plan::debug(&graph, limits(largest), Precision::Exact).unwrap();
            check(&graph, &plan);
            assert_eq!(plan.arena, debug, "{largest}");
        }
    }

    #[test]
    fn an_operand_that_is_needed_later_is_kept() {
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [64, 1, 1, 1], Source::Input).unwrap();
        let a = g.scale(x, 2.0, 0.0).unwrap();
        let b = g.rms_norm(a, 1e-5).unwrap();
        let c = g.add(a, b).unwrap();
        let d = g.mul(c, c).unwrap();
        g.output(d).unwrap();
        let plan = Plan::new(&g, 64, Precision::Exact).unwrap();
        check(&g, &plan);
        assert_ne!(plan.region(&g, a), plan.region(&g, b));
        assert!(Plan::new(&g, 48, Precision::Exact).is_err());
    }
}
