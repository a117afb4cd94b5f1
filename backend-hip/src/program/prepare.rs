//! Preparation of a planned graph as launches with addresses: finds kernels, lays out memory, resolves
//! operands. Needs no device: its properties and the addresses of memory are inputs.

use crate::arch::Profile;
use crate::code::kernels::{Kernel, Kernels};
use crate::driver::Address;
use crate::op::{Context, Launch, Operand, Refusal};
use crate::runtime::session::Pointer;
use crate::runtime::staging::ALIGNMENT;
use ggml_core::backend::{Bindings, Buffer, Slice};
use ggml_core::kernel::Constants;
use ggml_core::plan::{Plan, Region, Step};
use ggml_core::repeat::Repeats;
use ggml_core::{Error, Graph, Result, Source, Tensor, TensorId};
use std::collections::HashMap;

/// Backend that programs are prepared for.
#[derive(Clone, Copy)]
pub(crate) struct Host<'a> {
    /// Name of the backend.
    pub(crate) backend: &'a str,
    /// The kernels.
    pub(crate) kernels: &'a Kernels,
    /// Device properties that the kernels rely on.
    pub(crate) profile: &'a Profile,
}

/// Graph whose kernels are found and whose own memory is laid out, before any memory is allocated.
pub(crate) struct Draft<'a> {
    host: Host<'a>,
    graph: &'a Graph,
    plan: &'a Plan,
    /// The launches of each step.
    steps: Vec<Vec<(Launch, Kernel)>>,
    /// Offsets of the arena's buffers in the program's own memory; empty if the caller provides them.
    arena_at: Vec<usize>,
    constants: Constants,
    /// Offset of each constant in the program's own memory.
    constant_at: Vec<usize>,
    /// Initial contents of the counters that all launches share, and their offset.
    counters: Vec<u8>,
    counters_at: usize,
    scratch_at: usize,
    bytes: usize,
}

/// Launch whose operands have addresses.
#[derive(Clone, Debug)]
pub(crate) struct Addressed {
    /// Step of the launch.
    pub(crate) step: usize,
    /// The launch.
    pub(crate) launch: Launch,
    /// Kernel of the launch.
    pub(crate) kernel: Kernel,
    /// Pointer arguments.
    pub(crate) pointers: Vec<Pointer>,
}

/// Locations of root tensors.
pub(crate) type Storage = HashMap<TensorId, Slice>;

fn too_large() -> Error {
    Error::argument("graph", "needs more memory than can be addressed", "")
}

fn counter_bytes(count: u32) -> Result<usize> {
    usize::try_from(count).ok().and_then(|n| n.checked_mul(size_of::<u32>())).ok_or_else(too_large)
}

/// Returns the launches of each step.
pub(crate) fn launches(host: Host<'_>, graph: &Graph, plan: &Plan) -> Result<Vec<Vec<(Launch, Kernel)>>> {
    let of_step = |step: &Step| {
        let node = step.node();
        let context = Context { graph, node, profile: host.profile, precision: plan.precision };
        let refused = |Refusal(reason)| unsupported(host.backend, graph, node, reason);
        host.kernels.plan_group(&context, &step.group).map_err(refused)
    };
    plan.steps.iter().map(of_step).collect()
}

