//! The contract between a graph and a device.
//!
//! A backend is opened once, gives out memory, and turns a planned graph into a [`Program`] that can be run again and
//! again. The caller validates nothing: a backend checks what it is given and answers with a typed error. No call
//! blocks longer than the deadline of its phase ([`Deadlines`]), and none panics, aborts or exits.
//!
//! Life of a model: `open` (elsewhere), [`Backend::allocate`] for weights and state or [`Backend::import`] for a
//! memory map that the device can read in place, [`Backend::upload`], then [`Backend::prepare`] for each graph, then
//! [`Program::write`] of inputs, [`Program::run`], [`Program::read`] of outputs.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::fuse::Group;
use crate::graph::Graph;
use crate::mapped::MappedBytes;
use crate::phase::Deadlines;
use crate::plan::{Plan, Step, Target};
use crate::precision::Precision;
use crate::tensor::TensorId;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Purpose of an allocation of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Usage {
    /// Written once, then only read.
    Weights,
    /// Inputs, intermediates and outputs of programs.
    Compute,
    /// Kept from run to run. Zero after allocation.
    State,
    /// Host-visible memory for transfers.
    Staging,
}

/// Memory of a backend; opaque to everybody else.
pub trait DeviceMemory: Any + Send + Sync + std::fmt::Debug {
    /// For the backend, to find its own type again.
    fn as_any(&self) -> &dyn Any;
}

/// A handle on device memory. Clones share it; the last one frees it.
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

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the purpose that it was allocated for.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The backend's own memory type, if it is `T`.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        self.memory.as_any().downcast_ref::<T>()
    }

    /// An error unless `offset .. offset + len` lies in the buffer.
    pub fn check_range(&self, offset: usize, len: usize) -> Result<()> {
        check_range(offset, len, self.bytes)
    }
}

/// An error unless `offset .. offset + len` lies within so many bytes.
pub(crate) fn check_range(offset: usize, len: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= bytes => Ok(()),
        _ => {
            let found = format!("{len} bytes at offset {offset}");
            Err(Error::argument("buffer range", found, format!("a range within {bytes} bytes")))
        }
    }
}

/// Zeroed memory of the host, for contents on their way to or from a backend.
///
/// # Errors
/// [`Error::OutOfMemory`] if the allocator has none.
pub(crate) fn host_memory<T: bytemuck::Zeroable>(count: usize) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| Error::OutOfMemory {
        backend: "host".into(),
        asked: count.saturating_mul(size_of::<T>()) as u64,
        free: None,
        heap: "host memory".into(),
        driver: None,
    })
}

/// A place in a buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The buffer.
    pub buffer: Buffer,
    /// Byte offset.
    pub offset: usize,
}

/// Where the leaves of a graph live.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Storage of weights and state, by tensor. Every weight and state tensor of the graph must be here.
    pub leaves: HashMap<TensorId, Slice>,
    /// Memory for the plan's arena, at least `plan.arena_bytes` long. Programs that share it must not run at the same
    /// time and keep nothing in it from run to run. `None`: the backend allocates it for this program.
    pub compute: Option<Buffer>,
}

/// Support of a backend for a node: how it is computed, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// There is a kernel.
    Native,
    /// There is none.
    Unsupported {
        /// Why, in words that a user can act on.
        reason: String,
    },
}

impl Support {
    /// A refusal.
    pub fn no(reason: impl Into<String>) -> Support {
        Support::Unsupported { reason: reason.into() }
    }
}

/// Limits that decide how memory is laid out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest single allocation in bytes.
    pub max_allocation: u64,
    /// Largest operand window in bytes.
    pub max_binding: u64,
    /// Alignment in bytes of tensors in an arena.
    pub alignment: usize,
}

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Backend name that opens it again ("vulkan:0").
    pub backend: String,
    /// Device name as the driver gives it.
    pub name: String,
    /// Driver name.
    pub driver: String,
    /// Driver, interface and library versions and paths, by name.
    pub versions: Vec<(String, String)>,
    /// Architecture class ("AMD_GCN", "CPU", "gfx906").
    pub arch: String,
    /// UUID or an equivalent, where there is one.
    pub uuid: Option<String>,
    /// Bytes of device memory, where known.
    pub memory: Option<u64>,
    /// Features that matter for kernels, with their values.
    pub features: Vec<(String, String)>,
    /// Environment overrides and forced options in effect.
    pub overrides: Vec<(String, String)>,
    /// Limits.
    pub limits: Limits,
}

/// Counters of a backend since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Allocations asked of the driver.
    pub driver_allocations: u64,
    /// Bytes of them that are held now.
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
    /// The kernel, or the pipeline.
    pub kernel: String,
    /// Instructions by class and bytes moved, by name, summed over wavefronts and launches.
    pub counts: Vec<(&'static str, u64)>,
}

/// Duration of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Host time from submission to completion.
    pub host: Duration,
    /// Device time, where it was measured.
    pub device: Option<Duration>,
}

/// Commands of a step of a plan on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepOutline {
    /// Dispatches, launches, or whatever the device's commands are.
    pub dispatches: usize,
    /// Number of them that wait until everything before them is complete.
    pub barriers: usize,
}

