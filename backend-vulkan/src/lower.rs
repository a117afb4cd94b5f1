//! From a planned graph to dispatches with their windows.

use crate::backend::Shared;
use crate::constants::Constants;
use crate::cost;
use crate::hazard::Range;
use crate::memory::VulkanMemory;
use crate::op::{self, Context, Dispatch, ExactWindows, Operand, Refusal, Windows};
use crate::pipeline::PipelineSpec;
use crate::raw::descriptors::Window;
use crate::raw::memory::Buffer;
use crate::windows::{Storage, window};
use ggml_core::Deadline;
use ggml_core::backend::{Bindings, Support};
use ggml_core::kernel;
use ggml_core::plan::{Plan, Precision};
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A dispatch ready to be recorded.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// Index of its step in the plan.
    pub(crate) step: usize,
    /// Index into [`Lowering::pipelines`].
    pub(crate) pipeline: usize,
    /// Windows in binding order.
    pub(crate) windows: Vec<Window>,
    /// What it reads that something may write.
    pub(crate) reads: Vec<Range>,
    /// What it writes.
    pub(crate) writes: Vec<Range>,
    /// The parameter structure.
    pub(crate) params: Vec<u8>,
    /// Work-groups.
    pub(crate) grid: [u32; 3],
    /// Estimated seconds before correction.
    pub(crate) seconds: f64,
    /// Axes along which the grid may be cut.
    pub(crate) divisible: [bool; 3],
}

/// All dispatches of a plan, and where its tensors lie.
pub(crate) struct Lowering {
    /// Dispatches in order.
    pub(crate) dispatches: Vec<Lowered>,
    /// Distinct pipelines, each with a node that needs it.
    pub(crate) pipelines: Vec<(PipelineSpec, String)>,
    /// Storage of every root tensor.
    pub(crate) storage: HashMap<TensorId, Storage>,
}

/// Windows of tensors that have places.
struct Placed<'a> {
    storage: &'a HashMap<TensorId, Storage>,
    alignment: u64,
}

impl Placed<'_> {
    /// The window of an operand; `Err` says why there is none.
    fn window(&self, graph: &Graph, operand: (TensorId, u64, u64)) -> Result<(Window, u32), String> {
        let (id, skip, bytes) = operand;
        let tensor = graph.tensor(id);
        let storage =
            self.storage.get(&tensor.root).ok_or_else(|| format!("'{}' has no storage", tensor.name))?;
        window(storage, tensor, skip, bytes, self.alignment).ok_or_else(|| {
            let at = storage.offset + tensor.offset as u64 + skip;
            let unit = tensor.dtype.block_bytes();
            format!(
                "'{}' lies at byte {at} of its buffer: no multiple of {} is a whole number of {unit}-byte blocks before",
                tensor.name, self.alignment
            )
        })
    }
}

impl Windows for Placed<'_> {
    fn remainder(&self, graph: &Graph, tensor: TensorId) -> u32 {
        let bytes = graph.tensor(tensor).span_bytes() as u64;
        // `lower_step` has refused tensors without a window before a family's function sees them.
        self.window(graph, (tensor, 0, bytes)).map_or(0, |(_, remainder)| remainder)
    }
}

/// Whether a node can be computed, whatever its operands' places will be.
pub(crate) fn supports(shared: &Shared, graph: &Graph, node: TensorId) -> Support {
    if node.index() >= graph.tensors().len() {
        return Support::no("the node is not in the graph");
    }
    let computed = graph.tensor(node).op().is_some_and(|op| !op.is_view());
    if !computed {
        return Support::Native;
    }
    for precision in [Precision::Exact, Precision::Fast] {
        let context = Context { graph, node, profile: &shared.profile, precision, windows: &ExactWindows };
        if let Err(Refusal(reason)) = plan(shared, &context) {
            return Support::Unsupported { reason };
        }
    }
    Support::Native
}