impl<'a> Draft<'a> {
    /// Finds the kernels of every step and lays out the program's own memory: the arena, unless the caller
    /// provides one, then constants, then counters, then scratch.
    pub(crate) fn new(
        host: Host<'a>,
        graph: &'a Graph,
        plan: &'a Plan,
        bindings: &Bindings,
    ) -> Result<Draft<'a>> {
        let steps = launches(host, graph, plan)?;
        let nodes = plan.steps.iter().flat_map(|step| step.group.nodes());
        let constants = Constants::collect(graph, nodes);
        let mut bytes: usize = 0;
        let mut take = |amount: usize| {
            let at = bytes;
            bytes = amount
                .checked_next_multiple_of(ALIGNMENT)
                .and_then(|n| at.checked_add(n))
                .ok_or_else(too_large)?;
            Ok::<usize, Error>(at)
        };
        let own: &[usize] = if bindings.compute.is_empty() { &plan.arena } else { &[] };
        let arena_at = own.iter().map(|&bytes| take(bytes)).collect::<Result<_>>()?;
        let constant_at =
            constants.contents().iter().map(|data| take(4 * data.len())).collect::<Result<_>>()?;
        let (mut scratch, mut counters) = (0usize, 0usize);
        for operand in steps.iter().flatten().flat_map(|(launch, _)| &launch.operands) {
            match operand {
                Operand::Scratch(offset, bytes) => {
                    scratch = scratch.max(offset.checked_add(*bytes).ok_or_else(too_large)?);
                }
                Operand::Counters(count) => counters = counters.max(counter_bytes(*count)?),
                Operand::Tensor(_) | Operand::Constant(_) => {}
            }
        }
        let (counters_at, scratch_at) = (take(counters)?, take(scratch)?);
        let counters = vec![0; counters];
        Ok(Draft {
            host,
            graph,
            plan,
            steps,
            arena_at,
            constants,
            constant_at,
            counters,
            counters_at,
            scratch_at,
            bytes,
        })
    }

    /// Returns the size of the program's own memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the initial contents of the program's own memory with their offsets: constants, and counters
    /// if there are any.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let contents = self.constants.contents().iter().map(|data| bytemuck::cast_slice(data));
        let counters = (!self.counters.is_empty()).then_some((self.counters_at, &self.counters[..]));
        self.constant_at.iter().copied().zip(contents).chain(counters)
    }

    /// Resolves all addresses. `own` is memory of [`Draft::bytes`], if that is not 0; `address` returns a
    /// buffer's start on the device, or an error if it belongs to another device. `alone`: true if any step
    /// may be run without the steps before it.
    pub(crate) fn place(
        self,
        bindings: &Bindings,
        own: Option<&Buffer>,
        address: &dyn Fn(&Buffer) -> Result<Address>,
        alone: bool,
    ) -> Result<(Storage, Vec<Addressed>)> {
        let storage = self.storage(bindings, own, address)?;
        let memory = Placed { draft: &self, storage: &storage, own, address };
        let mut addressed = Vec::new();
        let mut repeats = Repeats::default();
        for (step, launches) in self.steps.iter().enumerate() {
            for (launch, kernel) in launches {
                let pointers = launch.operands.iter().map(|operand| memory.pointer(*operand));
                // An error in a launch names the node.
                let named = |e: Error| {
                    unsupported(self.host.backend, self.graph, self.plan.steps[step].node(), e.to_string())
                };
                let pointers = pointers.collect::<Result<Vec<_>>>().map_err(named)?;
                let (reads, writes) = launch.parts();
                let scratch = writes.iter().all(|operand| matches!(operand, Operand::Scratch(..)));
                let (read, wrote) = pointers.split_at(reads.len());
                if !alone && repeats.repeats((launch.clone(), pointers.clone()), read, wrote, scratch) {
                    continue;
                }
                addressed.push(Addressed { step, launch: launch.clone(), kernel: kernel.clone(), pointers });
            }
        }
        Ok((storage, addressed))
    }

    /// Returns the locations of all root tensors that have one.
    fn storage(
        &self,
        bindings: &Bindings,
        own: Option<&Buffer>,
        address: &dyn Fn(&Buffer) -> Result<Address>,
    ) -> Result<Storage> {
        let (graph, plan) = (self.graph, self.plan);
        bindings.check_arena(plan)?;
        let arena = |place: Region| {
            let given = bindings.compute.get(place.buffer).map(|buffer| (buffer, place.offset));
            given.or_else(|| Some((own?, self.arena_at.get(place.buffer)? + place.offset)))
        };
        let mut storage = Storage::new();
        for id in graph.ids() {
            let tensor = graph.tensor(id);
            if tensor.root != id {
                continue;
            }
            let slice = match tensor.source {
                Source::Weight | Source::State => {
                    let slice = bindings.leaves.get(&id).ok_or_else(|| no_storage(tensor))?;
                    check_alignment(tensor, slice.offset)?;
                    slice.clone()
                }
                Source::Input | Source::Node { .. } => match plan.region(graph, id).and_then(arena) {
                    Some((buffer, offset)) => Slice { buffer: buffer.clone(), offset },
                    // Another tensor reuses its memory.
                    None => continue,
                },
            };
            slice.buffer.check_range(slice.offset, tensor.span_bytes())?;
            address(&slice.buffer)?;
            storage.insert(id, slice);
        }
        Ok(storage)
    }
}

