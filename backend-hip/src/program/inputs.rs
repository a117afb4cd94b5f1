//! Inputs of a program: they are written to pinned memory, and a run brings them to the device.
//!
//! Small inputs are read by the first launch of the run, in a graph by its first node: a runtime that runs its own copies
//! beside graphs has replayed graphs with stale inputs, and each copy is a call of the driver. Large ones are copied by the
//! runtime before the first launch.

use super::prepare::{Addressed, Storage};
use crate::op::copy::{GATHERED, gather};
use crate::runtime::memory::Memory;
use crate::runtime::session::{Location, Pointer, WORD};
use crate::runtime::shared::{PinnedRange, Shared};
use crate::runtime::staging::ALIGNMENT;
use ggml_core::{Graph, Result, Source, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum size in bytes of an input that a launch reads: larger ones are faster by the runtime's copies, and are often
/// written once.
const LARGEST: usize = 64 << 10;

/// An input in pinned memory.
#[derive(Clone, Copy, Debug)]
struct PinnedInput {
    /// Offset and size in bytes.
    at: usize,
    bytes: usize,
    /// True if a launch of every run reads it.
    launched: bool,
}

/// Inputs that were written; the next run brings them to the device.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pinned: Option<PinnedRange>,
    ranges: HashMap<TensorId, PinnedInput>,
    written: Vec<TensorId>,
    /// True if another program may have used the arena since the last run, so that all inputs are copied again.
    shared_arena: bool,
}

impl Inputs {
    /// Reserves memory for the inputs of a graph; without room for them, they are written to the device at once.
    /// `shared_arena`: true if the arena is the caller's.
    pub(super) fn new(shared: &Arc<Shared>, graph: &Graph, shared_arena: bool) -> Inputs {
        let mut inputs = Inputs { shared_arena, ..Inputs::default() };
        let mut bytes = 0;
        for id in graph.ids() {
            let tensor = graph.tensor(id);
            if tensor.source == Source::Input && tensor.root == id {
                let input = PinnedInput { at: bytes, bytes: tensor.dense_bytes(), launched: false };
                inputs.ranges.insert(id, input);
                bytes += input.bytes.next_multiple_of(ALIGNMENT);
            }
        }
        inputs.pinned = shared.reserve_pinned(bytes);
        inputs
    }

    /// Plans the launches of the first step that bring the small inputs to the device. There are none without a kernel for
    /// them.
    pub(super) fn launches(
        &mut self,
        shared: &Arc<Shared>,
        graph: &Graph,
        storage: &Storage,
        step: usize,
    ) -> Result<Vec<Addressed>> {
        let (Some(pinned), Ok(kernel)) = (&self.pinned, shared.kernels.gatherer()) else {
            return Ok(Vec::new());
        };
        // A node may write into an input, as into a state: the next run must find what it wrote.
        let is_written = |id: TensorId| {
            let writes = |other: TensorId| {
                let other = graph.tensor(other);
                other.root == id && other.op().is_some_and(|op| !op.is_view())
            };
            graph.ids().any(writes)
        };
        let mut arrays = Vec::new();
        for (&id, input) in &mut self.ranges {
            let fits = (1..=LARGEST).contains(&input.bytes) && input.bytes.is_multiple_of(WORD);
            let Some(slice) = storage.get(&id).filter(|_| fits && !is_written(id)) else { continue };
            let base = Memory::of(&slice.buffer, shared)?.address();
            if !slice.offset.is_multiple_of(WORD) || (slice.offset + input.bytes) / WORD > u32::MAX as usize {
                continue;
            }
            input.launched = true;
            arrays.push((base, slice.offset, *input));
        }
        arrays.sort_by_key(|&(base, offset, _)| (base, offset));
        let of_buffers = arrays.chunk_by(|a, b| a.0 == b.0).flat_map(|of_buffer| of_buffer.chunks(GATHERED));
        let launches = of_buffers.map(|arrays| {
            let words = |&(_, offset, input): &(u64, usize, PinnedInput)| {
                ((input.bytes / WORD) as u32, (offset / WORD) as u32)
            };
            let launch = gather(&arrays.iter().map(words).collect::<Vec<_>>());
            let array = |i: usize| arrays.get(i).unwrap_or(&arrays[0]).2;
            let from = (0..GATHERED).map(array).map(|input| pinned.pointer(input.at, input.bytes));
            let end = arrays.iter().map(|(_, offset, input)| offset + input.bytes).max().unwrap_or(0);
            let pointers = from.chain([Pointer { address: arrays[0].0, bytes: end }]).collect();
            Addressed { step, launch, kernel: kernel.clone(), pointers }
        });
        Ok(launches.collect())
    }

    /// Stores bytes `offset ..` of an input for the next run. False if it must be written to the device: there is no room
    /// for it, or it is a part of an input that the runtime copies whole.
    pub(super) fn store(&mut self, root: TensorId, offset: usize, data: &[u8]) -> bool {
        let (Some(pinned), Some(input)) = (&self.pinned, self.ranges.get(&root)) else { return false };
        let is_whole = offset == 0 && data.len() == input.bytes;
        let is_inside = offset.checked_add(data.len()).is_some_and(|end| end <= input.bytes);
        if !(is_whole || input.launched && is_inside) || !pinned.write(input.at + offset, data) {
            return false;
        }
        if !self.written.contains(&root) {
            self.written.push(root);
        }
        true
    }

    /// True if an input waits for the next run.
    pub(super) fn waits(&self, root: TensorId) -> bool {
        self.written.contains(&root)
    }

    /// Forgets that an input waits for the next run.
    pub(super) fn forget(&mut self, root: TensorId) {
        self.written.retain(|&written| written != root);
    }

    /// Returns the inputs that the runtime copies before a run, or those that wait for it, if no launch is to read them:
    /// each with its offset in pinned memory and its size.
    pub(super) fn copied(&self, by_launches: bool) -> Vec<(TensorId, Location, usize)> {
        let Some(pinned) = &self.pinned else { return Vec::new() };
        let of = |id: &TensorId| {
            let input = self.ranges.get(id).filter(|input| !(by_launches && input.launched))?;
            Some((*id, pinned.location(input.at), input.bytes))
        };
        self.written.iter().filter_map(of).collect()
    }

    /// Notes that a run has begun, so that what was written is on the device.
    pub(super) fn mark_copied(&mut self) {
        if !self.shared_arena {
            self.written.clear();
        }
    }
}
