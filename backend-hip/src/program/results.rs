//! Transfer of results to the host: after the last step of a run, a launch gathers the small outputs in
//! pinned memory. They are available as soon as the run is complete, and reading them needs no driver call.

use super::prepare::{Addressed, Storage};
use crate::op::copy::{GATHERED, gather};
use crate::runtime::memory::Memory;
use crate::runtime::session::{Pointer, WORD};
use crate::runtime::shared::{PinnedRange, Shared};
use crate::runtime::staging::ALIGNMENT;
use ggml_core::{Graph, Result, Source, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum size of a gathered output in bytes. Copying a larger one takes longer than requesting it, and it
/// may never be read.
const LARGEST: usize = 64 << 10;

/// Outputs in pinned memory.
#[derive(Debug)]
pub(crate) struct Results {
    range: PinnedRange,
    ranges: HashMap<TensorId, (usize, usize)>,
    /// True if they equal the outputs on the device.
    pub(super) fresh: bool,
}

impl Results {
    /// Reserves memory for the small outputs of a graph and plans the launches that copy them there, which
    /// belong to `step`. Returns `None` if there are no such outputs, no room for them or no kernel.
    pub(super) fn new(
        shared: &Arc<Shared>,
        graph: &Graph,
        storage: &Storage,
        step: usize,
    ) -> Result<Option<(Results, Vec<Addressed>)>> {
        let mut ranges = HashMap::new();
        let (mut from, mut bytes) = (Vec::new(), 0);
        for &id in graph.outputs() {
            let tensor = graph.tensor(id);
            let (size, root) = (tensor.dense_bytes(), graph.tensor(tensor.root));
            // A leaf may be written without a run.
            let computed = matches!(root.source, Source::Node { .. });
            let whole = tensor.is_contiguous() && size.is_multiple_of(WORD) && (1..=LARGEST).contains(&size);
            let Some(place) = storage.get(&tensor.root).filter(|_| computed && whole) else { continue };
            let address =
                Memory::of(&place.buffer, shared)?.address() + (place.offset + tensor.offset) as u64;
            from.push((Pointer { address, bytes: size }, bytes));
            ranges.insert(id, (bytes, size));
            bytes += size.next_multiple_of(ALIGNMENT);
        }
        let Ok(kernel) = shared.kernels.gatherer() else { return Ok(None) };
        let Some(range) = shared.reserve_pinned(bytes).filter(|_| bytes > 0) else { return Ok(None) };
        let launches = from.chunks(GATHERED).map(|arrays| {
            let words = |&(from, at): &(Pointer, usize)| ((from.bytes / WORD) as u32, (at / WORD) as u32);
            let launch = gather(&arrays.iter().map(words).collect::<Vec<_>>());
            let array = |i: usize| arrays.get(i).unwrap_or(&arrays[0]).0;
            let pointers = (0..GATHERED).map(array).chain([range.pointer(0, bytes)]).collect();
            Addressed { step, launch, kernel: kernel.clone(), pointers }
        });
        let launches = launches.collect();
        Ok(Some((Results { range, ranges, fresh: false }, launches)))
    }

    /// Copies an output if it is gathered; returns false if not.
    pub(super) fn read(&self, id: TensorId, out: &mut [u8]) -> bool {
        let place = self.ranges.get(&id).filter(|&&(_, bytes)| self.fresh && bytes == out.len());
        place.is_some_and(|&(at, _)| self.range.read(at, out))
    }
}
