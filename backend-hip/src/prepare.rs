//! From a planned graph to launches with their arguments: kernels found, memory laid out, addresses in place.

use crate::backend::HipBackend;
use crate::driver::Shape;
use crate::kernels::Kernel;
use crate::memory::{ALIGNMENT, Memory, Shared};
use crate::op::{Context, Launch, Operand, Refusal};
use crate::session::{Pointer, Ready};
use crate::thread::lock;
use ggml_core::backend::{Bindings, Buffer, Usage};
use ggml_core::kernel::Constants;
use ggml_core::plan::Plan;
use ggml_core::{Error, Graph, Phase, Result, Source, Tensor, TensorId, phase};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// What a program runs, and the memory that its launches point at.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Places of root tensors.
    pub(crate) storage: HashMap<TensorId, Storage>,
    /// The program's own memory: arena, constants, scratch.
    pub(crate) own: Option<Buffer>,
    /// The launches.
    pub(crate) launches: Launches,
}

/// Where a root tensor lies.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) buffer: Buffer,
    pub(crate) offset: usize,
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
    /// For each step the node's name.
    pub(crate) names: Arc<[String]>,
}

/// The program's own memory: the arena, unless the caller gave one, then constants, then scratch.
struct Layout {
    constants: Constants,
    /// Of each constant.
    places: Vec<usize>,
    scratch: usize,
    bytes: usize,
}

/// Prepares a planned graph.
pub(crate) fn prepare(
    backend: &HipBackend,
    graph: &Graph,
    plan: &Plan,
    bindings: &Bindings,
) -> Result<Prepared> {
    let shared = backend.shared();
    let start = Instant::now();
    let steps = plan_steps(backend, graph, plan)?;
    let constants = Constants::collect(graph, plan.steps.iter().copied());
    let layout = layout(constants, plan, bindings, &steps)?;
    let own = match layout.bytes {
        0 => None,
        bytes => Some(backend.allocate_memory(bytes, Usage::Compute)?),
    };
    let storage = storage(backend, graph, plan, bindings, own.as_ref())?;
    let mut drafts = Vec::new();
    for (step, launches) in steps.into_iter().enumerate() {
        for (launch, kernel) in launches {
            let pointers = launch
                .operands
                .iter()
                .map(|o| pointer(shared, graph, &storage, own.as_ref(), &layout, *o))
                .collect::<Result<Vec<_>>>()
                .map_err(|e| refused(backend, graph, plan.steps[step], e))?;
            drafts.push((step, launch, kernel, pointers));
        }
    }
    if let Some(own) = &own {
        for (data, &at) in layout.constants.contents().iter().zip(&layout.places) {
            shared.upload(Phase::Prepare, Memory::of(own, shared)?, at, bytemuck::cast_slice(data))?;
        }
    }
    let names: Arc<[String]> = plan.steps.iter().map(|&id| graph.tensor(id).name.clone()).collect();
    let launches = compile(shared, drafts, names, start)?;
    let mut stats = lock(&shared.stats);
    stats.programs += 1;
    stats.recordings += 1;
    drop(stats);
    Ok(Prepared { storage, own, launches })
}

/// Checked launches of every step.
fn plan_steps(backend: &HipBackend, graph: &Graph, plan: &Plan) -> Result<Vec<Vec<(Launch, Kernel)>>> {
    let steps = plan.steps.iter().map(|&node| {
        let context = Context { graph, node, profile: backend.profile(), precision: plan.precision };
        backend.kernels().plan(&context).map_err(|Refusal(reason)| unsupported(backend, graph, node, reason))
    });
    steps.collect()
}

fn unsupported(backend: &HipBackend, graph: &Graph, node: TensorId, reason: String) -> Error {
    let tensor = graph.tensor(node);
    Error::Unsupported {
        backend: backend.backend_name().into(),
        op: tensor.op().map_or("LEAF", |o| o.name()),
        node: tensor.name.clone(),
        reason,
    }
}

/// A mistake in a launch, as an error that names the node.
fn refused(backend: &HipBackend, graph: &Graph, node: TensorId, error: Error) -> Error {
    unsupported(backend, graph, node, error.to_string())
}

fn too_large() -> Error {
    Error::argument_said("graph", "needs more memory than can be addressed")
}

fn layout(
    constants: Constants,
    plan: &Plan,
    bindings: &Bindings,
    steps: &[Vec<(Launch, Kernel)>],
) -> Result<Layout> {
    let mut bytes: usize = 0;
    let mut take = |amount: usize| {
        let at = bytes;
        bytes = amount
            .checked_next_multiple_of(ALIGNMENT)
            .and_then(|n| at.checked_add(n))
            .ok_or_else(too_large)?;
        Ok::<usize, Error>(at)
    };
    if bindings.compute.is_none() {
        take(plan.arena_bytes)?;
    }
    let places = constants.contents().iter().map(|data| take(4 * data.len())).collect::<Result<_>>()?;
    let mut scratch: usize = 0;
    for operand in steps.iter().flatten().flat_map(|(launch, _)| &launch.operands) {
        if let Operand::Scratch(offset, bytes) = operand {
            scratch = scratch.max(offset.checked_add(*bytes).ok_or_else(too_large)?);
        }
    }
    let at = take(scratch)?;
    Ok(Layout { constants, places, scratch: at, bytes })
}

