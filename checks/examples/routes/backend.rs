//! A backend that computes as another one does, with a fault in its products or in all of its work.

use diptych::ggml::backend::{
    Backend, Bindings, Buffer, DeviceInfo, PrepareOptions, Program, Slice, Stats, Support, Timing, Usage,
};
use diptych::ggml::fuse::Group;
use diptych::ggml::mapped::MappedBytes;
use diptych::ggml::phase::Deadlines;
use diptych::ggml::plan::Plan;
use diptych::ggml::{Graph, Phase, TensorId};
use diptych::{DType, Error, Precision, Result};
use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A fault: what it does to the results of a program, and before each run.
pub(crate) struct Fault {
    /// Its name.
    pub(crate) name: &'static str,
    /// Changes a result; the length of the longest row of the operands says how large the program is.
    spoil: fn(&mut [f32], usize),
    /// Acts before a run.
    before: fn(&About) -> Result<()>,
}

/// A program, for its faults.
struct About {
    backend: String,
    /// Length of the longest row.
    row: usize,
    /// Name of the first product.
    product: Option<String>,
}

fn nothing(_: &mut [f32], _: usize) {}

fn fine(_: &About) -> Result<()> {
    Ok(())
}

/// Number of results so far, for those that differ from run to run.
static RESULTS: AtomicU32 = AtomicU32::new(0);

/// Row length from which a fault of large products shows.
const LARGE: usize = 4096;

/// Name of the fault that ends the process while a program is prepared.
const CRASH_EARLY: &str = "crash-early";

/// Name of the fault by which there is no memory for programs in the first process that has it.
const MEMORY_ONCE: &str = "memory-once";

/// Name of the fault by which programs of the first process that has it do not answer in time.
const LATE_ONCE: &str = "late-once";

/// Variable with the path of a file that the first process makes.
const SEEN: &str = "PLANTED_SEEN";

/// True in the first process.
static FIRST: OnceLock<bool> = OnceLock::new();

/// All faults.
pub(crate) const FAULTS: &[Fault] = &[
    Fault { name: "zeros", spoil: |values, _| values.fill(0.0), before: fine },
    Fault {
        name: "other-bits",
        spoil: |values, _| {
            let bits = RESULTS.fetch_add(1, Ordering::Relaxed) & 1;
            values.iter_mut().take(1).for_each(|x| *x = f32::from_bits(x.to_bits() ^ bits));
        },
        before: fine,
    },
    Fault {
        name: "large",
        spoil: |values, row| {
            let wrong = if row >= LARGE { values.len() / 2 } else { 0 };
            values.iter_mut().take(wrong).for_each(|x| *x = 0.0);
        },
        before: fine,
    },
    Fault {
        name: "lanes",
        spoil: |values, _| values.chunks_exact_mut(16).for_each(|lanes| lanes.swap(3, 4)),
        before: fine,
    },
    Fault {
        name: "nan-kept",
        spoil: |values, _| {
            values.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = 1.0);
        },
        before: fine,
    },
    Fault {
        name: "hang",
        spoil: nothing,
        before: |_| loop {
            std::thread::sleep(Duration::from_secs(1));
        },
    },
    Fault { name: CRASH_EARLY, spoil: nothing, before: fine },
    Fault { name: MEMORY_ONCE, spoil: nothing, before: fine },
    Fault { name: LATE_ONCE, spoil: nothing, before: fine },
    Fault { name: "crash", spoil: nothing, before: |_| std::process::abort() },
    Fault {
        name: "lost",
        spoil: nothing,
        before: |about| {
            Err(Error::DeviceLost {
                backend: about.backend.clone(),
                phase: Phase::Compute,
                node: about.product.clone(),
                reason: "planted".into(),
            })
        },
    },
    Fault {
        name: "slow",
        spoil: nothing,
        before: |about| {
            if about.row >= LARGE {
                std::thread::sleep(Duration::from_millis(500));
            }
            Ok(())
        },
    },
];

