//! Prepared programs.

use super::bind::{Span, Storage};
use super::crew::Crew;
use super::execution::{Execution, Line, lines};
use super::gate::Access;
use super::isa::Detected;
use super::memory::{HostMemory, MemorySet};
use super::op::{self, Args, Kernel, MAX_OPERANDS, Planned};
use super::window::{MAX_RESULTS, Window};
use super::{NAME, SharedStats};
use crate::backend::{Bindings, Buffer, PrepareOptions, Program, Timing, Usage};
use crate::deadline::Deadline;
use crate::error::{Error, Phase, Result};
use crate::fuse::Group;
use crate::graph::Graph;
use crate::phase::{self, Deadlines};
use crate::plan::Plan;
use crate::tensor::{Source, Tensor, TensorId};
use std::sync::{Arc, Mutex};

/// State shared by all programs of a backend.
#[derive(Debug)]
pub(super) struct Engine {
    /// Instruction set.
    pub(super) detected: Detected,
    /// Number of threads.
    pub(super) threads: usize,
    /// Helper threads, without the caller's.
    pub(super) crew: Option<Crew>,
    /// Deadlines.
    pub(super) deadlines: Deadlines,
    /// Counters.
    pub(super) stats: SharedStats,
}

/// A step: a kernel and its operands' addresses.
#[derive(Debug)]
struct PreparedStep {
    node: String,
    kernel: Box<dyn Kernel>,
    /// Operands that the kernel reads. `None`: missing, or already stored in the output before the step.
    src: [Option<Window>; MAX_OPERANDS],
    out: Window,
    /// Further results.
    more: [Option<Window>; MAX_RESULTS - 1],
    /// Operands that overlap a result, each with the window from which the kernel reads it: copied before the
    /// step.
    copies: Vec<(Window, Window)>,
}

/// A caller's access to a tensor of the program.
#[derive(Debug)]
struct Port {
    span: Option<Span>,
    readable: bool,
    writable: bool,
    name: String,
}

/// A graph with every step resolved to a kernel and addresses.
#[derive(Debug)]
pub(super) struct CpuProgram {
    engine: Arc<Engine>,
    steps: Vec<PreparedStep>,
    /// Memories that contain the windows of `steps`; they live as long as the program.
    memories: MemorySet,
    ports: Vec<Port>,
    shared: Vec<Line>,
    locals: Vec<Mutex<Vec<Line>>>,
    stepwise: bool,
    ran: bool,
}

