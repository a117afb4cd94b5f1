//! Pipelines of shaders and constants: compiled in parallel, shared by all programs of a backend.

pub(crate) mod cache;
pub(crate) mod modules;
mod spec;

pub use spec::PipelineSpec;

use crate::error::broken;
use crate::raw::device::Device;
use crate::raw::pipeline::{Capture, DriverCache, Layout, Pipeline, Recipe, Statistic};
use cache::DiskCache;
use ggml_core::sync::lock;
use ggml_core::threads::{self, Undone};
use ggml_core::{Deadline, Error, Phase, Result, phase};
use modules::Modules;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Layouts, by the element counts of their bindings and the bytes of their push constants.
type Layouts = HashMap<(Vec<u32>, u32), Arc<Layout>>;

/// All pipelines of a backend.
pub(crate) struct PipelineSet {
    device: Arc<Device>,
    driver_cache: Option<DriverCache>,
    disk: Option<DiskCache>,
    capture: Capture,
    /// True if several threads compile.
    is_parallel: bool,
    modules: Modules,
    layouts: Mutex<Layouts>,
    compiled: Mutex<HashMap<PipelineSpec, Arc<Pipeline>>>,
    count: AtomicU64,
    nanoseconds: AtomicU64,
    unsaved: AtomicU64,
}

/// Compile time after which the disk cache is written immediately rather than at the end.
const SAVE_AFTER: Duration = Duration::from_secs(2);

impl PipelineSet {
    /// Creates an empty set. `capture`: compiler output to retain for each pipeline. `is_parallel`: several threads
    /// compile.
    pub(crate) fn new(
        device: &Arc<Device>,
        disk: Option<DiskCache>,
        capture: Capture,
        is_parallel: bool,
    ) -> Arc<PipelineSet> {
        let data = disk.as_ref().and_then(DiskCache::load).unwrap_or_default();
        // The cache is optional: without one everything is compiled.
        let driver_cache = disk.is_some().then(|| DriverCache::new(device, &data)).and_then(|made| {
            made.inspect_err(|error| tracing::warn!(backend = %device.name, %error, "no pipeline cache")).ok()
        });
        Arc::new(PipelineSet {
            device: device.clone(),
            driver_cache,
            disk,
            capture,
            is_parallel,
            modules: Modules::new(device.facts.support, device.facts.caps.clone()),
            layouts: Mutex::default(),
            compiled: Mutex::default(),
            count: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            unsaved: AtomicU64::new(0),
        })
    }

    /// Returns the modules that pipelines are made from.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Returns the number of pipelines created so far and the time spent on it.
    pub(crate) fn compiled(&self) -> (u64, Duration) {
        (self.count.load(Ordering::Relaxed), Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)))
    }

    fn layout(&self, bindings: Vec<u32>, push_bytes: u32) -> Result<Arc<Layout>> {
        let mut layouts = lock(&self.layouts);
        let key = (bindings, push_bytes);
        if let Some(known) = layouts.get(&key) {
            return Ok(known.clone());
        }
        let layout = Layout::new(&self.device, &key.0, push_bytes)?;
        layouts.insert(key, layout.clone());
        Ok(layout)
    }

    /// Returns a pipeline, and creates it if it does not exist yet.
    fn compile(&self, spec: &PipelineSpec) -> Result<Arc<Pipeline>> {
        if let Some(known) = lock(&self.compiled).get(spec) {
            return Ok(known.clone());
        }
        let wrong = |why| Error::argument(format!("pipeline {spec}"), why, "");
        let module = self.modules.check(spec).map_err(wrong)?;
        let layout = self.layout(module.counts(), module.push_bytes())?;
        let name = spec.to_string();
        let recipe = Recipe {
            shader: module.id,
            specialization: &spec.specialization,
            subgroup: spec.subgroup,
            has_subgroups: module.has_subgroups(),
            capture: self.capture,
            name: &name,
        };
        let pipeline = Arc::new(Pipeline::new(&layout, self.driver_cache.as_ref(), recipe)?);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(lock(&self.compiled).entry(spec.clone()).or_insert(pipeline).clone())
    }

    /// Returns the subgroup size and the compiler's statistics of a pipeline, and creates the pipeline if
    /// necessary.
    pub(crate) fn statistics(&self, spec: &PipelineSpec) -> Result<(Option<u32>, Vec<Statistic>)> {
        let pipeline = self.compile(spec)?;
        Ok((pipeline.subgroup_size(), pipeline.statistics()))
    }

    /// Returns the subgroup size of a pipeline and its machine code as text, and creates the pipeline if
    /// necessary; `None` if the driver provides no machine code.
    pub(crate) fn listing(&self, spec: &PipelineSpec) -> Result<Option<(u32, String)>> {
        let pipeline = self.compile(spec)?;
        Ok(pipeline.subgroup_size().zip(pipeline.listing()))
    }

    /// Returns the pipelines of the specifications, in order; missing ones are created in parallel. Each
    /// specification comes with the name of a node that needs it.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        specs: &[(PipelineSpec, String)],
        deadline: &Deadline,
    ) -> Result<Vec<Arc<Pipeline>>> {
        let mut missing: Vec<(PipelineSpec, String)> = Vec::new();
        {
            let compiled = lock(&self.compiled);
            for (spec, node) in specs {
                if !compiled.contains_key(spec) && !missing.iter().any(|(s, _)| s == spec) {
                    missing.push((spec.clone(), node.clone()));
                }
            }
        }
        if !missing.is_empty() {
            self.compile_all(missing, deadline)?;
        }
        specs.iter().map(|(spec, _)| self.compile(spec)).collect()
    }

    fn compile_all(
        self: &Arc<Self>,
        missing: Vec<(PipelineSpec, String)>,
        deadline: &Deadline,
    ) -> Result<()> {
        let _span = phase::enter(Phase::Compile, &self.device.name);
        let deadline = deadline.as_phase(Phase::Compile);
        let start = Instant::now();
        let threads =
            if self.is_parallel { std::thread::available_parallelism().map_or(1, |n| n.get()) } else { 1 };
        let (work, set) = (Arc::new(missing), self.clone());
        let compile = move |(spec, node): &(PipelineSpec, String)| {
            set.compile(spec).map(|_| ()).map_err(|e| e.with_node(node))
        };
        let name = format!("{} compile", self.device.name);
        threads::for_each(&name, threads, &work, &deadline, compile).map_err(|undone| match undone {
            Undone::Failed(error) => error,
            Undone::Late => {
                let first = work.iter().find(|(spec, _)| !lock(&self.compiled).contains_key(spec));
                deadline.missed(&self.device.name, first.map(|(_, node)| node.clone()))
            }
            Undone::NoThread(why) => broken(&self.device.name, Phase::Compile, "thread::spawn", why),
        })?;
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
