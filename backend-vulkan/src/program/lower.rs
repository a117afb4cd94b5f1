//! Lowering of a planned graph to dispatches with their windows.

use super::hazard::ByteRange;
use super::target::{Target, plan as plan_checked};
use super::windows::{BufferRef, Storage, Window, window};
use crate::device::cost::Estimate;
use crate::op::{Context, Dispatch, Operand, Refusal, Windows};
use crate::pipeline::PipelineSpec;
use ggml_core::cost::group_work;
use ggml_core::fuse::Group;
use ggml_core::kernel;
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::repeat::Repeats;
use ggml_core::{DType, Error, Graph, Result, TensorId, grids};
use std::collections::HashMap;

/// A dispatch ready to be recorded.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// Index of its step in the plan.
    pub(crate) step: usize,
    /// Index into [`Lowering::pipelines`].
    pub(crate) pipeline: usize,
    /// Windows in binding order.
    pub(crate) windows: Vec<Window>,
    /// Byte ranges that the dispatch reads and that may be written on the device.
    pub(crate) reads: Vec<ByteRange>,
    /// Byte ranges that the dispatch writes.
    pub(crate) writes: Vec<ByteRange>,
    /// Bytes of the parameter structure.
    pub(crate) params: Vec<u8>,
    /// Work-groups.
    pub(crate) grid: [u32; 3],
    /// Estimated device time.
    pub(crate) estimate: Estimate,
    /// Axes along which the grid may be split.
    pub(crate) divisible: [bool; 3],
}

/// All dispatches of a plan.
#[derive(Default)]
pub(crate) struct Lowering {
    /// Dispatches in order.
    pub(crate) dispatches: Vec<Lowered>,
    /// Distinct pipelines, each with the name of a node that needs it.
    pub(crate) pipelines: Vec<(PipelineSpec, String)>,
    /// Contents of the constant buffers.
    pub(crate) constants: Vec<Vec<u32>>,
    /// Bytes of scratch memory, which all dispatches share.
    pub(crate) scratch: usize,
    /// Bytes of counters, which all dispatches share.
    pub(crate) counters: usize,
}

/// Windows of tensors with storage.
struct TensorWindows<'a> {
    storage: &'a HashMap<TensorId, Storage>,
    alignment: u64,
}

impl TensorWindows<'_> {
    /// Returns the window of an operand and its remainder in blocks, or the reason why there is none.
    fn window(&self, graph: &Graph, operand: (TensorId, u64, u64)) -> Result<(Window, u32), String> {
        let (id, skip, bytes) = operand;
        let tensor = graph.tensor(id);
        let storage =
            self.storage.get(&tensor.root).ok_or_else(|| format!("'{}' has no storage", tensor.name))?;
        window(storage, tensor, skip, bytes, self.alignment).ok_or_else(|| {
            let at = storage.offset + tensor.offset as u64 + skip;
            let unit = tensor.dtype.block_bytes();
            format!(
                "'{}' begins at byte {at}: no multiple of {} is a whole number of {unit}-byte blocks before it",
                tensor.name, self.alignment
            )
        })
    }
}

impl Windows for TensorWindows<'_> {
    fn remainder(&self, graph: &Graph, tensor: TensorId) -> u32 {
        let bytes = graph.tensor(tensor).span_bytes() as u64;
        // `lower_step` has already refused tensors without a window.
        self.window(graph, (tensor, 0, bytes)).map_or(0, |(_, remainder)| remainder)
    }

    fn bytes(&self, graph: &Graph, tensor: TensorId, skip: usize, bytes: usize) -> u64 {
        let part = (tensor, skip as u64, bytes as u64);
        self.window(graph, part).map_or(bytes as u64, |(window, _)| window.bytes)
    }
}

