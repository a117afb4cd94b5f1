//! The `null` backend: accepts everything, computes nothing, and fails, hangs or crashes on request.
//!
//! It shows that the [`Backend`] trait can be implemented in a few lines and lets callers test how they
//! handle a misbehaving device. Every result is zero.

use crate::backend::{
    Backend, Bindings, Buffer, DeviceInfo, DeviceMemory, Limits, PrepareOptions, Program, Slice, Stats,
    Support, Timing, Usage,
};
use crate::dtype::DType;
use crate::error::{Error, Phase, Result};
use crate::graph::Graph;
use crate::mapped::MappedBytes;
use crate::phase::{self, Deadlines};
use crate::plan::Plan;
use crate::routes::Identity;
use crate::tensor::TensorId;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const NAME: &str = "null";

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The call returns [`Error::Injected`].
    Fail,
    /// The call sleeps until its deadline, then returns [`Error::Timeout`].
    Hang,
    /// The call sleeps past every deadline, like a driver that never returns. It ends after a day, so that a
    /// test ends.
    Stuck,
    /// The process is killed by a signal such as SIGABRT, as by a crashing driver. The backend itself never
    /// does that: it calls [`NullOptions::crash`], which the caller provides.
    Crash,
}

/// A requested failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Phase in which it occurs.
    pub phase: Phase,
    /// Part of the name of the node at which it occurs; only for the compute phases. `None`: immediately.
    pub node: Option<String>,
    /// Kind of failure.
    pub kind: FaultKind,
}

impl Fault {
    /// Parses "kind@phase" or "kind@phase:node"; the kinds are `fail`, `hang`, `stuck` and `crash`.
    pub fn parse(text: &str) -> Result<Fault> {
        let wrong = |expected: &str| Error::argument("fault", format!("'{text}'"), expected);
        let (kind, place) = text.split_once('@').ok_or_else(|| wrong("kind@phase[:node]"))?;
        let kind = match kind {
            "fail" => FaultKind::Fail,
            "hang" => FaultKind::Hang,
            "stuck" => FaultKind::Stuck,
            "crash" => FaultKind::Crash,
            _ => return Err(wrong("the kind fail, hang, stuck or crash")),
        };
        let (phase, node) = match place.split_once(':') {
            Some((phase, node)) => (phase, Some(node.to_string())),
            None => (place, None),
        };
        let phase = Phase::from_name(phase).ok_or_else(|| wrong("the name of a phase"))?;
        Ok(Fault { phase, node, kind })
    }
}

/// Options of [`NullBackend::open`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NullOptions {
    /// Requested failure, if any.
    pub fault: Option<Fault>,
    /// Deadlines.
    pub deadlines: Deadlines,
    /// Bytes of memory that the device reports. Allocations are not limited by it.
    pub memory: Option<u64>,
    /// Bytes of the largest buffer; `None`: any length.
    pub largest_buffer: Option<u64>,
    /// True if the device says that its memory is the host's.
    pub unified: bool,
    /// Function called for [`FaultKind::Crash`]. Without it, that fault acts as [`FaultKind::Fail`].
    pub crash: Option<fn()>,
}

crate::setters!(NullOptions {
    with_fault => fault: impl Into<Option<Fault>>,
    with_deadlines => deadlines: Deadlines,
    with_memory => memory: impl Into<Option<u64>>,
    with_largest_buffer => largest_buffer: impl Into<Option<u64>>,
    with_unified => unified: bool,
    with_crash => crash: impl Into<Option<fn()>>,
});

/// The null backend.
#[derive(Debug)]
pub struct NullBackend {
    shared: Arc<Shared>,
    device: DeviceInfo,
}

#[derive(Debug)]
struct Shared {
    options: NullOptions,
    stats: Mutex<Stats>,
}

