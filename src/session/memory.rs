//! Device memory of a session: its state, and the memory for intermediates. Each has one buffer on a device, or
//! several if it exceeds the device's largest.

use crate::model::{BatchGraph, DEVICES, Model, Needs, Predictor};
use ggml_core::backend::{Backend, Buffer, Slice, Usage};
use ggml_core::buffers::{Location, enlarge};
use ggml_core::{Error, Result};

/// State tensors of a session, zero at first. A tensor is identified by its index in [`BatchGraph::state`](crate::model::BatchGraph::state).
#[derive(Clone, Debug)]
pub(super) struct State {
    model: Model,
    buffers: [Vec<Buffer>; DEVICES],
    /// Device of each tensor.
    pub(super) device: Vec<usize>,
    /// Number of tensors of the predictor, which are the first.
    of_predictor: usize,
    places: Vec<Location>,
}

impl State {
    /// Allocates the state that a session needs.
    pub(super) fn new(model: &Model, needs: &Needs) -> Result<State> {
        let mut buffers = <[Vec<Buffer>; DEVICES]>::default();
        for (device, backend) in model.backends().iter().enumerate() {
            let allocate = |&bytes: &usize| backend.allocate(bytes, Usage::State);
            buffers[device] = needs.state[device].iter().map(allocate).collect::<Result<_>>()?;
        }
        let (device, places) = (needs.state_device.clone(), needs.state_places.clone());
        Ok(State { model: model.clone(), buffers, device, of_predictor: needs.of_predictor, places })
    }

    /// Returns the index of the first tensor that a graph has.
    pub(super) fn first(&self, graph: &BatchGraph) -> usize {
        if graph.shape.predictor == Predictor::Unused { self.of_predictor } else { 0 }
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
        let (&device, &place) = self.device.get(tensor).zip(self.places.get(tensor)).ok_or_else(missing)?;
        let backend = self.model.backends().get(device).ok_or_else(missing)?;
        let buffer = self.buffers.get(device).and_then(|all| all.get(place.buffer)).ok_or_else(missing)?;
        Ok((backend.as_ref(), Slice { buffer: buffer.clone(), offset: place.offset }))
    }
}

/// Memory for intermediates that the programs of a session share: at least as much as its largest batch
/// needs, more if a program needs more.
#[derive(Clone, Debug, Default)]
pub(super) struct Compute {
    buffers: [Vec<Buffer>; DEVICES],
    least: [Vec<usize>; DEVICES],
}

impl Compute {
    /// Creates the structure without allocating memory.
    pub(super) fn new(needs: &Needs) -> Compute {
        Compute { buffers: Default::default(), least: needs.compute.clone() }
    }

    /// Returns the buffers of an arena on a device, each at least as long as asked for.
    pub(super) fn buffers(
        &mut self,
        backend: &dyn Backend,
        device: usize,
        arena: &[usize],
    ) -> Result<Vec<Buffer>> {
        if arena.is_empty() {
            return Ok(Vec::new());
        }
        let held = &mut self.buffers[device];
        // Everything that was estimated is allocated at once, not in the middle of a text.
        let mut wanted = self.least[device].clone();
        enlarge(&mut wanted, arena);
        for (i, &bytes) in wanted.iter().enumerate() {
            let needed = arena.get(i).copied().unwrap_or(0);
            match held.get_mut(i) {
                Some(buffer) if buffer.bytes() >= needed => {}
                Some(smaller) => *smaller = backend.allocate(bytes, Usage::Compute)?,
                None => held.push(backend.allocate(bytes, Usage::Compute)?),
            }
        }
        Ok(held[..arena.len()].to_vec())
    }
}
