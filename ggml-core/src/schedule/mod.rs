//! Scheduling: one graph on several devices.
//!
//! [`assign_devices`] assigns a device to each computing node. [`Split`] cuts the graph at device boundaries
//! into segments, each a graph for one device. [`SplitProgram`] runs the segments one after the other and
//! copies tensors across boundaries through the host.
//!
//! A segment is a sequence of consecutive computing nodes on one device. Tensors of other segments are its
//! inputs, leaves of the whole graph are duplicated where they are needed, and views are recreated in the
//! segment that uses them. Tensors keep their names. State is never copied: all nodes that use one state
//! tensor are on one device.

use crate::buffers::enlarge;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::{Op, View};
use crate::plan::Plan;
use crate::tensor::{Source, TensorId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

mod placement;
mod program;

pub use placement::{Fallback, Placement, assign_devices, unsupported};
pub use program::{SplitDevice, SplitProgram};

/// Part of a graph that one device computes.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Index of the device.
    pub device: usize,
    /// Graph of the segment; tensors that other segments need are outputs.
    pub graph: Graph,
    /// Range of its computing nodes among those of the whole graph.
    pub nodes: Range<usize>,
    /// Tensors of this segment, by tensor of the whole graph.
    local: HashMap<TensorId, TensorId>,
    /// Inputs of this segment, each with the tensor of the whole graph that supplies its contents: an input,
    /// or a result of an earlier segment.
    feeds: Vec<(TensorId, TensorId)>,
    /// Tensors of this segment that later segments need, each with its tensor of the whole graph.
    gives: Vec<(TensorId, TensorId)>,
}

impl Segment {
    fn new(device: usize, at: usize) -> Segment {
        Segment {
            device,
            graph: Graph::new(),
            nodes: at..at,
            local: HashMap::new(),
            feeds: Vec::new(),
            gives: Vec::new(),
        }
    }

    /// Returns this segment's tensor for one of the whole graph.
    pub fn local(&self, id: TensorId) -> Option<TensorId> {
        self.local.get(&id).copied()
    }

    /// Returns the bytes copied per run: written into inputs before the segment runs, and read for later
    /// segments afterwards.
    pub fn traffic(&self) -> usize {
        let bytes = |pairs: &[(TensorId, TensorId)]| -> usize {
            pairs.iter().map(|&(id, _)| self.graph.tensor(id).dense_bytes()).sum()
        };
        bytes(&self.feeds) + bytes(&self.gives)
    }
}

/// A graph cut into segments.
#[derive(Clone, Debug)]
pub struct Split {
    segments: Vec<Segment>,
    /// Index of the segment that last wrote a tensor's storage, by root; unwritten inputs have no entry.
    holder: HashMap<TensorId, usize>,
    roots: Vec<TensorId>,
    outputs: Vec<TensorId>,
}

impl Split {
    /// Cuts a graph. `device` has an entry for each tensor; the entries of leaves and views are ignored.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a state tensor is used on two devices, a node writes into a weight, or
    /// `device` has the wrong length.
    pub fn new(graph: &Graph, device: &[usize]) -> Result<Split> {
        if device.len() != graph.tensors().len() {
            let expected = format!("{}, one for each tensor", graph.tensors().len());
            return Err(Error::argument("placement", format!("{} entries", device.len()), expected));
        }
        check_state(graph, device)?;
        let mut cutter = Cutter { graph, segments: Vec::new(), holder: HashMap::new() };
        for (step, id) in graph.computed().enumerate() {
            cutter.add(id, device[id.index()], step)?;
        }
        for &id in graph.outputs() {
            cutter.output(id)?;
        }
        Ok(Split {
            segments: cutter.segments,
            holder: cutter.holder,
            roots: graph.tensors().iter().map(|t| t.root).collect(),
            outputs: graph.outputs().to_vec(),
        })
    }

    /// Returns the segments in execution order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Builds a plan for each segment from its graph and its device.
    ///
    /// # Errors
    /// Errors of `plan`.
    pub fn plans(&self, plan: impl Fn(&Graph, usize) -> Result<Plan>) -> Result<Vec<Plan>> {
        self.segments.iter().map(|segment| plan(&segment.graph, segment.device)).collect()
    }

    /// Returns the lengths of the buffers of an arena for all segments, on each device that has one.
    pub fn arenas(&self, plans: &[Plan]) -> BTreeMap<usize, Vec<usize>> {
        let mut arenas: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (segment, plan) in self.segments.iter().zip(plans) {
            enlarge(arenas.entry(segment.device).or_default(), &plan.arena);
        }
        arenas
    }

    /// Returns the segment that holds the current contents of a tensor of the whole graph, and its tensor
    /// there: the segment that last wrote its storage, otherwise the first one that has it.
    fn find(&self, id: TensorId) -> Option<(usize, TensorId)> {
        let root = *self.roots.get(id.index())?;
        let there = |s: usize| Some((s, self.segments.get(s)?.local(id)?));
        let holder = self.holder.get(&root).and_then(|&s| there(s));
        holder.or_else(|| (0..self.segments.len()).find_map(there))
    }
}