/// Memory without bytes: only its size is counted.
#[derive(Debug)]
struct Nothing {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Nothing {
    fn drop(&mut self) {
        self.shared.count(|s| s.allocated_bytes = s.allocated_bytes.saturating_sub(self.bytes));
    }
}

impl DeviceMemory for Nothing {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Triggers the fault if it matches the phase and node.
    fn fault(&self, phase: Phase, node: Option<&str>) -> Result<()> {
        let Some(fault) = &self.options.fault else { return Ok(()) };
        let here = match (&fault.node, node) {
            (None, _) => true,
            (Some(wanted), Some(name)) => name.contains(wanted.as_str()),
            (Some(_), None) => false,
        };
        if fault.phase != phase || !here {
            return Ok(());
        }
        let (backend, node) = (NAME.to_string(), node.map(str::to_string));
        match fault.kind {
            FaultKind::Hang => {
                let after = self.options.deadlines.of(phase);
                std::thread::sleep(after);
                Err(Error::Timeout { backend, phase, node, after })
            }
            FaultKind::Stuck => {
                std::thread::sleep(Duration::from_secs(86_400));
                Err(Error::Injected { backend, phase, node })
            }
            FaultKind::Crash => {
                if let Some(crash) = self.options.crash {
                    crash();
                }
                Err(Error::Injected { backend, phase, node })
            }
            FaultKind::Fail => Err(Error::Injected { backend, phase, node }),
        }
    }
}

impl NullBackend {
    /// Opens the backend. It passes through the opening phases, so that each can fail.
    pub fn open(options: NullOptions) -> Result<NullBackend> {
        let (memory, unified) = (options.memory, options.unified);
        let largest = options.largest_buffer.unwrap_or(u64::MAX);
        let shared = Arc::new(Shared { options, stats: Mutex::default() });
        for phase in [Phase::LoadRuntime, Phase::Enumerate, Phase::OpenDevice] {
            let _span = phase::enter(phase, NAME);
            shared.fault(phase, None)?;
        }
        let device = DeviceInfo {
            backend: NAME.into(),
            name: "nothing".into(),
            driver: "diptych".into(),
            versions: vec![("diptych".into(), env!("CARGO_PKG_VERSION").into())],
            arch: "NONE".into(),
            uuid: None,
            memory,
            unified,
            features: Vec::new(),
            overrides: Vec::new(),
            limits: Limits { max_allocation: largest, max_binding: u64::MAX, alignment: 64 },
            routes: Vec::new(),
            candidates: Vec::new(),
            identity: Identity::default(),
        };
        Ok(NullBackend { shared, device })
    }
}

impl Backend for NullBackend {
    fn device(&self) -> &DeviceInfo {
        &self.device
    }

    fn deadlines(&self) -> &Deadlines {
        &self.shared.options.deadlines
    }

    fn supports(&self, _graph: &Graph, _node: TensorId) -> Support {
        Support::Native
    }

    fn supports_weights(&self, _dtype: DType) -> bool {
        true
    }

    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        let _span = phase::enter(Phase::Allocate, NAME);
        self.shared.fault(Phase::Allocate, None)?;
        if bytes as u64 > self.device.limits.max_allocation {
            let heap = format!("buffers of at most {} bytes", self.device.limits.max_allocation);
            let (backend, free) = (NAME.into(), self.free_memory());
            return Err(Error::OutOfMemory { backend, asked: bytes as u64, free, heap, driver: None });
        }
        self.shared.count(|s| {
            s.driver_allocations += 1;
            s.allocated_bytes += bytes as u64;
        });
        let memory = Nothing { shared: self.shared.clone(), bytes: bytes as u64 };
        Ok(Buffer::new(Arc::new(memory), bytes, usage))
    }

