//! From a planned graph to dispatches with their windows.

use super::hazard::ByteRange;
use super::windows::{BufferRef, Storage, Window, window};
use crate::context::DeviceContext;
use crate::device::cost::{self, Model};
use crate::device::tuning::Profile;
use crate::op::{self, Context, Dispatch, ExactWindows, Operand, Refusal, Windows};
use crate::pipeline::modules::Modules;
use crate::pipeline::{PipelineSet, PipelineSpec};
use ggml_core::backend::Support;
use ggml_core::kernel;
use ggml_core::plan::{Plan, Precision};
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use std::collections::HashMap;

/// What lowering knows of a device.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Name for errors.
    pub(crate) name: &'a str,
    /// The device as operations see it.
    pub(crate) profile: &'a Profile,
    /// The shaders that it can run.
    pub(crate) modules: &'a Modules,
    /// How long work takes on it.
    pub(crate) model: &'a Model,
}

impl<'a> Target<'a> {
    /// An open device.
    pub(crate) fn new(context: &'a DeviceContext, pipelines: &'a PipelineSet) -> Target<'a> {
        let (profile, model) = (&context.profile, &context.model);
        Target { name: context.name(), profile, modules: pipelines.modules(), model }
    }
}

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
    pub(crate) reads: Vec<ByteRange>,
    /// What it writes.
    pub(crate) writes: Vec<ByteRange>,
    /// The parameter structure.
    pub(crate) params: Vec<u8>,
    /// Work-groups.
    pub(crate) grid: [u32; 3],
    /// Estimated seconds before correction.
    pub(crate) seconds: f64,
    /// Axes along which the grid may be cut.
    pub(crate) divisible: [bool; 3],
}

/// All dispatches of a plan.
#[derive(Default)]
pub(crate) struct Lowering {
    /// Dispatches in order.
    pub(crate) dispatches: Vec<Lowered>,
    /// Distinct pipelines, each with a node that needs it.
    pub(crate) pipelines: Vec<(PipelineSpec, String)>,
    /// Contents of the buffers of constants.
    pub(crate) constants: Vec<Vec<f32>>,
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
pub(crate) fn supports(target: &Target<'_>, graph: &Graph, node: TensorId) -> Support {
    if node.index() >= graph.tensors().len() {
        return Support::no("the node is not in the graph");
    }
    let computed = graph.tensor(node).op().is_some_and(|op| !op.is_view());
    if !computed {
        return Support::Native;
    }
    for precision in [Precision::Exact, Precision::Fast] {
        let context = Context { graph, node, profile: target.profile, precision, windows: &ExactWindows };
        if let Err(Refusal(reason)) = plan(target, &context) {
            return Support::Unsupported { reason };
        }
    }
    Support::Native
}

/// Whether a type can be an operand of MUL_MAT and GET_ROWS: asked of the families that plan them.
pub(crate) fn supports_weights(target: &Target<'_>, dtype: DType) -> bool {
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
        Ok(nodes.into_iter().all(|node| supports(target, &graph, node) == Support::Native))
    };
    probe().unwrap_or(false)
}

