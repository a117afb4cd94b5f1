//! Prepared programs: recorded once, submitted again and again.

use crate::backend::Shared;
use crate::breadcrumb::Breadcrumb;
use crate::io::Staged;
use crate::lower::{Lowering, lower};
use crate::memory::VulkanMemory;
use crate::raw::commands::Commands;
use crate::raw::memory::Buffer;
use crate::raw::queries::Timestamps;
use crate::record;
use crate::windows::Storage;
use ggml_core::Deadline;
use ggml_core::backend::{Bindings, PrepareOptions, Program, Timing, Usage};
use ggml_core::plan::Plan;
use ggml_core::{Error, Graph, Phase, Result, Source, TensorId, phase};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// One submission.
pub(crate) struct Chunk {
    /// Its commands.
    pub(crate) commands: Commands,
    /// The steps that it has parts of.
    pub(crate) steps: Range<usize>,
    /// Estimated seconds before correction.
    pub(crate) seconds: f64,
}

/// How a program is made up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramShape {
    /// Steps of the plan.
    pub steps: usize,
    /// Dispatches.
    pub dispatches: usize,
    /// Barriers, those at the beginning and end of submissions included.
    pub barriers: u64,
    /// Submissions of one run.
    pub submissions: usize,
    /// Distinct pipelines.
    pub pipelines: usize,
    /// Descriptor sets.
    pub descriptor_sets: usize,
}

