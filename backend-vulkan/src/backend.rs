//! The backend: one opened device.

use crate::context::{Counters, DeviceContext};
use crate::deadline::guarded;
use crate::device;
use crate::device::candidates::CANDIDATES;
use crate::device::cost::Model;
use crate::device::probe;
use crate::device::profile::Profile;
use crate::memory::{Memory, VulkanMemory};
use crate::options::VulkanOptions;
use crate::pipeline::PipelineSet;
use crate::pipeline::cache::DiskCache;
use crate::program::VulkanProgram;
use crate::program::outline::{kernels, outline};
use crate::program::target::{self, Target};
use crate::raw::device::Purpose;
use crate::raw::memory::MemoryPool;
use crate::raw::pipeline::Capture;
use crate::raw::provider::BACKEND;
use crate::route::Route;
use ggml_core::backend::{
    self, Backend, Bindings, DeviceInfo, KernelCounts, PrepareOptions, Program, Slice, Stats, StepOutline,
    Support, Usage,
};
use ggml_core::exported::ExportedMemory;
use ggml_core::fuse::Group;
use ggml_core::mapped::MappedBytes;
use ggml_core::phase::{self, Deadlines};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::routes::{self, RouteUse, Table, Used};
use ggml_core::{DType, Deadline, Error, Graph, Phase, Result, TensorId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time for recording, added to the deadline of a preparation.
const RECORDING: Duration = Duration::from_millis(250);

/// A Vulkan device that runs graphs.
pub struct VulkanBackend {
    pipelines: Arc<PipelineSet>,
    memory: Arc<Memory>,
    context: Arc<DeviceContext>,
    info: DeviceInfo,
}

impl std::fmt::Debug for VulkanBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanBackend").field("device", &self.context.device).finish_non_exhaustive()
    }
}

impl VulkanBackend {
    /// Opens the device selected by the options.
    ///
    /// # Errors
    /// [`Error::Unavailable`](ggml_core::Error::Unavailable) for a missing library, driver, device,
    /// permission or feature, with the cause; [`Error::Timeout`](ggml_core::Error::Timeout) if opening takes
    /// longer than its deadline.
    pub fn open(options: VulkanOptions) -> Result<VulkanBackend> {
        let deadline = Deadline::new(Phase::OpenDevice, options.deadlines.open);
        guarded(BACKEND, deadline, move || VulkanBackend::open_here(options, &deadline))
    }

    fn open_here(options: VulkanOptions, deadline: &Deadline) -> Result<VulkanBackend> {
        let budget = options.memory_budget()?;
        let (device, choice) = device::open(&options, Purpose::Compute)?;
        let _span = phase::enter(Phase::OpenDevice, &device.name);
        let pool = MemoryPool::new(&device, budget)?;
        let lanes = probe::run(&device, &pool, deadline)?;
        let mut caps = device.facts.caps.clone();
        caps.subgroup = lanes.ops;
        let (profile, [routes, candidates]) = choice.decide(caps);
        let info = device::info(&device, &profile, &lanes, pool.largest(), &options);
        let info = DeviceInfo { routes, candidates, identity: choice.identity, ..info };
        let disk = options.pipeline_cache_dir.as_ref().map(|dir| DiskCache::new(dir, &device.facts));
        let pipelines =
            PipelineSet::new(&device, disk, Capture::Nothing, profile.uses(Route::ParallelCompilation));
        let model = Model::new(&profile.caps);
        let context =
            Arc::new(DeviceContext { device, profile, model, options, counters: Counters::default() });
        let memory = Arc::new(Memory::new(&context, pool));
        Ok(VulkanBackend { pipelines, memory, context, info })
    }

    /// Returns the device properties and tuning that operations use.
    pub fn profile(&self) -> &Profile {
        &self.context.profile
    }

    /// Returns the messages of the validation layer since the instance was created. Empty without
    /// [`VulkanOptions::validation`].
    pub fn validation_messages(&self) -> Vec<String> {
        self.context.device.instance().messages().map(|m| m.list()).unwrap_or_default()
    }

