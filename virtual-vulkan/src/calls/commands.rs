//! Command pools and command buffers.

use super::api::{code, list};
use crate::device::Device;
use crate::list::{Command, Dispatch, Grid, List, PUSH_BYTES, SETS, Span};
use crate::order::stages;
use crate::pipeline::Pipeline;
use crate::queries::QueryPool;
use crate::reply::{Reply, unknown};
use crate::table::{Dispatchable, Table, lock};
use crate::visible::{Masks, kinds};
use ash::vk;
use ash::vk::Handle as _;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex};

/// Command buffers by handle.
pub(crate) static COMMANDS: LazyLock<Table<CommandBuffer>> = LazyLock::new(Table::default);

/// A command buffer.
pub(crate) struct CommandBuffer {
    handle: Dispatchable,
    pub(crate) device: Arc<Device>,
    state: Mutex<Recording>,
}

/// Recorded commands, and the current bindings.
struct Recording {
    commands: Vec<Command>,
    pipeline: Option<Arc<Pipeline>>,
    sets: [u64; SETS],
    push: [u8; PUSH_BYTES],
    /// The first error.
    wrong: Option<vk::Result>,
    list: Option<Arc<List>>,
}

impl Default for Recording {
    fn default() -> Recording {
        let (commands, pipeline, wrong, list) = (Vec::new(), None, None, None);
        Recording { commands, pipeline, sets: [0; SETS], push: [0; PUSH_BYTES], wrong, list }
    }
}

impl CommandBuffer {
    /// Returns the finished recording; an error if the recording was not ended.
    pub(crate) fn list(&self) -> Reply<Arc<List>> {
        lock(&self.state).list.clone().ok_or_else(|| unknown("recording", self.handle.handle()))
    }

    fn finish(&self) -> Reply {
        let mut state = lock(&self.state);
        if let Some(code) = state.wrong {
            return Err(code);
        }
        let commands = std::mem::take(&mut state.commands);
        state.list = Some(Arc::new(List::new(commands, &self.device.high, &self.device.gpu)?));
        Ok(())
    }
}

/// Applies `f` to a recording; an error is stored until the recording ends.
fn record(handle: vk::CommandBuffer, f: impl FnOnce(&Device, &mut Recording) -> Reply) {
    let Some(buffer) = COMMANDS.get(handle.as_raw()) else {
        let _ = unknown("VkCommandBuffer", handle.as_raw());
        return;
    };
    let mut state = lock(&buffer.state);
    if let Err(code) = f(&buffer.device, &mut state) {
        state.wrong.get_or_insert(code);
    }
}

fn span(device: &Device, buffer: vk::Buffer, offset: u64, bytes: u64) -> Reply<Span> {
    let buffer = device.buffer(buffer)?;
    let (address, bytes) = buffer.range(offset, bytes)?;
    Ok(Span { address, bytes, _buffer: buffer })
}

pub(crate) unsafe extern "system" fn create_pool(
    handle: vk::Device,
    _info: *const vk::CommandPoolCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::CommandPool,
) -> vk::Result {
    code(Device::enter(handle, "vkCreateCommandPool").map(|device| {
        let pool = device.command_pools.add(Mutex::default());
        // SAFETY: Vulkan's rules for the caller.
        unsafe { *out = vk::CommandPool::from_raw(pool) };
    }))
}

pub(crate) unsafe extern "system" fn destroy_pool(
    handle: vk::Device,
    pool: vk::CommandPool,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let taken = Device::of(handle).ok().and_then(|device| device.command_pools.take(pool.as_raw()));
    for buffer in taken.iter().flat_map(|pool| lock(pool).clone()) {
        COMMANDS.take(buffer);
    }
}