/// Lowers a planned graph whose tensors have storage. `alone`: any step may be run without the steps before
/// it.
pub(crate) fn lower(
    target: &Target<'_>,
    graph: &Graph,
    plan: &Plan,
    storage: &HashMap<TensorId, Storage>,
    alone: bool,
) -> Result<Lowering> {
    let mut lowering = Lowering::default();
    let mut known: HashMap<PipelineSpec, usize> = HashMap::new();
    let mut repeats = Repeats::default();
    for (step, planned) in plan.steps.iter().enumerate() {
        let group = &planned.group;
        let lowered = lower_step(target, graph, plan.precision, group, storage, &mut lowering)?;
        let estimate = target.model.estimate(group_work(graph, group)).part(lowered.len());
        for (dispatch, windows) in lowered {
            let next = lowering.pipelines.len();
            let pipeline = *known.entry(dispatch.pipeline.clone()).or_insert(next);
            if pipeline == next {
                lowering
                    .pipelines
                    .push((dispatch.pipeline.clone(), graph.tensor(planned.node()).name.clone()));
            }
            let grids = dispatch.operands.iter().filter(|o| matches!(o, Operand::Grid(_))).count();
            let end = windows.len() - grids;
            let split = end - dispatch.written.min(end);
            let of = |windows: &[(Window, bool)]| {
                windows.iter().filter(|w| w.1).map(|w| ByteRange::of(&w.0)).collect()
            };
            let (reads, writes): (Vec<_>, Vec<_>) = (of(&windows[..split]), of(&windows[split..end]));
            let windows: Vec<Window> = windows.into_iter().map(|w| w.0).collect();
            let same = (pipeline, windows.clone(), dispatch.params.clone(), dispatch.grid);
            if !alone && repeats.repeats(same, &reads, &writes, writes.iter().all(ByteRange::is_scratch)) {
                continue;
            }
            lowering.dispatches.push(Lowered {
                step,
                pipeline,
                reads,
                writes,
                windows,
                divisible: target.modules.get(&dispatch.pipeline).map_or([false; 3], |m| m.divisible()),
                params: dispatch.params,
                grid: dispatch.grid,
                estimate,
            });
        }
    }
    Ok(lowering)
}

/// A dispatch of a step with its windows; the flag is true if the window may be written on the device.
type Windowed = (Dispatch, Vec<(Window, bool)>);

fn lower_step(
    target: &Target<'_>,
    graph: &Graph,
    precision: Precision,
    group: &Group,
    storage: &HashMap<TensorId, Storage>,
    lowering: &mut Lowering,
) -> Result<Vec<Windowed>> {
    let node = group.last();
    let refused = |reason: String| Error::Unsupported {
        backend: target.name.into(),
        op: group.name(graph),
        node: graph.tensor(node).name.clone(),
        reason,
    };
    let tensor_windows = TensorWindows { storage, alignment: target.profile.caps.binding_alignment };
    for id in group.operands(graph).into_iter().chain(group.results()) {
        tensor_windows.window(graph, (id, 0, graph.tensor(id).span_bytes() as u64)).map_err(refused)?;
    }
    let context = Context { graph, node, profile: target.profile, precision, windows: &tensor_windows };
    let dispatches = plan_checked(target, &context, group).map_err(|Refusal(reason)| refused(reason))?;
    let mut known: Vec<(TensorId, Window)> = Vec::new();
    let mut lowered = Vec::with_capacity(dispatches.len());
    for dispatch in dispatches {
        let mut windows = Vec::with_capacity(dispatch.operands.len());
        for operand in &dispatch.operands {
            let of = match *operand {
                Operand::Constant(of) => of,
                Operand::Grid(dtype) => {
                    windows.push((grid_window(dtype, &mut lowering.constants).map_err(refused)?, false));
                    continue;
                }
                Operand::Scratch(bytes) => {
                    windows.push(own_window(BufferRef::Scratch, (0, bytes), &mut lowering.scratch));
                    continue;
                }
                Operand::ScratchAt(skip, bytes) => {
                    windows.push(own_window(BufferRef::Scratch, (skip, bytes), &mut lowering.scratch));
                    continue;
                }
                Operand::Counters(bytes) => {
                    windows.push(own_window(BufferRef::Counters, (0, bytes), &mut lowering.counters));
                    continue;
                }
                Operand::Tensor(_) | Operand::Range(..) => {
                    let range = operand.range(graph).unwrap_or((node, 0, 0));
                    windows.push(bind(graph, &tensor_windows, range).map_err(refused)?);
                    continue;
                }
            };
            if !known.iter().any(|(id, _)| *id == of) {
                known.push((of, constant_window(graph, of, &mut lowering.constants).map_err(refused)?));
            }
            windows.extend(known.iter().filter(|(id, _)| *id == of).map(|(_, window)| (*window, false)));
        }
        lowered.push((dispatch, windows));
    }
    Ok(lowered)
}

