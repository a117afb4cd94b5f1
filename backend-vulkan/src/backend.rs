//! The backend: one opened device.

use crate::cache::DiskCache;
use crate::constants::Constants;
use crate::cost::Model;
use crate::deadline::guarded;
use crate::device;
use crate::lower;
use crate::memory::VulkanMemory;
use crate::options::VulkanOptions;
use crate::pipeline::PipelineSet;
use crate::probe;
use crate::program::VulkanProgram;
use crate::raw::device::{Device, Purpose};
use crate::raw::instance::BACKEND;
use crate::raw::memory::{Buffer, MemoryPool, Side};
use crate::transfer::Transfers;
use crate::tuning::Profile;
use ggml_core::Deadline;
use ggml_core::backend::{
    self, Backend, Bindings, DeviceInfo, PrepareOptions, Program, Slice, Stats, Support, Usage,
};
use ggml_core::mapped::MappedBytes;
use ggml_core::phase::{self, Deadlines};
use ggml_core::plan::Plan;
use ggml_core::{DType, Graph, Phase, Result, TensorId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A Vulkan device that runs graphs.
#[derive(Debug)]
pub struct VulkanBackend {
    pub(crate) shared: Arc<Shared>,
    info: DeviceInfo,
}

/// Counters of programs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Programs prepared.
    pub(crate) programs: AtomicU64,
    /// Command buffers recorded for them.
    pub(crate) recordings: AtomicU64,
    /// Submissions of them.
    pub(crate) submissions: AtomicU64,
    /// Bytes uploaded.
    pub(crate) uploaded: AtomicU64,
}

/// What the backend and its programs share.
pub(crate) struct Shared {
    pub(crate) constants: Constants,
    pub(crate) pipelines: Arc<PipelineSet>,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) pool: Arc<MemoryPool>,
    pub(crate) device: Arc<Device>,
    pub(crate) profile: Profile,
    pub(crate) model: Model,
    pub(crate) options: VulkanOptions,
    pub(crate) counters: Counters,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("device", &self.device).finish_non_exhaustive()
    }
}

impl VulkanBackend {
    /// Opens the device that the options ask for.
    ///
    /// # Errors
    /// [`Error::Unavailable`](ggml_core::Error::Unavailable) tells a missing library, driver, device, permission and
    /// feature apart; [`Error::Timeout`](ggml_core::Error::Timeout) if opening takes longer than its deadline.
    pub fn open(options: VulkanOptions) -> Result<VulkanBackend> {
        let deadline = Deadline::new(Phase::OpenDevice, options.deadlines.open);
        guarded(BACKEND, deadline, move || VulkanBackend::open_here(options, &deadline))
    }

    fn open_here(options: VulkanOptions, deadline: &Deadline) -> Result<VulkanBackend> {
        let device = device::open(&options, Purpose::Compute)?;
        let _span = phase::enter(Phase::OpenDevice, &device.name);
        let pool = MemoryPool::new(&device)?;
        let lanes = probe::run(&device, &pool, deadline)?;
        let mut caps = device.facts.caps.clone();
        caps.subgroup = lanes.ops;
        let profile = Profile::new(caps);
        let info = device::info(&device, &profile, &lanes, pool.largest(), &options);
        let disk = options.pipeline_cache_dir.as_ref().map(|dir| DiskCache::new(dir, &device.facts));
        let shared = Shared {
            constants: Constants::default(),
            pipelines: PipelineSet::new(&device, disk, false),
            transfers: Arc::new(Transfers::new(&device, &pool)),
            model: Model::new(profile.caps.arch),
            pool,
            device,
            profile,
            options,
            counters: Counters::default(),
        };
        Ok(VulkanBackend { shared: Arc::new(shared), info })
    }

    /// The device as operations see it.
    pub fn profile(&self) -> &Profile {
        &self.shared.profile
    }

    /// What the validation layer has said since the instance was made. Empty without
    /// [`VulkanOptions::validation`].
    pub fn validation_messages(&self) -> Vec<String> {
        self.shared.device.instance().messages().map(|m| m.list()).unwrap_or_default()
    }

    /// [`Backend::prepare`] with the program's own type, which tells more of itself.
    pub fn program(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<VulkanProgram> {
        VulkanProgram::prepare(&self.shared, graph, plan, bindings, options)
    }
}

impl Drop for VulkanBackend {
    fn drop(&mut self) {
        let _span = phase::enter(Phase::Close, &self.shared.device.name);
        self.shared.pipelines.save();
    }
}

impl Shared {
    /// A deadline that begins now.
    pub(crate) fn deadline(&self, phase: Phase) -> Deadline {
        Deadline::new(phase, self.options.deadlines.of(phase))
    }

    /// Whether the host should write a buffer without staging.
    pub(crate) fn writes_directly(&self, buffer: &Buffer) -> bool {
        buffer.is_mapped() && !self.options.force_staging
    }

    /// Whether the host should read a buffer without staging.
    pub(crate) fn reads_directly(&self, buffer: &Buffer) -> bool {
        buffer.reads_fast() && !self.options.force_staging
    }

    /// A new buffer; an answer comes before the deadline.
    pub(crate) fn new_buffer(
        &self,
        bytes: usize,
        side: Side,
        name: &'static str,
        deadline: &Deadline,
    ) -> Result<Arc<Buffer>> {
        self.transfers.release();
        let pool = self.pool.clone();
        guarded(&self.device.name, deadline.as_phase(Phase::Allocate), move || {
            pool.allocate(bytes as u64, side, name)
        })
    }