/// Draft with its memory.
struct Placed<'a> {
    draft: &'a Draft<'a>,
    storage: &'a Storage,
    own: Option<&'a Buffer>,
    address: &'a dyn Fn(&Buffer) -> Result<Address>,
}

impl Placed<'_> {
    /// Returns the target of a pointer argument.
    fn pointer(&self, operand: Operand) -> Result<Pointer> {
        let draft = self.draft;
        match operand {
            Operand::Tensor(id) => self.of_tensor(id),
            Operand::Constant(id) => {
                let constant = draft.constants.entry(id).and_then(|i| {
                    Some((*draft.constant_at.get(i)?, 4 * draft.constants.contents().get(i)?.len()))
                });
                let none = || Error::argument("launch", "uses a constant that the node does not have", "");
                let (at, bytes) = constant.ok_or_else(none)?;
                self.of_own(at, bytes)
            }
            Operand::Scratch(offset, bytes) => self.of_own(draft.scratch_at + offset, bytes),
            Operand::Counters(count) => self.of_own(draft.counters_at, counter_bytes(count)?),
        }
    }

    fn of_own(&self, at: usize, bytes: usize) -> Result<Pointer> {
        let none = || Error::argument("launch", "uses memory that the program does not have", "");
        let own = self.own.ok_or_else(none)?;
        own.check_range(at, bytes)?;
        Ok(Pointer { address: (self.address)(own)? + at as u64, bytes })
    }

    fn of_tensor(&self, id: TensorId) -> Result<Pointer> {
        let graph = self.draft.graph;
        let tensor = graph.tensor(id);
        let place = self.storage.get(&tensor.root).ok_or_else(|| no_storage(tensor))?;
        let (root, span) = (graph.tensor(tensor.root).span_bytes(), tensor.span_bytes());
        if tensor.offset.checked_add(span).is_none_or(|end| end > root) {
            let found = format!("{span} bytes at {}", tensor.offset);
            let expected = format!("a range within the {root} of its root");
            return Err(Error::argument(format!("tensor '{}'", tensor.name), found, expected));
        }
        let at = place.offset + tensor.offset;
        Ok(Pointer { address: (self.address)(&place.buffer)? + at as u64, bytes: span })
    }
}

/// Creates the error for a tensor without storage.
pub(super) fn no_storage(tensor: &Tensor) -> Error {
    Error::argument(format!("tensor '{}'", tensor.name), "no storage", "a binding, or an offset in the arena")
}

fn unsupported(backend: &str, graph: &Graph, node: TensorId, reason: String) -> Error {
    let tensor = graph.tensor(node);
    Error::Unsupported {
        backend: backend.into(),
        op: tensor.op().map_or("LEAF", |o| o.name()),
        node: tensor.name.clone(),
        reason,
    }
}

/// Returns an error for a misaligned tensor. Kernels load words as wide as the size of a type's blocks
/// allows, up to 16 bytes; PTX requires them to be aligned.
fn check_alignment(tensor: &Tensor, offset: usize) -> Result<()> {
    let unit = 1usize << tensor.dtype.block_bytes().trailing_zeros().min(4);
    if offset.is_multiple_of(unit) {
        return Ok(());
    }
    let what = format!("binding of '{}'", tensor.name);
    Err(Error::argument(what, format!("begins at byte {offset}"), format!("a multiple of {unit}")))
}
