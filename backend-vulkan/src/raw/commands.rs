//! Recording of commands.

use super::buffer::Buffer;
use super::descriptors::DescriptorSet;
use super::device::Device;
use super::pipeline::Pipeline;
use super::queries::Timestamps;
use ash::vk;
use ggml_core::sync::lock;
use ggml_core::{Deadline, Error, Phase, Result};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An object that commands need while they run.
type Retained = Arc<dyn Any + Send + Sync>;

/// A pool of command buffers.
pub(crate) struct CommandPool {
    device: Arc<Device>,
    state: Mutex<PoolState>,
}

/// State that needs exclusive access during recording.
struct PoolState {
    raw: vk::CommandPool,
    /// Command buffers whose recording was abandoned.
    idle: Vec<vk::CommandBuffer>,
    /// Number of command buffers allocated.
    #[cfg(test)]
    created: usize,
}

/// A synchronisation scope: one side of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All commands.
    Everything,
    /// Dispatches.
    Compute,
    /// Copies and fills.
    Transfer,
    /// Dispatches, copies and fills.
    Device,
    /// The host, after a wait.
    Host,
}

impl Scope {
    fn stages(self) -> vk::PipelineStageFlags {
        match self {
            Scope::Everything => vk::PipelineStageFlags::ALL_COMMANDS,
            Scope::Compute => vk::PipelineStageFlags::COMPUTE_SHADER,
            Scope::Transfer => vk::PipelineStageFlags::TRANSFER,
            Scope::Device => vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER,
            Scope::Host => vk::PipelineStageFlags::HOST,
        }
    }

    fn writes(self) -> vk::AccessFlags {
        match self {
            Scope::Everything => vk::AccessFlags::MEMORY_WRITE,
            Scope::Compute => vk::AccessFlags::SHADER_WRITE,
            Scope::Transfer => vk::AccessFlags::TRANSFER_WRITE,
            Scope::Device => vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE,
            Scope::Host => vk::AccessFlags::HOST_WRITE,
        }
    }

    fn reads(self) -> vk::AccessFlags {
        match self {
            Scope::Everything => vk::AccessFlags::MEMORY_READ,
            Scope::Compute => vk::AccessFlags::SHADER_READ,
            Scope::Transfer => vk::AccessFlags::TRANSFER_READ,
            Scope::Device => vk::AccessFlags::SHADER_READ | vk::AccessFlags::TRANSFER_READ,
            Scope::Host => vk::AccessFlags::HOST_READ,
        }
    }
}

/// Driver that may use an exported buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This device.
    Device,
    /// The card's other driver.
    OtherDriver,
}

impl CommandPool {
    /// Creates a pool for the device's queue.
    pub(crate) fn new(device: &Arc<Device>, phase: Phase) -> Result<Arc<CommandPool>> {
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(device.queue(phase)?.family)
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER);
        // SAFETY: the device is alive and has a queue of this family.
        let raw = unsafe { device.raw.create_command_pool(&info, None) }
            .map_err(|code| device.failed(phase, "vkCreateCommandPool", code))?;
        let state = PoolState {
            raw,
            idle: Vec::new(),
            #[cfg(test)]
            created: 0,
        };
        Ok(Arc::new(CommandPool { device: device.clone(), state: Mutex::new(state) }))
    }

    /// Begins a command buffer. The pool is locked until the recording ends.
    pub(crate) fn record(self: &Arc<Self>, phase: Phase) -> Result<Recorder<'_>> {
        let mut state = lock(&self.state);
        let raw = match state.idle.pop() {
            Some(raw) => raw,
            None => self.make(&mut state, phase)?,
        };
        Recorder::begin(self, state, raw, phase)
    }

    fn make(&self, state: &mut PoolState, phase: Phase) -> Result<vk::CommandBuffer> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(state.raw)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is alive and locked.
        let buffers = unsafe { self.device.raw.allocate_command_buffers(&info) }
            .map_err(|code| self.device.failed(phase, "vkAllocateCommandBuffers", code))?;
        #[cfg(test)]
        {
            state.created += 1;
        }
        let code = vk::Result::ERROR_UNKNOWN;
        buffers.first().copied().ok_or_else(|| self.device.failed(phase, "vkAllocateCommandBuffers", code))
    }

    /// Returns the number of command buffers allocated.
    #[cfg(test)]
    pub(crate) fn created(&self) -> usize {
        lock(&self.state).created
    }

    /// Begins a new recording in the command buffer of finished commands.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they are still running.
    pub(crate) fn reuse(self: &Arc<Self>, commands: Commands, phase: Phase) -> Result<Recorder<'_>> {
        if !Arc::ptr_eq(&commands.pool, self) || !self.device.is_reached(commands.last_use) {
            return Err(Error::argument("commands", "still running", "commands that have finished"));
        }
        let state = lock(&self.state);
        let raw = commands.raw;
        drop(commands);
        Recorder::begin(self, state, raw, phase)
    }
}