/// A graph recorded for a device.
pub struct VulkanProgram {
    chunks: Vec<Chunk>,
    timestamps: Option<Arc<Timestamps>>,
    breadcrumb: Option<Breadcrumb>,
    inputs: Staged,
    outputs: Staged,
    storage: HashMap<TensorId, Storage>,
    /// Buffers whose last use a run moves on.
    touched: Vec<Arc<Buffer>>,
    graph: Graph,
    /// Names of the steps' nodes.
    names: Vec<String>,
    /// Roots that can be read after a run.
    readable: HashSet<TensorId>,
    debug: bool,
    stepwise: bool,
    ran: bool,
    /// Whether the staged outputs are those of the last run.
    fresh: bool,
    last: u64,
    shape: ProgramShape,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for VulkanProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanProgram").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl VulkanProgram {
    pub(crate) fn prepare(
        shared: &Arc<Shared>,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<VulkanProgram> {
        let _span = phase::enter(Phase::Prepare, &shared.device.name);
        shared.device.alive(Phase::Prepare)?;
        check(graph, plan)?;
        let deadline = shared.deadline(Phase::Prepare);
        let arena = arena(shared, plan, bindings, &deadline)?;
        let lowering = lower(shared, graph, plan, bindings, &arena, &deadline)?;
        let pipelines = shared.pipelines.prepare(&lowering.pipelines, &deadline)?;
        let breadcrumb = match shared.options.breadcrumbs {
            true => Some(Breadcrumb::new(shared, &deadline)?),
            false => None,
        };
        let staging = record::Staging {
            inputs: inputs(shared, graph, &lowering, options, &deadline)?,
            outputs: outputs(shared, graph, &lowering, options, &deadline)?,
        };
        let recorded =
            record::record(shared, &lowering, &pipelines, &staging, breadcrumb.as_ref(), options.stepwise)?;
        let mut shape = recorded.shape;
        shape.steps = plan.steps.len();
        shared.counters.programs.fetch_add(1, Ordering::Relaxed);
        shared.counters.recordings.fetch_add(recorded.chunks.len() as u64, Ordering::Relaxed);
        tracing::debug!(backend = %shared.device.name, ?shape, "prepared");
        Ok(VulkanProgram {
            chunks: recorded.chunks,
            timestamps: recorded.timestamps,
            breadcrumb,
            touched: touched(&lowering, &staging),
            inputs: staging.inputs,
            outputs: staging.outputs,
            storage: lowering.storage,
            names: plan.steps.iter().map(|&id| graph.tensor(id).name.clone()).collect(),
            readable: readable(graph),
            graph: graph.clone(),
            debug: plan.debug,
            stepwise: options.stepwise,
            ran: false,
            fresh: false,
            last: 0,
            shape,
            shared: shared.clone(),
        })
    }

    /// How the program is made up.
    pub fn shape(&self) -> ProgramShape {
        self.shape
    }

    fn phase(&self) -> Phase {
        if self.ran { Phase::Compute } else { Phase::FirstCompute }
    }

    /// Waits for an earlier run that was given up, if there is one.
    fn settle(&self, deadline: &Deadline) -> Result<()> {
        self.shared.device.wait(self.last, deadline).map_err(|error| self.locate(error))
    }

    /// Submits a range of chunks and waits for them.
    fn submit(&mut self, chunks: Range<usize>) -> Result<Timing> {
        let (shared, phase) = (self.shared.clone(), self.phase());
        let _span = phase::enter(phase, &shared.device.name);
        let deadline = shared.deadline(phase);
        self.settle(&deadline)?;
        self.fresh = false;
        if let Some(breadcrumb) = &self.breadcrumb {
            breadcrumb.reset()?;
        }
        let start = Instant::now();
        for chunk in chunks.clone() {
            let submitted = shared.device.submit(&mut self.chunks[chunk].commands, phase);
            match submitted {
                Ok(value) => self.last = value,
                Err(error) => {
                    self.touch();
                    return Err(self.locate(error));
                }
            }
            shared.counters.submissions.fetch_add(1, Ordering::Relaxed);
        }
        self.touch();
        self.settle(&deadline)?;
        if chunks.is_empty() {
            return Ok(Timing::default());
        }
        let host = start.elapsed();
        Ok(Timing { host, device: self.measure(chunks) })
    }

    fn touch(&self) {
        self.touched.iter().for_each(|buffer| buffer.used(self.last));
    }

    /// Device time of chunks that are complete; corrects the time model with each.
    fn measure(&self, chunks: Range<usize>) -> Option<std::time::Duration> {
        let timestamps = self.timestamps.as_ref()?;
        // A first run pays for more than its work: page faults, code that is loaded, clocks that rise.
        if self.ran {
            self.shared.model.observe(chunks.clone().filter_map(|chunk| {
                let measured = timestamps.between(2 * chunk as u32, 2 * chunk as u32 + 1)?;
                Some((self.chunks[chunk].seconds, measured))
            }));
        }
        timestamps.between(2 * chunks.start as u32, 2 * chunks.end.checked_sub(1)? as u32 + 1)
    }

    /// Adds the node that was running to an error.
    fn locate(&self, error: Error) -> Error {
        match self.running() {
            Some(node) => error.with_node(&node),
            None => error,
        }
    }

    /// The node that the device is at, or the first and last node of the submission that it is at.
    fn running(&self) -> Option<String> {
        if let Some(done) = self.breadcrumb.as_ref().and_then(Breadcrumb::completed) {
            return self.names.get(done).cloned();
        }
        let reached = self.shared.device.reached();
        let chunk = self.chunks.iter().find(|c| c.commands.last_use() > reached)?;
        let (first, last) =
            (self.names.get(chunk.steps.start)?, self.names.get(chunk.steps.end.checked_sub(1)?)?);
        Some(if first == last { first.clone() } else { format!("{first} .. {last}") })
    }

    /// The place of a whole contiguous tensor.
    fn place(&self, id: TensorId, len: usize) -> Result<(&Storage, u64)> {
        let known = id.index() < self.graph.tensors().len();
        let tensor = known
            .then(|| self.graph.tensor(id))
            .ok_or_else(|| Error::argument_said("tensor", "is not in the graph"))?;
        if !tensor.is_contiguous() || tensor.dense_bytes() != len {
            let why =
                format!("{} has {} contiguous bytes, not {len}", tensor.describe(), tensor.dense_bytes());
            return Err(Error::argument_said("tensor", why));
        }
        let storage = self.storage.get(&tensor.root);
        let storage = storage
            .ok_or_else(|| Error::argument_said("tensor", format!("'{}' has no storage", tensor.name)))?;
        Ok((storage, storage.offset + tensor.offset as u64))
    }
}

impl Program for VulkanProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        let shared = self.shared.clone();
        let _span = phase::enter(Phase::Upload, &shared.device.name);
        let deadline = shared.deadline(Phase::Upload);
        let (storage, offset) = self.place(tensor, data.len())?;
        let (buffer, inside) = (storage.buffer.clone(), offset - storage.offset);
        let root = self.graph.tensor(tensor).root;
        match self.graph.tensor(root).source {
            Source::Weight => {
                return Err(Error::argument_said(
                    "tensor",
                    format!("'{}' is a weight", self.graph.tensor(root).name),
                ));
            }
            Source::Node { .. } if !self.debug => {
                return Err(Error::argument_said("tensor", "nodes can be written only under a debug plan"));
            }
            _ => {}
        }
        self.settle(&deadline)?;
        self.fresh = false;
        match self.inputs.place(root) {
            Some((staging, at)) => {
                shared.counters.uploaded.fetch_add(data.len() as u64, Ordering::Relaxed);
                staging.write(at + inside, data)
            }
            None => shared.put(&buffer, offset, data, &deadline),
        }
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        let shared = self.shared.clone();
        let _span = phase::enter(Phase::Readback, &shared.device.name);
        let deadline = shared.deadline(Phase::Readback);
        let (storage, offset) = self.place(tensor, out.len())?;
        let root = self.graph.tensor(tensor).root;
        let kept = self.debug || !matches!(self.graph.tensor(root).source, Source::Node { .. });
        if !kept && !self.readable.contains(&root) {
            let why = "is no output, and its memory is used again; a debug plan keeps it";
            return Err(Error::argument_said(format!("tensor '{}'", self.graph.tensor(tensor).name), why));
        }
        self.settle(&deadline)?;
        match self.outputs.place(tensor) {
            Some((staging, at)) if self.fresh => staging.read(at, out),
            _ => match self.inputs.place(root) {
                // An input that no run has copied to the device yet.
                Some((staging, at)) if !self.ran => staging.read(at + offset - storage.offset, out),
                _ => shared.fetch(&storage.buffer, offset, out, &deadline),
            },
        }
    }

    fn run(&mut self) -> Result<Timing> {
        let timing = self.submit(0..self.chunks.len())?;
        self.ran = true;
        self.fresh = true;
        Ok(timing)
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        if !self.stepwise {
            return Err(Error::argument_said("run_step", "the program was not prepared stepwise"));
        }
        if step >= self.names.len() {
            return Err(Error::argument_said("step", format!("{step} is not in the plan")));
        }
        let first = self.chunks.partition_point(|c| c.steps.start < step);
        let end = self.chunks.partition_point(|c| c.steps.start <= step);
        let timing = self.submit(first..end).map_err(|error| error.with_node(&self.names[step]))?;
        if step + 1 == self.names.len() {
            self.ran = true;
        }
        Ok(timing)
    }
}

