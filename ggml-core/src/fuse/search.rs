//! State of the search for groups: readers, dependencies, and the group of each node.

use super::group::{Group, Sum};
use super::order::{Order, Unit};
use crate::graph::Graph;
use crate::op::{Binary, Op};
use crate::tensor::{Source, TensorId};

/// Graph whose nodes are being divided into groups.
pub(super) struct Search<'a> {
    pub(super) graph: &'a Graph,
    joins: &'a dyn Fn(&Group) -> bool,
    /// For each producer, the computing nodes that read it or a view of it, each once.
    readers: Vec<Vec<TensorId>>,
    output: Vec<bool>,
    depends: Vec<Vec<TensorId>>,
    /// For each node the indices of its groups.
    groups_of: Vec<Vec<usize>>,
    groups: Vec<Group>,
    order: Order,
}

impl<'a> Search<'a> {
    pub(super) fn new(graph: &'a Graph, joins: &'a dyn Fn(&Group) -> bool) -> Search<'a> {
        let count = graph.tensors().len();
        let mut readers: Vec<Vec<TensorId>> = vec![Vec::new(); count];
        for node in graph.computed() {
            for &operand in graph.tensor(node).src() {
                let of = &mut readers[graph.producer(operand).index()];
                if of.last() != Some(&node) {
                    of.push(node);
                }
            }
        }
        let mut output = vec![false; count];
        graph.outputs().iter().for_each(|&id| output[graph.producer(id).index()] = true);
        let depends = dependencies(graph);
        let (groups_of, order) = (vec![Vec::new(); count], Order::new(graph.computed(), count));
        Search { graph, joins, readers, output, depends, groups_of, groups: Vec::new(), order }
    }

    /// Returns the number of nodes, groups and dependencies that the search for circles has looked at.
    #[cfg(test)]
    pub(super) fn visited(&self) -> usize {
        self.order.visited
    }

    /// Returns the groups that were found, and a group of one for every other node.
    pub(super) fn finish(self) -> Vec<Group> {
        let singles: Vec<Group> =
            self.graph.computed().filter(|&id| self.is_free(id)).map(Group::Node).collect();
        self.groups.into_iter().chain(singles).collect()
    }

    /// Returns the computing nodes that read a node's result.
    pub(super) fn readers(&self, id: TensorId) -> &[TensorId] {
        &self.readers[id.index()]
    }

    /// Returns the only node that reads a node's result, if the result has its own storage and is no output.
    pub(super) fn only_reader(&self, id: TensorId) -> Option<TensorId> {
        match self.readers(id) {
            [one] if self.is_inner(id) => Some(*one),
            _ => None,
        }
    }

    /// True if a node's result may stay within a group that contains all its readers.
    pub(super) fn is_inner(&self, id: TensorId) -> bool {
        !self.output[id.index()] && self.graph.tensor(id).root == id
    }

    /// True if everything that `nodes` compute, apart from `results`, is read by `nodes` only, is no graph
    /// output and is stored inside the group.
    pub(super) fn is_closed(&self, nodes: &[TensorId], results: &[TensorId]) -> bool {
        let inside = |id: &TensorId| {
            !self.output[id.index()]
                && nodes.contains(&self.graph.tensor(*id).root)
                && self.readers(*id).iter().all(|reader| nodes.contains(reader))
        };
        nodes.iter().all(|id| results.contains(id) || inside(id))
    }

    /// True if a node is in no group.
    pub(super) fn is_free(&self, id: TensorId) -> bool {
        self.groups_of[id.index()].is_empty()
    }

    /// Adds a group if its members are free, the backend joins them and no dependency circle results. Returns
    /// true if it was added.
    pub(super) fn add(&mut self, group: Group) -> bool {
        self.add_all(vec![group])
    }

    /// Adds all of some groups or none. They may share members that are no results.
    pub(super) fn add_all(&mut self, groups: Vec<Group>) -> bool {
        let members: Vec<Vec<TensorId>> = groups.iter().map(Group::nodes).collect();
        let free = members.iter().flatten().all(|&node| self.is_free(node));
        if !free || !groups.iter().all(|group| (self.joins)(group)) {
            return false;
        }
        let before = self.groups.len();
        for (i, nodes) in members.iter().enumerate() {
            nodes.iter().for_each(|node| self.groups_of[node.index()].push(before + i));
        }
        self.groups.extend(groups);
        let Search { groups: all, groups_of, depends, order, .. } = self;
        let sound = order.join(before, &members, &|unit| units_before(unit, all, groups_of, depends));
        if !sound {
            self.groups.truncate(before);
            members.iter().flatten().for_each(|node| self.groups_of[node.index()].clear());
        }
        sound
    }
}

