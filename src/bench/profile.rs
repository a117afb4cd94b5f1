//! Breakdown of a batch's time: tables of steps by operation, by node and by layer, a trace for a viewer, and
//! the bandwidth of the device's memory.

use crate::session::{Profile, ProfiledStep};
use ggml_core::backend::{Backend, Bindings, Buffer, PrepareOptions, Slice, Usage};
use ggml_core::plan::Plan;
use ggml_core::precision::Precision;
use ggml_core::{DType, Error, Graph, Result, Source, TensorId};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::Instant;

/// Bytes of the first copy that is measured; each following copy is four times as large.
const FIRST: usize = 16 << 20;
/// The most bytes of a copy, large enough that caches do not matter.
const MOST: usize = 1 << 30;
/// Seconds of a copy that are long enough for a good measurement.
const LONG: f64 = 0.005;
/// Elements per row of the copied tensors.
const ROW: usize = 4096;

/// Measures the bytes per second that a copy on a device reads and writes, by a kernel or by the driver's own
/// copy, whichever is faster. Returns `None` if too little memory is free.
///
/// # Errors
/// Any error of the backend.
pub fn copy_bandwidth(backend: &dyn Backend) -> Result<Option<f64>> {
    let most = backend
        .free_memory()
        .map_or(MOST as u64, |free| free / 4)
        .min(backend.device().limits.max_allocation);
    let most = most.min(MOST as u64) as usize;
    let (mut rate, mut bytes) = (None, FIRST);
    while bytes <= most {
        let Some(seconds) = copy_time(backend, bytes)? else { break };
        rate = Some(2.0 * bytes as f64 / seconds.max(1e-9));
        if seconds >= LONG {
            break;
        }
        bytes *= 4;
    }
    Ok(rate)
}

