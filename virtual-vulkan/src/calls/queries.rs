//! Queries.

use super::api::code;
use crate::device::Device;
use crate::queries::{NONE, QueryPool};
use crate::reply::unknown;
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) unsafe extern "system" fn create(
    handle: vk::Device,
    info: *const vk::QueryPoolCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::QueryPool,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateQueryPool").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let info = unsafe { &*info };
        if info.query_type != vk::QueryType::TIMESTAMP {
            return Err(vk::Result::ERROR_FEATURE_NOT_PRESENT);
        }
        let values = (0..info.query_count).map(|_| AtomicU64::new(NONE)).collect();
        // SAFETY: as above.
        unsafe { *out = vk::QueryPool::from_raw(device.query_pools.add(QueryPool { values })) };
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn destroy(
    handle: vk::Device,
    pool: vk::QueryPool,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if let Ok(device) = Device::of(handle) {
        device.query_pools.take(pool.as_raw());
    }
}

pub(crate) unsafe extern "system" fn reset(handle: vk::Device, pool: vk::QueryPool, first: u32, count: u32) {
    if let Some(pool) = Device::of(handle).ok().and_then(|d| d.query_pools.get(pool.as_raw())) {
        pool.reset(first, count);
    }
}

/// Returns results immediately; missing ones give NOT_READY. (A caller that needs to wait waits for its
/// commands.)
pub(crate) unsafe extern "system" fn results(
    handle: vk::Device,
    pool: vk::QueryPool,
    first: u32,
    count: u32,
    _bytes: usize,
    to: *mut c_void,
    stride: u64,
    flags: vk::QueryResultFlags,
) -> vk::Result {
    code(Device::enter(handle, "vkGetQueryPoolResults").and_then(|device| {
        let raw = pool.as_raw();
        let pool = device.query_pools.get(raw).ok_or_else(|| unknown("VkQueryPool", raw))?;
        let mut ready = Ok(());
        for i in 0..count as usize {
            let value = pool.values.get(first as usize + i).map_or(NONE, |v| v.load(Ordering::Relaxed));
            let there = value != NONE;
            let words = [if there { value } else { 0 }, u64::from(there)];
            let available = flags.contains(vk::QueryResultFlags::WITH_AVAILABILITY);
            for (n, word) in words.into_iter().take(1 + usize::from(available)).enumerate() {
                // SAFETY: Vulkan's rules for the caller: there is room for the results at this stride.
                unsafe {
                    let at = to.cast::<u8>().add(i * stride as usize);
                    match flags.contains(vk::QueryResultFlags::TYPE_64) {
                        true => at.cast::<u64>().add(n).write_unaligned(word),
                        false => at.cast::<u32>().add(n).write_unaligned(word as u32),
                    }
                }
            }
            if !there && !available {
                ready = Err(vk::Result::NOT_READY);
            }
        }
        ready
    }))
}