    fn target(&self) -> Target<'_> {
        Target::new(&self.context, &self.pipelines)
    }

    /// Prepares a program like [`Backend::prepare`], but returns the concrete type, which gives access to
    /// more information.
    ///
    /// Allocating and compiling have their own, more specific deadlines. The deadline here is for a driver
    /// that does not return from recording.
    pub fn program(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<VulkanProgram> {
        let limit = self.context.options.deadlines.prepare.saturating_add(RECORDING);
        let (memory, pipelines) = (self.memory.clone(), self.pipelines.clone());
        let (graph, plan, bindings) = (graph.clone(), plan.clone(), bindings.clone());
        guarded(self.context.name(), Deadline::new(Phase::Prepare, limit), move || {
            VulkanProgram::prepare(&memory, &pipelines, &graph, &plan, &bindings, options)
        })
    }
}

impl Drop for VulkanBackend {
    fn drop(&mut self) {
        let _span = phase::enter(Phase::Close, self.context.name());
        self.pipelines.save();
    }
}

impl Backend for VulkanBackend {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn deadlines(&self) -> &Deadlines {
        &self.context.options.deadlines
    }

    fn free_memory(&self) -> Option<u64> {
        self.memory.pool().free()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        target::supports(&self.target(), graph, node)
    }

    fn joins(&self, graph: &Graph, group: &Group, precision: Precision) -> Support {
        target::joins(&self.target(), graph, group, precision)
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        target::supports_weights(&self.target(), dtype)
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<backend::Buffer> {
        let _span = phase::enter(Phase::Allocate, self.context.name());
        let deadline = self.context.deadline(Phase::Allocate);
        let buffer = self.memory.arena(bytes, usage, &deadline)?;
        Ok(VulkanMemory::handle(buffer, 0, bytes, usage))
    }

    fn allocate_exported(&self, bytes: usize, usage: Usage) -> Result<(backend::Buffer, ExportedMemory)> {
        let _span = phase::enter(Phase::Allocate, self.context.name());
        let (buffer, exported) =
            self.memory.exported(bytes, usage, &self.context.deadline(Phase::Allocate))?;
        Ok((VulkanMemory::handle(buffer, 0, bytes, usage), exported))
    }

    fn hand_over(&self) -> Result<()> {
        let _span = phase::enter(Phase::Compute, self.context.name());
        self.memory.hand_over(&self.context.deadline(Phase::Compute))
    }

    fn take_over(&self) -> Result<()> {
        let _span = phase::enter(Phase::Compute, self.context.name());
        self.memory.take_over(&self.context.deadline(Phase::Compute))
    }

    fn import(&self, bytes: MappedBytes) -> Result<Option<backend::Buffer>> {
        let _span = phase::enter(Phase::Allocate, self.context.name());
        let len = bytes.len();
        let imported = self.memory.import(bytes, self.context.deadline(Phase::Allocate))?;
        Ok(imported.map(|(buffer, begin)| VulkanMemory::handle(buffer, begin, len, Usage::Weights)))
    }

    fn upload(&self, buffer: &backend::Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.context.name());
        let (to, at) = VulkanMemory::writable(buffer, offset, data.len(), &self.context.device)?;
        self.memory.upload(to, at, data, &self.context.deadline(Phase::Upload))
    }