/// An error unless the plan can be that of the graph.
fn check(graph: &Graph, plan: &Plan) -> Result<()> {
    let count = graph.tensors().len();
    let steps = plan.steps.iter().all(|id| id.index() < count && graph.tensor(*id).op().is_some());
    if !steps || graph.computed().count() != plan.steps.len() {
        return Err(Error::argument_said("plan", "was made for another graph"));
    }
    Ok(())
}

fn arena(shared: &Shared, plan: &Plan, bindings: &Bindings, deadline: &Deadline) -> Result<Arc<Buffer>> {
    match &bindings.compute {
        Some(given) if given.bytes() < plan.arena_bytes => {
            let why = format!("has {} bytes; the plan needs {}", given.bytes(), plan.arena_bytes);
            Err(Error::argument_said("compute buffer", why))
        }
        Some(given) => Ok(VulkanMemory::writable(given, 0, plan.arena_bytes, &shared.device)?.0.clone()),
        None => shared.arena(plan.arena_bytes, Usage::Compute, deadline),
    }
}

/// Staging for inputs that the host cannot write in place. A stepwise program uploads them at once instead.
fn inputs(
    shared: &Shared,
    graph: &Graph,
    lowering: &Lowering,
    options: PrepareOptions,
    deadline: &Deadline,
) -> Result<Staged> {
    let wanted = graph.ids().filter(|&id| graph.tensor(id).source == Source::Input && !options.stepwise);
    let places = wanted.filter_map(|id| {
        let storage = lowering.storage.get(&id)?;
        (!shared.writes_directly(&storage.buffer)).then(|| (id, storage.clone()))
    });
    Staged::new(shared, places.collect(), "inputs", deadline)
}

/// Outputs larger than this are fetched when they are asked for, as state is, instead of being copied after every run.
const STAGED_OUTPUT: usize = 16 << 20;

fn outputs(
    shared: &Shared,
    graph: &Graph,
    lowering: &Lowering,
    options: PrepareOptions,
    deadline: &Deadline,
) -> Result<Staged> {
    let wanted = graph.outputs().iter().filter(|_| !options.stepwise);
    let places = wanted.filter_map(|&id| {
        let tensor = graph.tensor(id);
        let storage = lowering.storage.get(&tensor.root)?;
        let in_arena = !matches!(graph.tensor(tensor.root).source, Source::Weight | Source::State);
        let fits = in_arena && tensor.is_contiguous() && tensor.dense_bytes() <= STAGED_OUTPUT;
        let place = Storage {
            offset: storage.offset + tensor.offset as u64,
            bytes: tensor.dense_bytes() as u64,
            ..storage.clone()
        };
        (fits && !shared.reads_directly(&storage.buffer)).then_some((id, place))
    });
    Staged::new(shared, places.collect(), "outputs", deadline)
}

/// Roots of outputs.
fn readable(graph: &Graph) -> HashSet<TensorId> {
    graph.outputs().iter().map(|&id| graph.tensor(id).root).collect()
}

/// The distinct buffers of a program that the host may touch too.
fn touched(lowering: &Lowering, staging: &record::Staging) -> Vec<Arc<Buffer>> {
    let mut buffers: Vec<Arc<Buffer>> = lowering.storage.values().map(|s| s.buffer.clone()).collect();
    buffers.extend(staging.inputs.buffer().cloned());
    buffers.extend(staging.outputs.buffer().cloned());
    buffers.sort_by_key(|b| Arc::as_ptr(b).addr());
    buffers.dedup_by(|a, b| Arc::ptr_eq(a, b));
    buffers
}
