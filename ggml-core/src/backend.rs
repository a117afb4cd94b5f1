//! The contract between a graph and a device.
//!
//! A backend is opened once, allocates memory, and prepares a [`Program`] from a planned graph, which can be
//! run repeatedly. Callers need not validate anything: a backend checks its arguments and returns typed
//! errors. No call blocks longer than its phase's deadline ([`Deadlines`]), and none panics, aborts or exits.
//!
//! Life of a model: `open` (elsewhere), [`Backend::allocate`] for weights and state or [`Backend::import`]
//! for a memory map that the device can read in place, [`Backend::upload`], then [`Backend::prepare`] for
//! each graph, then [`Program::write`] of inputs, [`Program::run`], [`Program::read`] of outputs.

use crate::buffers::BufferLimits;
use crate::dtype::DType;
use crate::error::{Error, Missing, Phase, Result};
use crate::exact::Sample;
use crate::exported::ExportedMemory;
use crate::fuse::Group;
use crate::graph::Graph;
use crate::mapped::MappedBytes;
use crate::phase::Deadlines;
use crate::plan::{Plan, Step, Target};
use crate::precision::Precision;
use crate::routes::{Identity, RouteUse, cards::CardReport};
use crate::tensor::TensorId;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Purpose of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Usage {
    /// Written once, then only read.
    Weights,
    /// Inputs, intermediates and outputs of programs.
    Compute,
    /// Retained from run to run. Zero after allocation.
    State,
    /// Host-visible memory for transfers.
    Staging,
}

/// Memory of a backend; opaque to all other code.
pub trait DeviceMemory: Any + Send + Sync + std::fmt::Debug {
    /// Returns the value for a downcast to the backend's own type.
    fn as_any(&self) -> &dyn Any;
}

/// Handle on device memory. Clones share it; dropping the last one frees it.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: Arc<dyn DeviceMemory>,
    bytes: usize,
    usage: Usage,
}

impl Buffer {
    /// Wraps a backend's memory.
    pub fn new(memory: Arc<dyn DeviceMemory>, bytes: usize, usage: Usage) -> Buffer {
        Buffer { memory, bytes, usage }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the purpose of the allocation.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the backend's own memory type, if it is `T`.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        self.memory.as_any().downcast_ref::<T>()
    }

    /// Checks that `offset .. offset + len` is within the buffer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is not.
    pub fn check_range(&self, offset: usize, len: usize) -> Result<()> {
        check_range(offset, len, self.bytes)
    }
}

/// Checks that `offset .. offset + len` is within `bytes`.
pub(crate) fn check_range(offset: usize, len: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= bytes => Ok(()),
        _ => {
            let found = format!("{len} bytes at offset {offset}");
            Err(Error::argument("buffer range", found, format!("a range within {bytes} bytes")))
        }
    }
}

/// Allocates zeroed host memory, for contents on their way to or from a backend.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocation fails.
pub(crate) fn host_memory<T: bytemuck::Zeroable>(count: usize) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| Error::OutOfMemory {
        backend: "host".into(),
        asked: count.saturating_mul(size_of::<T>()) as u64,
        free: None,
        heap: "host memory".into(),
        driver: None,
    })
}

/// Offset in a buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The buffer.
    pub buffer: Buffer,
    /// Byte offset.
    pub offset: usize,
}

/// Storage of the leaves of a graph, and of the arena.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Storage of weights and state, by tensor. Every weight and state tensor of the graph must have an
    /// entry.
    pub leaves: HashMap<TensorId, Slice>,
    /// Memory for the plan's arena: a buffer for each of `plan.arena`, at least as long. Programs that share it
    /// must not run at the same time, and its contents are not retained from run to run. Empty: the backend
    /// allocates it for this program.
    pub compute: Vec<Buffer>,
}