pub(crate) unsafe extern "system" fn reset_pool(
    handle: vk::Device,
    pool: vk::CommandPool,
    _flags: vk::CommandPoolResetFlags,
) -> vk::Result {
    code(Device::of(handle).map(|device| {
        let pool = device.command_pools.get(pool.as_raw());
        for buffer in pool.iter().flat_map(|pool| lock(pool).clone()).filter_map(|b| COMMANDS.get(b)) {
            *lock(&buffer.state) = Recording::default();
        }
    }))
}

pub(crate) unsafe extern "system" fn allocate(
    handle: vk::Device,
    info: *const vk::CommandBufferAllocateInfo<'_>,
    out: *mut vk::CommandBuffer,
) -> vk::Result {
    code(Device::enter(handle, "vkAllocateCommandBuffers").and_then(|device| {
        // SAFETY: Vulkan's rules for the caller.
        let info = unsafe { &*info };
        if info.level != vk::CommandBufferLevel::PRIMARY {
            return Err(vk::Result::ERROR_FEATURE_NOT_PRESENT);
        }
        let raw = info.command_pool.as_raw();
        let pool = device.command_pools.get(raw).ok_or_else(|| unknown("VkCommandPool", raw))?;
        for i in 0..info.command_buffer_count as usize {
            let dispatchable = Dispatchable::new();
            let handle = dispatchable.handle();
            let buffer =
                CommandBuffer { handle: dispatchable, device: device.clone(), state: Mutex::default() };
            COMMANDS.put(handle, buffer);
            lock(&pool).push(handle);
            // SAFETY: `out` has an element for each command buffer.
            unsafe { *out.add(i) = vk::CommandBuffer::from_raw(handle) };
        }
        Ok(())
    }))
}

pub(crate) unsafe extern "system" fn free(
    handle: vk::Device,
    pool: vk::CommandPool,
    count: u32,
    buffers: *const vk::CommandBuffer,
) {
    let Ok(device) = Device::of(handle) else { return };
    // SAFETY: Vulkan's rules for the caller.
    for buffer in unsafe { list(buffers, count) } {
        COMMANDS.take(buffer.as_raw());
        if let Some(pool) = device.command_pools.get(pool.as_raw()) {
            lock(&pool).retain(|&b| b != buffer.as_raw());
        }
    }
}