    fn download(&self, buffer: &backend::Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, self.context.name());
        let (from, at) = VulkanMemory::of(buffer, offset, out.len(), &self.context.device)?;
        self.memory.download(from, at, out, &self.context.deadline(Phase::Readback))
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.context.name());
        let (source, begin) = VulkanMemory::of(&from.buffer, from.offset, bytes, &self.context.device)?;
        let (target, at) = VulkanMemory::writable(&to.buffer, to.offset, bytes, &self.context.device)?;
        let deadline = self.context.deadline(Phase::Upload);
        self.memory.transfers().copy((source, begin), (target, at), bytes as u64, &deadline)
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

    fn begins(&self) -> bool {
        true
    }

    fn outline(&self, graph: &Graph, plan: &Plan) -> Result<Vec<StepOutline>> {
        outline(&self.target(), graph, plan)
    }

    fn kernels(&self, graph: &Graph, plan: &Plan) -> Result<Vec<String>> {
        kernels(&self.target(), graph, plan)
    }

    fn demote(&self, graph: &Graph, plan: &Plan, node: TensorId, error: &Error) -> Vec<String> {
        let Some(step) = plan.of_step(node) else { return Vec::new() };
        let (info, folder) = (&self.info, self.context.options.routes_dir.as_deref());
        let taken: Vec<RouteUse> = info.routes.iter().chain(&info.candidates).cloned().collect();
        routes::demote(folder, (&info.identity, &taken), error, &|left_out| {
            let used = self.context.profile.routes;
            let used = Used::those(|route: Route| used.has(route) && left_out != Some(route.row().name));
            let candidates =
                self.context.profile.candidates.without(CANDIDATES, left_out.unwrap_or_default());
            let profile = Profile { routes: used, ..self.context.profile.clone() }.tuned(candidates);
            kernels(&Target { profile: &profile, ..self.target() }, graph, &step).ok()
        })
    }

    fn stats(&self) -> Stats {
        self.memory.transfers().release();
        let (pipelines, compile_time) = self.pipelines.compiled();
        let (recordings, submissions) = self.memory.transfers().counts();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            driver_allocations: self.memory.pool().allocations(),
            allocated_bytes: self.memory.pool().allocated_bytes(),
            pipelines,
            compile_time,
            programs: count(&self.context.counters.programs),
            recordings: recordings + count(&self.context.counters.recordings),
            submissions: submissions + count(&self.context.counters.submissions),
            uploaded_bytes: count(&self.context.counters.uploaded),
        }
    }

    fn counts(&self) -> Result<Vec<KernelCounts>> {
        Ok(self.context.device.instance().provider.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ArchClass;
    use crate::device::cost::Estimate;
    use ggml_core::precision::Precision;
    use ggml_core::{Error, Source};

    /// Measuring that the device is fast reduces the submissions of an existing program and leaves its
    /// results unchanged.
    #[test]
    fn submissions_fall_when_the_device_turns_out_fast() {
        let options = VulkanOptions {
            arch: Some(ArchClass::Cpu),
            submission_budget: Duration::from_micros(300),
            pipeline_cache_dir: None,
            ..VulkanOptions::default()
        };
        let backend = match VulkanBackend::open(options) {
            Ok(backend) => backend,
            Err(Error::Unavailable { reason, .. }) => return eprintln!("skipped: {reason}"),
            Err(error) => panic!("{error}"),
        };
        let mut g = Graph::new();
        let w = g.leaf("w", DType::F32, [64, 64, 1, 1], Source::Input).unwrap();
        let mut y = w;
        for _ in 0..8 {
            y = g.mul_mat(w, y).unwrap();
        }
        g.output(y).unwrap();
        let plan = Plan::new(&g, backend.info.limits.alignment, Precision::Exact).unwrap();
        let mut program =
            backend.program(&g, &plan, &Bindings::default(), PrepareOptions::default()).unwrap();
        let weights: Vec<u8> = (0..64 * 64).flat_map(|i| (0.01 * (i % 7) as f32).to_le_bytes()).collect();
        program.write(w, &weights).unwrap();
        let mut run = || {
            let before = backend.context.counters.submissions.load(Ordering::Relaxed);
            program.run().unwrap();
            let mut result = vec![0; 64 * 64 * 4];
            program.read(y, &mut result).unwrap();
            (backend.context.counters.submissions.load(Ordering::Relaxed) - before, result)
        };
        let (first, result) = run();
        assert_eq!(first, 8, "each product takes most of the budget at the rates that are assumed at first");
        for _ in 0..12 {
            let second = Estimate { arithmetic: 1.0, ..Estimate::default() };
            backend.context.model.observe([(second, Duration::from_millis(3))], false);
        }
        assert_eq!(run(), (1, result));
    }
}