impl Bindings {
    /// Checks that the arena, if there is one, is large enough for a plan.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is not.
    pub fn check_arena(&self, plan: &Plan) -> Result<()> {
        let held = |i: usize| self.compute.get(i).map_or(0, Buffer::bytes);
        match plan.arena.iter().enumerate().find(|&(i, &bytes)| held(i) < bytes) {
            Some((i, bytes)) if !self.compute.is_empty() => {
                let found = format!("{} bytes", held(i));
                Err(Error::argument(
                    format!("compute buffer {i}"),
                    found,
                    format!("{bytes}, which the plan needs"),
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Answer of a backend: it can compute a node or a group, or the reason why it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// There is a kernel.
    Native,
    /// There is no kernel.
    Unsupported {
        /// Reason, in words that a user can act on.
        reason: String,
    },
}

impl Support {
    /// Creates an `Unsupported` answer.
    pub fn no(reason: impl Into<String>) -> Support {
        Support::Unsupported { reason: reason.into() }
    }
}

/// Limits on the layout of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest buffer in bytes: state and arenas beyond it lie in several, a tensor beyond it is on the host.
    pub max_allocation: u64,
    /// Largest operand window in bytes.
    pub max_binding: u64,
    /// Alignment in bytes of tensors in an arena.
    pub alignment: usize,
}

impl From<&Limits> for BufferLimits {
    fn from(limits: &Limits) -> BufferLimits {
        let largest = usize::try_from(limits.max_allocation).unwrap_or(usize::MAX);
        BufferLimits { alignment: limits.alignment, largest }
    }
}

/// Description of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Backend name that opens the device again ("vulkan:0").
    pub backend: String,
    /// Device name as the driver gives it.
    pub name: String,
    /// Driver name.
    pub driver: String,
    /// Driver, interface and library versions and paths, by name.
    pub versions: Vec<(String, String)>,
    /// Architecture class ("AMD_GCN", "CPU", "gfx906").
    pub arch: String,
    /// UUID or an equivalent, if there is one.
    pub uuid: Option<String>,
    /// Bytes of device memory, if known.
    pub memory: Option<u64>,
    /// True if the device's memory is the host's, so that what lies in it leaves less room for everything else.
    #[serde(default)]
    pub unified: bool,
    /// Features that matter for kernels, with their values.
    pub features: Vec<(String, String)>,
    /// Environment overrides and forced options in effect.
    pub overrides: Vec<(String, String)>,
    /// Limits.
    pub limits: Limits,
    /// The backend's routes beyond the plain ways, and which of them the device uses.
    #[serde(default)]
    pub routes: Vec<RouteUse>,
    /// Other values of the numbers in the backend's tuning table, and which of them the device uses.
    #[serde(default)]
    pub candidates: Vec<RouteUse>,
    /// Identity of the device for verdicts on routes; empty if the backend has no routes.
    #[serde(default)]
    pub identity: Identity,
}

impl DeviceInfo {
    /// Returns a report of the card for others: verdicts and versions, nothing personal.
    pub fn card_report(&self) -> CardReport {
        let feature = |wanted: &str| {
            self.features.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let named = |(name, value): &'_ (String, String)| (name.clone(), value.clone());
        let driver = [("driver".to_string(), self.driver.clone())];
        let of_driver = self.versions.iter().map(named).map(|(name, value)| match name.as_str() {
            "driver" => ("driver version".to_string(), value),
            _ => (name, value),
        });
        let is_version = |name: &str| name.contains("kernel") || name.ends_with("version");
        let of_system = self.identity.0.iter().filter(|(name, _)| is_version(name)).map(named);
        let versions: Vec<(String, String)> = driver.into_iter().chain(of_driver).chain(of_system).collect();
        let report = CardReport {
            driver: self.backend.split([':', '-']).next().unwrap_or_default().into(),
            card: self.name.clone(),
            class: feature("class").unwrap_or_else(|| self.arch.clone()),
            processor: feature("target").filter(|target| !target.is_empty()),
            emulated: self.backend.contains("virtual"),
            memory: self.memory,
            versions: Vec::new(),
            verdicts: Vec::new(),
        };
        let verdicts = self.routes.iter().filter_map(|route| route.verdict.clone());
        report
            .with_versions(versions.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .with_verdicts(verdicts)
    }
}

/// Counters of a backend since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Allocations requested from the driver.
    pub driver_allocations: u64,
    /// Bytes of these allocations that are held now.
    pub allocated_bytes: u64,
    /// Pipelines or kernels created.
    pub pipelines: u64,
    /// Time spent in creating them.
    pub compile_time: Duration,
    /// Programs prepared.
    pub programs: u64,
    /// Command buffers recorded (or their equivalent).
    pub recordings: u64,
    /// Submissions to the device.
    pub submissions: u64,
    /// Bytes uploaded.
    pub uploaded_bytes: u64,
}

/// Counters of one kernel on an emulated device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCounts {
    /// Name of the kernel or the pipeline.
    pub kernel: String,
    /// Instructions by class and bytes moved, by name, summed over wavefronts and launches.
    pub counts: Vec<(&'static str, u64)>,
}

impl KernelCounts {
    /// Returns the sum of some counters.
    pub fn sum(&self, names: &[&str]) -> u64 {
        self.counts.iter().filter(|(name, _)| names.contains(name)).map(|(_, n)| n).sum()
    }

    /// Returns the number of lanes of a wavefront of this kernel, 64 if none has run.
    pub fn wave(&self) -> f64 {
        match self.sum(&["waves"]) {
            0 => 64.0,
            waves => self.sum(&["lanes"]) as f64 / waves as f64,
        }
    }
}

/// Duration of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Host time from submission to completion.
    pub host: Duration,
    /// Device time, if it was measured.
    pub device: Option<Duration>,
}

/// Device commands of a step of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepOutline {
    /// Number of dispatches, launches or equivalent commands.
    pub dispatches: usize,
    /// Number of these commands that wait until everything before them is complete.
    pub barriers: usize,
}

impl StepOutline {
    /// Returns the outline for a device that runs steps of one level at the same time and the commands of a
    /// step one after the other. `dispatches` has one entry for each step.
    pub fn by_level(plan: &Plan, dispatches: impl IntoIterator<Item = usize>) -> Vec<StepOutline> {
        let mut level = 0;
        let outline = |(step, dispatches): (&Step, usize)| {
            let next = usize::from(std::mem::replace(&mut level, step.level) != step.level);
            StepOutline { dispatches, barriers: next + dispatches.saturating_sub(1) }
        };
        plan.steps.iter().zip(dispatches).map(outline).collect()
    }
}

/// Options for preparing a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrepareOptions {
    /// Prepares every step so that it can be run by itself with [`Program::run_step`].
    pub stepwise: bool,
    /// Allows inputs to be written while another program with the same arena ([`Bindings::compute`]) is in
    /// flight. Until the program begins, the inputs wait in its own memory.
    pub overlaps: bool,
}

impl PrepareOptions {
    /// Options for a program that is run step by step.
    pub const STEPWISE: PrepareOptions = PrepareOptions { stepwise: true, overlaps: false };
}

/// A device that runs graphs.
pub trait Backend: Send + Sync {
    /// Returns the description of the device.
    fn device(&self) -> &DeviceInfo;

