//! Prepared programs: recorded once, submitted for every run.

mod bound;
mod breadcrumb;
mod hazard;
mod io;
mod lower;
pub(crate) mod outline;
mod record;
mod schedule;
pub(crate) mod target;
mod windows;

pub use record::ProgramStats;

use crate::context::DeviceContext;
use crate::memory::{Memory, VulkanMemory};
use crate::pipeline::PipelineSet;
use crate::raw::buffer::Buffer;
use crate::raw::commands::Commands;
use crate::raw::queries::Timestamps;
use bound::Bound;
use breadcrumb::Breadcrumb;
use ggml_core::backend::{Bindings, PrepareOptions, Program, Timing, Usage};
use ggml_core::plan::Plan;
use ggml_core::{Deadline, Error, Graph, Phase, Result, Source, TensorId, phase};
use io::Staged;
use lower::lower;
use record::{Recording, Segment, Staging, record};
use schedule::segments_of_submission;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use target::Target;
use windows::Storage;

/// A graph recorded for a device.
pub struct VulkanProgram {
    segments: Vec<Segment>,
    timestamps: Option<Arc<Timestamps>>,
    breadcrumb: Option<Breadcrumb>,
    inputs: Staged,
    outputs: Staged,
    bound: Bound,
    /// Buffers whose last use each run updates.
    used_buffers: Vec<Arc<Buffer>>,
    graph: Graph,
    /// Names of the steps' nodes.
    names: Vec<String>,
    /// Root tensors that can be read after a run.
    readable: HashSet<TensorId>,
    debug: bool,
    stepwise: bool,
    ran: bool,
    /// True if a run has begun and has not been finished.
    begun: bool,
    /// True if only a part of the last run was submitted, so that its counters may not be zero.
    partial: bool,
    /// True if the staged outputs are from the last run.
    fresh: bool,
    last: u64,
    stats: ProgramStats,
    memory: Arc<Memory>,
}

