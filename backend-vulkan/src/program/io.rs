//! Staging memory for the inputs and outputs of a program: persistent, and copied by the recorded commands.

use super::windows::Storage;
use crate::memory::Memory;
use crate::raw::buffer::Buffer;
use crate::raw::heaps::Side;
use ggml_core::{Deadline, Error, Result, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// Alignment of tensors in staging memory.
const ALIGNMENT: u64 = 64;

/// Tensors with an offset in host-visible memory.
#[derive(Default)]
pub(crate) struct Staged {
    buffer: Option<Arc<Buffer>>,
    /// Offset in the staging buffer, and storage on the device.
    locations: HashMap<TensorId, (u64, Storage)>,
}

impl Staged {
    /// Allocates staging memory for tensors with the given storage on the device; none if the list is empty.
    pub(crate) fn new(
        memory: &Memory,
        tensors: Vec<(TensorId, Storage)>,
        name: &'static str,
        deadline: &Deadline,
    ) -> Result<Staged> {
        if tensors.is_empty() {
            return Ok(Staged::default());
        }
        let too_large =
            || Error::argument(name, "more bytes than can be counted", "a size that can be addressed");
        let mut end = 0u64;
        let mut locations = HashMap::new();
        for (id, storage) in tensors {
            let at = end;
            let next = at.checked_add(storage.bytes).and_then(|e| e.checked_next_multiple_of(ALIGNMENT));
            end = next.ok_or_else(too_large)?;
            locations.insert(id, (at, storage));
        }
        let bytes = usize::try_from(end).map_err(|_| too_large())?;
        let buffer = memory.buffer(bytes, Side::Host, name, deadline)?;
        // An input that is never written reads as zeros.
        buffer.fill(0)?;
        Ok(Staged { buffer: Some(buffer), locations })
    }

    /// Returns the staging buffer, if there is one.
    pub(crate) fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.buffer.as_ref()
    }

    /// Returns the staging buffer and the offset of a tensor in it.
    pub(crate) fn location(&self, id: TensorId) -> Option<(&Arc<Buffer>, u64)> {
        Some((self.buffer.as_ref()?, self.locations.get(&id)?.0))
    }

    /// Returns all copies: the staging buffer, the offset in it, and the storage on the device.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (&Arc<Buffer>, u64, &Storage)> {
        let buffer = self.buffer.as_ref();
        self.locations.values().filter_map(move |(at, storage)| Some((buffer?, *at, storage)))
    }
}