/// Returns the seconds of a copy of `bytes` bytes, the best of several; `None` if memory is too small for it.
fn copy_time(backend: &dyn Backend, bytes: usize) -> Result<Option<f64>> {
    let mut buffers = Vec::new();
    for _ in 0..2 {
        match backend.allocate(bytes, Usage::State) {
            Ok(buffer) => buffers.push(buffer),
            Err(Error::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let (mut graph, mut bindings) = (Graph::new(), Bindings::default());
    // The window of an operand is limited, so each node copies a piece; half of the limit leaves room for alignment.
    let largest = (backend.device().limits.max_binding / 2).min(FIRST as u64) as usize;
    let piece = (largest / (4 * ROW)).max(1) * 4 * ROW;
    for offset in (0..bytes).step_by(piece) {
        let ne = [ROW, piece.min(bytes - offset) / (4 * ROW), 1, 1];
        let mut leaf = |name: &str, buffer: &Buffer| -> Result<TensorId> {
            let id = graph.leaf(&format!("{name}-{offset}"), DType::F32, ne, Source::State)?;
            bindings.leaves.insert(id, Slice { buffer: buffer.clone(), offset });
            Ok(id)
        };
        let (from, to) = (leaf("from", &buffers[0])?, leaf("to", &buffers[1])?);
        graph.cpy(from, to)?;
    }
    let plan = Plan::new(&graph, &backend.device().limits, Precision::Exact)?;
    let mut program = backend.prepare(&graph, &plan, &bindings, PrepareOptions::default())?;
    let [from, to] = [0, 1].map(|i| Slice { buffer: buffers[i].clone(), offset: 0 });
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let timing = program.run()?;
        best = best.min(timing.device.unwrap_or(timing.host).as_secs_f64());
        let start = Instant::now();
        backend.copy(&from, &to, bytes)?;
        // `copy` may return while the copy is in flight; the download waits for it.
        backend.download(&to.buffer, 0, &mut [0; 4])?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(Some(best))
}

/// Steps with a common name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepTotal {
    /// Name of the operation, of the node (with `*` for the layer), or of the layer.
    pub name: String,
    /// Number of steps.
    pub steps: usize,
    /// Total seconds of the steps.
    pub seconds: f64,
    /// Minimum of the bytes they read and write.
    pub bytes: f64,
}

/// Time of a batch, divided by operation, node and layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// The measurement.
    pub profile: Profile,
    /// Bytes per second that the device's own copies read and write, if known.
    pub copy_bandwidth: Option<f64>,
    /// Totals by operation or kind of group, the longest first.
    pub operations: Vec<StepTotal>,
    /// Totals by node, the same node of all layers combined, the longest first.
    pub nodes: Vec<StepTotal>,
    /// Totals by layer, in layer order.
    pub layers: Vec<StepTotal>,
}

/// Sums steps by name, in order of first occurrence.
fn totals(steps: &[ProfiledStep], name: impl Fn(&ProfiledStep) -> String) -> Vec<StepTotal> {
    let mut totals: Vec<StepTotal> = Vec::new();
    for step in steps {
        let name = name(step);
        let at = totals.iter().position(|total| total.name == name).unwrap_or_else(|| {
            totals.push(StepTotal { name, steps: 0, seconds: 0.0, bytes: 0.0 });
            totals.len() - 1
        });
        let total = &mut totals[at];
        (total.steps, total.seconds, total.bytes) =
            (total.steps + 1, total.seconds + step.seconds, total.bytes + step.bytes);
    }
    totals
}

fn longest_first(mut totals: Vec<StepTotal>) -> Vec<StepTotal> {
    totals.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    totals
}

/// Replaces the layer index in a node's name by `*`.
fn of_any_layer(name: &str) -> String {
    let parts = name.split('.').map(|part| match part.bytes().all(|b| b.is_ascii_digit()) {
        true => "*",
        false => part,
    });
    parts.collect::<Vec<_>>().join(".")
}

impl Breakdown {
    /// Builds the breakdown of a measurement.
    pub fn new(profile: Profile, copy_bandwidth: Option<f64>) -> Breakdown {
        let steps = &profile.steps;
        let operations = longest_first(totals(steps, |step| step.kind.to_string()));
        let nodes =
            longest_first(totals(steps, |step| format!("{} {}", step.kind, of_any_layer(&step.node))));
        let layers = totals(steps, |step| step.unit.clone());
        Breakdown { operations, nodes, layers, profile, copy_bandwidth }
    }

    /// Returns the total seconds of all steps, measured one by one.
    fn seconds(&self) -> f64 {
        self.profile.steps.iter().map(|step| step.seconds).sum()
    }

    /// Returns the steps, one after the other, as JSON for trace viewers (the Trace Event Format of
    /// `chrome://tracing`). `process` is the name of the process in the trace.
    pub fn trace(&self, process: &str) -> Vec<Value> {
        let name = format!("{process}, {} tokens", self.profile.tokens);
        let id = self.profile.tokens;
        let mut events = vec![json!({"ph": "M", "name": "process_name", "pid": id, "args": {"name": name}})];
        let mut at = 0.0;
        for step in &self.profile.steps {
            let microseconds = step.seconds * 1e6;
            events.push(json!({
                "ph": "X", "name": format!("{} {}", step.kind, step.node), "cat": step.unit, "pid": id, "tid": 1,
                "ts": at, "dur": microseconds,
                "args": {"bytes": step.bytes, "flops": step.flops, "unit": step.unit},
            }));
            at += microseconds;
        }
        events
    }

    fn table(&self, f: &mut fmt::Formatter<'_>, title: &str, totals: &[StepTotal]) -> fmt::Result {
        let all = self.seconds().max(1e-12);
        writeln!(
            f,
            "{title:40} {:>5} {:>10} {:>6} {:>9} {:>8} {:>6}",
            "steps", "us", "%", "MB", "GB/s", "copy"
        )?;
        for total in totals {
            let rate = total.bytes / total.seconds.max(1e-12);
            let of_copy =
                self.copy_bandwidth.map_or(String::new(), |copy| format!("{:.0} %", 100.0 * rate / copy));
            writeln!(
                f,
                "{:40} {:5} {:10.1} {:6.1} {:9.2} {:8.1} {of_copy:>6}",
                total.name,
                total.steps,
                total.seconds * 1e6,
                100.0 * total.seconds / all,
                total.bytes / 1e6,
                rate / 1e9
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Breakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, program) = (self.seconds() * 1e6, self.profile.whole * 1e6);
        let clock = if self.profile.on_device { "device" } else { "host" };
        let Profile { tokens, positions, .. } = self.profile;
        write!(f, "{tokens} tokens attending to {positions} positions: {program:.1} us as one program, ")?;
        writeln!(f, "{} steps one by one {all:.1} us ({clock} time)", self.profile.steps.len())?;
        if let Some(copy) = self.copy_bandwidth {
            writeln!(f, "a copy on the device reads and writes {:.1} GB/s", copy / 1e9)?;
        }
        self.table(f, "operation", &self.operations)?;
        self.table(f, "node", &self.nodes)?;
        self.table(f, "layer", &self.layers)
    }
}
