//! The search for groups: who reads what, what depends on what, and which nodes are taken.

use super::group::{Group, Sum};
use crate::graph::Graph;
use crate::op::{Binary, Op};
use crate::tensor::{Source, TensorId};
use std::collections::HashSet;

/// A graph whose nodes are being put into groups.
pub(super) struct Search<'a> {
    pub(super) graph: &'a Graph,
    joins: &'a dyn Fn(&Group) -> bool,
    /// For each producer the computing nodes that read it or a view of it, each once.
    readers: Vec<Vec<TensorId>>,
    output: Vec<bool>,
    depends: Vec<Vec<TensorId>>,
    /// For each node the group that it is a member of; of those that are repeated the last.
    taken: Vec<Option<usize>>,
    groups: Vec<Group>,
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
        Search { graph, joins, readers, output, depends, taken: vec![None; count], groups: Vec::new() }
    }

    /// Returns the groups that were found, and every node in none of them as a group of one.
    pub(super) fn finish(self) -> Vec<Group> {
        let alone: Vec<Group> =
            self.graph.computed().filter(|&id| self.is_free(id)).map(Group::Node).collect();
        self.groups.into_iter().chain(alone).collect()
    }

    /// The computing nodes that read a node's result.
    pub(super) fn readers(&self, id: TensorId) -> &[TensorId] {
        &self.readers[id.index()]
    }

    /// The one node that reads a node's result, if it has storage of its own and is no output.
    pub(super) fn only_reader(&self, id: TensorId) -> Option<TensorId> {
        match self.readers(id) {
            [one] if self.is_inner(id) => Some(*one),
            _ => None,
        }
    }

    /// Returns true if a node's result may stay within a group that contains all its readers.
    pub(super) fn is_inner(&self, id: TensorId) -> bool {
        !self.output[id.index()] && self.graph.tensor(id).root == id
    }

    /// Returns true if everything that `nodes` compute, apart from `results`, is read by `nodes` only, is no
    /// graph output and is stored inside the group.
    pub(super) fn is_closed(&self, nodes: &[TensorId], results: &[TensorId]) -> bool {
        let inside = |id: &TensorId| {
            !self.output[id.index()]
                && nodes.contains(&self.graph.tensor(*id).root)
                && self.readers(*id).iter().all(|reader| nodes.contains(reader))
        };
        nodes.iter().all(|id| results.contains(id) || inside(id))
    }

    /// Returns true if a node is in no group.
    pub(super) fn is_free(&self, id: TensorId) -> bool {
        self.taken[id.index()].is_none()
    }

    /// Takes a group if its members are free, the backend joins them and no circle comes of it.
    pub(super) fn add(&mut self, group: Group) -> bool {
        self.add_all(vec![group])
    }

    /// Takes all of some groups or none. They may share members that leave none of them.
    pub(super) fn add_all(&mut self, groups: Vec<Group>) -> bool {
        let free = groups.iter().all(|group| group.nodes().iter().all(|&node| self.is_free(node)));
        if !free || !groups.iter().all(|group| (self.joins)(group)) {
            return false;
        }
        let before = self.groups.len();
        for group in groups {
            let number = self.groups.len();
            group.nodes().iter().for_each(|node| self.taken[node.index()] = Some(number));
            self.groups.push(group);
        }
        let sound = (before..self.groups.len()).all(|number| self.is_sound(number));
        if !sound {
            for group in self.groups.split_off(before) {
                group.nodes().iter().for_each(|node| self.taken[node.index()] = None);
            }
        }
        sound
    }

    /// Returns true if no operand of a group depends on the group.
    fn is_sound(&self, number: usize) -> bool {
        let needs = |number: usize| {
            let nodes = self.groups[number].nodes();
            let all = nodes.iter().flat_map(|node| &self.depends[node.index()]).copied();
            all.filter(|d| !nodes.contains(d)).collect::<Vec<_>>()
        };
        let (mut seen, mut passed) = (HashSet::new(), HashSet::new());
        let mut rest = needs(number);
        while let Some(node) = rest.pop() {
            match self.taken[node.index()] {
                Some(found) if found == number => return false,
                Some(found) if passed.insert(found) => rest.extend(needs(found)),
                Some(_) => {}
                None if seen.insert(node) => rest.extend(&self.depends[node.index()]),
                None => {}
            }
        }
        true
    }
}

/// For each tensor, if it is a computing node, the computing nodes that have to be complete before it: those whose
/// results it reads, and, where nodes write into the storage of another tensor, those that came before it there.
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
    // Of storage that is written into: the last node that did, and those that read it since.
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

/// A sum of two tensors of the same extents, if a tensor is just that.
pub(super) fn equal_sum(search: &Search<'_>, id: TensorId) -> Option<Sum> {
    let graph = search.graph;
    let t = graph.tensor(id);
    let (Some(Op::Binary(Binary::Add)), &[a, b]) = (t.op(), t.src()) else { return None };
    (graph.tensor(a).ne == graph.tensor(b).ne).then_some(Sum { of: [a, b], node: id })
}

/// A sum of what a node computes, as it is, and something else of the same extents.
pub(super) fn sum_with(search: &Search<'_>, id: TensorId, of: TensorId) -> Option<Sum> {
    let from = |id: &TensorId| search.graph.producer(*id) == of;
    equal_sum(search, id)
        .filter(|sum| sum.of.contains(&of) && sum.of.iter().filter(|id| from(id)).count() == 1)
}

/// A computing node's operation, if it is the producer of a tensor.
pub(super) fn op_of(graph: &Graph, id: TensorId) -> Option<&Op> {
    graph.tensor(graph.producer(id)).op()
}