pub(crate) unsafe extern "system" fn begin(
    handle: vk::CommandBuffer,
    _info: *const vk::CommandBufferBeginInfo<'_>,
) -> vk::Result {
    record(handle, |_, state| {
        *state = Recording::default();
        Ok(())
    });
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "system" fn end(handle: vk::CommandBuffer) -> vk::Result {
    let buffer = COMMANDS.get(handle.as_raw());
    code(buffer.ok_or_else(|| unknown("VkCommandBuffer", handle.as_raw())).and_then(|b| b.finish()))
}

pub(crate) unsafe extern "system" fn reset(
    handle: vk::CommandBuffer,
    _flags: vk::CommandBufferResetFlags,
) -> vk::Result {
    // SAFETY: `begin` resets, and does not read the null pointer.
    unsafe { begin(handle, std::ptr::null()) }
}

pub(crate) unsafe extern "system" fn bind_pipeline(
    handle: vk::CommandBuffer,
    _point: vk::PipelineBindPoint,
    pipeline: vk::Pipeline,
) {
    record(handle, |device, state| {
        state.pipeline = Some(device.pipeline(pipeline)?);
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn bind_sets(
    handle: vk::CommandBuffer,
    _point: vk::PipelineBindPoint,
    _layout: vk::PipelineLayout,
    first: u32,
    count: u32,
    sets: *const vk::DescriptorSet,
    _offset_count: u32,
    _offsets: *const u32,
) {
    // SAFETY: Vulkan's rules for the caller.
    let sets = unsafe { list(sets, count) };
    record(handle, |device, state| {
        for (i, set) in sets.iter().enumerate() {
            let raw = set.as_raw();
            let set = device.sets.get(raw).ok_or_else(|| unknown("VkDescriptorSet", raw))?;
            let slot = state.sets.get_mut(first as usize + i).ok_or(vk::Result::ERROR_UNKNOWN)?;
            *slot = set.address;
        }
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn push(
    handle: vk::CommandBuffer,
    _layout: vk::PipelineLayout,
    _stages: vk::ShaderStageFlags,
    offset: u32,
    size: u32,
    values: *const c_void,
) {
    // SAFETY: Vulkan's rules for the caller.
    let values = unsafe { list(values.cast::<u8>(), size) };
    record(handle, |_, state| {
        let to = state.push.get_mut(offset as usize..offset as usize + values.len());
        to.ok_or_else(|| unknown("push constants", offset.into())).map(|to| to.copy_from_slice(values))
    });
}

fn add_dispatch(handle: vk::CommandBuffer, grid: impl FnOnce(&Device) -> Reply<Grid>, first: [u32; 3]) {
    record(handle, |device, state| {
        let pipeline = state.pipeline.clone().ok_or_else(|| unknown("bound pipeline", 0))?;
        let (grid, sets, push) = (grid(device)?, state.sets, state.push);
        let dispatch = Dispatch { pipeline, grid, first, registers: Vec::new(), sets, push };
        state.commands.push(Command::Dispatch(Box::new(dispatch)));
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn dispatch(handle: vk::CommandBuffer, x: u32, y: u32, z: u32) {
    add_dispatch(handle, |_| Ok(Grid::Direct([x, y, z])), [0; 3]);
}

pub(crate) unsafe extern "system" fn dispatch_base(
    handle: vk::CommandBuffer,
    first_x: u32,
    first_y: u32,
    first_z: u32,
    x: u32,
    y: u32,
    z: u32,
) {
    add_dispatch(handle, |_| Ok(Grid::Direct([x, y, z])), [first_x, first_y, first_z]);
}

pub(crate) unsafe extern "system" fn dispatch_indirect(
    handle: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
) {
    add_dispatch(handle, |device| span(device, buffer, offset, 12).map(Grid::Indirect), [0; 3]);
}

pub(crate) unsafe extern "system" fn copy(
    handle: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Buffer,
    count: u32,
    regions: *const vk::BufferCopy,
) {
    // SAFETY: Vulkan's rules for the caller.
    let regions = unsafe { list(regions, count) };
    record(handle, |device, state| {
        for r in regions {
            let from = span(device, from, r.src_offset, r.size)?;
            let to = span(device, to, r.dst_offset, r.size)?;
            state.commands.push(Command::Copy { from, to });
        }
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn fill(
    handle: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    bytes: u64,
    word: u32,
) {
    record(handle, |device, state| {
        let to = span(device, buffer, offset, bytes)?;
        state.commands.push(Command::Fill { to, word });
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn update(
    handle: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    bytes: u64,
    data: *const c_void,
) {
    // SAFETY: Vulkan's rules for the caller: at most 64 KiB.
    let data = unsafe { list(data.cast::<u8>(), bytes as u32) }.to_vec();
    record(handle, |device, state| {
        let to = span(device, buffer, offset, bytes)?;
        state.commands.push(Command::Update { to, data });
        Ok(())
    });
}

/// Records a barrier; a barrier with an injected stall is dropped.
fn add_barrier(
    handle: vk::CommandBuffer,
    [from, to]: [vk::PipelineStageFlags2; 2],
    mut accesses: [vk::AccessFlags2; 2],
) {
    record(handle, |device, state| {
        let entered = device.card.options.faults.enter("vkCmdPipelineBarrier");
        if entered.map_err(vk::Result::from_raw)? {
            return Ok(());
        }
        if let Some(change) = device.card.options.change_masks {
            change(&mut accesses);
        }
        let [source, destination] = accesses.map(kinds);
        let masks = Masks { from: source, to: destination };
        state.commands.push(Command::Barrier(stages(from, true), stages(to, false), masks));
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn barrier(
    handle: vk::CommandBuffer,
    from: vk::PipelineStageFlags,
    to: vk::PipelineStageFlags,
    _flags: vk::DependencyFlags,
    memory_count: u32,
    memory: *const vk::MemoryBarrier<'_>,
    buffer_count: u32,
    buffers: *const vk::BufferMemoryBarrier<'_>,
    _image_count: u32,
    _images: *const vk::ImageMemoryBarrier<'_>,
) {
    let wide = |flags: vk::PipelineStageFlags| vk::PipelineStageFlags2::from_raw(flags.as_raw().into());
    // SAFETY: Vulkan's rules for the caller.
    let (memory, buffers) = unsafe { (list(memory, memory_count), list(buffers, buffer_count)) };
    // Each names kinds of access for the same stages. A barrier of a buffer counts for all memory.
    let of_memory = memory.iter().map(|b| [b.src_access_mask, b.dst_access_mask]);
    let of_buffers = buffers.iter().map(|b| [b.src_access_mask, b.dst_access_mask]);
    let none = [vk::AccessFlags::empty(); 2];
    let all = of_memory.chain(of_buffers).fold(none, |[a, b], [c, d]| [a | c, b | d]);
    let accesses = all.map(|flags| vk::AccessFlags2::from_raw(flags.as_raw().into()));
    add_barrier(handle, [wide(from), wide(to)], accesses);
}

pub(crate) unsafe extern "system" fn barrier2(
    handle: vk::CommandBuffer,
    info: *const vk::DependencyInfo<'_>,
) {
    // SAFETY: Vulkan's rules for the caller.
    let (memory, buffers) = unsafe {
        let info = &*info;
        (
            list(info.p_memory_barriers, info.memory_barrier_count),
            list(info.p_buffer_memory_barriers, info.buffer_memory_barrier_count),
        )
    };
    for b in memory {
        add_barrier(handle, [b.src_stage_mask, b.dst_stage_mask], [b.src_access_mask, b.dst_access_mask]);
    }
    for b in buffers {
        add_barrier(handle, [b.src_stage_mask, b.dst_stage_mask], [b.src_access_mask, b.dst_access_mask]);
    }
}

fn query_pool(device: &Device, pool: vk::QueryPool) -> Reply<Arc<QueryPool>> {
    device.query_pools.get(pool.as_raw()).ok_or_else(|| unknown("VkQueryPool", pool.as_raw()))
}

pub(crate) unsafe extern "system" fn reset_queries(
    handle: vk::CommandBuffer,
    pool: vk::QueryPool,
    first: u32,
    count: u32,
) {
    record(handle, |device, state| {
        let pool = query_pool(device, pool)?;
        state.commands.push(Command::ResetQueries { pool, first, count });
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn timestamp(
    handle: vk::CommandBuffer,
    _stage: vk::PipelineStageFlags,
    pool: vk::QueryPool,
    index: u32,
) {
    record(handle, |device, state| {
        let pool = query_pool(device, pool)?;
        state.commands.push(Command::Timestamp { pool, index });
        Ok(())
    });
}

pub(crate) unsafe extern "system" fn timestamp2(
    handle: vk::CommandBuffer,
    _stage: vk::PipelineStageFlags2,
    pool: vk::QueryPool,
    index: u32,
) {
    // SAFETY: the caller's obligations are those of this function.
    unsafe { timestamp(handle, vk::PipelineStageFlags::empty(), pool, index) };
}

pub(crate) unsafe extern "system" fn marker(
    handle: vk::CommandBuffer,
    _stage: vk::PipelineStageFlags,
    buffer: vk::Buffer,
    offset: u64,
    word: u32,
) {
    record(handle, |device, state| {
        let to = span(device, buffer, offset, 4)?;
        state.commands.push(Command::Marker { to, word });
        Ok(())
    });
}