/// Returns the window of a node's constant and adds the constant to the list.
fn constant_window(graph: &Graph, node: TensorId, constants: &mut Vec<Vec<u32>>) -> Result<Window, String> {
    let data = kernel::constant(graph.tensor(node)).ok_or("the node has no constant")?;
    Ok(window_of(data.into_iter().map(f32::to_bits).collect(), constants))
}

/// Returns the window of a type's grid and adds the grid to the list, two entries per word.
fn grid_window(dtype: DType, constants: &mut Vec<Vec<u32>>) -> Result<Window, String> {
    let entries = grids::grid(dtype).ok_or("the type has no grid")?;
    let words = entries.as_chunks::<2>().0.iter().map(|&[x, y]| u32::from(x) | u32::from(y) << 16);
    Ok(window_of(words.collect(), constants))
}

/// Returns the window of a constant and adds the constant to the list unless it is there already.
fn window_of(data: Vec<u32>, constants: &mut Vec<Vec<u32>>) -> Window {
    let bytes = 4 * data.len() as u64;
    let known = constants.iter().position(|c| *c == data).unwrap_or_else(|| {
        constants.push(data);
        constants.len() - 1
    });
    Window { buffer: BufferRef::Constant(known), offset: 0, bytes }
}

/// Returns a window of the program's own memory and true (it is written). Enlarges the memory if needed.
fn own_window(buffer: BufferRef, (skip, bytes): (usize, usize), room: &mut usize) -> (Window, bool) {
    *room = (skip + bytes).max(*room);
    (Window { buffer, offset: skip as u64, bytes: bytes as u64 }, true)
}