impl Drop for CommandPool {
    fn drop(&mut self) {
        let raw = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).raw;
        // SAFETY: commands hold an `Arc` of their pool and are dropped only when the device has finished with
        // them.
        unsafe { self.device.raw.destroy_command_pool(raw, None) };
    }
}

/// Source and destination scopes of a barrier.
pub(crate) type Barrier = (Scope, Scope);

/// Commands during recording. If dropped unfinished, it returns the command buffer to the pool.
pub(crate) struct Recorder<'p> {
    pool: &'p Arc<CommandPool>,
    state: MutexGuard<'p, PoolState>,
    raw: vk::CommandBuffer,
    finished: bool,
    retained: Vec<Retained>,
    buffers: Vec<Arc<Buffer>>,
    bound: vk::Pipeline,
    phase: Phase,
    barriers: Vec<Barrier>,
}

impl<'p> Recorder<'p> {
    fn begin(
        pool: &'p Arc<CommandPool>,
        state: MutexGuard<'p, PoolState>,
        raw: vk::CommandBuffer,
        phase: Phase,
    ) -> Result<Recorder<'p>> {
        let mut recorder = Recorder {
            pool,
            state,
            raw,
            finished: false,
            retained: Vec::new(),
            buffers: Vec::new(),
            bound: vk::Pipeline::null(),
            phase,
            barriers: Vec::new(),
        };
        // SAFETY: the command buffer belongs to the pool, which is locked, and is not pending (new,
        // abandoned, or finished: `CommandPool::reuse`); beginning resets it.
        unsafe { pool.device.raw.begin_command_buffer(raw, &vk::CommandBufferBeginInfo::default()) }
            .map_err(|code| pool.device.failed(phase, "vkBeginCommandBuffer", code))?;
        // The rule of `queue`: work submitted earlier is complete and visible.
        recorder.barrier(Scope::Everything, Scope::Device);
        Ok(recorder)
    }

    fn device(&self) -> &ash::Device {
        &self.pool.device.raw
    }

    /// Retains a buffer of this device until the commands are dropped.
    fn retain(&mut self, buffer: &Arc<Buffer>) -> Result<()> {
        if !Arc::ptr_eq(buffer.device(), &self.pool.device) {
            return Err(Error::argument("buffer", "of another device", self.pool.device.name.clone()));
        }
        if !self.buffers.iter().any(|b| Arc::ptr_eq(b, buffer)) {
            self.buffers.push(buffer.clone());
        }
        Ok(())
    }

    /// Makes later work wait for earlier work and see its writes.
    pub(crate) fn barrier(&mut self, from: Scope, to: Scope) {
        let host = to == Scope::Host;
        let access = if host { to.reads() } else { to.reads() | to.writes() };
        let barrier = [vk::MemoryBarrier::default().src_access_mask(from.writes()).dst_access_mask(access)];
        // SAFETY: the command buffer is being recorded.
        unsafe {
            self.device().cmd_pipeline_barrier(
                self.raw,
                from.stages(),
                to.stages(),
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
        }
        self.barriers.push((from, to));
    }

    /// Passes buffers that another driver of the card uses too: to that driver, after earlier work; or back from it,
    /// before later work (Vulkan's transfer of ownership from and to `VK_QUEUE_FAMILY_EXTERNAL`).
    pub(crate) fn pass(&mut self, buffers: &[Arc<Buffer>], to: Holder) -> Result<()> {
        let own = self.pool.device.queue(self.phase)?.family;
        let (scope, none) = (Scope::Everything, vk::AccessFlags::empty());
        let (families, access) = match to {
            Holder::OtherDriver => ([own, vk::QUEUE_FAMILY_EXTERNAL], [scope.writes(), none]),
            Holder::Device => ([vk::QUEUE_FAMILY_EXTERNAL, own], [none, scope.reads() | scope.writes()]),
        };
        for buffer in buffers {
            self.retain(buffer)?;
        }
        let barrier = |buffer: &Arc<Buffer>| {
            vk::BufferMemoryBarrier::default()
                .src_access_mask(access[0])
                .dst_access_mask(access[1])
                .src_queue_family_index(families[0])
                .dst_queue_family_index(families[1])
                .buffer(buffer.raw)
                .size(vk::WHOLE_SIZE)
        };
        let barriers: Vec<_> = buffers.iter().map(barrier).collect();
        // SAFETY: the command buffer is being recorded; the buffers are of this device and retained.
        unsafe {
            self.device().cmd_pipeline_barrier(
                self.raw,
                scope.stages(),
                scope.stages(),
                vk::DependencyFlags::empty(),
                &[],
                &barriers,
                &[],
            );
        }
        Ok(())
    }

    /// Copies between buffers. Source and destination must not overlap.
    pub(crate) fn copy(
        &mut self,
        from: (&Arc<Buffer>, u64),
        to: (&Arc<Buffer>, u64),
        bytes: u64,
    ) -> Result<()> {
        from.0.check(from.1, bytes)?;
        to.0.check(to.1, bytes)?;
        let disjoint = from.1 + bytes <= to.1 || to.1 + bytes <= from.1;
        if Arc::ptr_eq(from.0, to.0) && !disjoint {
            let found = format!("{bytes} bytes from {} to {} of one buffer", from.1, to.1);
            return Err(Error::argument("copy", found, "ranges that do not overlap"));
        }
        if bytes == 0 {
            return Ok(());
        }
        if !to.0.is_writable() {
            return Err(Error::argument(
                "copy",
                "a memory map as destination",
                "a buffer that can be written",
            ));
        }
        self.retain(from.0)?;
        self.retain(to.0)?;
        let region = [vk::BufferCopy { src_offset: from.1, dst_offset: to.1, size: bytes }];
        // SAFETY: both ranges are within their buffers and do not overlap; the buffers belong to this device
        // and are retained.
        unsafe { self.device().cmd_copy_buffer(self.raw, from.0.raw, to.0.raw, &region) };
        Ok(())
    }

    /// Fills a range with a word. Offset and length are multiples of 4.
    pub(crate) fn fill(&mut self, buffer: &Arc<Buffer>, offset: u64, bytes: u64, word: u32) -> Result<()> {
        buffer.check(offset, bytes)?;
        if !buffer.is_writable() || bytes == 0 || !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
            let found = format!("{bytes} bytes at {offset}");
            return Err(Error::argument("fill", found, "whole words of a buffer that can be written"));
        }
        self.retain(buffer)?;
        // SAFETY: the range is within the buffer, is not empty and consists of words; the buffer is retained.
        unsafe { self.device().cmd_fill_buffer(self.raw, buffer.raw, offset, bytes, word) };
        Ok(())
    }

    /// Dispatches a pipeline on `grid` work-groups in each dimension, starting at work-group `base`.
    pub(crate) fn dispatch(
        &mut self,
        pipeline: &Arc<Pipeline>,
        set: &Arc<DescriptorSet>,
        params: &[u8],
        base: [u32; 3],
        grid: [u32; 3],
    ) -> Result<()> {
        let layout = &pipeline.layout;
        let limits = self.pool.device.facts.caps.max_workgroups;
        let in_limits =
            (0..3).all(|d| grid[d] > 0 && base[d].checked_add(grid[d]).is_some_and(|end| end <= limits[d]));
        let ours = [&layout.device, &set.layout.device].iter().all(|d| Arc::ptr_eq(d, &self.pool.device));
        if !in_limits
            || !ours
            || params.len() != layout.push_bytes as usize
            || set.layout.bindings != layout.bindings
        {
            let found = format!(
                "grid {grid:?} from {base:?}, {} bytes of parameters, operands {:?}",
                params.len(),
                set.layout.bindings
            );
            let expected = format!(
                "a grid within {limits:?}, {} bytes of parameters, operands {:?}, all of one device",
                layout.push_bytes, layout.bindings
            );
            return Err(Error::argument("dispatch", found, expected));
        }
        let (device, raw) = (self.device().clone(), self.raw);
        let compute = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the command buffer is being recorded; pipeline, layout and set are alive, belong to this
        // device, and are retained; the set's layout has as many bindings as the pipeline's, all storage buffers
        // of the compute stage, so it is compatible; the parameters fill the layout's range; the grid is
        // within the limits, and every pipeline is created with DISPATCH_BASE.
        unsafe {
            if self.bound != pipeline.raw {
                device.cmd_bind_pipeline(raw, compute, pipeline.raw);
                self.bound = pipeline.raw;
            }
            device.cmd_bind_descriptor_sets(raw, compute, layout.raw, 0, &[set.raw], &[]);
            if !params.is_empty() {
                device.cmd_push_constants(raw, layout.raw, vk::ShaderStageFlags::COMPUTE, 0, params);
            }
            // The synchronisation validation of older layers tracks only the plain command.
            match base {
                [0, 0, 0] => device.cmd_dispatch(raw, grid[0], grid[1], grid[2]),
                _ => device.cmd_dispatch_base(raw, base[0], base[1], base[2], grid[0], grid[1], grid[2]),
            }
        }
        self.retained.push(pipeline.clone());
        self.retained.push(set.clone());
        Ok(())
    }

    /// Resets timestamps `first` and `first + 1`, so that they can be written.
    pub(crate) fn reset(&mut self, timestamps: &Arc<Timestamps>, first: u32) {
        if first + 1 < timestamps.count {
            self.retained.push(timestamps.clone());
            // SAFETY: both queries are within the pool, which is retained.
            unsafe { self.device().cmd_reset_query_pool(self.raw, timestamps.raw, first, 2) };
        }
    }

    /// Writes a timestamp when earlier work is complete, including that of earlier submissions.
    pub(crate) fn timestamp(&mut self, timestamps: &Arc<Timestamps>, index: u32) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        if index < timestamps.count {
            // SAFETY: the query is within the pool, which `reset` has reset and retained.
            unsafe { self.device().cmd_write_timestamp(self.raw, stage, timestamps.raw, index) };
        }
    }

    /// Writes a word to a buffer when all earlier work is complete, without making later work wait. Needs
    /// VK_AMD_buffer_marker; returns `false` without it.
    pub(crate) fn marker(&mut self, buffer: &Arc<Buffer>, offset: u64, word: u32) -> Result<bool> {
        buffer.check(offset, 4)?;
        let device = self.pool.device.clone();
        let Some(functions) = &device.marker else { return Ok(false) };
        if !offset.is_multiple_of(4) {
            return Err(Error::argument("offset of a marker", offset, "a multiple of 4"));
        }
        self.retain(buffer)?;
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the word is within the buffer, which is retained; the extension is enabled.
        unsafe { functions.cmd_write_buffer_marker(self.raw, stage, buffer.raw, offset, word) };
        Ok(true)
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self) -> Result<Commands> {
        // The host may read mapped memory written by these commands once it has waited for them.
        self.barrier(Scope::Device, Scope::Host);
        // SAFETY: the command buffer is being recorded.
        unsafe { self.device().end_command_buffer(self.raw) }
            .map_err(|code| self.pool.device.failed(self.phase, "vkEndCommandBuffer", code))?;
        self.finished = true;
        let mut retained = std::mem::take(&mut self.retained);
        retained.extend(std::mem::take(&mut self.buffers).into_iter().map(|b| b as Retained));
        retained.sort_by_key(|k| Arc::as_ptr(k).cast::<()>().addr());
        retained.dedup_by(|a, b| Arc::ptr_eq(a, b));
        Ok(Commands {
            raw: self.raw,
            retained: ManuallyDrop::new(retained),
            barriers: std::mem::take(&mut self.barriers),
            last_use: 0,
            released: false,
            pool: self.pool.clone(),
        })
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let reset =
            // SAFETY: the command buffer belongs to the pool, which is locked and allows its buffers to be
            // reset, and is not pending: it has not been submitted since its recording began.
            unsafe { self.device().reset_command_buffer(self.raw, vk::CommandBufferResetFlags::empty()) };
        if reset.is_ok() {
            self.state.idle.push(self.raw);
        }
    }
}

