//! Scheduling: one graph on several devices.
//!
//! [`assign_devices`] says on which device each computing node lies, [`Split`] cuts the graph at the borders into segments, each
//! a graph for one device, and [`SplitProgram`] runs the segments one after the other and carries tensors across the
//! borders through the host.
//!
//! A segment is a run of computing nodes that follow each other on one device. What it reads from others it has as
//! inputs, leaves of the whole graph are repeated where they are needed, and views are made again on the side that uses
//! them. Tensors keep their names. State stays where it is: all nodes that touch one state tensor lie on one device.

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

/// A part of a graph that one device computes.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Index of the device.
    pub device: usize,
    /// Its graph; tensors that others need are outputs.
    pub graph: Graph,
    /// Its computing nodes among those of the whole graph.
    pub nodes: Range<usize>,
    /// Tensors here, by tensor of the whole graph.
    local: HashMap<TensorId, TensorId>,
    /// Inputs here, with the tensors of the whole graph whose contents they get: its inputs, or results of segments
    /// before.
    feeds: Vec<(TensorId, TensorId)>,
    /// Tensors here whose contents later segments get, with the tensors of the whole graph.
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

    /// This segment's tensor for one of the whole graph.
    pub fn local(&self, id: TensorId) -> Option<TensorId> {
        self.local.get(&id).copied()
    }

    /// Bytes that are written into its inputs before it runs and read for later segments afterwards.
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
    /// The segment that wrote a tensor's storage last, by root; inputs that nobody writes have none.
    holder: HashMap<TensorId, usize>,
    roots: Vec<TensorId>,
    outputs: Vec<TensorId>,
}

impl Split {
    /// Cuts a graph. `device` has an entry for each tensor; those of leaves and views do not matter.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where a state tensor is used on two devices, a node writes into a weight, or entries
    /// are missing.
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

    /// The segments in the order in which they run.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// A plan for each segment, of its graph and its device.
    ///
    /// # Errors
    /// Those of `plan`.
    pub fn plans(&self, plan: impl Fn(&Graph, usize) -> Result<Plan>) -> Result<Vec<Plan>> {
        self.segments.iter().map(|segment| plan(&segment.graph, segment.device)).collect()
    }

    /// Bytes of the largest arena on each device that has a segment.
    pub fn arenas(&self, plans: &[Plan]) -> BTreeMap<usize, usize> {
        let mut arenas = BTreeMap::new();
        for (segment, plan) in self.segments.iter().zip(plans) {
            let arena = arenas.entry(segment.device).or_insert(0);
            *arena = plan.arena_bytes.max(*arena);
        }
        arenas
    }

    /// The segment that knows a tensor of the whole graph best, and the tensor there: the one that wrote its storage
    /// last, else the first that has it.
    fn find(&self, id: TensorId) -> Option<(usize, TensorId)> {
        let root = *self.roots.get(id.index())?;
        let there = |s: usize| Some((s, self.segments.get(s)?.local(id)?));
        let holder = self.holder.get(&root).and_then(|&s| there(s));
        holder.or_else(|| (0..self.segments.len()).find_map(there))
    }
}

/// That nodes which touch one state tensor lie on one device.
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

    /// A tensor of the whole graph in a segment: what is there, or an input, a leaf or a view that is made now.
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
            // The result of another segment's node that wrote into an operand: the same place in that storage.
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

    /// The storage of a root tensor in a segment that has not got it yet.
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

    /// Makes a segment give the contents of a root tensor to later ones.
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
