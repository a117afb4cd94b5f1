//! The backend: device, memory and programs behind [`Backend`].

use crate::advice::{Advice, Advisor};
use crate::arch::{Matrix, Profile};
use crate::code::kernels::{Embedded, Kernel, KernelSet, Kernels};
use crate::code::rtc::{Compiled, Job, Origin};
use crate::driver::Driver;
use crate::op::copy::GATHERER;
use crate::op::{Context, Launch, Refusal};
use crate::options::HipOptions;
use crate::program::prepare::{self, Host};
use crate::program::{HipProgram, load};
use crate::provider::amd::Amd;
use crate::route::Route;
use crate::runtime::copies;
use crate::runtime::device::{self, Opened, Provider};
use crate::runtime::memory::{self, Memory};
use crate::runtime::shared::Shared;
use crate::runtime::thread::DriverThread;
use crate::system::available_memory;
use crate::tuning::CANDIDATES;
use ggml_core::backend::{
    Backend, Bindings, Buffer, DeviceInfo, KernelCounts, PrepareOptions, Program, Slice, Stats, StepOutline,
    Support, Timing, Usage,
};
use ggml_core::exported::ExportedMemory;
use ggml_core::fuse::Group;
use ggml_core::mapped::MappedBytes;
use ggml_core::op::mul_mat::WEIGHT_TYPES;
use ggml_core::phase::{self, Deadlines};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::routes::{self, RouteUse, Table};
use ggml_core::sync::lock;
use ggml_core::{DType, Error, Graph, Missing, Phase, Result, Source, TensorId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Open HIP device.
#[derive(Debug)]
pub struct HipBackend {
    shared: Arc<Shared>,
    advisor: Arc<Advisor>,
}

/// Returns the devices that the runtime lists.
///
/// # Errors As [`HipBackend::open`], except that devices without kernels are listed too.
pub fn devices(options: &HipOptions) -> Result<Vec<DeviceInfo>> {
    device::enumerate("hip", options, amd())
}

fn amd() -> Provider {
    Box::new(|options| Amd::load(options).map(|amd| Arc::new(amd) as Arc<dyn Driver>))
}

impl HipBackend {
    /// Opens an AMD device.
    ///
    /// # Errors [`Error::Unavailable`] with everything that was checked:
    /// [`Library`](ggml_core::Missing::Library) if libamdhip64 is not found or lacks functions,
    /// [`Device`](ggml_core::Missing::Device) if it lists none,
    /// [`Permission`](ggml_core::Missing::Permission) if a device node exists that this user may not open,
    /// [`Feature`](ggml_core::Missing::Feature) if there are no kernels for the device. [`Error::Timeout`] if
    /// the driver does not respond within `deadlines.open`.
    pub fn open(options: HipOptions) -> Result<HipBackend> {
        HipBackend::open_with("hip", options, amd(), Arc::new(Embedded))
    }

    /// Opens a device of another provider of HIP's functions. `name` is the backend's name without the
    /// device.
    ///
    /// # Errors
    /// As [`HipBackend::open`].
    pub fn open_driver(name: &str, options: HipOptions, driver: Arc<dyn Driver>) -> Result<HipBackend> {
        HipBackend::open_with(name, options, Box::new(move |_| Ok(driver)), Arc::new(Embedded))
    }

    pub(crate) fn open_with(
        name: &str,
        options: HipOptions,
        provider: Provider,
        set: Arc<dyn KernelSet>,
    ) -> Result<HipBackend> {
        let stats = Arc::new(Mutex::new(Stats::default()));
        let (of_thread, of_options) = (stats.clone(), options.clone());
        let (name, of_kernels) = (format!("{name}:{}", options.device), set.clone());
        let (thread, opened) = DriverThread::open(&name, options.deadlines.open, move |monitor| {
            device::open(monitor, &of_options, provider, &of_thread, of_kernels)
        })?;
        let Opened {
            mut info,
            profile,
            mut kernels,
            loader,
            job,
            situation,
            copy_by_kernel,
            host_weights,
            cached_weights,
            graphs,
            staging,
            events,
            ahead,
        } = opened;
        if let Some(job) = job {
            let (compiled, stored) = compile(&thread, &options, &stats, set, job)?;
            kernels = Kernels::new(Arc::new(compiled), &profile.target);
            info.versions.push(("code objects kept".into(), stored));
        }
        let copy_by_kernel = copy_by_kernel && copies::use_kernel(&thread, &options, &kernels)?;
        info.features.push(("copies".into(), if copy_by_kernel { "kernel" } else { "runtime" }.into()));
        let weights = match (host_weights, cached_weights) {
            (false, _) => "device memory",
            (true, false) => "pinned host memory",
            (true, true) => "pinned host memory that the device's caches keep",
        };
        let first = if !host_weights || options.asks_for_host_weights() {
            ""
        } else {
            "device memory as far as they fit, "
        };
        info.features.push(("weights".into(), format!("{first}{weights}")));
        let advisor = Arc::new(Advisor::new(&info.backend, situation));
        let (events, staging) = (Arc::new(events), Mutex::new(Some(staging)));
        let ahead = Mutex::new(ahead);
        let options = HipOptions { graphs, ..options };
        let shared = Shared {
            thread,
            info,
            profile,
            kernels,
            loader,
            options,
            host_weights,
            cached_weights,
            stats,
            events,
            ahead,
            staging,
        };
        Ok(HipBackend { shared: Arc::new(shared), advisor })
    }

    /// Returns known hangs and faults that may have caused an error of this backend, with remedies; empty for
    /// errors that explain themselves. They are also logged when the error happens. [`Backend::device`] lists
    /// those that apply to the device.
    pub fn advice(&self, error: &Error) -> Vec<&'static Advice> {
        self.advisor.for_error(error)
    }

    /// Returns the device properties that kernels rely on.
    pub fn profile(&self) -> &Profile {
        &self.shared.profile
    }
}

