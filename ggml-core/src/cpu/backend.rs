//! The CPU backend: device, memory and program preparation.

use super::crew::Crew;
use super::isa::{Detected, Isa};
use super::memory::{ALIGNMENT, HostMemory};
use super::program::{CpuProgram, Engine};
use super::{NAME, SharedStats, host, op};
use crate::backend::{
    Backend, Bindings, Buffer, DeviceInfo, Limits, PrepareOptions, Program, Slice, Stats, Support, Usage,
};
use crate::dtype::DType;
use crate::error::{Error, Missing, Phase, Result};
use crate::fuse::Group;
use crate::graph::Graph;
use crate::mapped::MappedBytes;
use crate::phase::{self, Deadlines};
use crate::plan::Plan;
use crate::precision::Precision;
use crate::routes::Identity;
use crate::tensor::TensorId;
use std::sync::Arc;

/// Maximum number of threads per processor.
const THREADS_PER_PROCESSOR: usize = 4;

/// Options of [`CpuBackend::open`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CpuOptions {
    /// Number of threads; the number of processors if `None`. Limited to 4 threads per processor.
    pub threads: Option<usize>,
    /// Instruction set; the best one that the machine supports if `None`.
    pub isa: Option<Isa>,
    /// Deadlines.
    pub deadlines: Deadlines,
}

crate::setters!(CpuOptions {
    with_threads => threads: impl Into<Option<usize>>,
    with_isa => isa: impl Into<Option<Isa>>,
    with_deadlines => deadlines: Deadlines,
});

/// CPU backend.
#[derive(Debug)]
pub struct CpuBackend {
    device: DeviceInfo,
    engine: Arc<Engine>,
}

impl CpuBackend {
    /// Opens the backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the machine does not support the wanted instruction set, is big-endian (GGUF
    /// files are little-endian), or cannot start the threads; [`Error::InvalidArgument`] for 0 threads.
    pub fn open(options: CpuOptions) -> Result<CpuBackend> {
        let _span = phase::enter(Phase::OpenDevice, NAME);
        if cfg!(target_endian = "big") {
            return Err(unavailable("tensors are little-endian and are read in place".into()));
        }
        let detected = Detected::new(options.isa)?;
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = threads(options.threads, processors)?;
        let crew = match threads {
            1 => None,
            _ => Some(
                Crew::new(threads - 1)
                    .map_err(|e| unavailable(format!("{threads} threads cannot be had: {e}")))?,
            ),
        };
        let device = device(detected.isa(), threads, &options);
        let stats = SharedStats::default();
        let engine = Engine { detected, threads, crew, deadlines: options.deadlines, stats };
        Ok(CpuBackend { device, engine: Arc::new(engine) })
    }
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { backend: NAME.into(), phase: Phase::OpenDevice, missing: Missing::Feature, reason }
}

/// Returns the number of threads to start. Excess threads are cut with a warning, because each thread needs
/// memory and a hundred thousand would exhaust it.
fn threads(wanted: Option<usize>, processors: usize) -> Result<usize> {
    let most = processors.saturating_mul(THREADS_PER_PROCESSOR);
    match wanted {
        None => Ok(processors),
        Some(0) => Err(Error::argument("threads", 0, "at least 1")),
        Some(wanted) if wanted > most => {
            tracing::warn!(wanted, most, "more threads than the processors can use; fewer are started");
            Ok(most)
        }
        Some(wanted) => Ok(wanted),
    }
}

fn device(isa: Isa, threads: usize, options: &CpuOptions) -> DeviceInfo {
    let forced = [
        options.isa.map(|i| ("isa".to_string(), i.name().to_string())),
        options.threads.map(|_| ("threads".to_string(), threads.to_string())),
    ];
    let available: Vec<&str> = Isa::ALL.into_iter().filter(|i| i.available()).map(Isa::name).collect();
    DeviceInfo {
        backend: NAME.into(),
        name: host::processor().unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH)),
        driver: "diptych".into(),
        versions: vec![("diptych".into(), env!("CARGO_PKG_VERSION").into())],
        arch: "CPU".into(),
        uuid: None,
        memory: host::total_memory(),
        unified: true,
        features: vec![
            ("isa".into(), isa.name().into()),
            ("isa_available".into(), available.join(" ")),
            ("threads".into(), threads.to_string()),
        ],
        overrides: forced.into_iter().flatten().collect(),
        limits: Limits {
            max_allocation: isize::MAX as u64,
            max_binding: isize::MAX as u64,
            alignment: ALIGNMENT,
        },
        routes: Vec::new(),
        candidates: Vec::new(),
        identity: Identity::default(),
    }
}

impl Backend for CpuBackend {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn deadlines(&self) -> &Deadlines {
        &self.engine.deadlines
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        self.joins(graph, &Group::Node(node), Precision::Fast)
    }

    fn joins(&self, graph: &Graph, group: &Group, precision: Precision) -> Support {
        match op::plan(graph, group, precision, self.engine.detected) {
            Ok(_) => Support::Native,
            Err(reason) => Support::Unsupported { reason },
        }
    }

    fn supports_weights(&self, dtype: DType) -> bool {
        super::dot::has_weight(dtype)
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let _span = phase::enter(Phase::Allocate, NAME);
        Ok(Buffer::new(Arc::new(HostMemory::allocate(bytes, &self.engine.stats)?), bytes, usage))
    }

    fn import(&self, bytes: MappedBytes) -> Result<Option<Buffer>> {
        let len = bytes.len();
        Ok(Some(Buffer::new(Arc::new(HostMemory::mapped(bytes)), len, Usage::Weights)))
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, NAME);
        HostMemory::of(buffer)?.write(offset, data, self.engine.deadlines.transfer)?;
        self.engine.stats.change(|s| s.uploaded_bytes += data.len() as u64);
        Ok(())
    }

    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, NAME);
        HostMemory::of(buffer)?.read(offset, out, self.engine.deadlines.transfer)
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        let (source, target) = (HostMemory::of(&from.buffer)?, HostMemory::of(&to.buffer)?);
        HostMemory::copy((source, from.offset), (target, to.offset), bytes, self.engine.deadlines.transfer)
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        let _span = phase::enter(Phase::Prepare, NAME);
        Ok(Box::new(CpuProgram::new(self.engine.clone(), graph, plan, bindings, options)?))
    }

    fn free_memory(&self) -> Option<u64> {
        host::available_memory()
    }

    fn stats(&self) -> Stats {
        self.engine.stats.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_as_many_as_processors_can_use() {
        assert_eq!(threads(None, 6).unwrap(), 6);
        assert_eq!(threads(Some(24), 6).unwrap(), 24);
        assert_eq!(threads(Some(25), 6).unwrap(), 24);
        assert_eq!(threads(Some(100_000), 1).unwrap(), 4);
        assert_eq!(threads(Some(usize::MAX), usize::MAX).unwrap(), usize::MAX);
        let error = threads(Some(0), 6).unwrap_err();
        assert_eq!(error.to_string(), "threads: 0; expected at least 1");
    }

    #[test]
    fn the_device_says_how_many_threads_there_are() {
        let processors = std::thread::available_parallelism().unwrap().get();
        let options = CpuOptions::default().with_threads(4 * processors + 1);
        let backend = CpuBackend::open(options).unwrap();
        let said = ("threads".to_string(), (4 * processors).to_string());
        assert_eq!(backend.engine.threads, 4 * processors);
        assert!(backend.device().features.contains(&said) && backend.device().overrides.contains(&said));
    }
}
