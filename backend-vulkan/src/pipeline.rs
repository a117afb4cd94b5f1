//! Pipelines: which shader, with which constants; made in parallel, shared by all programs of a backend.

use crate::cache::DiskCache;
use crate::deadline::broken;
use crate::op::Dispatch;
use crate::raw::device::Device;
use crate::raw::physical::Facts;
use crate::raw::pipeline::{DriverCache, Layout, Pipeline, Recipe, Statistic};
use ash::vk::SubgroupFeatureFlags as SubgroupFlags;
use ggml_core::Deadline;
use ggml_core::{Error, Phase, Result, phase};
use shaders::ShaderId;
use shaders::reflect::{Interface, capability_name, reflect};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What one pipeline is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineSpec {
    /// Stem of the shader's source.
    pub shader: &'static str,
    /// Variant in the shaders crate's table.
    pub variant: &'static str,
    /// Specialisation constants, ids from 0; id 0 is the work-group size.
    pub specialization: Vec<u32>,
    /// Subgroup size to require.
    pub subgroup: Option<u32>,
}

impl PipelineSpec {
    /// The pipeline of a dispatch.
    pub fn of(dispatch: &Dispatch) -> PipelineSpec {
        PipelineSpec {
            shader: dispatch.shader,
            variant: dispatch.variant,
            specialization: dispatch.specialization.clone(),
            subgroup: dispatch.subgroup,
        }
    }
}

impl std::fmt::Display for PipelineSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {:?}", self.shader, self.variant, self.specialization)?;
        self.subgroup.map_or(Ok(()), |s| write!(f, " wave{s}"))
    }
}

/// What is known of a shader module.
#[derive(Debug)]
struct Module {
    id: ShaderId,
    interface: Interface,
    /// A capability that the device lacks.
    lacking: Option<String>,
}

/// A lock whose holder cannot leave broken data behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All pipelines of a backend.
pub(crate) struct PipelineSet {
    device: Arc<Device>,
    driver_cache: Option<DriverCache>,
    disk: Option<DiskCache>,
    statistics: bool,
    modules: Mutex<HashMap<(&'static str, &'static str), Arc<Module>>>,
    layouts: Mutex<HashMap<(u32, u32), Arc<Layout>>>,
    made: Mutex<HashMap<PipelineSpec, Arc<Pipeline>>>,
    count: AtomicU64,
    nanoseconds: AtomicU64,
    unsaved: AtomicU64,
}

/// Compile time after which the disk cache is written without waiting for the end.
const SAVE_AFTER: Duration = Duration::from_secs(2);

/// Bytes of stack of a thread that compiles.
const COMPILER_STACK: usize = 16 << 20;

impl PipelineSet {
    /// An empty set. `statistics`: pipelines can be asked for what the compiler reports.
    pub(crate) fn new(device: &Arc<Device>, disk: Option<DiskCache>, statistics: bool) -> Arc<PipelineSet> {
        let data = disk.as_ref().and_then(DiskCache::load).unwrap_or_default();
        // A cache is a convenience: without one everything is compiled.
        let driver_cache = disk.is_some().then(|| DriverCache::new(device, &data)).and_then(|made| {
            made.inspect_err(|error| tracing::warn!(backend = %device.name, %error, "no pipeline cache")).ok()
        });
        Arc::new(PipelineSet {
            device: device.clone(),
            driver_cache,
            disk,
            statistics,
            modules: Mutex::default(),
            layouts: Mutex::default(),
            made: Mutex::default(),
            count: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            unsaved: AtomicU64::new(0),
        })
    }

