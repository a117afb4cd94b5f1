//! Outline of a batch graph on a backend, layer by layer: steps, levels, dispatches and barriers.

use super::batch::BatchShape;
use super::file::ModelFile;
use ggml_core::backend::{Backend, StepOutline};
use ggml_core::plan::{Plan, Step};
use ggml_core::precision::Precision;
use ggml_core::{Graph, Result};
use serde::Serialize;
use std::fmt;

/// Step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineStep {
    /// Operation, or kind of group.
    pub kind: &'static str,
    /// Node that names the step.
    pub node: String,
    /// Number of nodes that the step computes.
    pub nodes: usize,
    /// Level of the step; steps of one level do not depend on each other.
    pub level: usize,
    /// Number of dispatches or launches.
    pub dispatches: usize,
    /// Number of barriers before them.
    pub barriers: usize,
}

/// Steps of the embedding, a layer, or the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineUnit {
    /// Name: "embedding", "layer 0", "output".
    pub name: String,
    /// Steps in execution order.
    pub steps: Vec<OutlineStep>,
}

/// Outline of a batch graph on a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outline {
    /// Name of the backend.
    pub backend: String,
    /// Tokens of the batch.
    pub tokens: usize,
    /// Number of nodes that compute something.
    pub nodes: usize,
    /// Embedding, layers, output.
    pub units: Vec<OutlineUnit>,
}

impl OutlineUnit {
    /// Returns the number of dispatches of all steps.
    pub fn dispatches(&self) -> usize {
        self.steps.iter().map(|step| step.dispatches).sum()
    }

    /// Returns the number of barriers of all steps.
    pub fn barriers(&self) -> usize {
        self.steps.iter().map(|step| step.barriers).sum()
    }
}

impl ModelFile {
    /// Returns the outline of a batch on a backend that holds the whole model. It allocates no device memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the backend has no kernel for a node; errors of a
    /// graph that cannot be built.
    pub fn outline(
        &self,
        backend: &dyn Backend,
        shape: &BatchShape,
        precision: Precision,
    ) -> Result<Outline> {
        let batch = self.graph(shape)?;
        let graph = &batch.graph;
        let plan = Plan::fused(graph, backend, precision)?;
        let outlines = backend.outline(graph, &plan)?;
        let unit = |i| OutlineUnit { name: batch.unit_name(i), steps: Vec::new() };
        let mut units: Vec<OutlineUnit> = (0..=batch.units.len()).map(unit).collect();
        for (step, outline) in plan.steps.iter().zip(outlines) {
            units[batch.unit_of(step.node())].steps.push(OutlineStep::new(graph, step, outline));
        }
        let (backend, nodes) = (backend.device().backend.clone(), graph.computed().count());
        Ok(Outline { backend, tokens: shape.tokens, nodes, units })
    }
}

impl OutlineStep {
    fn new(graph: &Graph, step: &Step, outline: StepOutline) -> OutlineStep {
        let StepOutline { dispatches, barriers } = outline;
        let (kind, node) = (step.group.name(graph), graph.tensor(step.node()).name.clone());
        OutlineStep { kind, node, nodes: step.group.nodes().len(), level: step.level, dispatches, barriers }
    }
}

impl fmt::Display for Outline {
    /// Writes a line for each step; of units that equal the previous one only the name and the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: usize = self.units.iter().map(|unit| unit.steps.len()).sum();
        let levels = self.units.iter().flat_map(|unit| &unit.steps).map(|s| s.level + 1).max().unwrap_or(0);
        let dispatches: usize = self.units.iter().map(OutlineUnit::dispatches).sum();
        let barriers: usize = self.units.iter().map(OutlineUnit::barriers).sum();
        writeln!(
            f,
            "{} tokens on {}: {} nodes in {steps} steps, {levels} levels, {dispatches} dispatches, {barriers} barriers",
            self.tokens, self.backend, self.nodes
        )?;
        let mut before: Option<Vec<(&str, usize, usize)>> = None;
        for unit in &self.units {
            let kinds = unit.steps.iter().map(|s| (s.kind, s.dispatches, s.barriers)).collect::<Vec<_>>();
            let (dispatches, barriers) = (unit.dispatches(), unit.barriers());
            let same = before.as_ref() == Some(&kinds);
            let note = if same { ", as before" } else { "" };
            writeln!(f, "{}: {dispatches} dispatches, {barriers} barriers{note}", unit.name)?;
            for s in unit.steps.iter().filter(|_| !same) {
                writeln!(
                    f,
                    "  {:5} {:16} {:3} nodes {:2} dispatches {:2} barriers  {}",
                    s.level, s.kind, s.nodes, s.dispatches, s.barriers, s.node
                )?;
            }
            before = Some(kinds);
        }
        Ok(())
    }
}