/// Recorded commands, with all objects that they refer to.
pub(crate) struct Commands {
    raw: vk::CommandBuffer,
    retained: ManuallyDrop<Vec<Retained>>,
    barriers: Vec<Barrier>,
    last_use: u64,
    released: bool,
    pool: Arc<CommandPool>,
}

impl Commands {
    /// Submits the commands and returns the timeline value that is reached when they are complete.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they are still running from an earlier submission; [`Error::Timeout`] if
    /// another thread's submission does not return by the deadline.
    pub(crate) fn submit(&mut self, deadline: &Deadline) -> Result<u64> {
        Commands::submit_together(vec![self], deadline)
    }

    /// Submits several commands together like [`Commands::submit`]; they run in order.
    pub(crate) fn submit_together(all: Vec<&mut Commands>, deadline: &Deadline) -> Result<u64> {
        let [first, ..] = all.as_slice() else {
            return Err(Error::argument("commands", "none", "one or more"));
        };
        let (device, phase) = (first.pool.device.clone(), deadline.phase());
        device.check_alive(phase)?;
        let queue = device.queue(phase)?;
        let ready = |c: &&mut Commands| {
            Arc::ptr_eq(&c.pool.device, &device) && !c.released && device.is_reached(c.last_use)
        };
        if !all.iter().all(ready) {
            let found = "some that are still running, were released, or are of another device";
            return Err(Error::argument("commands", found, "finished commands of one device"));
        }
        let raw: Vec<vk::CommandBuffer> = all.iter().map(|c| c.raw).collect();
        // SAFETY: the commands were created from this device, are executable (a `Commands` exists only after
        // its recording ended) and not pending (checked above; `&mut` excludes other threads), are distinct
        // (`&mut`), and hold the objects they refer to until they are dropped. Dropping waits for them to
        // complete.
        let submitted = unsafe { queue.submit(&device.raw, &raw, deadline) };
        let value = submitted.map_err(|code| match code {
            vk::Result::TIMEOUT => deadline.missed(&device.name, None),
            code => device.failed(phase, "vkQueueSubmit", code),
        })?;
        all.into_iter().for_each(|commands| commands.last_use = value);
        Ok(value)
    }

    /// Returns the timeline value of the last submission.
    pub(crate) fn last_use(&self) -> u64 {
        self.last_use
    }

    /// Returns the recorded barriers, in order.
    pub(crate) fn barriers(&self) -> &[Barrier] {
        &self.barriers
    }

    /// Marks the commands as submitted with this value, for tests.
    #[cfg(test)]
    pub(super) fn used(&mut self, value: u64) {
        self.last_use = value;
    }

    /// Releases the objects that finished commands refer to, before the commands are recorded again or
    /// dropped. They cannot be submitted again.
    pub(crate) fn release(&mut self) {
        if !self.released && self.pool.device.is_reached(self.last_use) {
            self.released = true;
            self.retained.clear();
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if self.pool.device.has_finished_with(self.last_use) {
            // SAFETY: `retained` is dropped here only.
            unsafe { ManuallyDrop::drop(&mut self.retained) };
        } else {
            // The device may still run these commands: they and the objects they refer to are leaked.
            std::mem::forget(self.pool.clone());
        }
    }
}