/// The dispatches of a node, checked against their shaders and the device.
fn plan(target: &Target<'_>, context: &Context<'_>) -> Result<Vec<Dispatch>, Refusal> {
    let dispatches = op::plan_node(context)?;
    let limit = target.profile.caps.max_binding;
    for dispatch in &dispatches {
        check(target, dispatch).map_err(Refusal)?;
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

/// Why a dispatch cannot be run, or does not fit its shader, which is the library's own mistake.
fn check(target: &Target<'_>, dispatch: &Dispatch) -> Result<(), String> {
    let spec = &dispatch.pipeline;
    let module = target.modules.check(spec)?;
    let (bindings, push) = (module.bindings(), module.push_bytes());
    if dispatch.operands.len() != bindings as usize {
        return Err(format!("{spec}: {} operands for {bindings} bindings", dispatch.operands.len()));
    }
    if dispatch.params.len() != push as usize {
        return Err(format!("{spec}: {} bytes of parameters for {push}", dispatch.params.len()));
    }
    let limits = target.profile.caps.max_workgroups;
    if (0..3).any(|d| dispatch.grid[d] == 0 || dispatch.grid[d] > limits[d]) {
        return Err(format!("{spec}: a grid of {:?} is outside the device's {limits:?}", dispatch.grid));
    }
    Ok(())
}

/// Lowers a planned graph whose tensors have storage.
pub(crate) fn lower(
    target: &Target<'_>,
    graph: &Graph,
    plan: &Plan,
    storage: &HashMap<TensorId, Storage>,
) -> Result<Lowering> {
    let mut lowering = Lowering::default();
    let mut known: HashMap<PipelineSpec, usize> = HashMap::new();
    for (step, &node) in plan.steps.iter().enumerate() {
        let lowered = lower_step(target, graph, plan, node, storage, &mut lowering.constants)?;
        let seconds = target.model.seconds(cost::work(graph, node)) / lowered.len().max(1) as f64;
        for (dispatch, windows) in lowered {
            let next = lowering.pipelines.len();
            let pipeline = *known.entry(dispatch.pipeline.clone()).or_insert(next);
            if pipeline == next {
                lowering.pipelines.push((dispatch.pipeline.clone(), graph.tensor(node).name.clone()));
            }
            let split = windows.len() - dispatch.written.min(windows.len());
            lowering.dispatches.push(Lowered {
                step,
                pipeline,
                reads: windows[..split].iter().filter(|w| w.1).map(|w| ByteRange::of(&w.0)).collect(),
                writes: windows[split..].iter().map(|w| ByteRange::of(&w.0)).collect(),
                windows: windows.into_iter().map(|w| w.0).collect(),
                divisible: target.modules.check(&dispatch.pipeline).map_or([false; 3], |m| m.divisible()),
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
    target: &Target<'_>,
    graph: &Graph,
    plan_: &Plan,
    node: TensorId,
    storage: &HashMap<TensorId, Storage>,
    constants: &mut Vec<Vec<f32>>,
) -> Result<Vec<Bound>> {
    let tensor = graph.tensor(node);
    let refused = |reason: String| Error::Unsupported {
        backend: target.name.into(),
        op: tensor.op().map_or("LEAF", |o| o.name()),
        node: tensor.name.clone(),
        reason,
    };
    let placed = Placed { storage, alignment: target.profile.caps.binding_alignment };
    for &id in tensor.src().iter().chain([&node]) {
        placed.window(graph, (id, 0, graph.tensor(id).span_bytes() as u64)).map_err(refused)?;
    }
    let context =
        Context { graph, node, profile: target.profile, precision: plan_.precision, windows: &placed };
    let dispatches = plan(target, &context).map_err(|Refusal(reason)| refused(reason))?;
    let mut constant = None;
    let mut bound = Vec::with_capacity(dispatches.len());
    for dispatch in dispatches {
        let mut windows = Vec::with_capacity(dispatch.operands.len());
        for operand in &dispatch.operands {
            windows.push(match *operand {
                Operand::Constant(of) => {
                    let window = match constant {
                        Some(known) => known,
                        None => constant_window(graph, of, constants).map_err(refused)?,
                    };
                    constant = Some(window);
                    (window, false)
                }
                Operand::Tensor(id) => {
                    let part = (id, 0, graph.tensor(id).span_bytes());
                    bind(target, graph, &placed, part).map_err(refused)?
                }
                Operand::Part(id, skip, bytes) => {
                    bind(target, graph, &placed, (id, skip, bytes)).map_err(refused)?
                }
            });
        }
        bound.push((dispatch, windows));
    }
    Ok(bound)
}

/// The window of a node's constant, which is added to the list.
fn constant_window(graph: &Graph, node: TensorId, constants: &mut Vec<Vec<f32>>) -> Result<Window, String> {
    let data = kernel::constant(graph.tensor(node)).ok_or("there is no constant for it")?;
    let bytes = 4 * data.len() as u64;
    constants.push(data);
    Ok(Window { buffer: BufferRef::Constant(constants.len() - 1), offset: 0, bytes })
}

/// The window of a part of a tensor, and whether anything may write it.
fn bind(
    target: &Target<'_>,
    graph: &Graph,
    placed: &Placed<'_>,
    (id, skip, bytes): (TensorId, usize, usize),
) -> Result<(Window, bool), String> {
    let tensor = graph.tensor(id);
    let inside = skip.checked_add(bytes).is_some_and(|end| end <= tensor.span_bytes());
    if !inside || bytes == 0 {
        return Err(format!("bytes {skip} to {skip} + {bytes} are not in '{}'", tensor.name));
    }
    let (window, remainder) = placed.window(graph, (id, skip as u64, bytes as u64))?;
    // The kernel adds the remainder of the whole tensor, also to a part.
    if remainder != placed.remainder(graph, id) {
        let name = &tensor.name;
        return Err(format!("the part of '{name}' from byte {skip} on is not aligned as its beginning"));
    }
    let limit = target.profile.caps.max_binding;
    if window.bytes > limit {
        return Err(format!(
            "the window of '{}' has {} bytes; {limit} are allowed",
            tensor.name, window.bytes
        ));
    }
    let writable = placed.storage.get(&tensor.root).is_none_or(|s| s.writable);
    Ok((window, writable))
}
