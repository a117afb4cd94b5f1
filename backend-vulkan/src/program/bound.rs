//! Storage of a program's tensors: the caller's bindings, and the arena.

use super::windows::{BufferRef, Storage};
use crate::memory::VulkanMemory;
use crate::raw::buffer::Buffer;
use crate::raw::device::Device;
use ggml_core::backend::Bindings;
use ggml_core::plan::Plan;
use ggml_core::{Error, Graph, Result, Source, TensorId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The buffers of a program.
#[derive(Default)]
pub(crate) struct Bound {
    /// Storage of every root tensor.
    pub(crate) storage: HashMap<TensorId, Storage>,
    /// Distinct buffers that hold this storage.
    pub(crate) buffers: Vec<Arc<Buffer>>,
    /// Buffers of the constants that lowering collects.
    pub(crate) constants: Vec<Arc<Buffer>>,
    /// Scratch memory and counters; empty if no dispatch uses them.
    pub(crate) own: Vec<Arc<Buffer>>,
}

impl Bound {
    /// Collects the buffers of a planned graph. `arena` has the buffers of the plan's arena.
    pub(crate) fn new(
        device: &Arc<Device>,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        arena: &[Arc<Buffer>],
    ) -> Result<Bound> {
        let mut bound = Bound::default();
        let written: HashSet<TensorId> =
            plan.steps.iter().flat_map(|step| step.group.results()).map(|id| graph.tensor(id).root).collect();
        for id in graph.ids().filter(|&id| graph.tensor(id).root == id) {
            let tensor = graph.tensor(id);
            if matches!(tensor.source, Source::Node { .. }) && !written.contains(&id) {
                // Not stored: the node is used inside its group only.
                continue;
            }
            let (buffer, offset, writable) = match tensor.source {
                Source::Weight | Source::State => {
                    let missing = || {
                        let kind = if tensor.source == Source::Weight { "weight" } else { "state" };
                        Error::argument(format!("bindings of {kind} '{}'", tensor.name), "none", "a buffer")
                    };
                    let slice = bindings.leaves.get(&id).ok_or_else(missing)?;
                    let writable = tensor.source == Source::State || written.contains(&id);
                    let find = if writable { VulkanMemory::writable } else { VulkanMemory::of };
                    let (buffer, offset) = find(&slice.buffer, slice.offset, tensor.span_bytes(), device)?;
                    (buffer, offset, writable)
                }
                Source::Input | Source::Node { .. } => {
                    let (buffer, offset) = in_arena(graph, plan, id, arena)?;
                    (buffer, offset, true)
                }
            };
            let (room, bytes) = (buffer.bytes(), tensor.span_bytes() as u64);
            let buffer = bound.add(buffer);
            bound.storage.insert(id, Storage { buffer, room, offset, bytes, writable });
        }
        Ok(bound)
    }

    fn add(&mut self, buffer: &Arc<Buffer>) -> BufferRef {
        let known = self.buffers.iter().position(|b| Arc::ptr_eq(b, buffer));
        BufferRef::Bound(known.unwrap_or_else(|| {
            self.buffers.push(buffer.clone());
            self.buffers.len() - 1
        }))
    }

    /// Returns the buffer of a reference.
    pub(crate) fn buffer(&self, number: BufferRef) -> &Arc<Buffer> {
        match number {
            BufferRef::Bound(i) => &self.buffers[i],
            BufferRef::Constant(i) => &self.constants[i],
            BufferRef::Scratch => &self.own[0],
            BufferRef::Counters => &self.own[1],
        }
    }
}

/// Returns the buffer of the arena and the offset in it that the plan gives a tensor.
fn in_arena<'a>(
    graph: &Graph,
    plan: &Plan,
    id: TensorId,
    arena: &'a [Arc<Buffer>],
) -> Result<(&'a Arc<Buffer>, u64)> {
    let tensor = graph.tensor(id);
    let wrong = |found: &str| {
        let expected = format!("{} bytes in an arena of {:?}", tensor.span_bytes(), plan.arena);
        Error::argument(format!("planned offset of '{}'", tensor.name), found, expected)
    };
    let place = plan.region(graph, id).ok_or_else(|| wrong("none"))?;
    let end = place.offset.checked_add(tensor.span_bytes());
    let fits = plan.arena.get(place.buffer).is_some_and(|&bytes| end.is_some_and(|end| end <= bytes));
    match arena.get(place.buffer) {
        Some(buffer) if fits => Ok((buffer, place.offset as u64)),
        _ => Err(wrong(&format!("byte {} of buffer {}", place.offset, place.buffer))),
    }
}
