//! Plans: which steps compute a graph, and where in one arena every tensor lies.
//!
//! A plan gives every input and every computed tensor a place in one compute arena. A place is given again when
//! nothing needs its contents any more, and an operation whose definition allows it takes over the place of an operand
//! that it is the last to read. Inputs keep their places, so that a program can be run again without writing inputs
//! that did not change; outputs keep theirs until the next run. Constants of kernels are the backends' own
//! ([`Constants`](crate::kernel::Constants)): an arena may be shared with other programs.
//!
//! A debug plan ([`Plan::debug`]) gives every tensor a place of its own, so that each can be looked at after a run.
//!
//! Weights and state are not in the arena: they are bound by the caller.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::{Source, TensorId};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// How much rounding a program may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// No activation is rounded below F32; weights as stored; F32 accumulation.
    Exact,
    /// Products may round activations to F16 or 8 bits and use matrix units.
    #[default]
    Fast,
}

impl Precision {
    /// Name as on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Exact => "exact",
            Precision::Fast => "fast",
        }
    }

    /// The precision of a name.
    pub fn from_name(name: &str) -> Option<Precision> {
        [Precision::Exact, Precision::Fast].into_iter().find(|p| p.name() == name)
    }
}

impl std::str::FromStr for Precision {
    type Err = Error;

    /// The precision of a name, as [`Precision::from_name`].
    fn from_str(text: &str) -> Result<Precision> {
        Precision::from_name(text)
            .ok_or_else(|| Error::argument("precision", format!("'{text}'"), "exact or fast"))
    }
}

/// A place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Byte offset.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Steps and places for one graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Nodes that compute something, in order.
    pub steps: Vec<TensorId>,
    /// Length of the arena in bytes.
    pub arena_bytes: usize,
    /// Alignment of places in bytes.
    pub alignment: usize,
    /// How much rounding is allowed.
    pub precision: Precision,
    /// Whether every tensor has a place of its own.
    pub debug: bool,
    places: Vec<Option<Place>>,
}

/// The free parts of an arena while it is laid out, sorted by offset.
struct Arena {
    free: Vec<Place>,
    end: usize,
    alignment: usize,
}

impl Arena {
    /// The lowest free part that is large enough, else the end.
    fn take(&mut self, bytes: usize) -> Option<Place> {
        let bytes = bytes.checked_next_multiple_of(self.alignment)?.max(self.alignment);
        if let Some(i) = self.free.iter().position(|f| f.bytes >= bytes) {
            let place = Place { offset: self.free[i].offset, bytes };
            self.free[i].offset += bytes;
            self.free[i].bytes -= bytes;
            if self.free[i].bytes == 0 {
                self.free.remove(i);
            }
            return Some(place);
        }
        // A free part at the end grows.
        let offset = match self.free.last() {
            Some(last) if last.offset + last.bytes == self.end => {
                let offset = last.offset;
                self.free.pop();
                offset
            }
            _ => self.end,
        };
        self.end = offset.checked_add(bytes)?;
        Some(Place { offset, bytes })
    }

    fn give_back(&mut self, place: Place) {
        let at = self.free.partition_point(|f| f.offset < place.offset);
        self.free.insert(at, place);
        if at + 1 < self.free.len() && self.free[at].offset + self.free[at].bytes == self.free[at + 1].offset
        {
            self.free[at].bytes += self.free.remove(at + 1).bytes;
        }
        if at > 0 && self.free[at - 1].offset + self.free[at - 1].bytes == self.free[at].offset {
            self.free[at - 1].bytes += self.free.remove(at).bytes;
        }
    }
}

impl Plan {
    /// A plan that reuses memory. `alignment` is that of the device (a power of two).
    pub fn new(graph: &Graph, alignment: usize, precision: Precision) -> Result<Plan> {
        Plan::build(graph, alignment, precision, false)
    }

    /// A plan that keeps every tensor.
    pub fn debug(graph: &Graph, alignment: usize, precision: Precision) -> Result<Plan> {
        Plan::build(graph, alignment, precision, true)
    }

    fn build(graph: &Graph, alignment: usize, precision: Precision, debug: bool) -> Result<Plan> {
        if !alignment.is_power_of_two() {
            return Err(Error::argument("alignment", alignment, "a power of two"));
        }
        let count = graph.tensors().len();
        let mut plan = Plan {
            steps: graph.computed().collect(),
            arena_bytes: 0,
            alignment,
            precision,
            debug,
            places: vec![None; count],
        };
        let mut arena = Arena { free: Vec::new(), end: 0, alignment };
        plan.place_inputs(graph, &mut arena)?;
        plan.place_nodes(graph, &mut arena)?;
        plan.arena_bytes = arena.end;
        Ok(plan)
    }

    fn place_inputs(&mut self, graph: &Graph, arena: &mut Arena) -> Result<()> {
        for id in graph.ids() {
            let tensor = graph.tensor(id);
            if tensor.source == Source::Input {
                self.places[id.index()] = Some(arena.take(tensor.span_bytes()).ok_or_else(too_large)?);
            }
        }
        Ok(())
    }

