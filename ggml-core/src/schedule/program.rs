//! The program of a split graph.

use super::{Segment, Split};
use crate::backend::{Backend, Bindings, PrepareOptions, Program, Timing};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::tensor::{Source, TensorId};
use std::collections::HashMap;
use std::ops::Range;

/// A device of a split graph.
#[derive(Clone, Copy)]
pub struct SplitDevice<'a> {
    /// The backend.
    pub backend: &'a dyn Backend,
    /// Location of weights and state on the device, by tensor of the whole graph, and the arena that its
    /// segments share.
    pub bindings: &'a Bindings,
}

/// Host copy of a tensor that is passed from a segment or from the caller to segments.
struct Carried {
    bytes: Vec<u8>,
    /// Incremented at each change.
    version: u64,
}

/// An input of a segment.
struct Feed {
    local: TensorId,
    root: TensorId,
    /// Version that the program last received.
    version: u64,
}

struct Running {
    program: Box<dyn Program>,
    /// Its steps among those of all segments.
    steps: Range<usize>,
    feeds: Vec<Feed>,
    /// Outputs of the whole graph that are read as soon as the segment has run, because programs that share
    /// an arena may overwrite each other's results.
    outputs: Vec<(TensorId, TensorId)>,
}

/// A program whose steps run on several devices; tensors are named by their ids in the whole graph.
///
/// The contents of inputs and of tensors that cross boundaries are held on the host. Nothing is allocated
/// when it runs.
pub struct SplitProgram {
    split: Split,
    running: Vec<Running>,
    carried: HashMap<TensorId, Carried>,
    results: HashMap<TensorId, Vec<u8>>,
    /// True if segments share an arena.
    shared: bool,
}

