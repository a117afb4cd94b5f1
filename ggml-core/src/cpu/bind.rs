//! Storage of a graph's tensors: resolves plans and bindings to windows on memory.

use super::gate::Access;
use super::memory::{HostMemory, MemorySet};
use super::window::Window;
use crate::backend::{Bindings, Buffer, Slice};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::plan::Plan;
use crate::tensor::{Source, TensorId};

/// Storage of all tensors of a graph.
#[derive(Debug)]
pub(super) struct Storage<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    leaves: &'a Bindings,
    arena: Vec<Buffer>,
    /// Memories of the program, each with its kind of access.
    pub(super) memories: MemorySet,
}

/// Bytes of a contiguous tensor in a buffer, for transfers.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Buffer and offset.
    pub(super) slice: Slice,
    /// Size in bytes.
    pub(super) bytes: usize,
}

impl<'a> Storage<'a> {
    /// Returns the storage of `graph` under `plan`, with `arena` for the tensors that the plan places.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the arena is read-only or from another backend.
    pub(super) fn new(
        graph: &'a Graph,
        plan: &'a Plan,
        leaves: &'a Bindings,
        arena: Vec<Buffer>,
    ) -> Result<Storage<'a>> {
        for buffer in &arena {
            HostMemory::of(buffer)?.check_writable()?;
        }
        Ok(Storage { graph, plan, leaves, arena, memories: MemorySet::default() })
    }

    /// Returns the window of a tensor that the program reads or writes, and registers the access.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the tensor has no storage, or the storage is too small, misaligned or
    /// from another backend, or is to be written but is a memory map.
    pub(super) fn window(&mut self, id: TensorId, access: Access) -> Result<Window> {
        let slice = self.slice(id)?;
        let memory = HostMemory::of(&slice.buffer)?;
        if access == Access::Write {
            memory.check_writable()?;
        }
        self.memories.add(&slice.buffer, access)?;
        memory.window(slice.offset, self.graph.tensor(id))
    }

    /// Returns the bytes of a contiguous tensor.
    ///
    /// # Errors
    /// As [`Storage::window`].
    pub(super) fn span(&self, id: TensorId) -> Result<Span> {
        let tensor = self.graph.tensor(id);
        if !tensor.is_contiguous() {
            return Err(Error::argument("tensor", tensor.describe(), "a contiguous one"));
        }
        let slice = self.slice(id)?;
        let bytes = tensor.dense_bytes();
        slice.buffer.check_range(slice.offset, bytes)?;
        Ok(Span { slice, bytes })
    }

    /// Returns the buffer and offset of a tensor's first element.
    fn slice(&self, id: TensorId) -> Result<Slice> {
        let tensor = self.graph.tensor(id);
        let root = self.graph.tensor(tensor.root);
        let none = || Error::argument(format!("storage of '{}'", root.name), "missing", "");
        let slice = match root.source {
            Source::Weight | Source::State => {
                self.leaves.leaves.get(&tensor.root).cloned().ok_or_else(none)?
            }
            Source::Input | Source::Node { .. } => {
                let place = self.plan.region(self.graph, id).ok_or_else(none)?;
                let buffer = self.arena.get(place.buffer).cloned().ok_or_else(none)?;
                Slice { buffer, offset: place.offset }
            }
        };
        let offset = slice.offset.checked_add(tensor.offset).ok_or_else(none)?;
        Ok(Slice { buffer: slice.buffer, offset })
    }
}