    fn import(&self, _bytes: MappedBytes) -> Result<Option<Buffer>> {
        Ok(None)
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, NAME);
        buffer.check_range(offset, data.len())?;
        self.shared.fault(Phase::Upload, None)?;
        // Reads a byte of each page, as a copy would.
        std::hint::black_box(data.iter().step_by(4096).fold(0, |sum, byte| sum ^ byte));
        self.shared.count(|s| s.uploaded_bytes += data.len() as u64);
        Ok(())
    }

    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, NAME);
        buffer.check_range(offset, out.len())?;
        self.shared.fault(Phase::Readback, None)?;
        out.fill(0);
        Ok(())
    }

    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        from.buffer.check_range(from.offset, bytes)?;
        to.buffer.check_range(to.offset, bytes)
    }

    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        _bindings: &Bindings,
        _options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        for phase in [Phase::Prepare, Phase::Compile] {
            let _span = phase::enter(phase, NAME);
            self.shared.fault(phase, None)?;
        }
        self.shared.count(|s| {
            s.programs += 1;
            s.recordings += 1;
        });
        let nodes = plan.steps.iter().map(|step| graph.tensor(step.node()).name.clone()).collect();
        Ok(Box::new(NullProgram { shared: self.shared.clone(), nodes, ran: false }))
    }

    fn stats(&self) -> Stats {
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct NullProgram {
    shared: Arc<Shared>,
    nodes: Vec<String>,
    ran: bool,
}

impl NullProgram {
    fn phase(&self) -> Phase {
        if self.ran { Phase::Compute } else { Phase::FirstCompute }
    }
}

impl Program for NullProgram {
    fn write(&mut self, _tensor: TensorId, _data: &[u8]) -> Result<()> {
        let _span = phase::enter(Phase::Upload, NAME);
        self.shared.fault(Phase::Upload, None)
    }

    fn read(&mut self, _tensor: TensorId, out: &mut [u8]) -> Result<()> {
        let _span = phase::enter(Phase::Readback, NAME);
        self.shared.fault(Phase::Readback, None)?;
        out.fill(0);
        Ok(())
    }

    fn run(&mut self) -> Result<Timing> {
        let _span = phase::enter(self.phase(), NAME);
        let start = Instant::now();
        for node in &self.nodes {
            self.shared.fault(self.phase(), Some(node))?;
        }
        self.ran = true;
        self.shared.count(|s| s.submissions += 1);
        Ok(Timing { host: start.elapsed(), device: None })
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        let _span = phase::enter(self.phase(), NAME);
        let start = Instant::now();
        let node = self
            .nodes
            .get(step)
            .ok_or_else(|| Error::argument("step", step, format!("below {}", self.nodes.len())))?;
        self.shared.fault(self.phase(), Some(node))?;
        if step + 1 == self.nodes.len() {
            self.ran = true;
        }
        Ok(Timing { host: start.elapsed(), device: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::Precision;
    use crate::tensor::Source;

    fn program(fault: &str, limit: Duration) -> Result<Box<dyn Program>> {
        let options =
            NullOptions::default().with_fault(Fault::parse(fault)?).with_deadlines(Deadlines::all(limit));
        let backend = NullBackend::open(options)?;
        let mut g = Graph::new();
        let x = g.leaf("x", DType::F32, [4, 1, 1, 1], Source::Input)?;
        let y = g.rms_norm(x, 1e-5)?;
        g.name(y, "first")?;
        let z = g.scale(y, 1.0, 0.0)?;
        g.name(z, "second")?;
        g.output(z).unwrap();
        let plan = Plan::new(&g, 64, Precision::Exact)?;
        backend.prepare(&g, &plan, &Bindings::default(), PrepareOptions::default())
    }

    #[test]
    fn faults_happen_where_they_are_asked_for() {
        let limit = Duration::from_millis(20);
        for phase in ["load_runtime", "enumerate", "open_device", "prepare", "compile"] {
            let error = program(&format!("fail@{phase}"), limit).err().expect(phase);
            assert_eq!(error.phase(), Phase::from_name(phase));
        }
        let error = program("fail@first_compute:second", limit).unwrap().run().unwrap_err();
        assert_eq!((error.phase(), error.node()), (Some(Phase::FirstCompute), Some("second")));
        let mut later = program("hang@compute:first", limit).unwrap();
        later.run().unwrap();
        let error = later.run().unwrap_err();
        assert!(matches!(error, Error::Timeout { after, .. } if after == limit));
        for wrong in ["fail", "fail@nowhere", "explode@compute"] {
            assert!(Fault::parse(wrong).is_err());
        }
    }
}
