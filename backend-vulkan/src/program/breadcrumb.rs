//! A breadcrumb: the number of completed steps, in memory that the host can read after the device is lost.

use crate::memory::Memory;
use crate::raw::buffer::Buffer;
use crate::raw::commands::{Recorder, Scope};
use crate::raw::heaps::Side;
use ggml_core::{Deadline, Result};
use std::sync::Arc;

/// The step counter of one program.
pub(crate) struct Breadcrumb(Arc<Buffer>);

impl Breadcrumb {
    /// Creates a counter in host-visible memory.
    pub(crate) fn new(memory: &Memory, deadline: &Deadline) -> Result<Breadcrumb> {
        let buffer = memory.buffer(4, Side::Host, "breadcrumb", deadline)?;
        buffer.fill(0)?;
        Ok(Breadcrumb(buffer))
    }

    /// Resets the counter to zero. The device must be idle.
    pub(crate) fn reset(&self) -> Result<()> {
        self.0.write(0, &[0; 4])
    }

    /// Records a write of the number of completed steps. Without buffer markers later steps wait for it.
    pub(crate) fn mark_completed(&self, recorder: &mut Recorder<'_>, completed: usize) -> Result<()> {
        let word = completed as u32;
        if !recorder.marker(&self.0, 0, word)? {
            recorder.barrier(Scope::Device, Scope::Device);
            recorder.fill(&self.0, 0, 4, word)?;
        }
        Ok(())
    }

    /// Returns the number of completed steps. Reads one aligned word that the device may be writing at the
    /// time.
    pub(crate) fn completed(&self) -> Option<usize> {
        let mut word = [0; 4];
        self.0.read(0, &mut word).ok()?;
        Some(u32::from_ne_bytes(word) as usize)
    }
}
