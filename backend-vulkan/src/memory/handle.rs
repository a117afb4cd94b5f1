//! Memory handles for the `Backend` trait.

use crate::raw::buffer::Buffer;
use crate::raw::device::Device;
use ggml_core::backend::{self, DeviceMemory, Usage};
use ggml_core::{Error, Result};
use std::any::Any;
use std::sync::Arc;

/// Memory of this backend: a buffer and the offset in it at which the memory begins (nonzero only for an
/// imported map).
#[derive(Debug)]
pub(crate) struct VulkanMemory {
    buffer: Arc<Buffer>,
    begin: u64,
}

impl DeviceMemory for VulkanMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl VulkanMemory {
    /// Returns a handle to `bytes` bytes of a buffer.
    pub(crate) fn handle(buffer: Arc<Buffer>, begin: u64, bytes: usize, usage: Usage) -> backend::Buffer {
        backend::Buffer::new(Arc::new(VulkanMemory { buffer, begin }), bytes, usage)
    }

    /// Returns the buffer behind a handle, and the offset in it of the handle's byte `offset`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the handle belongs to another backend or device, or the range is outside
    /// of it.
    pub(crate) fn of<'a>(
        handle: &'a backend::Buffer,
        offset: usize,
        bytes: usize,
        device: &Arc<Device>,
    ) -> Result<(&'a Arc<Buffer>, u64)> {
        handle.check_range(offset, bytes)?;
        let memory = handle.downcast::<VulkanMemory>();
        memory
            .filter(|m| Arc::ptr_eq(m.buffer.device(), device))
            .map(|m| (&m.buffer, m.begin + offset as u64))
            .ok_or_else(|| Error::argument("buffer", "of another backend or device", device.name.clone()))
    }

    /// Returns the same as [`VulkanMemory::of`], for a range that will be written.
    pub(crate) fn writable<'a>(
        handle: &'a backend::Buffer,
        offset: usize,
        bytes: usize,
        device: &Arc<Device>,
    ) -> Result<(&'a Arc<Buffer>, u64)> {
        let (buffer, at) = VulkanMemory::of(handle, offset, bytes, device)?;
        match buffer.is_writable() {
            true => Ok((buffer, at)),
            false => Err(Error::argument("buffer", "a memory map", "a buffer that can be written")),
        }
    }
}
