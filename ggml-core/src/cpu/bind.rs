//! Where the tensors of a graph lie: from a plan and bindings to windows on memory.

use super::gate::Access;
use super::memory::{HostMemory, MemorySet};
use super::window::Window;
use crate::backend::{Bindings, Buffer, Slice};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::plan::Plan;
use crate::tensor::{Source, TensorId};

/// The storage of every tensor of a graph.
#[derive(Debug)]
pub(super) struct Storage<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    leaves: &'a Bindings,
    arena: Buffer,
    /// What the program does to which memory.
    pub(super) memories: MemorySet,
}

/// A contiguous tensor's bytes in a buffer, for transfers.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// The buffer and where in it.
    pub(super) slice: Slice,
    /// Bytes.
    pub(super) bytes: usize,
}

impl<'a> Storage<'a> {
    /// The storage of `graph` under `plan`, with `arena` for what the plan places.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the arena is too small, cannot be written or is another backend's.
    pub(super) fn new(
        graph: &'a Graph,
        plan: &'a Plan,
        leaves: &'a Bindings,
        arena: Buffer,
    ) -> Result<Storage<'a>> {
        let memory = HostMemory::of(&arena)?;
        memory.check_writable()?;
        if memory.len() < plan.arena_bytes {
            let expected = format!("at least {} for the plan", plan.arena_bytes);
            return Err(Error::argument("compute memory", format!("{} bytes", memory.len()), expected));
        }
        Ok(Storage { graph, plan, leaves, arena, memories: MemorySet::default() })
    }

    /// The elements of a tensor, to be read or written by the program.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the tensor has no storage, the storage is too small, wrongly aligned, another
    /// backend's, or to be written and a memory map.
    pub(super) fn window(&mut self, id: TensorId, access: Access) -> Result<Window> {
        let slice = self.slice(id)?;
        let memory = HostMemory::of(&slice.buffer)?;
        if access == Access::Write {
            memory.check_writable()?;
        }
        self.memories.add(&slice.buffer, access)?;
        memory.window(slice.offset, self.graph.tensor(id))
    }

    /// The bytes of a contiguous tensor.
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

    /// Where a tensor begins.
    fn slice(&self, id: TensorId) -> Result<Slice> {
        let tensor = self.graph.tensor(id);
        let root = self.graph.tensor(tensor.root);
        let none = || Error::argument(format!("storage of '{}'", root.name), "missing", "");
        let slice = match root.source {
            Source::Weight | Source::State => {
                self.leaves.leaves.get(&tensor.root).cloned().ok_or_else(none)?
            }
            Source::Input | Source::Node { .. } => {
                let place = self.plan.place(self.graph, id).ok_or_else(none)?;
                Slice { buffer: self.arena.clone(), offset: place.offset }
            }
        };
        let offset = slice.offset.checked_add(tensor.offset).ok_or_else(none)?;
        Ok(Slice { buffer: slice.buffer, offset })
    }
}