impl CpuProgram {
    /// Selects kernels, checks and resolves all addresses, and allocates all memory needed by runs.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a node without a kernel, [`Error::InvalidArgument`] for bindings or plans
    /// that do not match the graph, [`Error::OutOfMemory`].
    pub(super) fn new(
        engine: Arc<Engine>,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<CpuProgram> {
        bindings.check_arena(plan)?;
        let arena = match bindings.compute.is_empty() {
            true => plan.arena.iter().map(|&bytes| allocate(&engine, bytes)).collect::<Result<_>>()?,
            false => bindings.compute.clone(),
        };
        let mut storage = Storage::new(graph, plan, bindings, arena)?;
        for id in graph.ids().filter(|&id| matches!(graph.tensor(id).source, Source::Weight | Source::State))
        {
            storage.window(id, Access::Read)?;
        }
        let mut copies = Copies::default();
        let mut steps = Vec::with_capacity(plan.steps.len());
        for planned in &plan.steps {
            let id = planned.node();
            if id.index() >= graph.tensors().len() {
                return Err(Error::argument("plan", "another graph's", ""));
            }
            let step = step(&engine, graph, plan, &mut storage, &mut copies, &planned.group)?;
            let idle =
                || Error::argument("step of the plan", graph.tensor(id).describe(), "a node that computes");
            steps.push(step.ok_or_else(idle)?);
        }
        copies.allocate(&engine, graph, &mut storage.memories, &mut steps)?;
        let shared = steps.iter().map(|s| s.kernel.shared_bytes()).max().unwrap_or(0);
        let local = steps.iter().map(|s| s.kernel.local_bytes()).max().unwrap_or(0);
        let ports = graph.ids().map(|id| port(graph, plan, &storage, id)).collect();
        engine.stats.change(|s| {
            s.programs += 1;
            s.recordings += 1;
            s.pipelines += steps.len() as u64;
        });
        Ok(CpuProgram {
            steps,
            memories: storage.memories,
            ports,
            shared: lines(shared)?,
            locals: (0..engine.threads).map(|_| Ok(Mutex::new(lines(local)?))).collect::<Result<_>>()?,
            stepwise: options.stepwise,
            ran: false,
            engine,
        })
    }

    fn port(&self, tensor: TensorId) -> Result<&Port> {
        self.ports
            .get(tensor.index())
            .ok_or_else(|| Error::argument("tensor", tensor.0, format!("below {}", self.ports.len())))
    }

    /// Runs steps, with all memories held.
    fn execute(&mut self, which: std::ops::Range<usize>) -> Result<Timing> {
        let phase = if self.ran { Phase::Compute } else { Phase::FirstCompute };
        let _span = phase::enter(phase, NAME);
        let deadline = Deadline::new(phase, self.engine.deadlines.of(phase));
        let held = self.memories.hold(&deadline)?;
        let engine = &*self.engine;
        let run =
            Execution::new(engine.detected, engine.threads, engine.crew.as_ref(), &self.locals, deadline);
        let last = all(&self.steps[which], &run, &mut self.shared);
        drop(held);
        if let Some(step) = last {
            return Err(deadline.missed(NAME, Some(step.node.clone())));
        }
        self.engine.stats.change(|s| s.submissions += 1);
        Ok(Timing { host: deadline.elapsed(), device: None })
    }
}

/// Runs steps in order. Returns the step after which the deadline had passed, if any.
fn all<'a>(steps: &'a [PreparedStep], run: &Execution<'_>, shared: &mut [Line]) -> Option<&'a PreparedStep> {
    steps.iter().find(|step| {
        step.run(run, shared);
        run.check_deadline()
    })
}

impl PreparedStep {
    fn run(&self, run: &Execution<'_>, shared: &mut [Line]) {
        for (from, to) in &self.copies {
            // SAFETY: the program holds the gates of all its memories, so no other thread accesses them; `to`
            // is in memory that the program owns for this purpose.
            unsafe { from.copy_to(to) };
        }
        // SAFETY: the windows are within memories that the program keeps alive and whose gates it holds.
        // During this step only the step itself writes to its operands, and its results do not overlap them
        // (`step`, `Copies`).
        let src = self.src.map(|window| window.map(|w| unsafe { w.input() }));
        let [out, more @ ..] =
            // SAFETY: as above; the memory is writable (checked by `Storage::window`), and no two results
            // overlap.
            [Some(self.out), self.more[0], self.more[1]].map(|w| w.map(|w| unsafe { w.output() }));
        if let Some(out) = out {
            self.kernel.run(run, Args { src, out, more, shared });
        }
    }
}

/// Resolves a group to a step.
fn step(
    engine: &Engine,
    graph: &Graph,
    plan: &Plan,
    storage: &mut Storage<'_>,
    copies: &mut Copies,
    group: &Group,
) -> Result<Option<PreparedStep>> {
    let name = || graph.tensor(group.last()).name.clone();
    let planned = op::plan(graph, group, plan.precision, engine.detected).map_err(|reason| {
        Error::Unsupported { backend: NAME.into(), op: group.name(graph), node: name(), reason }
    })?;
    let Some(Planned { kernel, src: operands, out: results }) = planned else { return Ok(None) };
    let mut out: Vec<Window> = Vec::with_capacity(results.len());
    for id in results {
        let window = storage.window(id, Access::Write)?;
        if out.iter().any(|other| other.overlaps(&window)) {
            let found = graph.tensor(id).describe();
            return Err(Error::argument("storage", found, "one for each result of a step"));
        }
        out.push(window);
    }
    let in_place = match group {
        Group::Node(id) => graph.tensor(*id).op().map_or(&[][..], |op| op.definition().in_place()),
        _ => &[],
    };
    let mut src = [None; MAX_OPERANDS];
    let mut taken_over = false;
    let mut staged = Vec::new();
    for (i, operand) in operands.into_iter().enumerate() {
        let (Some(slot), Some(operand)) = (src.get_mut(i), operand) else { continue };
        let window = storage.window(operand, Access::Read)?;
        if !out.iter().any(|out| window.overlaps(out)) {
            *slot = Some(window);
        } else if !taken_over && in_place.contains(&i) && window.same(&out[0]) {
            taken_over = true;
        } else {
            staged.push((i, operand, window));
        }
    }
    copies.add(staged);
    let mut out = out.into_iter();
    let Some(first) = out.next() else { return Ok(None) };
    let more = std::array::from_fn(|_| out.next());
    Ok(Some(PreparedStep { node: name(), kernel, src, out: first, more, copies: Vec::new() }))
}

/// Operands that overlap a result of their step in a way that the kernel does not support. Each is read from
/// a copy, in one memory that all steps reuse.
#[derive(Debug, Default)]
struct Copies {
    /// For each step the operands: index, tensor, window.
    steps: Vec<Vec<(usize, TensorId, Window)>>,
}

impl Copies {
    fn add(&mut self, step: Vec<(usize, TensorId, Window)>) {
        self.steps.push(step);
    }