impl Backend for HipBackend {
    fn device(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn deadlines(&self) -> &Deadlines {
        self.shared.deadlines()
    }

    /// If weights are stored in host memory, returns the larger of free device memory and available host
    /// memory.
    fn free_memory(&self) -> Option<u64> {
        let (thread, limit) = (&self.shared.thread, self.shared.deadlines().allocate);
        let device = thread.call(Phase::Allocate, limit, |session| Ok(session.free_memory())).ok().flatten();
        let host = self.shared.host_weights.then(|| available_memory(&self.shared.options)).flatten();
        device.max(host)
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        if !matches!(graph.tensor(node).source, Source::Node { .. }) || graph.tensor(node).is_view() {
            return Support::Native;
        }
        for precision in [Precision::Exact, Precision::Fast] {
            let context = Context { graph, node, profile: &self.shared.profile, precision };
            if let Err(Refusal(reason)) = self.shared.kernels.plan(&context) {
                return Support::no(reason);
            }
        }
        Support::Native
    }

    fn joins(&self, graph: &Graph, group: &Group, precision: Precision) -> Support {
        let context = Context { graph, node: group.last(), profile: &self.shared.profile, precision };
        match self.shared.kernels.plan_group(&context, group) {
            Ok(_) => Support::Native,
            Err(Refusal(reason)) => Support::no(reason),
        }
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        WEIGHT_TYPES.contains(&dtype) && self.probe_weights(dtype).unwrap_or(false)
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let _span = phase::enter(Phase::Allocate, self.shared.backend());
        self.advisor.advise(memory::allocate(&self.shared, bytes, usage))
    }

    /// Always returns `None`: file pages are neither copied from nor used as operands (see the crate's
    /// documentation).
    fn import(&self, _bytes: MappedBytes) -> Result<Option<Buffer>> {
        Ok(None)
    }

    fn adopt(&self, memory: ExportedMemory, bytes: usize, usage: Usage) -> Result<Buffer> {
        let _span = phase::enter(Phase::Allocate, self.shared.backend());
        self.advisor.advise(memory::import(&self.shared, memory, bytes, usage))
    }

    fn hand_over(&self) -> Result<()> {
        let _span = phase::enter(Phase::Compute, self.shared.backend());
        self.advisor.advise(memory::drain(&self.shared))
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.shared.backend());
        buffer.check_range(offset, data.len())?;
        let memory = Memory::of(buffer, &self.shared)?;
        self.advisor.advise(self.shared.upload(Phase::Upload, memory, offset, data))
    }

    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, self.shared.backend());
        buffer.check_range(offset, out.len())?;
        let memory = Memory::of(buffer, &self.shared)?;
        self.advisor.advise(self.shared.download(Phase::Readback, memory, offset, out))
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.shared.backend());
        from.buffer.check_range(from.offset, bytes)?;
        to.buffer.check_range(to.offset, bytes)?;
        let (source, target) =
            (Memory::of(&from.buffer, &self.shared)?, Memory::of(&to.buffer, &self.shared)?);
        let (source_at, target_at) =
            (source.address() + from.offset as u64, target.address() + to.offset as u64);
        if source_at < target_at + bytes as u64 && target_at < source_at + bytes as u64 {
            return Err(Error::argument("copy", "source and destination overlap", ""));
        }
        let (from, to) = (source.location(from.offset), target.location(to.offset));
        let (thread, limit) = (&self.shared.thread, self.shared.deadlines().transfer);
        self.advisor.advise(thread.call(Phase::Upload, limit, move |s| s.copy(&to, &from, bytes)))
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        let _span = phase::enter(Phase::Prepare, self.shared.backend());
        let ready = self.shared.thread.monitor().check(Phase::Prepare);
        let loaded = ready.and_then(|()| load::load(&self.shared, graph, plan, bindings, options.stepwise));
        let loaded = self.advisor.advise(loaded)?;
        let program = HipProgram::new(&self.shared, graph, loaded);
        Ok(Box::new(Advised { program, advisor: self.advisor.clone() }))
    }

    fn begins(&self) -> bool {
        true
    }

    fn outline(&self, graph: &Graph, plan: &Plan) -> Result<Vec<StepOutline>> {
        let (backend, kernels, profile) = (self.shared.backend(), &self.shared.kernels, &self.shared.profile);
        let launches = prepare::launches(Host { backend, kernels, profile }, graph, plan)?;
        Ok(StepOutline::by_level(plan, launches.iter().map(Vec::len)))
    }

    fn kernels(&self, graph: &Graph, plan: &Plan) -> Result<Vec<String>> {
        let (backend, kernels, profile) = (self.shared.backend(), &self.shared.kernels, &self.shared.profile);
        Ok(names(&prepare::launches(Host { backend, kernels, profile }, graph, plan)?))
    }

    fn demote(&self, graph: &Graph, plan: &Plan, node: TensorId, error: &Error) -> Vec<String> {
        let Some(step) = plan.of_step(node) else { return Vec::new() };
        let shared = &self.shared;
        let (info, folder) = (&shared.info, shared.options.routes_dir.as_deref());
        let taken: Vec<RouteUse> = info.routes.iter().chain(&info.candidates).cloned().collect();
        routes::demote(folder, (&info.identity, &taken), error, &|left_out| {
            let is_left_out = |route: Route| left_out == Some(route.row().name);
            let unit = |route, unit| if is_left_out(route) { Matrix::None } else { unit };
            let profile = &Profile {
                matrix: unit(Route::MatrixProducts, shared.profile.matrix),
                attention_matrix: unit(Route::MatrixAttention, shared.profile.attention_matrix),
                candidates: shared.profile.candidates.without(CANDIDATES, left_out.unwrap_or_default()),
                ..shared.profile.clone()
            };
            let host = Host { backend: shared.backend(), kernels: &shared.kernels, profile };
            Some(names(&prepare::launches(host, graph, &step).ok()?))
        })
    }

    fn stats(&self) -> Stats {
        lock(&self.shared.stats).clone()
    }

    fn counts(&self) -> Result<Vec<KernelCounts>> {
        let limit = self.shared.deadlines().transfer;
        let mut counts = self.shared.thread.call(Phase::Readback, limit, |session| Ok(session.counts()))?;
        // The kernel that copies results to the host is not part of the graph's computation.
        counts.retain(|kernel| kernel.kernel != GATHERER);
        Ok(counts)
    }
}