    fn place_nodes(&mut self, graph: &Graph, arena: &mut Arena) -> Result<()> {
        let last_use = last_uses(graph, &self.steps);
        let steps = self.steps.clone();
        for (step, &id) in steps.iter().enumerate() {
            let tensor = graph.tensor(id);
            let mut taken_over = None;
            if tensor.root == id {
                taken_over = self.reusable(graph, id, step, &last_use);
                let place = match taken_over {
                    Some(operand) => self.places[operand.index()],
                    None => arena.take(tensor.span_bytes()),
                };
                self.places[id.index()] = Some(place.ok_or_else(too_large)?);
            }
            if self.debug {
                continue;
            }
            let mut dead: Vec<TensorId> = graph.operands(id).iter().map(|t| t.root).collect();
            dead.push(tensor.root);
            dead.sort_unstable();
            dead.dedup();
            for root in dead {
                if is_node(graph, root)
                    && last_use[root.index()] <= step
                    && taken_over != Some(root)
                    && let Some(place) = self.places[root.index()]
                {
                    arena.give_back(place);
                }
            }
        }
        Ok(())
    }

    /// An operand whose place the result may take over.
    fn reusable(&self, graph: &Graph, id: TensorId, step: usize, last_use: &[usize]) -> Option<TensorId> {
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
            let free = is_node(graph, operand.root) && last_use[operand.root.index()] == step;
            (fits && free && !others_read(operand.root, i) && self.places[operand.root.index()].is_some())
                .then_some(operand.root)
        })
    }

    /// The place of a tensor's storage (that of its root), if it is in the arena. Under a plan that reuses memory the
    /// contents are there from the step that computes the tensor to its last use.
    pub fn place(&self, graph: &Graph, id: TensorId) -> Option<Place> {
        self.places.get(graph.tensor(id).root.index()).copied().flatten()
    }

    /// The plan as text: a line a step.
    pub fn describe(&self, graph: &Graph) -> String {
        let mut text = format!(
            "{} steps, arena {} bytes, {}{}\n",
            self.steps.len(),
            self.arena_bytes,
            self.precision.name(),
            if self.debug { ", debug" } else { "" }
        );
        for (i, &id) in self.steps.iter().enumerate() {
            let tensor = graph.tensor(id);
            let place = match self.place(graph, id) {
                Some(p) => format!("{}+{}", p.offset, p.bytes),
                None => format!("in {}", graph.tensor(tensor.root).name),
            };
            let operands: Vec<&str> = graph.operands(id).iter().map(|t| t.name.as_str()).collect();
            let op = tensor.op().map_or("", |o| o.name());
            let _ =
                writeln!(text, "{i:5} {op:15} {} <- {} @ {place}", tensor.describe(), operands.join(", "));
        }
        text
    }
}

fn too_large() -> Error {
    Error::argument("graph", "too large", "a size that can be addressed")
}

fn is_node(graph: &Graph, id: TensorId) -> bool {
    matches!(graph.tensor(id).source, Source::Node { .. })
}

/// For each tensor the last step that reads or writes its storage; `usize::MAX` for outputs.
fn last_uses(graph: &Graph, steps: &[TensorId]) -> Vec<usize> {
    let mut last = vec![0; graph.tensors().len()];
    for (step, &id) in steps.iter().enumerate() {
        last[graph.tensor(id).root.index()] = step;
        for operand in graph.operands(id) {
            last[operand.root.index()] = step;
        }
    }
    for &output in graph.outputs() {
        last[graph.tensor(output).root.index()] = usize::MAX;
    }
    last
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

    /// Replays a plan and checks that no step overwrites what a later step or the caller reads.
    fn check(graph: &Graph, plan: &Plan) {
        let mut owner: Vec<(Place, TensorId)> = Vec::new();
        let claim = |owner: &mut Vec<(Place, TensorId)>, place: Place, id: TensorId| {
            owner.retain(|(p, _)| {
                p.offset + p.bytes <= place.offset || place.offset + place.bytes <= p.offset
            });
            owner.push((place, id));
        };
        for id in graph.ids().filter(|&id| graph.tensor(id).source == Source::Input) {
            claim(&mut owner, plan.places[id.index()].unwrap(), id);
        }
        for &id in &plan.steps {
            let t = graph.tensor(id);
            for s in graph.operands(id) {
                if graph.tensor(s.root).source == Source::Weight {
                    continue;
                }
                assert!(owner.iter().any(|&(_, o)| o == s.root), "{} is gone before {}", s.name, t.name);
            }
            if t.root == id {
                let place = plan.places[id.index()].unwrap();
                claim(&mut owner, place, id);
            }
            assert!(plan.places[t.root.index()].is_none_or(|p| p.offset + p.bytes <= plan.arena_bytes));
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
        assert_eq!(plan(&short).arena_bytes, plan(&long).arena_bytes);
        assert_eq!(plan(&long).arena_bytes, 3 * 512);
        let debug = Plan::debug(&long, 256, Precision::Exact).unwrap();
        check(&long, &debug);
        assert_eq!(debug.arena_bytes, 81 * 512);
        assert!(plan(&short).describe(&short).contains("RMS_NORM"));
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
        assert_ne!(plan.place(&g, a), plan.place(&g, b));
        assert!(Plan::new(&g, 48, Precision::Exact).is_err());
    }
}