    /// Returns the offset after a copy that begins at `offset`.
    fn after(offset: usize, window: &Window) -> usize {
        (offset + window.span()).next_multiple_of(super::memory::ALIGNMENT)
    }

    /// Allocates the memory, if any step needs it, and assigns a window to each operand.
    fn allocate(
        &self,
        engine: &Engine,
        graph: &Graph,
        memories: &mut MemorySet,
        steps: &mut [PreparedStep],
    ) -> Result<()> {
        let bytes = |s: &Vec<(usize, TensorId, Window)>| {
            s.iter().fold(0, |offset, (_, _, w)| Copies::after(offset, w))
        };
        let most = self.steps.iter().map(bytes).max().unwrap_or(0);
        if most == 0 {
            return Ok(());
        }
        let buffer = allocate(engine, most)?;
        memories.add(&buffer, Access::Write)?;
        let memory = HostMemory::of(&buffer)?;
        for (step, operands) in steps.iter_mut().zip(&self.steps) {
            let mut offset = 0;
            for (i, tensor, from) in operands {
                let to = memory.window(offset, graph.tensor(*tensor))?;
                step.copies.push((*from, to));
                step.src[*i] = Some(to);
                offset = Copies::after(offset, from);
            }
        }
        Ok(())
    }
}

fn allocate(engine: &Engine, bytes: usize) -> Result<Buffer> {
    Ok(Buffer::new(Arc::new(HostMemory::allocate(bytes, &engine.stats)?), bytes, Usage::Compute))
}

/// Determines the access that a caller has to a tensor.
fn port(graph: &Graph, plan: &Plan, storage: &Storage<'_>, id: TensorId) -> Port {
    let tensor: &Tensor = graph.tensor(id);
    let source = &graph.tensor(tensor.root).source;
    let kept = plan.debug || graph.outputs().iter().any(|&o| graph.tensor(o).root == tensor.root);
    let node = matches!(source, Source::Node { .. });
    Port {
        span: storage.span(id).ok(),
        readable: !node || kept,
        writable: *source == Source::Input || *source == Source::State || node && plan.debug,
        name: tensor.describe(),
    }
}

impl Port {
    /// Returns the bytes of the tensor if the access is `allowed` and `len` matches.
    fn span(&self, allowed: bool, verb: &str, len: usize) -> Result<&Span> {
        let wrong = |found: String, expected: String| {
            Error::argument(format!("tensor {}", self.name), found, expected)
        };
        if !allowed {
            return Err(wrong(format!("cannot be {verb} under this plan"), String::new()));
        }
        let span = self.span.as_ref().ok_or_else(|| wrong("strided".into(), "contiguous storage".into()))?;
        if span.bytes != len {
            return Err(wrong(format!("{len} bytes"), format!("{} bytes", span.bytes)));
        }
        Ok(span)
    }
}

impl Program for CpuProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, NAME);
        let port = self.port(tensor)?;
        let slice = &port.span(port.writable, "written", data.len())?.slice;
        HostMemory::of(&slice.buffer)?.write(slice.offset, data, self.engine.deadlines.transfer)
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, NAME);
        let port = self.port(tensor)?;
        let slice = &port.span(port.readable, "read", out.len())?.slice;
        HostMemory::of(&slice.buffer)?.read(slice.offset, out, self.engine.deadlines.transfer)
    }

    fn run(&mut self) -> Result<Timing> {
        let timing = self.execute(0..self.steps.len())?;
        self.ran = true;
        Ok(timing)
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        if !self.stepwise {
            return Err(Error::argument("step", step, "a program prepared to be run step by step"));
        }
        if step >= self.steps.len() {
            return Err(Error::argument("step", step, format!("below {}", self.steps.len())));
        }
        let timing = self.execute(step..step + 1)?;
        self.ran |= step + 1 == self.steps.len();
        Ok(timing)
    }
}
