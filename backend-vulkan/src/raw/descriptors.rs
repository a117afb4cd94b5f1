//! Descriptor sets, which are allocated and written once.

use super::buffer::Buffer;
use super::device::Device;
use super::pipeline::Layout;
use ash::vk;
use ggml_core::sync::lock;
use ggml_core::{Error, Phase, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// A range of a buffer that a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window<B> {
    /// The buffer.
    pub(crate) buffer: B,
    /// Byte offset in the buffer, a multiple of the device's alignment.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
}

impl<B> Window<B> {
    /// Returns the offset of the first byte after the window.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// A pool of descriptor sets. Sets are not freed individually.
pub(crate) struct DescriptorPool {
    device: Arc<Device>,
    raw: Mutex<vk::DescriptorPool>,
}

/// A written descriptor set.
pub(crate) struct DescriptorSet {
    /// The set.
    pub(super) raw: vk::DescriptorSet,
    /// The layout that it was allocated for.
    pub(super) layout: Arc<Layout>,
    _windows: Vec<Window<Arc<Buffer>>>,
    _pool: Arc<DescriptorPool>,
}

impl DescriptorPool {
    /// Creates a pool for `sets` sets with `buffers` storage buffers in total.
    pub(crate) fn new(device: &Arc<Device>, sets: u32, buffers: u32) -> Result<Arc<DescriptorPool>> {
        let sizes = [vk::DescriptorPoolSize {
            ty: vk::DescriptorType::STORAGE_BUFFER,
            descriptor_count: buffers.max(1),
        }];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(sets.max(1)).pool_sizes(&sizes);
        // SAFETY: the device is alive; no count is 0.
        let raw = unsafe { device.raw.create_descriptor_pool(&info, None) }
            .map_err(|code| device.failed(Phase::Prepare, "vkCreateDescriptorPool", code))?;
        Ok(Arc::new(DescriptorPool { device: device.clone(), raw: Mutex::new(raw) }))
    }

    /// Allocates a set of a layout and writes its windows.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a window exceeds its buffer or the device's limits.
    pub(crate) fn set(
        self: &Arc<Self>,
        layout: &Arc<Layout>,
        windows: &[Window<Arc<Buffer>>],
    ) -> Result<Arc<DescriptorSet>> {
        self.check(layout, windows)?;
        let pool = lock(&self.raw);
        let layouts = [layout.set];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(*pool).set_layouts(&layouts);
        // SAFETY: pool and layout are alive; the pool is locked. A full pool gives an error code.
        let sets = unsafe { self.device.raw.allocate_descriptor_sets(&info) }
            .map_err(|code| self.device.failed(Phase::Prepare, "vkAllocateDescriptorSets", code))?;
        drop(pool);
        let Some(&raw) = sets.first() else {
            let code = vk::Result::ERROR_OUT_OF_POOL_MEMORY;
            return Err(self.device.failed(Phase::Prepare, "vkAllocateDescriptorSets", code));
        };
        self.write(raw, layout, windows);
        let (layout, _windows, _pool) = (layout.clone(), windows.to_vec(), self.clone());
        Ok(Arc::new(DescriptorSet { raw, layout, _windows, _pool }))
    }

    fn check(&self, layout: &Layout, windows: &[Window<Arc<Buffer>>]) -> Result<()> {
        let caps = &self.device.facts.caps;
        let buffers: u32 = layout.bindings.iter().sum();
        if windows.len() != buffers as usize {
            return Err(Error::argument("windows of a dispatch", windows.len(), buffers.to_string()));
        }
        for window in windows {
            window.buffer.check(window.offset, window.bytes)?;
            let fits = window.bytes > 0
                && window.bytes <= caps.max_binding
                && window.offset % caps.binding_alignment == 0
                && Arc::ptr_eq(window.buffer.device(), &self.device);
            if !fits {
                let found = format!("{} bytes at {}", window.bytes, window.offset);
                let expected = format!(
                    "1 to {} bytes at a multiple of {}, of this device",
                    caps.max_binding, caps.binding_alignment
                );
                return Err(Error::argument("window", found, expected));
            }
        }
        Ok(())
    }

    fn write(&self, set: vk::DescriptorSet, layout: &Layout, windows: &[Window<Arc<Buffer>>]) {
        let infos: Vec<_> = windows
            .iter()
            .map(|w| vk::DescriptorBufferInfo { buffer: w.buffer.raw, offset: w.offset, range: w.bytes })
            .collect();
        let mut rest = &infos[..];
        let writes: Vec<_> = (0..)
            .zip(&layout.bindings)
            .map(|(binding, &count)| {
                let (of_binding, others) = rest.split_at(rest.len().min(count as usize));
                rest = others;
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(of_binding)
            })
            .collect();
        // SAFETY: the set is new, so no command uses it; there is a window for each buffer of its bindings,
        // all within their buffers and the device's limits (`check`); the set holds the buffers.
        unsafe { self.device.raw.update_descriptor_sets(&writes, &[]) };
    }
}

impl Drop for DescriptorPool {
    fn drop(&mut self) {
        let raw = *self.raw.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: every set holds an `Arc` of its pool and is held by the commands that bind it, so none is
        // in use.
        unsafe { self.device.raw.destroy_descriptor_pool(raw, None) };
    }
}