/// Returns the window of a part of a tensor, and true if it may be written on the device.
fn bind(
    graph: &Graph,
    tensor_windows: &TensorWindows<'_>,
    (id, skip, bytes): (TensorId, usize, usize),
) -> Result<(Window, bool), String> {
    let tensor = graph.tensor(id);
    let inside = skip.checked_add(bytes).is_some_and(|end| end <= tensor.span_bytes());
    if !inside || bytes == 0 {
        return Err(format!("bytes {skip} to {skip} + {bytes} are not in '{}'", tensor.name));
    }
    let (window, remainder) = tensor_windows.window(graph, (id, skip as u64, bytes as u64))?;
    // The kernel adds the remainder of the whole tensor, even for a part.
    if remainder != tensor_windows.remainder(graph, id) {
        let name = &tensor.name;
        return Err(format!("the range of '{name}' from byte {skip} is not aligned like its first byte"));
    }
    let writable = tensor_windows.storage.get(&tensor.root).is_none_or(|s| s.writable);
    Ok((window, writable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{ArchClass, Caps};
    use crate::device::cost::Model;
    use crate::device::profile::Profile;
    use crate::pipeline::modules::Modules;
    use crate::program::hazard::Tracker;
    use crate::program::target::supports;
    use crate::raw::features::Features;
    use crate::raw::physical::ShaderSupport;
    use ash::vk;
    use ggml_core::Source;
    use ggml_core::backend::Support;
    use ggml_core::catalogue;
    use ggml_core::op::flash_attn::FlashAttnExt;
    use ggml_core::op::{Rope, RopeMode};

    const ALIGNMENT: u64 = 16;

    /// An imaginary, small device of the class, with the fewest features.
    struct Imagined {
        profile: Profile,
        modules: Modules,
        model: Model,
    }

    impl Imagined {
        fn new(change: impl Fn(&mut Caps)) -> Imagined {
            let mut caps = Caps::imagined(ArchClass::AmdGcn, ALIGNMENT);
            change(&mut caps);
            let features = Features { storage16: true, storage8: true, ..Features::default() };
            let shuffle = caps.subgroup.shuffle.then_some(vk::SubgroupFeatureFlags::SHUFFLE);
            let ballot = caps.subgroup.ballot.then_some(vk::SubgroupFeatureFlags::BALLOT);
            let support = ShaderSupport {
                api: vk::API_VERSION_1_3,
                features,
                subgroup_operations: shuffle.unwrap_or_default() | ballot.unwrap_or_default(),
                ..ShaderSupport::default()
            };
            let modules = Modules::new(support, caps.clone());
            let model = Model::new(&caps);
            Imagined { profile: Profile::new(caps), modules, model }
        }

        fn target(&self) -> Target<'_> {
            Target { name: "vulkan:0", profile: &self.profile, modules: &self.modules, model: &self.model }
        }

        /// Lowers a graph of inputs and nodes whose arena begins `shift` bytes into its buffer.
        fn lower(&self, graph: &Graph, shift: u64) -> Result<Lowering> {
            let plan = Plan::new(graph, 256, Precision::Exact)?;
            let room = shift + plan.arena_bytes() as u64;
            let storage = graph.ids().filter(|&id| graph.tensor(id).root == id).map(|id| {
                let offset = shift + plan.region(graph, id).expect("a place").offset as u64;
                let bytes = graph.tensor(id).span_bytes() as u64;
                (id, Storage { buffer: BufferRef::Bound(0), room, offset, bytes, writable: true })
            });
            lower(&self.target(), graph, &plan, &storage.collect(), false)
        }
    }

    #[test]
    fn a_graph_is_lowered_without_a_device() {
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [64, 2, 3, 1], Source::Input).unwrap();
        let positions = g.leaf("positions", DType::I32, [3, 1, 1, 1], Source::Input).unwrap();
        let rope = Rope::plain(RopeMode::Neox, 64, 10000.0);
        let y = g.rope(rope, x, positions, None).unwrap();
        let z = g.scale(y, 2.0, 0.0).unwrap();
        g.output(y).unwrap();
        g.output(z).unwrap();
        let lowering = Imagined::new(|_| {}).lower(&g, 0).unwrap();
        let [first, second] = &lowering.dispatches[..] else { panic!("one dispatch for each node") };
        let constant = kernel::constant(g.tensor(y)).unwrap();
        let bytes = 4 * constant.len() as u64;
        let table = Window { buffer: BufferRef::Constant(0), offset: 0, bytes };
        assert_eq!(first.windows[2..4], [table, table], "the table is bound in place of the missing factors");
        assert_eq!(lowering.constants, [constant.iter().map(|x| x.to_bits()).collect::<Vec<_>>()]);
        assert_eq!((first.windows[0].bytes, first.windows[1].bytes), (64 * 2 * 3 * 4, 3 * 4));
        assert_eq!(second.windows[0], first.windows[4], "the second reads what the first writes");
        let mut tracker = Tracker::default();
        assert!(!tracker.must_wait(&first.reads, &first.writes));
        assert!(tracker.must_wait(&second.reads, &second.writes));
        assert_eq!(lowering.pipelines.len(), 2);
    }

    /// Checks that dispatches which share scratch memory and counters wait for each other, and that a
    /// dispatch which needs neither does not wait.
    #[test]
    fn split_attention_has_its_own_memory() {
        let mut g = Graph::new();
        let op = FlashAttnExt { scale: 1.0, max_bias: 0.0, logit_softcap: 0.0 };
        let q = g.leaf("q", DType::F32, [64, 2, 4, 1], Source::Input).unwrap();
        for cells in [256, 2048, 8192] {
            let k = g.leaf(&format!("k{cells}"), DType::F16, [64, cells, 1, 1], Source::Input).unwrap();
            let node = g.flash_attn_ext(op, q, k, k, None).unwrap();
            g.output(node).unwrap();
        }
        let lowering = Imagined::new(|caps| (caps.subgroup.shuffle, caps.subgroup.ballot) = (true, true))
            .lower(&g, 0)
            .unwrap();
        let [short, long, longest] = &lowering.dispatches[..] else { panic!("one dispatch for each node") };
        let own =
            |d: &Lowered| d.windows[6..].iter().map(|w| (w.buffer, w.bytes as usize)).collect::<Vec<_>>();
        assert!(own(short).iter().all(|(buffer, _)| matches!(buffer, BufferRef::Bound(0))), "{short:?}");
        // Two tokens of four heads with eight or 32 splits, each of 64 sums, a maximum and a sum.
        let scratch = |splits: usize| (BufferRef::Scratch, 2 * 4 * splits * 66 * 4);
        assert_eq!(own(long)[..], [scratch(8), (BufferRef::Counters, 2 * 4 * 4)]);
        assert_eq!(own(longest)[..], [scratch(32), (BufferRef::Counters, 2 * 4)]);
        assert_eq!((lowering.scratch, lowering.counters), (scratch(32).1, 2 * 4 * 4));
        assert_eq!(longest.divisible, [false, true, false], "the grid determines groups of heads and splits");
        let mut tracker = Tracker::default();
        assert!(!tracker.must_wait(&short.reads, &short.writes));
        assert!(!tracker.must_wait(&long.reads, &long.writes));
        assert!(tracker.must_wait(&longest.reads, &longest.writes));
    }

    /// Checks that types with the same grid share its constant. The grid is bound after the written operands
    /// and is not written itself.
    #[test]
    fn grids_are_bound_last() {
        let mut g = Graph::new();
        let types = [DType::IQ1_S, DType::IQ1_M, DType::IQ3_S];
        for dtype in types {
            let a = g.leaf(&format!("{dtype}"), dtype, [256, 4, 1, 1], Source::Input).unwrap();
            for n in [1, 64] {
                let b = g.leaf(&format!("{dtype} {n}"), DType::F32, [256, n, 1, 1], Source::Input).unwrap();
                let node = g.mul_mat(a, b).unwrap();
                g.output(node).unwrap();
            }
        }
        let lowering = Imagined::new(|_| {}).lower(&g, 0).unwrap();
        assert_eq!(lowering.constants.iter().map(Vec::len).collect::<Vec<_>>(), [1024, 256]);
        let first = u32::from(grids::IQ1[0]) | u32::from(grids::IQ1[1]) << 16;
        assert_eq!(lowering.constants[0][0], first);
        for (i, dispatch) in lowering.dispatches.iter().enumerate() {
            let [others @ .., last] = &dispatch.windows[..] else { panic!("{dispatch:?}") };
            assert_eq!(
                last.buffer,
                BufferRef::Constant(i / 4),
                "two products of each of two types, then the third"
            );
            assert!(others.iter().all(|w| matches!(w.buffer, BufferRef::Bound(_))), "{dispatch:?}");
            let result = ByteRange::of(&others[others.len() - 1]);
            assert!(
                !dispatch.writes.is_empty() && dispatch.writes.iter().all(|w| *w == result),
                "{dispatch:?}"
            );
        }
        assert_eq!(lowering.dispatches.len(), 2 * types.len());
    }

    #[test]
    fn a_shader_with_more_buffers_than_the_device_binds_is_refused() {
        let cases = catalogue::cases();
        let case = cases.iter().find(|c| c.name.starts_with("GATED_DELTA_NET(")).expect("a case");
        let graph = case.graph.as_ref().unwrap();
        let supported = |most| {
            let device = Imagined::new(|caps| caps.max_storage_buffers = most);
            (supports(&device.target(), graph, case.node), device.lower(graph, 0).map(|_| ()))
        };
        assert!(matches!(supported(8), (Support::Native, Ok(()))), "{:?}", supported(8));
        let (Support::Unsupported { reason }, Err(Error::Unsupported { op, reason: again, .. })) =
            supported(7)
        else {
            panic!("{:?}", supported(7))
        };
        assert_eq!((op, &reason), ("GATED_DELTA_NET", &again));
        assert!(reason.contains("binds 8 buffers") && reason.contains("allows 7"), "{reason}");
    }

    /// Checks that the window of an unaligned operand is larger than the operand.
    #[test]
    fn a_window_is_measured_as_it_will_be_bound() {
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [1024, 1, 1, 1], Source::Input).unwrap();
        let y = g.scale(x, 2.0, 0.0).unwrap();
        g.output(y).unwrap();
        let device = Imagined::new(|caps| caps.max_binding = 4096);
        assert_eq!(supports(&device.target(), &g, y), Support::Native);
        assert!(device.lower(&g, 0).is_ok());
        match device.lower(&g, 8).map(|_| ()) {
            Err(Error::Unsupported { op: "SCALE", reason, .. }) => {
                assert!(reason.contains("4104") && reason.contains("4096"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
    }
}
