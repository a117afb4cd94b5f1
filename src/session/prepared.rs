//! Prepared programs: graphs planned and prepared for batches, on one device or on two.

use super::memory::{Compute, State};
use crate::model::{BatchGraph, BatchShape, MAIN, Model};
use ggml_core::backend::{Backend, Bindings, Buffer, PrepareOptions, Program, Slice, Timing};
use ggml_core::cost::{Work, group_work};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::schedule::{Split, SplitDevice, SplitProgram};
use ggml_core::{Graph, Result};

/// Graph with a program that can run repeatedly.
pub(super) struct Prepared {
    graph: BatchGraph,
    program: Box<dyn Program>,
    /// True if it may be in flight together with other programs that use the same memory.
    overlaps: bool,
    in_flight: bool,
}

impl Prepared {
    /// Prepares the graph of a batch shape.
    pub(super) fn new(
        model: &Model,
        shape: &BatchShape,
        state: &State,
        compute: &mut Compute,
        precision: Precision,
    ) -> Result<Prepared> {
        let graph = model.file().graph(shape)?;
        let preparation = Preparation { model, graph: &graph, state, next: None, precision };
        let planned = preparation.plan(Kind::Normal)?;
        // A single token is never followed by another of its prompt.
        let overlaps = shape.tokens > 1
            && matches!(planned, Planned::OneDevice(d, _) if model.backend_of(d, shape.tokens).begins());
        let options = PrepareOptions { overlaps, ..PrepareOptions::default() };
        let program = preparation.program(planned, options, Some(compute))?;
        Ok(Prepared { graph, program, overlaps, in_flight: false })
    }

    /// Prepares a decode step that reads its token from `next` and writes the next step's token there; `None`
    /// if the model is on two devices.
    pub(super) fn chained(
        model: &Model,
        shape: &BatchShape,
        state: &State,
        compute: &mut Compute,
        next: &Buffer,
        precision: Precision,
    ) -> Result<Option<Prepared>> {
        let graph = model.file().chained_graph(shape)?;
        let preparation = Preparation { model, graph: &graph, state, next: Some(next), precision };
        let planned = preparation.plan(Kind::Normal)?;
        if !matches!(planned, Planned::OneDevice(MAIN, _)) {
            return Ok(None);
        }
        let program = preparation.program(planned, PrepareOptions::default(), Some(compute))?;
        Ok(Some(Prepared { graph, program, overlaps: false, in_flight: false }))
    }

    /// Returns true if it may be in flight together with other programs that use the same memory.
    pub(super) fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// Returns true if it has started and has not been waited for.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Starts the program.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.program.begin()?;
        self.in_flight = true;
        Ok(())
    }

    /// Waits for the program, if it is in flight.
    pub(super) fn finish(&mut self) -> Result<Timing> {
        match std::mem::take(&mut self.in_flight) {
            true => self.program.finish(),
            false => Ok(Timing::default()),
        }
    }

    /// Returns the graph of the batch.
    pub(super) fn graph(&self) -> &BatchGraph {
        &self.graph
    }

    /// Returns the graph and its program.
    pub(super) fn graph_and_program(&mut self) -> (&BatchGraph, &mut dyn Program) {
        (&self.graph, self.program.as_mut())
    }
}

/// Step of a program with the names of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct NamedStep {
    /// Operation, or kind of group.
    pub(crate) kind: &'static str,
    /// Nodes in the order of the graph.
    pub(crate) nodes: Vec<String>,
    /// Nodes whose results are used outside the step.
    #[cfg(feature = "compare")]
    pub(crate) results: Vec<String>,
    /// Minimum work of the step.
    pub(crate) work: Work,
}

/// Program that can run step by step, and its steps.
pub(crate) type Stepwise = (Box<dyn Program>, Vec<NamedStep>);

/// Returns the steps of a plan with the names of their nodes.
pub(crate) fn named_steps(graph: &Graph, plan: &Plan) -> Vec<NamedStep> {
    let names = |ids: Vec<ggml_core::TensorId>| ids.iter().map(|&id| graph.tensor(id).name.clone()).collect();
    let step = |step: &ggml_core::plan::Step| NamedStep {
        kind: step.group.name(graph),
        nodes: names(step.group.nodes()),
        #[cfg(feature = "compare")]
        results: names(step.group.results()),
        work: group_work(graph, &step.group),
    };
    plan.steps.iter().map(step).collect()
}

/// Prepares the program that a session runs for a graph, in the session's memory, but for running step by
/// step.
pub(super) fn timed_program(
    model: &Model,
    graph: &BatchGraph,
    state: &State,
    compute: &mut Compute,
    precision: Precision,
) -> Result<Stepwise> {
    let preparation = Preparation { model, graph, state, next: None, precision };
    let planned = preparation.plan(Kind::Normal)?;
    let steps = planned.steps(&graph.graph);
    Ok((preparation.program(planned, PrepareOptions::STEPWISE, Some(compute))?, steps))
}