/// Returns the units that a unit depends on.
fn units_before(
    unit: Unit,
    groups: &[Group],
    groups_of: &[Vec<usize>],
    depends: &[Vec<TensorId>],
) -> Vec<Unit> {
    let units = |node: &TensorId| match &groups_of[node.index()][..] {
        [] => vec![Unit::Node(*node)],
        groups => groups.iter().map(|&group| Unit::Group(group)).collect(),
    };
    match unit {
        Unit::Node(node) => depends[node.index()].iter().flat_map(units).collect(),
        Unit::Group(group) => {
            let nodes = groups[group].nodes();
            let all = nodes.iter().flat_map(|node| &depends[node.index()]);
            all.filter(|on| !nodes.contains(on)).flat_map(units).collect()
        }
    }
}

/// Returns, for each computing node, the computing nodes that must be complete before it: producers of its
/// operands and, if nodes write into the storage of another tensor, the earlier accesses to that storage.
pub(super) fn dependencies(graph: &Graph) -> Vec<Vec<TensorId>> {
    let count = graph.tensors().len();
    let mut written = vec![false; count];
    for node in graph.computed() {
        let root = graph.tensor(node).root;
        if root != node {
            written[root.index()] = true;
        }
    }
    let mut depends = vec![Vec::new(); count];
    // For storage that is written into: its last writer, and its readers since.
    let mut writer: Vec<Option<TensorId>> = vec![None; count];
    let mut readers: Vec<Vec<TensorId>> = vec![Vec::new(); count];
    for node in graph.computed() {
        let t = graph.tensor(node);
        let mut on: Vec<TensorId> = Vec::new();
        for &operand in t.src() {
            let (producer, root) = (graph.producer(operand), graph.tensor(operand).root);
            if matches!(graph.tensor(producer).source, Source::Node { .. }) {
                on.push(producer);
            }
            if written[root.index()] {
                on.extend(writer[root.index()]);
                readers[root.index()].push(node);
            }
        }
        if t.root != node {
            on.append(&mut readers[t.root.index()]);
            on.extend(writer[t.root.index()].replace(node));
        }
        on.sort_unstable();
        on.dedup();
        on.retain(|&other| other != node);
        depends[node.index()] = on;
    }
    depends
}

/// Matches a sum of two tensors of the same extents.
pub(super) fn equal_sum(search: &Search<'_>, id: TensorId) -> Option<Sum> {
    let graph = search.graph;
    let t = graph.tensor(id);
    let (Some(Op::Binary(Binary::Add)), &[a, b]) = (t.op(), t.src()) else { return None };
    (graph.tensor(a).ne == graph.tensor(b).ne).then_some(Sum { of: [a, b], node: id })
}

/// Matches a sum of the entire result of `of` and another tensor of the same extents.
pub(super) fn sum_with(search: &Search<'_>, id: TensorId, of: TensorId) -> Option<Sum> {
    let from = |id: &TensorId| search.graph.producer(*id) == of;
    equal_sum(search, id)
        .filter(|sum| sum.of.contains(&of) && sum.of.iter().filter(|id| from(id)).count() == 1)
}

/// Returns the node that computes a tensor, if the tensor is a contiguous view of its entire result.
pub(super) fn entire_result(graph: &Graph, id: TensorId) -> Option<TensorId> {
    let producer = graph.producer(id);
    same_elements(graph, id, producer).then_some(producer)
}

/// True if two tensors consist of the same elements in the same order: contiguous views, or the results
/// themselves, of one node or leaf.
pub(super) fn same_elements(graph: &Graph, a: TensorId, b: TensorId) -> bool {
    let [x, y] = [a, b].map(|id| graph.tensor(id));
    graph.producer(a) == graph.producer(b)
        && (x.offset, x.elements()) == (y.offset, y.elements())
        && x.is_contiguous()
        && y.is_contiguous()
}

/// Returns the operation of the node that produces a tensor.
pub(super) fn op_of(graph: &Graph, id: TensorId) -> Option<&Op> {
    graph.tensor(graph.producer(id)).op()
}