    /// Returns the deadlines in effect.
    fn deadlines(&self) -> &Deadlines;

    /// Returns the bytes of device memory that can be allocated now, if known.
    fn free_memory(&self) -> Option<u64> {
        self.device().memory.map(|all| all.saturating_sub(self.stats().allocated_bytes))
    }

    /// Returns `Native` if a node of a graph can be computed, otherwise the reason. Leaves and views are
    /// always supported.
    fn supports(&self, graph: &Graph, node: TensorId) -> Support;

    /// Returns `Native` if several nodes are computed together, otherwise the reason. Nodes of other groups
    /// are computed one by one.
    fn joins(&self, _graph: &Graph, _group: &Group, _precision: Precision) -> Support {
        Support::no("nodes are computed one by one")
    }

    /// True if weights of a type can be an operand of MUL_MAT and GET_ROWS.
    fn supports_weights(&self, dtype: DType) -> bool;

    /// Allocates `bytes` bytes, in at most one driver allocation. `State` memory is zeroed.
    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer>;

    /// Wraps host memory as a buffer without a copy, if the device can read it in place; otherwise
    /// `Ok(None)`.
    fn import(&self, bytes: MappedBytes) -> Result<Option<Buffer>>;

    /// Copies from host to device. Ordered before every later call; the data may be reused on return.
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()>;

    /// Copies from device to host, after everything submitted before.
    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Copies from device to device, ordered like uploads. The ranges must not overlap.
    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()>;

    /// Compiles every kernel and records every command of a planned graph.
    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>>;

    /// True if programs support [`Program::begin`]: the device does not need the caller's thread while it
    /// runs.
    fn begins(&self) -> bool {
        false
    }

    /// Returns the device commands of each step of a plan. This needs no memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a step without kernels.
    fn outline(&self, _graph: &Graph, plan: &Plan) -> Result<Vec<StepOutline>> {
        Ok(StepOutline::by_level(plan, plan.steps.iter().map(|_| 1)))
    }

    /// Returns the kernels of a plan, one for each device command, with everything that distinguishes them. Two devices
    /// for which the text is equal compute the plan in the same way.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a step without kernels.
    fn kernels(&self, _graph: &Graph, _plan: &Plan) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Takes back the verdicts on the routes that the step of a node takes, because the device was lost or hung in it: the
    /// next process does without them ([`crate::routes::demote`]). Returns their names.
    fn demote(&self, _graph: &Graph, _plan: &Plan, _node: TensorId, _error: &Error) -> Vec<String> {
        Vec::new()
    }