/// Checks that all nodes that use one state tensor are on one device.
fn check_state(graph: &Graph, device: &[usize]) -> Result<()> {
    let mut used: HashMap<TensorId, TensorId> = HashMap::new();
    for id in graph.computed() {
        for state in placement::states(graph, id) {
            let first = *used.entry(state).or_insert(id);
            if device[first.index()] != device[id.index()] {
                let name = |id: TensorId| &graph.tensor(id).name;
                let found = format!("used by '{}' and '{}' on two devices", name(first), name(id));
                return Err(Error::argument(format!("state '{}'", name(state)), found, "one device"));
            }
        }
    }
    Ok(())
}

struct Cutter<'a> {
    graph: &'a Graph,
    segments: Vec<Segment>,
    holder: HashMap<TensorId, usize>,
}

impl Cutter<'_> {
    /// Adds a computing node to the last segment, or to a new one.
    fn add(&mut self, id: TensorId, device: usize, step: usize) -> Result<()> {
        if self.segments.last().is_none_or(|s| s.device != device) {
            self.segments.push(Segment::new(device, step));
        }
        let last = self.segments.len() - 1;
        let tensor = self.graph.tensor(id);
        let Source::Node { op, src } = &tensor.source else { return Ok(()) };
        if self.graph.tensor(tensor.root).source == Source::Weight {
            let what = format!("node '{}'", tensor.name);
            return Err(Error::argument(what, "writes into a weight", "an input, state or node"));
        }
        let src = src.iter().map(|&s| self.here(last, s)).collect::<Result<Vec<_>>>()?;
        let segment = &mut self.segments[last];
        let node = segment.graph.named_node(op.clone(), &src, &tensor.name)?;
        segment.local.insert(id, node);
        segment.nodes.end = step + 1;
        self.holder.insert(tensor.root, last);
        Ok(())
    }

    /// Returns the tensor of a segment for one of the whole graph. If it is missing, an input, leaf or view
    /// is added.
    fn here(&mut self, segment: usize, id: TensorId) -> Result<TensorId> {
        if let Some(local) = self.segments[segment].local(id) {
            return Ok(local);
        }
        let tensor = self.graph.tensor(id);
        let local = match &tensor.source {
            _ if tensor.root == id => return self.storage(segment, id),
            Source::Node { op, src } if op.is_view() => {
                let of = self.here(segment, src[0])?;
                self.segments[segment].graph.named_node(op.clone(), &[of], &tensor.name)?
            }
            // Result of another segment's node that wrote into an operand: the same range of that storage.
            _ => {
                let root = self.storage(segment, tensor.root)?;
                let whole = self.graph.tensor(tensor.root);
                if (tensor.ne, tensor.nb, tensor.offset) == (whole.ne, whole.nb, 0) {
                    root
                } else {
                    let view = View { ne: tensor.ne, nb: tensor.nb, offset: tensor.offset };
                    self.segments[segment].graph.named_node(Op::View(view), &[root], &tensor.name)?
                }
            }
        };
        self.segments[segment].local.insert(id, local);
        Ok(local)
    }

    /// Returns a root tensor in a segment, adding it if it is missing.
    fn storage(&mut self, segment: usize, root: TensorId) -> Result<TensorId> {
        if let Some(local) = self.segments[segment].local(root) {
            return Ok(local);
        }
        let tensor = self.graph.tensor(root);
        let bound = matches!(tensor.source, Source::Weight | Source::State);
        let source = if bound { tensor.source.clone() } else { Source::Input };
        let here = &mut self.segments[segment];
        let local = here.graph.leaf(&tensor.name, tensor.dtype, tensor.ne, source)?;
        here.local.insert(root, local);
        if bound {
            return Ok(local);
        }
        here.feeds.push((local, root));
        if let Some(&holder) = self.holder.get(&root) {
            self.give(holder, root)?;
        }
        Ok(local)
    }

    /// Marks a root tensor of a segment as needed by later segments.
    fn give(&mut self, segment: usize, root: TensorId) -> Result<()> {
        let from = &mut self.segments[segment];
        if from.gives.iter().any(|&(_, given)| given == root) {
            return Ok(());
        }
        let name = &self.graph.tensor(root).name;
        let missing =
            || Error::argument(format!("tensor '{name}'"), "missing where a node writes into it", "");
        let local = from.local(root).ok_or_else(missing)?;
        from.graph.output(local)?;
        from.gives.push((local, root));
        Ok(())
    }

    fn output(&mut self, id: TensorId) -> Result<()> {
        if self.segments.is_empty() {
            self.segments.push(Segment::new(0, 0));
        }
        let root = self.graph.tensor(id).root;
        let segment = self.holder.get(&root).copied().unwrap_or(0);
        let local = self.here(segment, id)?;
        self.segments[segment].graph.output(local)?;
        Ok(())
    }
}