/// Whether a type can be an operand of MUL_MAT and GET_ROWS: asked of the families that plan them.
pub(crate) fn supports_weights(shared: &Shared, dtype: DType) -> bool {
    let probe = || -> Result<bool> {
        let (mut graph, k) = (Graph::new(), dtype.block().max(32) * 8);
        let a = graph.leaf("a", dtype, [k, 64, 1, 1], Source::Weight)?;
        let ids = graph.leaf("ids", DType::I32, [4, 1, 1, 1], Source::Input)?;
        let rows = graph.get_rows(a, ids)?;
        let mut nodes = vec![rows];
        for n in [1, 64] {
            let b = graph.leaf(&format!("b{n}"), DType::F32, [k, n, 1, 1], Source::Input)?;
            nodes.push(graph.mul_mat(a, b)?);
        }
        Ok(nodes.into_iter().all(|node| supports(shared, &graph, node) == Support::Native))
    };
    probe().unwrap_or(false)
}

/// The dispatches of a node, checked against their shaders and the device.
fn plan(shared: &Shared, context: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let dispatches = op::plan_node(context)?;
    let limit = shared.profile.caps.max_binding;
    for dispatch in &dispatches {
        shared.pipelines.check_dispatch(dispatch).map_err(Refusal)?;
        for operand in &dispatch.operands {
            let (name, bytes) = match *operand {
                Operand::Tensor(id) => {
                    (&context.graph.tensor(id).name, context.graph.tensor(id).span_bytes())
                }
                Operand::Part(id, _, bytes) => (&context.graph.tensor(id).name, bytes),
                Operand::Constant(_) => continue,
            };
            if bytes as u64 > limit {
                return Err(Refusal(format!("'{name}' has {bytes} bytes; a window may have {limit}")));
            }
        }
    }
    Ok(dispatches)
}

/// Lowers a planned graph. `arena` is the compute memory.
pub(crate) fn lower(
    shared: &Shared,
    graph: &Graph,
    plan: &Plan,
    bindings: &Bindings,
    arena: &Arc<Buffer>,
    deadline: &Deadline,
) -> Result<Lowering> {
    let storage = storage(shared, graph, plan, bindings, arena)?;
    let mut lowering = Lowering { dispatches: Vec::new(), pipelines: Vec::new(), storage };
    let mut known: HashMap<PipelineSpec, usize> = HashMap::new();
    for (step, &node) in plan.steps.iter().enumerate() {
        let lowered = lower_step(shared, graph, plan, node, &lowering.storage, deadline)?;
        let seconds = shared.model.seconds(cost::work(graph, node)) / lowered.len().max(1) as f64;
        for (dispatch, windows) in lowered {
            let spec = PipelineSpec::of(&dispatch);
            let next = lowering.pipelines.len();
            let pipeline = *known.entry(spec.clone()).or_insert(next);
            if pipeline == next {
                lowering.pipelines.push((spec.clone(), graph.tensor(node).name.clone()));
            }
            let split = windows.len() - dispatch.written.min(windows.len());
            lowering.dispatches.push(Lowered {
                step,
                pipeline,
                reads: windows[..split].iter().filter(|w| w.1).map(|w| Range::of(&w.0)).collect(),
                writes: windows[split..].iter().map(|w| Range::of(&w.0)).collect(),
                windows: windows.into_iter().map(|w| w.0).collect(),
                divisible: shared.pipelines.divisible(&spec),
                params: dispatch.params,
                grid: dispatch.grid,
                seconds,
            });
        }
    }
    Ok(lowering)
}

/// Dispatches of a node with their windows, each with whether anything may write it.
type Bound = (Dispatch, Vec<(Window, bool)>);

fn lower_step(
    shared: &Shared,
    graph: &Graph,
    plan_: &Plan,
    node: TensorId,
    storage: &HashMap<TensorId, Storage>,
    deadline: &Deadline,
) -> Result<Vec<Bound>> {
    let tensor = graph.tensor(node);
    let refused = |reason: String| Error::Unsupported {
        backend: shared.device.name.clone(),
        op: tensor.op().map_or("LEAF", |o| o.name()),
        node: tensor.name.clone(),
        reason,
    };
    let placed = Placed { storage, alignment: shared.profile.caps.binding_alignment };
    for &id in tensor.src().iter().chain([&node]) {
        placed.window(graph, (id, 0, graph.tensor(id).span_bytes() as u64)).map_err(refused)?;
    }
    let context =
        Context { graph, node, profile: &shared.profile, precision: plan_.precision, windows: &placed };
    let dispatches = plan(shared, &context).map_err(|Refusal(reason)| refused(reason))?;
    let mut bound = Vec::with_capacity(dispatches.len());
    for dispatch in dispatches {
        let mut windows = Vec::with_capacity(dispatch.operands.len());
        for operand in &dispatch.operands {
            windows.push(bind(shared, graph, &placed, *operand, deadline, &refused)?);
        }
        bound.push((dispatch, windows));
    }
    Ok(bound)
}