    /// Host to device.
    pub(crate) fn put(&self, to: &Arc<Buffer>, offset: u64, data: &[u8], deadline: &Deadline) -> Result<()> {
        self.counters.uploaded.fetch_add(data.len() as u64, Ordering::Relaxed);
        if self.writes_directly(to) {
            to.wait(deadline)?;
            to.write(offset, data)
        } else {
            self.transfers.upload(to, offset, data, deadline)
        }
    }

    /// Device to host.
    pub(crate) fn fetch(
        &self,
        from: &Arc<Buffer>,
        offset: u64,
        out: &mut [u8],
        deadline: &Deadline,
    ) -> Result<()> {
        if self.reads_directly(from) {
            from.wait(deadline)?;
            from.read(offset, out)
        } else {
            self.transfers.download(from, offset, out, deadline)
        }
    }

    /// Fills a new buffer with a byte.
    fn fill(&self, buffer: &Arc<Buffer>, byte: u8, deadline: &Deadline) -> Result<()> {
        if self.writes_directly(buffer) {
            buffer.fill(byte)
        } else {
            self.transfers.fill(buffer, u32::from_ne_bytes([byte; 4]), deadline)
        }
    }

    /// Memory for a use, with the contents that the use begins with.
    pub(crate) fn arena(&self, bytes: usize, usage: Usage, deadline: &Deadline) -> Result<Arc<Buffer>> {
        let (side, name) = match usage {
            Usage::Weights => (Side::Device, "weights"),
            Usage::Compute => (Side::Device, "compute"),
            Usage::State => (Side::Device, "state"),
            Usage::Staging => (Side::Host, "staging"),
        };
        let buffer = self.new_buffer(bytes, side, name, deadline)?;
        match usage {
            Usage::State => self.fill(&buffer, 0, deadline)?,
            // All bits set is a NaN in every float type.
            Usage::Compute if self.options.poison => self.fill(&buffer, 0xff, deadline)?,
            _ => {}
        }
        Ok(buffer)
    }
}

impl Backend for VulkanBackend {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn deadlines(&self) -> &Deadlines {
        &self.shared.options.deadlines
    }

    fn free_memory(&self) -> Option<u64> {
        let own = || self.info.memory.map(|all| all.saturating_sub(self.shared.pool.held()));
        self.shared.pool.free().or_else(own)
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        lower::supports(&self.shared, graph, node)
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        lower::supports_weights(&self.shared, dtype)
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<backend::Buffer> {
        let _span = phase::enter(Phase::Allocate, &self.shared.device.name);
        let deadline = self.shared.deadline(Phase::Allocate);
        let buffer = self.shared.arena(bytes, usage, &deadline)?;
        Ok(VulkanMemory::handle(buffer, 0, bytes, usage))
    }

    fn import(&self, bytes: MappedBytes) -> Result<Option<backend::Buffer>> {
        let shared = &self.shared;
        if shared.options.force_staging {
            return Ok(None);
        }
        let _span = phase::enter(Phase::Allocate, &shared.device.name);
        let (pool, len) = (shared.pool.clone(), bytes.len());
        let imported =
            guarded(&shared.device.name, shared.deadline(Phase::Allocate), move || Ok(pool.import(&bytes)))?;
        Ok(imported.map(|(buffer, begin)| VulkanMemory::handle(buffer, begin, len, Usage::Weights)))
    }

    fn upload(&self, buffer: &backend::Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let shared = &self.shared;
        let _span = phase::enter(Phase::Upload, &shared.device.name);
        let (to, at) = VulkanMemory::writable(buffer, offset, data.len(), &shared.device)?;
        shared.put(to, at, data, &shared.deadline(Phase::Upload))
    }

    fn download(&self, buffer: &backend::Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let shared = &self.shared;
        let _span = phase::enter(Phase::Readback, &shared.device.name);
        let (from, at) = VulkanMemory::of(buffer, offset, out.len(), &shared.device)?;
        shared.fetch(from, at, out, &shared.deadline(Phase::Readback))
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        let shared = &self.shared;
        let _span = phase::enter(Phase::Upload, &shared.device.name);
        let (source, begin) = VulkanMemory::of(&from.buffer, from.offset, bytes, &shared.device)?;
        let (target, at) = VulkanMemory::writable(&to.buffer, to.offset, bytes, &shared.device)?;
        let deadline = shared.deadline(Phase::Upload);
        shared.transfers.copy((source, begin), (target, at), bytes as u64, &deadline)
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        Ok(Box::new(self.program(graph, plan, bindings, options)?))
    }

    fn stats(&self) -> Stats {
        let shared = &self.shared;
        shared.transfers.release();
        let (pipelines, compile_time) = shared.pipelines.made();
        let (recordings, submissions) = shared.transfers.counts();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            driver_allocations: shared.pool.allocations(),
            allocated_bytes: shared.pool.held(),
            pipelines,
            compile_time,
            programs: count(&shared.counters.programs),
            recordings: recordings + count(&shared.counters.recordings),
            submissions: submissions + count(&shared.counters.submissions),
            uploaded_bytes: count(&shared.counters.uploaded),
        }
    }
}