    /// Pipelines made so far, and the time it took.
    pub(crate) fn made(&self) -> (u64, Duration) {
        (self.count.load(Ordering::Relaxed), Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)))
    }

    /// Why a pipeline cannot be made or run on this device, or does not fit what a dispatch gives it.
    pub(crate) fn check(&self, spec: &PipelineSpec) -> Result<(), String> {
        let module = self.module(spec)?;
        if let Some(lacking) = &module.lacking {
            return Err(format!("shader {} needs {lacking}, which the device lacks", module.id));
        }
        let caps = &self.device.facts.caps;
        let constants: Vec<(u32, u32)> = (0..).zip(spec.specialization.iter().copied()).collect();
        let size = module.interface.local_size(&constants);
        let invocations = size.iter().fold(1u64, |product, &n| product.saturating_mul(u64::from(n)));
        let small = (0..3).all(|d| size[d] > 0 && size[d] <= caps.max_workgroup_size[d]);
        if !small || invocations > u64::from(caps.max_invocations) {
            return Err(format!("{spec}: work-groups of {size:?} are too large for the device"));
        }
        let shared = module.interface.shared_bytes(&constants).map_err(|e| e.to_string())?;
        if shared > u64::from(caps.shared_bytes) {
            return Err(format!(
                "{spec}: {shared} bytes of shared memory; the device has {}",
                caps.shared_bytes
            ));
        }
        let fits = |s: u32| s.is_power_of_two() && (caps.subgroup_min..=caps.subgroup_max).contains(&s);
        match spec.subgroup {
            Some(s) if !fits(s) || (!caps.subgroup_control && s != caps.subgroup_default) => {
                Err(format!("{spec}: the device cannot run subgroups of {s}"))
            }
            _ => Ok(()),
        }
    }

    /// Why a dispatch does not fit its shader; such a mistake is the library's own.
    pub(crate) fn check_dispatch(&self, dispatch: &Dispatch) -> Result<(), String> {
        let spec = PipelineSpec::of(dispatch);
        self.check(&spec)?;
        let module = self.module(&spec)?;
        let (bindings, push) = (module.bindings(), module.push_bytes());
        if dispatch.operands.len() != bindings as usize {
            return Err(format!("{spec}: {} operands for {bindings} bindings", dispatch.operands.len()));
        }
        if dispatch.params.len() != push as usize {
            return Err(format!("{spec}: {} bytes of parameters for {push}", dispatch.params.len()));
        }
        let limits = self.device.facts.caps.max_workgroups;
        if (0..3).any(|d| dispatch.grid[d] == 0 || dispatch.grid[d] > limits[d]) {
            return Err(format!("{spec}: a grid of {:?} is outside the device's {limits:?}", dispatch.grid));
        }
        Ok(())
    }

    /// Axes along which the grid of a pipeline's dispatches may be cut: work-group ids go on counting in a part
    /// (vkCmdDispatchBase), but the number of work-groups that a shader can ask for is that of its part.
    pub(crate) fn divisible(&self, spec: &PipelineSpec) -> [bool; 3] {
        self.module(spec).map_or([false; 3], |m| m.interface.reads_group_counts.map(|reads| !reads))
    }

    fn module(&self, spec: &PipelineSpec) -> Result<Arc<Module>, String> {
        let key = (spec.shader, spec.variant);
        if let Some(known) = lock(&self.modules).get(&key) {
            return Ok(known.clone());
        }
        let id = ShaderId::find(spec.shader, spec.variant)
            .ok_or_else(|| format!("shader {}/{} is not in the table", spec.shader, spec.variant))?;
        let words = id.words().ok_or_else(|| format!("shader {id} has no committed SPIR-V"))?;
        let interface = reflect(words).map_err(|e| format!("shader {id}: {e}"))?;
        let lacking = lacking(&interface, &self.device.facts);
        let module = Arc::new(Module { id, interface, lacking });
        lock(&self.modules).insert(key, module.clone());
        Ok(module)
    }

    fn layout(&self, bindings: u32, push_bytes: u32) -> Result<Arc<Layout>> {
        let mut layouts = lock(&self.layouts);
        if let Some(known) = layouts.get(&(bindings, push_bytes)) {
            return Ok(known.clone());
        }
        let layout = Layout::new(&self.device, bindings, push_bytes)?;
        layouts.insert((bindings, push_bytes), layout.clone());
        Ok(layout)
    }

    /// A pipeline, made now if it was not made before.
    fn make(&self, spec: &PipelineSpec) -> Result<Arc<Pipeline>> {
        if let Some(known) = lock(&self.made).get(spec) {
            return Ok(known.clone());
        }
        let wrong = |why| Error::argument_said("pipeline", why);
        self.check(spec).map_err(wrong)?;
        let module = self.module(spec).map_err(wrong)?;
        let layout = self.layout(module.bindings(), module.push_bytes())?;
        let recipe = Recipe {
            shader: module.id,
            specialization: &spec.specialization,
            subgroup: spec.subgroup,
            statistics: self.statistics,
        };
        let pipeline = Arc::new(Pipeline::new(&layout, self.driver_cache.as_ref(), recipe)?);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(lock(&self.made).entry(spec.clone()).or_insert(pipeline).clone())
    }

    /// What the compiler reports of a pipeline, made now if it was not made before.
    pub(crate) fn statistics(&self, spec: &PipelineSpec) -> Result<(Option<u32>, Vec<Statistic>)> {
        let pipeline = self.make(spec)?;
        Ok((pipeline.subgroup_size(), pipeline.statistics()))
    }

    /// The pipelines of these specifications, in their order; those that are missing are made in parallel. A
    /// specification comes with the name of a node that needs it.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        specs: &[(PipelineSpec, String)],
        deadline: &Deadline,
    ) -> Result<Vec<Arc<Pipeline>>> {
        let mut missing: Vec<(PipelineSpec, String)> = Vec::new();
        {
            let made = lock(&self.made);
            for (spec, node) in specs {
                if !made.contains_key(spec) && !missing.iter().any(|(s, _)| s == spec) {
                    missing.push((spec.clone(), node.clone()));
                }
            }
        }
        if !missing.is_empty() {
            self.make_all(missing, deadline)?;
        }
        specs.iter().map(|(spec, _)| self.make(spec)).collect()
    }

    fn make_all(self: &Arc<Self>, missing: Vec<(PipelineSpec, String)>, deadline: &Deadline) -> Result<()> {
        let _span = phase::enter(Phase::Compile, &self.device.name);
        let deadline = deadline.as_phase(Phase::Compile);
        let start = Instant::now();
        let total = missing.len();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(total);
        let (work, next) = (Arc::new(missing), Arc::new(AtomicUsize::new(0)));
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads {
            let (set, work, next, sender) = (self.clone(), work.clone(), next.clone(), sender.clone());
            let run = move || {
                while let Some((spec, node)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = set.make(spec).map(|_| ()).map_err(|e| e.with_node(node));
                    if sender.send(done).is_err() {
                        return;
                    }
                }
            };
            let name = format!("{} compile", self.device.name);
            // Compilers recurse deeply.
            let thread = std::thread::Builder::new().name(name).stack_size(COMPILER_STACK);
            if let Err(error) = thread.spawn(run) {
                return Err(broken(&self.device.name, Phase::Compile, "thread::spawn", error.to_string()));
            }
        }
        drop(sender);
        for _ in 0..total {
            match receiver.recv_timeout(deadline.remaining()) {
                Ok(done) => done?,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let first = work.iter().find(|(spec, _)| !lock(&self.made).contains_key(spec));
                    return Err(deadline.missed(&self.device.name, first.map(|(_, node)| node.clone())));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let what = "a compiling thread ended without an answer".to_string();
                    return Err(broken(&self.device.name, Phase::Compile, "vkCreateComputePipelines", what));
                }
            }
        }
        let nanoseconds = start.elapsed().as_nanos() as u64;
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if self.unsaved.fetch_add(nanoseconds, Ordering::Relaxed) + nanoseconds > SAVE_AFTER.as_nanos() as u64
        {
            self.save();
        }
        Ok(())
    }

    /// Writes the disk cache if anything was compiled since the last time. Failures are warnings.
    pub(crate) fn save(&self) {
        let (Some(cache), Some(disk)) = (&self.driver_cache, &self.disk) else { return };
        if self.unsaved.swap(0, Ordering::Relaxed) == 0 || self.device.is_lost() {
            return;
        }
        match cache.data() {
            Ok(data) => disk.store(&data),
            Err(error) => {
                tracing::warn!(backend = %self.device.name, %error, "the pipeline cache was not written")
            }
        }
    }
}