/// Program whose errors come with advice.
struct Advised {
    program: HipProgram,
    advisor: Arc<Advisor>,
}

impl Program for Advised {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        self.advisor.advise(self.program.write(tensor, data))
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        self.advisor.advise(self.program.read(tensor, out))
    }

    fn run(&mut self) -> Result<Timing> {
        self.advisor.advise(self.program.run())
    }

    fn begin(&mut self) -> Result<()> {
        self.advisor.advise(self.program.begin())
    }

    fn finish(&mut self) -> Result<Timing> {
        self.advisor.advise(self.program.finish())
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        self.advisor.advise(self.program.run_step(step))
    }
}

/// Compiles all families on the driver thread, each within the deadline of a compilation. Also returns a text
/// with the number of code objects that were already compiled.
fn compile(
    thread: &DriverThread,
    options: &HipOptions,
    stats: &Mutex<Stats>,
    set: Arc<dyn KernelSet>,
    job: Job,
) -> Result<(Compiled, String)> {
    let backend = thread.monitor().backend.clone();
    let _span = phase::enter(Phase::Compile, &backend);
    let (start, job) = (Instant::now(), Arc::new(job));
    let (mut objects, mut stored) = (BTreeMap::new(), 0);
    for &stem in hip_kernels::stems() {
        let (of_thread, backend) = (job.clone(), backend.clone());
        let (image, origin) = thread.call(Phase::Compile, options.deadlines.prepare, move |_| {
            of_thread.object(stem).map_err(|why| Error::Unavailable {
                backend,
                phase: Phase::Compile,
                missing: Missing::Feature,
                reason: format!("{stem}.hip was not compiled for {}: {why}", of_thread.describe()),
            })
        })?;
        stored += usize::from(origin == Origin::Stored);
        objects.insert(stem, image);
    }
    lock(stats).compile_time += start.elapsed();
    let stored = format!("{stored} of {}", objects.len());
    Ok((Compiled::new(set, &job, objects), stored))
}

impl HipBackend {
    /// Returns true if the smallest MUL_MAT and GET_ROWS of a weight type have kernels.
    fn probe_weights(&self, dtype: DType) -> Result<bool> {
        let mut graph = Graph::new();
        let row = dtype.block();
        let w = graph.leaf("w", dtype, [row, 1, 1, 1], Source::Weight)?;
        let x = graph.leaf("x", DType::F32, [row, 1, 1, 1], Source::Input)?;
        let ids = graph.leaf("ids", DType::I32, [1, 1, 1, 1], Source::Input)?;
        let product = graph.mul_mat(w, x)?;
        let rows = graph.get_rows(w, ids)?;
        Ok([product, rows].iter().all(|&node| self.supports(&graph, node) == Support::Native))
    }
}
/// Returns the kernels of launches with everything that distinguishes them.
fn names(launches: &[Vec<(Launch, Kernel)>]) -> Vec<String> {
    let of =
        |(launch, _): &(Launch, Kernel)| format!("{} {:?} {:?}", launch.kernel, launch.grid, launch.block);
    launches.iter().flatten().map(of).collect()
}