    /// Allocates device memory that another driver of the same card can use ([`Backend::adopt`]), in one driver
    /// allocation. `State` memory is zeroed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the driver cannot export memory; [`Error::OutOfMemory`].
    fn allocate_exported(&self, _bytes: usize, _usage: Usage) -> Result<(Buffer, ExportedMemory)> {
        Err(not_shared(self.device(), "its memory cannot be exported"))
    }

    /// Imports memory that another driver of the same card exported, as a buffer of `bytes` bytes. It lives until
    /// both drivers have freed it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the driver cannot import memory; errors of the driver, if it refuses this one.
    fn adopt(&self, _memory: ExportedMemory, _bytes: usize, _usage: Usage) -> Result<Buffer> {
        Err(not_shared(self.device(), "it cannot import memory of another driver"))
    }

    /// Waits for everything that was submitted, and makes the contents of exported and imported memory available to the
    /// card's other driver.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the deadline of computing; errors of the device.
    fn hand_over(&self) -> Result<()> {
        Ok(())
    }

    /// Makes what the card's other driver wrote visible, after its [`Backend::hand_over`].
    ///
    /// # Errors
    /// Errors of the device.
    fn take_over(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the drivers, if this backend is one card under two of them.
    fn drivers(&self) -> Option<&dyn Drivers> {
        None
    }

    /// Returns the counters since the backend was opened.
    fn stats(&self) -> Stats;

    /// Returns the counters of each kernel since the backend was opened. Only emulated devices count; others
    /// return an empty list.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the device must be queried and does not answer.
    fn counts(&self) -> Result<Vec<KernelCounts>> {
        Ok(Vec::new())
    }
}

/// Two drivers of one card that share its memory. Each is a backend; buffers of the whole belong to both, programs to the
/// one that prepared them.
pub trait Drivers {
    /// Returns a driver by its index, 0 or 1. Graphs are planned and prepared with it. Once the second driver has refused
    /// memory, the first one is returned for both.
    fn driver(&self, index: usize) -> &dyn Backend;
}

/// Returns the error of a driver that does not share memory.
fn not_shared(device: &DeviceInfo, reason: &str) -> Error {
    Error::Unavailable {
        backend: device.backend.clone(),
        phase: Phase::Allocate,
        missing: Missing::Feature,
        reason: format!("{} ({}): {reason}", device.name, device.driver),
    }
}

impl<B: Backend + ?Sized> Target for B {
    fn buffer_limits(&self) -> BufferLimits {
        BufferLimits::from(&self.device().limits)
    }

    fn fuses(&self, graph: &Graph, group: &Group, precision: Precision) -> bool {
        self.joins(graph, group, precision) == Support::Native
    }
}

/// A prepared graph. Nothing is allocated, compiled or recorded when it runs.
pub trait Program: Send {
    /// Writes an entire tensor that the program owns (an input; with a debug plan any node) or a state
    /// tensor. `data` is dense: `dense_bytes()` of the tensor, whose storage must be contiguous.
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()>;

    /// Reads an entire contiguous tensor: an output, a state, or with a debug plan any node.
    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()>;

    /// Runs all steps and waits.
    fn run(&mut self) -> Result<Timing>;

    /// Begins to run all steps and does not wait, so that the device has further work when earlier runs are
    /// complete. Runs are executed in the order in which they began, across all programs of a backend. Each
    /// run must be ended with [`Program::finish`] before its program begins another, and before the program is
    /// written: until then [`Program::write`] is an error or waits for the run.
    ///
    /// Programs in flight at the same time need separate arenas ([`Bindings::compute`]), because inputs are
    /// written there, unless they were prepared for sharing one ([`PrepareOptions::overlaps`]). Read outputs
    /// from a shared arena before another program that uses it begins.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if [`Backend::begins`] is false; errors of the device.
    fn begin(&mut self) -> Result<()> {
        Err(Error::argument("begin", "a program that runs only as a whole", "one that says that it can"))
    }

    /// Waits for the last run that began. The host time is the time spent waiting.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if none began; errors of the device.
    fn finish(&mut self) -> Result<Timing> {
        Err(Error::argument("finish", "a program that runs only as a whole", "one that has begun"))
    }

    /// Runs one step and waits; only for programs prepared with [`PrepareOptions::stepwise`]. `step` is an
    /// index into the plan's steps. An error names the node.
    fn run_step(&mut self, step: usize) -> Result<Timing>;

    /// Computes everything from now on with operands rounded as a sample says, or exactly again with `None`. It
    /// shows the errors that correct results may have.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for all programs but those of the reference backend.
    fn set_rounding(&mut self, sample: Option<Sample>) -> Result<()> {
        let _ = sample;
        Err(Error::argument("rounding", "a program of another backend", "one of the reference backend"))
    }
}