impl StepOutline {
    /// Steps as they are where steps of one level run at the same time and the commands of a step one after the other.
    /// `dispatches`: of each step.
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
    /// Prepare every step so that it can be run alone with [`Program::run_step`].
    pub stepwise: bool,
    /// Let inputs be written while another program that has the same arena ([`Bindings::compute`]) is under way: until
    /// the program begins they wait in memory of its own.
    pub overlaps: bool,
}

impl PrepareOptions {
    /// For a program that is run step by step.
    pub const STEPWISE: PrepareOptions = PrepareOptions { stepwise: true, overlaps: false };
}

/// A device that runs graphs.
pub trait Backend: Send + Sync {
    /// The device.
    fn device(&self) -> &DeviceInfo;

    /// The deadlines in effect.
    fn deadlines(&self) -> &Deadlines;

    /// Bytes of device memory that can be had now, where they are known.
    fn free_memory(&self) -> Option<u64> {
        self.device().memory.map(|all| all.saturating_sub(self.stats().allocated_bytes))
    }

    /// Returns whether a node of a graph can be computed, with a reason if not. Leaves and views always can.
    fn supports(&self, graph: &Graph, node: TensorId) -> Support;

    /// Returns whether several nodes are computed as one step, with a reason if not. After a refusal each
    /// node of the group is computed by itself.
    fn joins(&self, _graph: &Graph, _group: &Group, _precision: Precision) -> Support {
        Support::no("every node is computed alone")
    }

    /// Returns true if weights of a type can be an operand of MUL_MAT and GET_ROWS.
    fn supports_weights(&self, dtype: DType) -> bool;

    /// Memory of `bytes` bytes. `State` memory is zeroed. One driver allocation at the most.
    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer>;

    /// Host memory as a buffer without a copy, where the device can read it in place; `Ok(None)` where it cannot.
    fn import(&self, bytes: MappedBytes) -> Result<Option<Buffer>>;

    /// Host to device. Ordered before every later call; the data may be reused on return.
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()>;

    /// Device to host, after everything submitted before.
    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Device to device, ordered like uploads. The ranges must not overlap.
    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()>;

    /// Compiles every kernel and records every command of a planned graph.
    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>>;

    /// Returns true if programs have [`Program::begin`]: the device does not need the caller's thread while
    /// it runs.
    fn begins(&self) -> bool {
        false
    }

    /// Returns the commands of each step of a plan. Allocates no memory on the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a step without kernels.
    fn outline(&self, _graph: &Graph, plan: &Plan) -> Result<Vec<StepOutline>> {
        Ok(StepOutline::by_level(plan, plan.steps.iter().map(|_| 1)))
    }

    /// Counters since the backend was opened.
    fn stats(&self) -> Stats;

    /// Returns the counters of each kernel since the backend was opened. Only emulated devices count; other
    /// backends return an empty list.
    ///
    /// # Errors
    /// [`Error::Timeout`] where the device is asked and does not answer.
    fn counts(&self) -> Result<Vec<KernelCounts>> {
        Ok(Vec::new())
    }
}

impl<B: Backend + ?Sized> Target for B {
    fn alignment(&self) -> usize {
        self.device().limits.alignment
    }

    fn fuses(&self, graph: &Graph, group: &Group, precision: Precision) -> bool {
        self.joins(graph, group, precision) == Support::Native
    }
}

/// A prepared graph. Nothing is allocated, compiled or recorded when it runs.
pub trait Program: Send {
    /// Writes a whole tensor that the program owns (an input; under a debug plan any node) or a state tensor.
    /// `data` is dense: `dense_bytes()` of the tensor, whose storage must be contiguous.
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()>;

    /// Reads a whole contiguous tensor: an output, a state, under a debug plan any node.
    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()>;

    /// Runs all steps and waits.
    fn run(&mut self) -> Result<Timing>;

    /// Begins to run all steps and does not wait, so that the device has more to do when it is done with what runs before.
    /// Runs are executed in the order in which they began, also those of several programs of a backend; each is ended
    /// with [`Program::finish`] before its program begins another. Of programs that are under way at the same time each has
    /// an arena of its own ([`Bindings::compute`]), because inputs are written there, unless they were prepared for that
    /// ([`PrepareOptions::overlaps`]); what is read from an arena that others have is read before they begin.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where [`Backend::begins`] says no; what the device reports.
    fn begin(&mut self) -> Result<()> {
        Err(Error::argument("begin", "a program that runs only as a whole", "one that says that it can"))
    }

    /// Waits for the run that began last; the host's time is what was spent in waiting.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where none did; what the device reports.
    fn finish(&mut self) -> Result<Timing> {
        Err(Error::argument("finish", "a program that runs only as a whole", "one that has begun"))
    }

    /// Runs one step and waits; only for programs prepared with [`PrepareOptions::stepwise`]. `step` is an index into
    /// the plan's steps. An error names the node.
    fn run_step(&mut self, step: usize) -> Result<Timing>;
}