/// The faulty backend.
pub(crate) struct Faulty {
    inner: Arc<dyn Backend>,
    fault: &'static Fault,
}

impl Faulty {
    /// Plants a fault in a backend.
    pub(crate) fn new(inner: Arc<dyn Backend>, fault: &'static Fault) -> Faulty {
        Faulty { inner, fault }
    }
}

impl Backend for Faulty {
    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }
    fn deadlines(&self) -> &Deadlines {
        self.inner.deadlines()
    }
    fn supports(&self, graph: &Graph, node: TensorId) -> Support {
        self.inner.supports(graph, node)
    }
    fn joins(&self, graph: &Graph, group: &Group, precision: Precision) -> Support {
        self.inner.joins(graph, group, precision)
    }
    fn supports_weights(&self, dtype: DType) -> bool {
        self.inner.supports_weights(dtype)
    }
    fn allocate(&self, bytes: usize, usage: Usage) -> Result<Buffer> {
        self.inner.allocate(bytes, usage)
    }
    fn import(&self, bytes: MappedBytes) -> Result<Option<Buffer>> {
        self.inner.import(bytes)
    }
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<()> {
        self.inner.upload(buffer, offset, data)
    }
    fn download(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.inner.download(buffer, offset, out)
    }
    fn copy(&self, from: &Slice, to: &Slice, bytes: usize) -> Result<()> {
        self.inner.copy(from, to, bytes)
    }
    fn kernels(&self, graph: &Graph, plan: &Plan) -> Result<Vec<String>> {
        self.inner.kernels(graph, plan)
    }
    fn prepare(
        &self,
        graph: &Graph,
        plan: &Plan,
        bindings: &Bindings,
        options: PrepareOptions,
    ) -> Result<Box<dyn Program>> {
        if self.fault.name == CRASH_EARLY {
            std::process::abort();
        }
        let is_first = || std::env::var_os(SEEN).is_some_and(|path| File::create_new(path).is_ok());
        if self.fault.name == LATE_ONCE && *FIRST.get_or_init(is_first) {
            return Err(Error::Timeout {
                backend: self.inner.device().backend.clone(),
                phase: Phase::Compute,
                node: None,
                after: Duration::from_secs(1),
            });
        }
        if self.fault.name == MEMORY_ONCE && *FIRST.get_or_init(is_first) {
            return Err(Error::OutOfMemory {
                backend: self.inner.device().backend.clone(),
                heap: "planted".into(),
                asked: 1,
                free: None,
                driver: None,
            });
        }
        let inner = self.inner.prepare(graph, plan, bindings, options)?;
        let is_product = |id: &TensorId| graph.tensor(*id).op().is_some_and(|op| op.name() == "MUL_MAT");
        let about = About {
            backend: self.inner.device().backend.clone(),
            row: graph.ids().map(|id| graph.tensor(id).ne[0]).max().unwrap_or(0),
            product: graph.ids().find(is_product).map(|id| graph.tensor(id).name.clone()),
        };
        Ok(Box::new(FaultyProgram { inner, fault: self.fault, about }))
    }
    fn demote(&self, graph: &Graph, plan: &Plan, node: TensorId, error: &Error) -> Vec<String> {
        self.inner.demote(graph, plan, node, error)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

struct FaultyProgram {
    inner: Box<dyn Program>,
    fault: &'static Fault,
    about: About,
}

impl Program for FaultyProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        self.inner.write(tensor, data)
    }
    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        self.inner.read(tensor, out)?;
        let mut values: Vec<f32> = out.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
        (self.fault.spoil)(&mut values, self.about.row);
        out.copy_from_slice(bytemuck::cast_slice(&values));
        Ok(())
    }
    fn run(&mut self) -> Result<Timing> {
        let start = std::time::Instant::now();
        (self.fault.before)(&self.about)?;
        let timing = self.inner.run()?;
        Ok(Timing { host: start.elapsed().max(timing.host), ..timing })
    }
    fn run_step(&mut self, step: usize) -> Result<Timing> {
        self.inner.run_step(step)
    }
}