impl SplitProgram {
    /// Prepares every segment of a split. `plans` are those of [`Split::plans`]; `devices` are by index.
    ///
    /// # Errors
    /// Errors of the backends; [`Error::InvalidArgument`] if a device or a plan is missing.
    pub fn prepare(
        split: Split,
        plans: &[Plan],
        devices: &[SplitDevice<'_>],
        options: PrepareOptions,
    ) -> Result<SplitProgram> {
        let missing = || Error::argument("split graph", "missing", "a device and a plan for each segment");
        let mut shared = false;
        let mut running = Vec::new();
        for (i, segment) in split.segments.iter().enumerate() {
            let device = devices.get(segment.device).ok_or_else(missing)?;
            let bindings = local_bindings(segment, device.bindings);
            shared |= !bindings.compute.is_empty();
            let plan = plans.get(i).ok_or_else(missing)?;
            let program = device.backend.prepare(&segment.graph, plan, &bindings, options)?;
            let feed = |&(local, root): &(TensorId, TensorId)| Feed { local, root, version: 0 };
            let outputs = split.outputs.iter().filter_map(|&id| {
                let (home, local) = split.find(id)?;
                (home == i).then_some((local, id))
            });
            let first = running.last().map_or(0, |before: &Running| before.steps.end);
            running.push(Running {
                program,
                steps: first..first + plan.steps.len(),
                feeds: segment.feeds.iter().map(feed).collect(),
                outputs: outputs.collect(),
            });
        }
        let (carried, results) = host_memory(&split, shared);
        Ok(SplitProgram { split, running, carried, results, shared })
    }

    /// Returns the segments.
    pub fn segments(&self) -> &[Segment] {
        &self.split.segments
    }

    /// Writes the inputs of a segment that changed since its program received them.
    fn deliver(&mut self, segment: usize) -> Result<()> {
        let Running { program, feeds, .. } = &mut self.running[segment];
        for feed in feeds {
            let Some(carried) = self.carried.get(&feed.root) else { continue };
            if self.shared || feed.version != carried.version {
                program.write(feed.local, &carried.bytes)?;
                feed.version = carried.version;
            }
        }
        Ok(())
    }

    /// Reads the results of a segment that has run, for later segments and for the caller.
    fn collect(&mut self, segment: usize) -> Result<()> {
        let Running { program, outputs, .. } = &mut self.running[segment];
        for &(local, root) in &self.split.segments[segment].gives {
            if let Some(carried) = self.carried.get_mut(&root) {
                program.read(local, &mut carried.bytes)?;
                carried.version += 1;
            }
        }
        for (local, id) in outputs {
            if let Some(result) = self.results.get_mut(id) {
                program.read(*local, result)?;
            }
        }
        Ok(())
    }
}

/// Selects a segment's bindings from those of its device.
fn local_bindings(segment: &Segment, all: &Bindings) -> Bindings {
    let leaves = all.leaves.iter().filter_map(|(&id, slice)| Some((segment.local(id)?, slice.clone())));
    Bindings { leaves: leaves.collect(), compute: all.compute.clone() }
}

type HostMemory = (HashMap<TensorId, Carried>, HashMap<TensorId, Vec<u8>>);

/// Allocates host memory for the carried tensors, and for the results of segments that share an arena.
fn host_memory(split: &Split, shared: bool) -> HostMemory {
    let mut carried = HashMap::new();
    for segment in &split.segments {
        for &(local, root) in &segment.feeds {
            let bytes = segment.graph.tensor(local).dense_bytes();
            carried.entry(root).or_insert_with(|| Carried { bytes: vec![0; bytes], version: 0 });
        }
    }
    let outputs = split.outputs.iter().filter(|_| shared);
    let room = |&id: &TensorId| {
        let (segment, local) = split.find(id)?;
        Some((id, vec![0; split.segments[segment].graph.tensor(local).dense_bytes()]))
    };
    (carried, outputs.filter_map(room).collect())
}

fn unknown(id: TensorId) -> Error {
    Error::argument("tensor", id.0, "one of a segment of the graph")
}

fn other_size(id: TensorId, found: usize, expected: usize) -> Error {
    Error::argument(format!("tensor {}", id.0), format!("{found} bytes"), format!("{expected} bytes"))
}

impl Program for SplitProgram {
    fn write(&mut self, tensor: TensorId, data: &[u8]) -> Result<()> {
        let mut known = false;
        if let Some(carried) = self.carried.get_mut(&tensor) {
            if carried.bytes.len() != data.len() {
                return Err(other_size(tensor, data.len(), carried.bytes.len()));
            }
            carried.bytes.copy_from_slice(data);
            carried.version += 1;
            known = true;
        }
        // The tensor is a segment's state or, under a debug plan, a node.
        if let Some((segment, local)) = self.split.find(tensor)
            && self.split.segments[segment].graph.tensor(local).source != Source::Input
        {
            self.running[segment].program.write(local, data)?;
            known = true;
        }
        // An input that no node reads.
        let unused = self.split.roots.get(tensor.index()) == Some(&tensor);
        if known || unused { Ok(()) } else { Err(unknown(tensor)) }
    }

    fn read(&mut self, tensor: TensorId, out: &mut [u8]) -> Result<()> {
        if let Some(result) = self.results.get(&tensor) {
            if result.len() != out.len() {
                return Err(other_size(tensor, out.len(), result.len()));
            }
            out.copy_from_slice(result);
            return Ok(());
        }
        let (segment, local) = self.split.find(tensor).ok_or_else(|| unknown(tensor))?;
        self.running[segment].program.read(local, out)
    }

    fn run(&mut self) -> Result<Timing> {
        let mut timing = Timing::default();
        for segment in 0..self.running.len() {
            self.deliver(segment)?;
            let part = self.running[segment].program.run()?;
            self.collect(segment)?;
            timing.host += part.host;
            timing.device = match (timing.device, part.device) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
        }
        Ok(timing)
    }

    fn run_step(&mut self, step: usize) -> Result<Timing> {
        let segment = self.running.iter().position(|segment| segment.steps.contains(&step));
        let segment = segment.ok_or_else(|| Error::argument("step", step, "one of the plan"))?;
        let steps = self.running[segment].steps.clone();
        self.deliver(segment)?;
        let timing = self.running[segment].program.run_step(step - steps.start)?;
        if step + 1 == steps.end {
            self.collect(segment)?;
        }
        Ok(timing)
    }
}
