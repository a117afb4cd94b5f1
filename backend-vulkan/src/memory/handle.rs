//! Memory as the trait sees it.

use crate::raw::buffer::Buffer;
use crate::raw::device::Device;
use ggml_core::backend::{self, DeviceMemory, Usage};
use ggml_core::{Error, Result};
use std::any::Any;
use std::sync::Arc;

/// Memory of this backend: a buffer, and where in it the memory begins (not 0 only for an imported map).
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
    /// A handle on `bytes` bytes of a buffer.
    pub(crate) fn handle(buffer: Arc<Buffer>, begin: u64, bytes: usize, usage: Usage) -> backend::Buffer {
        backend::Buffer::new(Arc::new(VulkanMemory { buffer, begin }), bytes, usage)
    }

    /// The buffer behind a handle, and the place in it of the handle's byte `offset`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it belongs to another backend or another device, or the range is not in it.
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

    /// As [`VulkanMemory::of`], for a range that will be written.
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