impl std::fmt::Debug for VulkanProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanProgram").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl VulkanProgram {
    pub(crate) fn prepare(
        memory: &Arc<Memory>,
        pipelines: &Arc<PipelineSet>,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<VulkanProgram> {
        let context = memory.context();
        let _span = phase::enter(Phase::Prepare, context.name());
        context.device.check_alive(Phase::Prepare)?;
        check(graph, plan)?;
        let deadline = context.deadline(Phase::Prepare);
        let arena = arena(memory, plan, bindings, &deadline)?;
        let mut bound = Bound::new(&context.device, graph, plan, bindings, &arena)?;
        let lowering =
            lower(&Target::new(context, pipelines), graph, plan, &bound.storage, options.stepwise)?;
        for constant in &lowering.constants {
            bound.constants.push(memory.constant(constant, &deadline)?);
        }
        if lowering.scratch.max(lowering.counters) > 0 {
            bound.own = vec![
                memory.arena(lowering.scratch.max(4), Usage::Compute, &deadline)?,
                memory.arena(lowering.counters.max(4), Usage::State, &deadline)?,
            ];
        }
        let pipelines = pipelines.prepare(&lowering.pipelines, &deadline)?;
        let breadcrumb = match context.options.breadcrumbs {
            true => Some(Breadcrumb::new(memory, &deadline)?),
            false => None,
        };
        let staging = Staging {
            inputs: inputs(memory, graph, &bound, options, &deadline)?,
            outputs: outputs(memory, graph, &bound, options, &deadline)?,
        };
        let recording = Recording {
            lowering: &lowering,
            pipelines: &pipelines,
            bound: &bound,
            staging: &staging,
            breadcrumb: breadcrumb.as_ref(),
            stepwise: options.stepwise,
        };
        let recorded = record(context, &recording)?;
        let mut stats = recorded.stats;
        stats.steps = plan.steps.len();
        context.counters.programs.fetch_add(1, Ordering::Relaxed);
        context.counters.recordings.fetch_add(recorded.segments.len() as u64, Ordering::Relaxed);
        tracing::debug!(backend = context.name(), ?stats, "prepared");
        Ok(VulkanProgram {
            segments: recorded.segments,
            timestamps: recorded.timestamps,
            breadcrumb,
            used_buffers: used_buffers(&bound, &staging),
            inputs: staging.inputs,
            outputs: staging.outputs,
            bound,
            names: plan.steps.iter().map(|step| graph.tensor(step.node()).name.clone()).collect(),
            readable: readable(graph),
            graph: graph.clone(),
            debug: plan.debug,
            stepwise: options.stepwise,
            ran: false,
            begun: false,
            partial: false,
            fresh: false,
            last: 0,
            stats,
            memory: memory.clone(),
        })
    }

    /// Returns the numbers of steps, dispatches and other parts of the program.
    pub fn stats(&self) -> ProgramStats {
        self.stats
    }

    fn context(&self) -> &Arc<DeviceContext> {
        self.memory.context()
    }

    fn phase(&self) -> Phase {
        if self.ran { Phase::Compute } else { Phase::FirstCompute }
    }

    /// Waits until the last submission is complete, for example one whose run timed out.
    fn wait_in_flight(&self, deadline: &Deadline) -> Result<()> {
        self.context().device.wait(self.last, deadline).map_err(|error| self.with_running_node(error))
    }

    /// Submits a range of segments and waits for them.
    fn execute(&mut self, range: Range<usize>) -> Result<Timing> {
        let context = self.context().clone();
        let _span = phase::enter(self.phase(), context.name());
        let deadline = context.deadline(self.phase());
        self.wait_in_flight(&deadline)?;
        let start = Instant::now();
        self.submit(range.clone(), &deadline)?;
        self.wait_in_flight(&deadline)?;
        if range.is_empty() {
            return Ok(Timing::default());
        }
        let host = start.elapsed();
        Ok(Timing { host, device: self.measure(range) })
    }

    /// Returns an error if a run has begun and has not been finished.
    fn check_idle(&self, call: &str) -> Result<()> {
        match self.begun {
            true => Err(Error::argument(call, "a program whose run has begun", "one ended with `finish`")),
            false => Ok(()),
        }
    }

    /// Zeros the counters if a part of the last run was not submitted: its work-groups never arrive.
    fn restore_counters(&mut self, deadline: &Deadline) -> Result<()> {
        if let (true, [_, counters]) = (self.partial, &self.bound.own[..]) {
            self.memory.fill(counters, 0, deadline)?;
        }
        self.partial = false;
        Ok(())
    }

    /// Submits a range of segments. No earlier run may be in flight.
    fn submit(&mut self, range: Range<usize>, deadline: &Deadline) -> Result<()> {
        let context = self.context().clone();
        self.restore_counters(deadline)?;
        self.fresh = false;
        if let Some(breadcrumb) = &self.breadcrumb {
            breadcrumb.reset()?;
        }
        let mut rest = range;
        while !rest.is_empty() {
            let next = rest.start..rest.start + self.next_submission(rest.clone());
            rest.start = next.end;
            let commands = self.segments[next].iter_mut().map(|segment| &mut segment.commands);
            match Commands::submit_together(commands.collect(), deadline) {
                Ok(value) => self.last = value,
                Err(error) => {
                    self.partial = true;
                    self.record_use();
                    return Err(self.with_running_node(error));
                }
            }
            context.counters.submissions.fetch_add(1, Ordering::Relaxed);
        }
        self.record_use();
        Ok(())
    }

    /// Returns how many of the next segments fit one submission: as many as the budget allows with the current
    /// time estimates, which may be more than when they were recorded. A segment that turns out longer than the
    /// budget is not split.
    fn next_submission(&self, rest: Range<usize>) -> usize {
        if self.stepwise {
            return 1;
        }
        let context = self.context();
        segments_of_submission(
            self.segments[rest].iter().map(|segment| context.model.seconds(segment.estimate)),
            context.budget(),
        )
    }

    fn record_use(&self) {
        self.used_buffers.iter().for_each(|buffer| buffer.used(self.last));
    }

    /// Returns the device time of completed segments and updates the time model with it.
    fn measure(&self, range: Range<usize>) -> Option<std::time::Duration> {
        let timestamps = self.timestamps.as_ref()?;
        // A single step may be much faster than the other steps of its kind.
        if !self.stepwise {
            let parts = range.clone().filter_map(|index| {
                let measured = timestamps.between(2 * index as u32, 2 * index as u32 + 1)?;
                Some((self.segments[index].estimate, measured))
            });
            self.context().model.observe(parts, !self.ran);
        }
        timestamps.between(2 * range.start as u32, 2 * range.end.checked_sub(1)? as u32 + 1)
    }

    /// Adds the node that was being executed to an error.
    fn with_running_node(&self, error: Error) -> Error {
        match self.running_node() {
            Some(node) => error.with_node(&node),
            None => error,
        }
    }

    /// Returns the node that the device is executing, or the first and last node of the submission in
    /// execution.
    fn running_node(&self) -> Option<String> {
        if let Some(done) = self.breadcrumb.as_ref().and_then(Breadcrumb::completed) {
            return self.names.get(done).cloned();
        }
        let reached = self.context().device.reached();
        let at = self.segments.iter().find(|segment| segment.commands.last_use() > reached)?;
        let together = |segment: &&Segment| segment.commands.last_use() == at.commands.last_use();
        let end = self.segments.iter().rfind(together)?.steps.end;
        let (first, last) = (self.names.get(at.steps.start)?, self.names.get(end.checked_sub(1)?)?);
        Some(if first == last { first.clone() } else { format!("{first} .. {last}") })
    }

    /// Returns the storage and offset of a whole contiguous tensor.
    fn location(&self, id: TensorId, len: usize) -> Result<(&Storage, u64)> {
        let tensor = self.graph.tensors().get(id.index()).ok_or_else(|| {
            let expected =
                format!("a tensor of the program's graph, which has {}", self.graph.tensors().len());
            Error::argument("tensor", id.index(), expected)
        })?;
        if !tensor.is_contiguous() || tensor.dense_bytes() != len {
            let what = format!("data of {}", tensor.describe());
            let kind = if tensor.is_contiguous() { "" } else { ", and a tensor without gaps" };
            let expected = format!("{} bytes{kind}", tensor.dense_bytes());
            return Err(Error::argument(what, format!("{len} bytes"), expected));
        }
        let storage = self.bound.storage.get(&tensor.root);
        let storage = storage
            .ok_or_else(|| Error::argument(format!("storage of '{}'", tensor.name), "none", "a buffer"))?;
        Ok((storage, storage.offset + tensor.offset as u64))
    }
}

