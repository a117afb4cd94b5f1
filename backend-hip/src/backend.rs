//! The backend: device, memory and programs behind [`Backend`].

use crate::amd::Amd;
use crate::arch::Profile;
use crate::device::{self, Opened, Provider};
use crate::driver::Driver;
use crate::kernels::{Embedded, KernelSet, Kernels};
use crate::memory::{Memory, Shared};
use crate::op::{Context, Refusal};
use crate::options::HipOptions;
use crate::prepare;
use crate::program::{HipProgram, RunEvents};
use crate::thread::DriverThread;
use ggml_core::backend::{
    Backend, Bindings, Buffer, DeviceInfo, PrepareOptions, Program, Slice, Stats, Support, Usage,
};
use ggml_core::mapped::MappedBytes;
use ggml_core::op::mul_mat::WEIGHT_TYPES;
use ggml_core::phase::{self, Deadlines};
use ggml_core::plan::{Plan, Precision};
use ggml_core::{DType, Error, Graph, Phase, Result, Source, TensorId};
use std::sync::{Arc, Mutex};

/// Byte of memory that was never written: every float type reads it as NaN.
const POISON: u8 = 0xff;

/// A device that is driven through HIP.
#[derive(Debug)]
pub struct HipBackend {
    shared: Arc<Shared>,
    info: DeviceInfo,
    profile: Profile,
    kernels: Kernels,
    events: Arc<RunEvents>,
    options: HipOptions,
}

/// The devices that the runtime lists.
///
/// # Errors
/// As [`HipBackend::open`], but a device that has no kernels is listed like the others.
pub fn devices(options: &HipOptions) -> Result<Vec<DeviceInfo>> {
    device::enumerate("hip", options, amd())
}

fn amd() -> Provider {
    Box::new(|options| Amd::load(options).map(|amd| Arc::new(amd) as Arc<dyn Driver>))
}

impl HipBackend {
    /// Opens an AMD device.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with what was looked at: [`Library`](ggml_core::Missing::Library) where libamdhip64 is
    /// not found or lacks functions, [`Device`](ggml_core::Missing::Device) where it lists none,
    /// [`Permission`](ggml_core::Missing::Permission) where a device node exists that this user may not open,
    /// [`Feature`](ggml_core::Missing::Feature) where there are no kernels for the device. [`Error::Timeout`] where
    /// the driver does not answer within `deadlines.open`.
    pub fn open(options: HipOptions) -> Result<HipBackend> {
        HipBackend::open_with("hip", options, amd(), Arc::new(Embedded))
    }

    /// Opens a device of another provider of HIP's functions. `name` is the backend's name without the device.
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
        let name = format!("{name}:{}", options.device);
        let (thread, opened) = DriverThread::open(&name, options.deadlines.open, move |monitor| {
            device::open(monitor, &of_options, provider, &of_thread, set)
        })?;
        let Opened { info, profile, kernels, staging, events } = opened;
        let shared = Arc::new(Shared::new(thread, options.deadlines.clone(), stats, staging));
        Ok(HipBackend { shared, info, profile, kernels, events: Arc::new(events), options })
    }

    /// What kernels may count on here.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn backend_name(&self) -> &str {
        &self.info.backend
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// One driver allocation.
    pub(crate) fn allocate_memory(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let (thread, limit) = (&self.shared.thread, self.shared.deadlines.allocate);
        thread.monitor().check(Phase::Allocate)?;
        if usage == Usage::Staging {
            let block = thread.call(Phase::Allocate, limit, move |s| s.allocate_host(bytes))?;
            return Ok(Buffer::new(Arc::new(Memory::host(&self.shared, block)), bytes, usage));
        }
        if bytes as u64 > self.info.limits.max_allocation {
            let (free, heap) = (self.info.memory, "device memory".to_string());
            let backend = self.info.backend.clone();
            return Err(Error::OutOfMemory { backend, asked: bytes as u64, free, heap });
        }
        let fill = match usage {
            Usage::State => Some(0),
            _ => self.options.poison_memory.then_some(POISON),
        };
        let events = self.events.clone();
        let block = thread.call(Phase::Allocate, limit, move |session| {
            let block = session.allocate(bytes)?;
            let filled = match fill {
                Some(byte) if bytes > 0 => {
                    session.fill(block, byte, bytes).and_then(|()| events.drain(session))
                }
                _ => Ok(()),
            };
            if let Err(error) = filled {
                if !crate::error::is_fatal(&error) {
                    session.free(block)?;
                }
                return Err(error);
            }
            Ok(block)
        })?;
        Ok(Buffer::new(Arc::new(Memory::device(&self.shared, block)), bytes, usage))
    }
}

impl Backend for HipBackend {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn deadlines(&self) -> &Deadlines {
        &self.shared.deadlines
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        if !matches!(graph.tensor(node).source, Source::Node { .. }) || graph.tensor(node).is_view() {
            return Support::Native;
        }
        for precision in [Precision::Exact, Precision::Fast] {
            let context = Context { graph, node, profile: &self.profile, precision };
            if let Err(Refusal(reason)) = self.kernels.plan(&context) {
                return Support::no(reason);
            }
        }
        Support::Native
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        WEIGHT_TYPES.contains(&dtype) && self.probe_weights(dtype).unwrap_or(false)
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let _span = phase::enter(Phase::Allocate, self.backend_name());
        self.allocate_memory(bytes, usage)
    }

    /// Never: file pages are no source of copies and no operands here (see the crate's documentation).
    fn import(&self, _bytes: MappedBytes) -> Result<Option<Buffer>> {
        Ok(None)
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.backend_name());
        buffer.check_range(offset, data.len())?;
        self.shared.upload(Phase::Upload, Memory::of(buffer, &self.shared)?, offset, data)
    }

    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, self.backend_name());
        buffer.check_range(offset, out.len())?;
        self.shared.download(Phase::Readback, Memory::of(buffer, &self.shared)?, offset, out)
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        let _span = phase::enter(Phase::Upload, self.backend_name());
        from.buffer.check_range(from.offset, bytes)?;
        to.buffer.check_range(to.offset, bytes)?;
        let (source, target) =
            (Memory::of(&from.buffer, &self.shared)?, Memory::of(&to.buffer, &self.shared)?);
        let (source_at, target_at) =
            (source.address() + from.offset as u64, target.address() + to.offset as u64);
        if source_at < target_at + bytes as u64 && target_at < source_at + bytes as u64 {
            return Err(Error::argument("copy", "source and destination overlap"));
        }
        let (from, to) = (source.place(from.offset), target.place(to.offset));
        self.shared
            .thread
            .call(Phase::Upload, self.shared.deadlines.transfer, move |s| s.copy(&to, &from, bytes))
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        _options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        let _span = phase::enter(Phase::Prepare, self.backend_name());
        self.shared.thread.monitor().check(Phase::Prepare)?;
        let prepared = prepare::prepare(self, graph, plan, bindings)?;
        let shared_arena = bindings.compute.is_some();
        let (events, breadcrumbs) = (&self.events, self.options.breadcrumbs);
        Ok(Box::new(HipProgram::new(&self.shared, events, breadcrumbs, graph, prepared, shared_arena)))
    }

    fn stats(&self) -> Stats {
        crate::thread::lock(&self.shared.stats).clone()
    }
}

impl HipBackend {
    /// Whether the smallest MUL_MAT and GET_ROWS of a weight type have kernels.
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
