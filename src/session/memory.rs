//! Device memory of a session: its state, and the memory for intermediates.

use crate::model::{DEVICES, Model, Needs};
use ggml_core::backend::{Backend, Buffer, Slice, Usage};
use ggml_core::{Error, Result};

/// State tensors of a session: one buffer on each device that has any, zero at first. A tensor is identified
/// by its index in [`BatchGraph::state`](crate::model::BatchGraph::state).
#[derive(Clone, Debug)]
pub(super) struct State {
    model: Model,
    buffers: [Option<Buffer>; DEVICES],
    /// Device of each tensor.
    pub(super) device: Vec<usize>,
    offsets: Vec<usize>,
}

impl State {
    /// Allocates the state that a session needs.
    pub(super) fn new(model: &Model, needs: &Needs) -> Result<State> {
        let mut buffers = [None, None];
        for (device, backend) in model.backends().iter().enumerate() {
            if needs.state[device] > 0 {
                buffers[device] = Some(backend.allocate(needs.state[device], Usage::State)?);
            }
        }
        let (device, offsets) = (needs.state_device.clone(), needs.state_offsets.clone());
        Ok(State { model: model.clone(), buffers, device, offsets })
    }

    /// Reads `out.len()` bytes of a tensor from byte `offset` on.
    pub(super) fn download(&self, tensor: usize, offset: usize, out: &mut [u8]) -> Result<()> {
        let (backend, slice) = self.location(tensor)?;
        backend.download(&slice.buffer, slice.offset + offset, out)
    }

    /// Writes bytes of a tensor from byte `offset` on.
    pub(super) fn upload(&self, tensor: usize, offset: usize, data: &[u8]) -> Result<()> {
        let (backend, slice) = self.location(tensor)?;
        backend.upload(&slice.buffer, slice.offset + offset, data)
    }

    /// Returns the backend and the memory of a tensor.
    pub(super) fn location(&self, tensor: usize) -> Result<(&dyn Backend, Slice)> {
        let missing = || {
            Error::argument(
                "state tensor",
                format!("index {tensor}"),
                format!("one of {}", self.device.len()),
            )
        };
        let (&device, &offset) = self.device.get(tensor).zip(self.offsets.get(tensor)).ok_or_else(missing)?;
        let backend = self.model.backends().get(device).ok_or_else(missing)?;
        let buffer = self.buffers.get(device).cloned().flatten().ok_or_else(missing)?;
        Ok((backend.as_ref(), Slice { buffer, offset }))
    }
}

/// Memory for intermediates that the programs of a session share: at least as much as its largest batch
/// needs, more if a program needs more.
#[derive(Clone, Debug, Default)]
pub(super) struct Compute {
    buffers: [Option<Buffer>; DEVICES],
    least: [usize; DEVICES],
}

impl Compute {
    /// Creates the structure without allocating memory.
    pub(super) fn new(needs: &Needs) -> Compute {
        Compute { buffers: [None, None], least: needs.compute }
    }

    /// Returns at least `bytes` bytes of memory on a device.
    pub(super) fn buffer(&mut self, backend: &dyn Backend, device: usize, bytes: usize) -> Result<Buffer> {
        match &self.buffers[device] {
            Some(buffer) if buffer.bytes() >= bytes => Ok(buffer.clone()),
            _ => {
                let buffer = backend.allocate(bytes.max(self.least[device]), Usage::Compute)?;
                self.buffers[device] = Some(buffer.clone());
                Ok(buffer)
            }
        }
    }
}