fn bind(
    shared: &Shared,
    graph: &Graph,
    placed: &Placed<'_>,
    operand: Operand,
    deadline: &Deadline,
    refused: &dyn Fn(String) -> Error,
) -> Result<(Window, bool)> {
    let (id, skip, bytes) = match operand {
        Operand::Tensor(id) => (id, 0, graph.tensor(id).span_bytes()),
        Operand::Part(id, skip, bytes) => (id, skip, bytes),
        Operand::Constant(node) => {
            let data = kernel::constant(graph.tensor(node));
            let data = data.ok_or_else(|| refused("there is no constant for it".into()))?;
            let buffer = Constants::get(shared, &data, deadline)?;
            return Ok((Window { buffer, offset: 0, bytes: 4 * data.len() as u64 }, false));
        }
    };
    let tensor = graph.tensor(id);
    let inside = skip.checked_add(bytes).is_some_and(|end| end <= tensor.span_bytes());
    if !inside || bytes == 0 {
        return Err(refused(format!("bytes {skip} to {skip} + {bytes} are not in '{}'", tensor.name)));
    }
    let (window, remainder) = placed.window(graph, (id, skip as u64, bytes as u64)).map_err(refused)?;
    // The kernel adds the remainder of the whole tensor, also to a part.
    if remainder != placed.remainder(graph, id) {
        return Err(refused(format!(
            "the part of '{}' from byte {skip} on is not aligned as its beginning",
            tensor.name
        )));
    }
    let limit = shared.profile.caps.max_binding;
    if window.bytes > limit {
        return Err(refused(format!(
            "the window of '{}' has {} bytes; {limit} are allowed",
            tensor.name, window.bytes
        )));
    }
    let writable = placed.storage.get(&tensor.root).is_none_or(|s| s.writable);
    Ok((window, writable))
}

/// Where every root tensor lies.
fn storage(
    shared: &Shared,
    graph: &Graph,
    plan: &Plan,
    bindings: &Bindings,
    arena: &Arc<Buffer>,
) -> Result<HashMap<TensorId, Storage>> {
    let written: HashSet<TensorId> = plan.steps.iter().map(|&id| graph.tensor(id).root).collect();
    let mut storage = HashMap::new();
    for id in graph.ids().filter(|&id| graph.tensor(id).root == id) {
        let tensor = graph.tensor(id);
        let bytes = tensor.span_bytes() as u64;
        let place = match tensor.source {
            Source::Weight | Source::State => {
                let missing =
                    || Error::argument_said("bindings", format!("'{}' has no storage", tensor.name));
                let slice = bindings.leaves.get(&id).ok_or_else(missing)?;
                let writable = tensor.source == Source::State || written.contains(&id);
                let find = if writable { VulkanMemory::writable } else { VulkanMemory::of };
                let (buffer, offset) =
                    find(&slice.buffer, slice.offset, tensor.span_bytes(), &shared.device)?;
                Storage { buffer: buffer.clone(), offset, bytes, writable }
            }
            Source::Input | Source::Node { .. } => {
                let missing = || Error::argument_said("plan", format!("'{}' has no place", tensor.name));
                let place = plan.place(graph, id).ok_or_else(missing)?;
                let fits =
                    place.offset.checked_add(tensor.span_bytes()).is_some_and(|end| end <= plan.arena_bytes);
                if !fits {
                    return Err(Error::argument_said(
                        "plan",
                        format!("the place of '{}' is outside the arena", tensor.name),
                    ));
                }
                Storage { buffer: arena.clone(), offset: place.offset as u64, bytes, writable: true }
            }
        };
        storage.insert(id, place);
    }
    Ok(storage)
}