impl Program for VulkanProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        self.check_idle("write")?;
        let memory = self.memory.clone();
        let _span = phase::enter(Phase::Upload, memory.context().name());
        let deadline = memory.context().deadline(Phase::Upload);
        let (storage, offset) = self.location(tensor, data.len())?;
        let (buffer, inside) = (self.bound.buffer(storage.buffer).clone(), offset - storage.offset);
        let root = self.graph.tensor(tensor).root;
        let wrong = |found: &str, expected: &str| {
            Error::argument(format!("writing '{}'", self.graph.tensor(tensor).name), found, expected)
        };
        match self.graph.tensor(root).source {
            Source::Weight => return Err(wrong("a weight", "an input or state")),
            Source::Node { .. } if !self.debug => {
                return Err(wrong("a node", "an input or state; a node only under a debug plan"));
            }
            _ => {}
        }
        self.wait_in_flight(&deadline)?;
        self.fresh = false;
        match self.inputs.location(root) {
            Some((staging, at)) => {
                memory.context().counters.uploaded.fetch_add(data.len() as u64, Ordering::Relaxed);
                staging.write(at + inside, data)
            }
            None => memory.upload(&buffer, offset, data, &deadline),
        }
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        let memory = self.memory.clone();
        let _span = phase::enter(Phase::Readback, memory.context().name());
        let deadline = memory.context().deadline(Phase::Readback);
        let (storage, offset) = self.location(tensor, out.len())?;
        let root = self.graph.tensor(tensor).root;
        let kept = self.debug || !matches!(self.graph.tensor(root).source, Source::Node { .. });
        if !kept && !self.readable.contains(&root) {
            let what = format!("reading '{}'", self.graph.tensor(tensor).name);
            return Err(Error::argument(
                what,
                "a node whose memory is used again",
                "an output; any node under a debug plan",
            ));
        }
        self.wait_in_flight(&deadline)?;
        match self.outputs.location(tensor) {
            Some((staging, at)) if self.fresh => staging.read(at, out),
            _ => match self.inputs.location(root) {
                // No run has copied the input to the device yet.
                Some((staging, at)) if !self.ran => staging.read(at + offset - storage.offset, out),
                _ => memory.download(self.bound.buffer(storage.buffer), offset, out, &deadline),
            },
        }
    }

    fn run(&mut self) -> Result<Timing> {
        self.check_idle("run")?;
        let timing = self.execute(0..self.segments.len())?;
        self.ran = true;
        self.fresh = true;
        Ok(timing)
    }

    fn begin(&mut self) -> Result<()> {
        self.check_idle("begin")?;
        if self.stepwise {
            let found = "a program that was prepared stepwise";
            return Err(Error::argument("begin", found, "one that was not"));
        }
        let context = self.context().clone();
        let _span = phase::enter(self.phase(), context.name());
        let deadline = context.deadline(self.phase());
        self.wait_in_flight(&deadline)?;
        self.submit(0..self.segments.len(), &deadline)?;
        self.begun = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<Timing> {
        if !std::mem::take(&mut self.begun) {
            return Err(Error::argument("finish", "a program that has not begun", "one that has"));
        }
        let context = self.context().clone();
        let _span = phase::enter(self.phase(), context.name());
        let start = Instant::now();
        self.wait_in_flight(&context.deadline(self.phase()))?;
        let timing = Timing { host: start.elapsed(), device: self.measure(0..self.segments.len()) };
        (self.ran, self.fresh) = (true, true);
        Ok(timing)
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        if !self.stepwise {
            return Err(Error::argument(
                "run_step",
                "a program that was not prepared stepwise",
                "one that was",
            ));
        }
        if step >= self.names.len() {
            return Err(Error::argument("step", step, format!("less than {}", self.names.len())));
        }
        let first = self.segments.partition_point(|s| s.steps.start < step);
        let end = self.segments.partition_point(|s| s.steps.start <= step);
        let timing = self.execute(first..end).map_err(|error| error.with_node(&self.names[step]))?;
        if step + 1 == self.names.len() {
            self.ran = true;
        }
        Ok(timing)
    }
}