/// Places of all root tensors that have one.
fn storage(
    backend: &HipBackend,
    graph: &Graph,
    plan: &Plan,
    bindings: &Bindings,
    own: Option<&Buffer>,
) -> Result<HashMap<TensorId, Storage>> {
    if let Some(compute) = &bindings.compute {
        compute.check_range(0, plan.arena_bytes)?;
    }
    let arena = bindings.compute.as_ref().or(own);
    let mut storage = HashMap::new();
    for id in graph.ids() {
        let tensor = graph.tensor(id);
        if tensor.root != id {
            continue;
        }
        let slice = match tensor.source {
            Source::Weight | Source::State => {
                let slice = bindings.leaves.get(&id);
                let slice = slice.ok_or_else(|| {
                    Error::argument_said("bindings", format!("'{}' has no storage", tensor.name))
                })?;
                check_alignment(tensor, slice.offset)?;
                Storage { buffer: slice.buffer.clone(), offset: slice.offset }
            }
            Source::Input | Source::Node { .. } => match (plan.place(graph, id), arena) {
                (Some(place), Some(arena)) => Storage { buffer: arena.clone(), offset: place.offset },
                // Another tensor took its place over.
                _ => continue,
            },
        };
        slice.buffer.check_range(slice.offset, tensor.span_bytes())?;
        Memory::of(&slice.buffer, backend.shared())?;
        storage.insert(id, slice);
    }
    Ok(storage)
}

/// Kernels load words as wide as the size of a type's blocks allows, up to 16 bytes; PTX has no others.
fn check_alignment(tensor: &Tensor, offset: usize) -> Result<()> {
    let unit = 1usize << tensor.dtype.block_bytes().trailing_zeros().min(4);
    if offset.is_multiple_of(unit) {
        return Ok(());
    }
    let why = format!("'{}' begins at byte {offset}, which is no multiple of {unit}", tensor.name);
    Err(Error::argument_said("bindings", why))
}

/// What a pointer argument points at.
fn pointer(
    shared: &Arc<Shared>,
    graph: &Graph,
    storage: &HashMap<TensorId, Storage>,
    own: Option<&Buffer>,
    layout: &Layout,
    operand: Operand,
) -> Result<Pointer> {
    let own_range = |at: usize, bytes: usize| {
        let own =
            own.ok_or_else(|| Error::argument_said("launch", "uses memory that the program has not"))?;
        own.check_range(at, bytes)?;
        Ok(Pointer { address: Memory::of(own, shared)?.address() + at as u64, bytes })
    };
    match operand {
        Operand::Tensor(id) => tensor_pointer(shared, graph, storage, id, 0),
        Operand::Part(id, offset) => tensor_pointer(shared, graph, storage, id, offset),
        Operand::Constant(id) => {
            let at = layout.constants.entry(id).and_then(|i| layout.places.get(i));
            let at =
                at.ok_or_else(|| Error::argument_said("launch", "uses a constant that the node has not"))?;
            own_range(*at, 4)
        }
        Operand::Scratch(offset, bytes) => own_range(layout.scratch + offset, bytes),
    }
}

fn tensor_pointer(
    shared: &Arc<Shared>,
    graph: &Graph,
    storage: &HashMap<TensorId, Storage>,
    id: TensorId,
    offset: usize,
) -> Result<Pointer> {
    let tensor = graph.tensor(id);
    let place = storage.get(&tensor.root);
    let place =
        place.ok_or_else(|| Error::argument_said("tensor", format!("'{}' has no storage", tensor.name)))?;
    let (root, span) = (graph.tensor(tensor.root).span_bytes(), tensor.span_bytes());
    let within = tensor.offset.checked_add(span).is_some_and(|end| end <= root) && offset <= span;
    if !within {
        return Err(Error::argument_said("tensor", format!("'{}' reaches outside its storage", tensor.name)));
    }
    let at = place.offset + tensor.offset + offset;
    Ok(Pointer { address: Memory::of(&place.buffer, shared)?.address() + at as u64, bytes: span - offset })
}

/// Loads code objects, finds kernels, lays out arguments.
fn compile(
    shared: &Arc<Shared>,
    drafts: Vec<(usize, Launch, Kernel, Vec<Pointer>)>,
    names: Arc<[String]>,
    start: Instant,
) -> Result<Launches> {
    let _span = phase::enter(Phase::Compile, &shared.thread.monitor().backend);
    let limit = shared.deadlines.prepare;
    shared.thread.call_after(Phase::Compile, limit, start.elapsed(), move |session| {
        let mut launches =
            Launches { ready: Vec::new(), step: Vec::new(), of_step: vec![0..0; names.len()], names };
        for (step, launch, kernel, pointers) in &drafts {
            let shape = Shape { grid: launch.grid, block: launch.block, lds_bytes: launch.lds_bytes };
            let ready = session
                .ready(kernel, shape, pointers, &launch.params)
                .map_err(|e| e.with_node(&launches.names[*step]))?;
            let at = launches.ready.len();
            launches.ready.push(ready);
            launches.step.push(*step);
            let range = &mut launches.of_step[*step];
            *range = if range.start == range.end { at..at + 1 } else { range.start..at + 1 };
        }
        Ok(launches)
    })
}
