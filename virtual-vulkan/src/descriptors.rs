//! Descriptor sets: buffer resources in memory, in RADV's layout.
//!
//! A storage or uniform buffer is a resource of 16 bytes; bindings are stored in ascending order of their
//! numbers.

use crate::card::Model;
use crate::memory::HighBlock;
use crate::reply::{Reply, unknown};
use ash::vk;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use virtual_gpu::Gpu;

/// Bytes of a buffer resource.
pub(crate) const RESOURCE: u64 = 16;

/// Last word of a buffer resource as RADV builds it for GFX9: identity component swizzle, 32-bit elements.
const FORMAT_GFX9: u32 = 0x0002_7fac;

/// The same for GFX11: identity component swizzle, format 32_FLOAT, and bounds in bytes, whatever the stride
/// (`OOB_SELECT` raw).
const FORMAT_GFX11: u32 = 0x3001_6fac;

/// The layout of a descriptor set.
pub(crate) struct SetLayout {
    /// Index of the first resource and the number of resources of each binding.
    bindings: BTreeMap<u32, (u64, u64)>,
    resources: u64,
}

impl SetLayout {
    pub(crate) fn new(bindings: &[vk::DescriptorSetLayoutBinding<'_>]) -> Reply<SetLayout> {
        let mut layout = SetLayout { bindings: BTreeMap::new(), resources: 0 };
        let mut sorted: Vec<_> = bindings.iter().collect();
        sorted.sort_by_key(|b| b.binding);
        for binding in sorted {
            let kind = binding.descriptor_type;
            if ![vk::DescriptorType::STORAGE_BUFFER, vk::DescriptorType::UNIFORM_BUFFER].contains(&kind) {
                tracing::error!(?kind, "the virtual card has no descriptors of this type");
                return Err(vk::Result::ERROR_FEATURE_NOT_PRESENT);
            }
            let count = u64::from(binding.descriptor_count);
            layout.bindings.insert(binding.binding, (layout.resources, count));
            layout.resources += count;
        }
        Ok(layout)
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.resources * RESOURCE).max(RESOURCE)
    }
}

/// A pool of descriptor sets: one block of memory.
pub(crate) struct DescriptorPool {
    pub(crate) block: Arc<HighBlock>,
    pub(crate) bytes: u64,
    pub(crate) state: Mutex<PoolState>,
}

#[derive(Default)]
pub(crate) struct PoolState {
    /// Bytes allocated so far from the start of the block.
    pub(crate) used: u64,
    /// Freed ranges, by size.
    pub(crate) idle: BTreeMap<u64, Vec<u64>>,
    pub(crate) sets: Vec<u64>,
}

/// A descriptor set.
pub(crate) struct DescriptorSet {
    pub(crate) address: u64,
    pub(crate) layout: Arc<SetLayout>,
    pub(crate) pool: vk::DescriptorPool,
    /// Keeps the memory alive: commands that use the set refer to it by address.
    pub(crate) _block: Arc<HighBlock>,
}

impl DescriptorSet {
    /// Returns the address of a resource; `element` may go beyond its binding, because updates continue in
    /// the next one.
    pub(crate) fn resource(&self, binding: u32, element: u64) -> Reply<u64> {
        let &(first, _) =
            self.layout.bindings.get(&binding).ok_or_else(|| unknown("binding", u64::from(binding)))?;
        let at = first + element;
        let inside = at < self.layout.resources;
        if inside { Ok(self.address + at * RESOURCE) } else { Err(unknown("descriptor", at)) }
    }

    /// Zeroes all resources, so that a later use is an access beyond an empty range.
    pub(crate) fn clear(&self, gpu: &Gpu) {
        let _ = gpu.fill(self.address, 0, self.layout.bytes() as usize);
    }
}

/// Returns a raw buffer resource for a model.
pub(crate) fn resource(model: Model, address: u64, bytes: u64) -> [u32; 4] {
    let range = u32::try_from(bytes.next_multiple_of(4)).unwrap_or(!3);
    let format = if model.is_rdna3() { FORMAT_GFX11 } else { FORMAT_GFX9 };
    [address as u32, (address >> 32) as u32 & 0xffff, range, format]
}
