//! What the time of a batch goes to: tables of steps by operation, by node and by layer, a trace for a viewer, and what the
//! device's memory could do.

use crate::session::{Profile, ProfiledStep};
use ggml_core::backend::{Backend, Slice, Usage};
use ggml_core::{Error, Result};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, Instant};

/// Bytes that a copy moves where there is room: caches hold no part of it that counts.
const COPIED: usize = 1 << 30;
/// How long copies are repeated.
const COPYING: Duration = Duration::from_millis(300);

/// Bytes a second that a device's own copies read and write, the best of several; `None` where too little memory is free.
///
/// # Errors
/// What the backend reports.
pub fn copy_bandwidth(backend: &dyn Backend) -> Result<Option<f64>> {
    let free = backend.free_memory().map_or(COPIED, |free| (free / 4).min(COPIED as u64) as usize);
    let bytes = free & !0xfff;
    if bytes < 1 << 20 {
        return Ok(None);
    }
    let buffers = [Usage::Compute, Usage::Compute].map(|usage| backend.allocate(bytes, usage));
    let [from, to] = match buffers {
        [Ok(from), Ok(to)] => [from, to].map(|buffer| Slice { buffer, offset: 0 }),
        [Err(Error::OutOfMemory { .. }), _] | [_, Err(Error::OutOfMemory { .. })] => return Ok(None),
        [Err(error), _] | [_, Err(error)] => return Err(error),
    };
    let copy = |times: usize| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..times {
            backend.copy(&from, &to, bytes)?;
        }
        // A copy may be under way when it returns; what is read after it is not.
        backend.download(&to.buffer, 0, &mut [0; 4])?;
        Ok(2.0 * (times * bytes) as f64 / start.elapsed().as_secs_f64().max(1e-9))
    };
    let (mut best, begun) = (copy(1)?, Instant::now());
    while begun.elapsed() < COPYING {
        best = copy(8)?.max(best);
    }
    Ok(Some(best))
}

/// Steps that have a name in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The operation, the node (of layer `*`), or the layer.
    pub name: String,
    /// How many steps.
    pub steps: usize,
    /// Seconds of all.
    pub seconds: f64,
    /// Bytes that they read and write at the least.
    pub bytes: f64,
}

/// What the time of a batch goes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// The measurement.
    pub profile: Profile,
    /// Bytes a second that the device's own copies read and write, where known.
    pub copy_bandwidth: Option<f64>,
    /// By operation or kind of group, the longest first.
    pub operations: Vec<Share>,
    /// By node, those of all layers together, the longest first.
    pub nodes: Vec<Share>,
    /// By layer, in order.
    pub layers: Vec<Share>,
}

/// Steps by name, in the order in which names come first.
fn shares(steps: &[ProfiledStep], name: impl Fn(&ProfiledStep) -> String) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for step in steps {
        let name = name(step);
        let at = shares.iter().position(|share| share.name == name).unwrap_or_else(|| {
            shares.push(Share { name, steps: 0, seconds: 0.0, bytes: 0.0 });
            shares.len() - 1
        });
        let share = &mut shares[at];
        (share.steps, share.seconds, share.bytes) =
            (share.steps + 1, share.seconds + step.seconds, share.bytes + step.bytes);
    }
    shares
}

fn longest_first(mut shares: Vec<Share>) -> Vec<Share> {
    shares.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    shares
}

/// A node's name without the number of its layer.
fn of_any_layer(name: &str) -> String {
    let parts = name.split('.').map(|part| match part.bytes().all(|b| b.is_ascii_digit()) {
        true => "*",
        false => part,
    });
    parts.collect::<Vec<_>>().join(".")
}

impl Breakdown {
    /// Of a measurement.
    pub fn new(profile: Profile, copy_bandwidth: Option<f64>) -> Breakdown {
        let steps = &profile.steps;
        let operations = longest_first(shares(steps, |step| step.kind.to_string()));
        let nodes =
            longest_first(shares(steps, |step| format!("{} {}", step.kind, of_any_layer(&step.node))));
        let layers = shares(steps, |step| step.unit.clone());
        Breakdown { operations, nodes, layers, profile, copy_bandwidth }
    }

    /// Seconds of all steps, one by one.
    fn seconds(&self) -> f64 {
        self.profile.steps.iter().map(|step| step.seconds).sum()
    }

    /// The steps one behind the other, in the JSON of trace viewers (the Trace Event Format of `chrome://tracing`).
    /// `process` names it.
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

    fn table(&self, f: &mut fmt::Formatter<'_>, title: &str, shares: &[Share]) -> fmt::Result {
        let all = self.seconds().max(1e-12);
        writeln!(
            f,
            "{title:40} {:>5} {:>10} {:>6} {:>9} {:>8} {:>6}",
            "steps", "us", "%", "MB", "GB/s", "copy"
        )?;
        for share in shares {
            let rate = share.bytes / share.seconds.max(1e-12);
            let of_copy =
                self.copy_bandwidth.map_or(String::new(), |copy| format!("{:.0} %", 100.0 * rate / copy));
            writeln!(
                f,
                "{:40} {:5} {:10.1} {:6.1} {:9.2} {:8.1} {of_copy:>6}",
                share.name,
                share.steps,
                share.seconds * 1e6,
                100.0 * share.seconds / all,
                share.bytes / 1e6,
                rate / 1e9
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Breakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, whole) = (self.seconds() * 1e6, self.profile.whole * 1e6);
        let whose = if self.profile.on_device { "device" } else { "host" };
        let Profile { tokens, positions, .. } = self.profile;
        write!(f, "{tokens} tokens that look at {positions} positions: {whole:.1} us as it ships, ")?;
        writeln!(f, "{} steps one by one {all:.1} us ({whose} time)", self.profile.steps.len())?;
        if let Some(copy) = self.copy_bandwidth {
            writeln!(f, "a copy on the device reads and writes {:.1} GB/s", copy / 1e9)?;
        }
        self.table(f, "operation", &self.operations)?;
        self.table(f, "node", &self.nodes)?;
        self.table(f, "layer", &self.layers)
    }
}