/// Returns an error if the plan does not belong to the graph.
fn check(graph: &Graph, plan: &Plan) -> Result<()> {
    let count = graph.tensors().len();
    let mut nodes: Vec<TensorId> = plan.steps.iter().flat_map(|step| step.group.nodes()).collect();
    let known = nodes.iter().all(|id| id.index() < count && graph.tensor(*id).op().is_some());
    // Groups may share members.
    nodes.sort_unstable();
    nodes.dedup();
    if !known || graph.computed().count() != nodes.len() {
        let expected = format!("a plan of this graph, which has {}", graph.computed().count());
        return Err(Error::argument("plan", format!("{} steps", plan.steps.len()), expected));
    }
    Ok(())
}

/// Returns the buffers of the arena: the caller's, or new ones.
fn arena(memory: &Memory, plan: &Plan, bindings: &Bindings, deadline: &Deadline) -> Result<Vec<Arc<Buffer>>> {
    bindings.check_arena(plan)?;
    let of_plan = plan.arena.iter().enumerate();
    of_plan
        .map(|(i, &bytes)| match bindings.compute.get(i) {
            Some(given) => Ok(VulkanMemory::writable(given, 0, bytes, &memory.context().device)?.0.clone()),
            None => memory.arena(bytes, Usage::Compute, deadline),
        })
        .collect()
}

/// Creates staging for inputs that the host cannot write in place, or must not write while other programs use
/// the arena. A stepwise program has no staging: it uploads inputs immediately.
fn inputs(
    memory: &Memory,
    graph: &Graph,
    bound: &Bound,
    options: PrepareOptions,
    deadline: &Deadline,
) -> Result<Staged> {
    let wanted = graph.ids().filter(|&id| graph.tensor(id).source == Source::Input && !options.stepwise);
    let places = wanted.filter_map(|id| {
        let storage = bound.storage.get(&id)?;
        let staged = options.overlaps || !memory.writes_directly(bound.buffer(storage.buffer));
        staged.then_some((id, *storage))
    });
    Staged::new(memory, places.collect(), "inputs", deadline)
}

/// Maximum bytes of a staged output. Larger outputs are fetched on request, like state, instead of being
/// copied after every run.
const STAGED_OUTPUT: usize = 16 << 20;

fn outputs(
    memory: &Memory,
    graph: &Graph,
    bound: &Bound,
    options: PrepareOptions,
    deadline: &Deadline,
) -> Result<Staged> {
    let wanted = graph.outputs().iter().filter(|_| !options.stepwise);
    let places = wanted.filter_map(|&id| {
        let tensor = graph.tensor(id);
        let storage = bound.storage.get(&tensor.root)?;
        let in_arena = !matches!(graph.tensor(tensor.root).source, Source::Weight | Source::State);
        let fits = in_arena && tensor.is_contiguous() && tensor.dense_bytes() <= STAGED_OUTPUT;
        let place = Storage {
            offset: storage.offset + tensor.offset as u64,
            bytes: tensor.dense_bytes() as u64,
            ..*storage
        };
        (fits && !memory.reads_directly(bound.buffer(storage.buffer))).then_some((id, place))
    });
    Staged::new(memory, places.collect(), "outputs", deadline)
}

/// Returns the root tensors of the outputs.
fn readable(graph: &Graph) -> HashSet<TensorId> {
    graph.outputs().iter().map(|&id| graph.tensor(id).root).collect()
}

/// Returns the distinct buffers of a program that the host may also access.
fn used_buffers(bound: &Bound, staging: &Staging) -> Vec<Arc<Buffer>> {
    let mut buffers = bound.buffers.clone();
    buffers.extend(staging.inputs.buffer().cloned());
    buffers.extend(staging.outputs.buffer().cloned());
    buffers
}