impl Module {
    fn bindings(&self) -> u32 {
        self.interface.buffers.len() as u32
    }

    fn push_bytes(&self) -> u32 {
        self.interface.push_constants.as_ref().map_or(0, |b| b.size)
    }
}

/// The first capability or version of a module that the device lacks. A capability that is not in this list counts as
/// lacking, because no feature was enabled for it.
fn lacking(interface: &Interface, facts: &Facts) -> Option<String> {
    if interface.version >= (1, 6) && facts.api < ash::vk::API_VERSION_1_3 {
        return Some("SPIR-V 1.6".into());
    }
    let (f, sub, float) = (&facts.features, &facts.subgroup_operations, &facts.float_controls);
    let has = |name: &str| match name {
        "Matrix" | "Shader" | "GroupNonUniform" => true,
        "Float16" => f.float16,
        "Int8" => f.int8,
        "Int16" => f.int16,
        "Int64" => f.int64,
        "StorageBuffer16BitAccess" => f.storage16,
        "StorageBuffer8BitAccess" => f.storage8,
        "VulkanMemoryModel" => f.memory_model,
        "CooperativeMatrixKHR" => f.matrices,
        "DotProduct" | "DotProductInputAll" | "DotProductInput4x8Bit" | "DotProductInput4x8BitPacked" => {
            f.int_dot
        }
        "GroupNonUniformVote" => sub.contains(SubgroupFlags::VOTE),
        "GroupNonUniformArithmetic" => sub.contains(SubgroupFlags::ARITHMETIC),
        "GroupNonUniformBallot" => sub.contains(SubgroupFlags::BALLOT),
        "GroupNonUniformShuffle" => sub.contains(SubgroupFlags::SHUFFLE),
        "GroupNonUniformShuffleRelative" => sub.contains(SubgroupFlags::SHUFFLE_RELATIVE),
        "GroupNonUniformClustered" => sub.contains(SubgroupFlags::CLUSTERED),
        "RoundingModeRTE" => float.round_even,
        "DenormPreserve" => float.keep_denormals,
        "SignedZeroInfNanPreserve" => float.keep_special,
        _ => false,
    };
    let name =
        |&value: &u32| capability_name(value).map_or_else(|| format!("capability {value}"), str::to_string);
    interface.capabilities.iter().map(name).find(|name| !has(name))
}