/// Prepares a program for a graph of a model, with its own state, that can run step by step and retains the
/// result of every step. Returns it with its steps: node by node, or fused as in normal operation.
#[cfg(feature = "compare")]
pub(crate) fn debug_program(
    model: &Model,
    graph: &BatchGraph,
    precision: Precision,
    fused: bool,
) -> Result<Stepwise> {
    let state = State::new(model, &model.needs_of(graph)?)?;
    let preparation = Preparation { model, graph, state: &state, next: None, precision };
    let planned = preparation.plan(if fused { Kind::FusedDebug } else { Kind::Debug })?;
    let steps = planned.steps(&graph.graph);
    Ok((preparation.program(planned, PrepareOptions::STEPWISE, None)?, steps))
}

/// Kind of plan.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Plan of normal operation.
    Normal,
    /// Steps of normal operation, with every result retained.
    #[cfg(feature = "compare")]
    FusedDebug,
    /// Node by node, with every result retained.
    #[cfg(feature = "compare")]
    Debug,
}

/// Planned graph: on one device, or divided between devices.
enum Planned {
    OneDevice(usize, Plan),
    Divided(Split, Vec<Plan>),
}

impl Planned {
    /// Returns the steps with the names of their nodes.
    fn steps(&self, graph: &Graph) -> Vec<NamedStep> {
        match self {
            Planned::OneDevice(_, plan) => named_steps(graph, plan),
            Planned::Divided(split, plans) => {
                let parts = split.segments().iter().zip(plans);
                parts.flat_map(|(segment, plan)| named_steps(&segment.graph, plan)).collect()
            }
        }
    }
}

/// Inputs for preparing a program.
struct Preparation<'a> {
    model: &'a Model,
    graph: &'a BatchGraph,
    state: &'a State,
    /// Memory of the token of a chained graph.
    next: Option<&'a Buffer>,
    precision: Precision,
}

impl Preparation<'_> {
    /// Returns the backend that computes the graph's part on a device.
    fn backend(&self, device: usize) -> &dyn Backend {
        self.model.backend_of(device, self.graph.shape.tokens)
    }

    /// Plans the graph, or its parts.
    fn plan(&self, kind: Kind) -> Result<Planned> {
        let graph = &self.graph.graph;
        let placement = self.model.place(self.graph, &self.state.device[self.state.first(self.graph)..])?;
        let plan = |graph: &Graph, device: usize| {
            let backend = self.backend(device);
            match kind {
                Kind::Normal => Plan::fused(graph, backend, self.precision),
                #[cfg(feature = "compare")]
                Kind::FusedDebug => Plan::fused_debug(graph, backend, self.precision),
                #[cfg(feature = "compare")]
                Kind::Debug => Plan::debug(graph, &backend.device().limits, self.precision),
            }
        };
        if let Some(device) = placement.only_device(graph) {
            return Ok(Planned::OneDevice(device, plan(graph, device)?));
        }
        let split = Split::new(graph, &placement.device)?;
        let plans = split.plans(plan)?;
        Ok(Planned::Divided(split, plans))
    }

    /// Prepares the program. It allocates its own memory if `compute` is `None`.
    fn program(
        &self,
        planned: Planned,
        options: PrepareOptions,
        mut compute: Option<&mut Compute>,
    ) -> Result<Box<dyn Program>> {
        let mut bind = |device: usize, arena: &[usize]| -> Result<Bindings> {
            let mut bindings = self.bindings(device)?;
            if let Some(compute) = &mut compute {
                bindings.compute = compute.buffers(self.backend(device), device, arena)?;
            }
            Ok(bindings)
        };
        let (split, plans) = match planned {
            Planned::OneDevice(device, plan) => {
                let bindings = bind(device, &plan.arena)?;
                return self.backend(device).prepare(&self.graph.graph, &plan, &bindings, options);
            }
            Planned::Divided(split, plans) => (split, plans),
        };
        let arenas = split.arenas(&plans);
        let mut bindings = Vec::new();
        let devices = 0..self.model.backends().len();
        for device in devices.clone() {
            bindings.push(bind(device, arenas.get(&device).map_or(&[][..], Vec::as_slice))?);
        }
        let device = |(device, bindings)| SplitDevice { backend: self.backend(device), bindings };
        let devices: Vec<SplitDevice<'_>> = devices.zip(&bindings).map(device).collect();
        Ok(Box::new(SplitProgram::prepare(split, &plans, &devices, options)?))
    }

    /// Returns the weights and the state that are on a device.
    fn bindings(&self, device: usize) -> Result<Bindings> {
        let mut bindings = Bindings::default();
        for (id, name) in &self.graph.weights {
            if let Some(slice) = self.model.weight_on(device, name) {
                bindings.leaves.insert(*id, slice.clone());
            }
        }
        for (i, &id) in (self.state.first(self.graph)..).zip(&self.graph.state) {
            if self.state.device.get(i) == Some(&device) {
                bindings.leaves.insert(id, self.state.location(i)?.1);
            }
        }
        if let Some(next) = self.next {
            let slice = Slice { buffer: next.clone(), offset: 0 };
            bindings.leaves.insert(self.graph.inputs.tokens, slice);
        }
        Ok(bindings)
    }
}
