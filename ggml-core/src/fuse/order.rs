//! Order of single nodes and groups, kept topological while nodes are joined to groups.
//!
//! Every unit has a place; its dependencies have lower places. New groups only change the order between the
//! lowest and the highest place of their members, so joining nodes costs as much as they are apart, however
//! large the graph is. (Compare Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic
//! graphs", 2007.)

use crate::tensor::TensorId;
use std::collections::HashMap;

/// Maximum distance between the places of members that are added together. Members of one layer are at most a
/// few hundred places apart; the limit bounds the time for hostile graphs.
const FARTHEST: usize = 4096;

/// A node that is in no group, or a group by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    Node(TensorId),
    Group(usize),
}

/// Places of units.
pub(super) struct Order {
    units: Vec<Option<Unit>>,
    of_node: Vec<usize>,
    of_group: Vec<usize>,
    /// Number of units and dependencies that were looked at.
    pub(super) visited: usize,
}

impl Order {
    /// Creates the order of single nodes; they are given in topological order. `count`: tensors of the graph.
    pub(super) fn new(nodes: impl Iterator<Item = TensorId>, count: usize) -> Order {
        let mut order =
            Order { units: Vec::new(), of_node: vec![0; count], of_group: Vec::new(), visited: 0 };
        for node in nodes {
            order.of_node[node.index()] = order.units.len();
            order.units.push(Some(Unit::Node(node)));
        }
        order
    }

    /// Joins single nodes to the groups from index `first` on. `members` has the members of each; members may
    /// be in several of them. `dependencies` returns the units before a unit when all are joined.
    ///
    /// Returns false, and changes nothing, if units would depend on each other in a circle or the members are
    /// too far apart.
    pub(super) fn join(
        &mut self,
        first: usize,
        members: &[Vec<TensorId>],
        dependencies: &dyn Fn(Unit) -> Vec<Unit>,
    ) -> bool {
        let mut joined: HashMap<TensorId, Vec<Unit>> = HashMap::new();
        for (i, nodes) in members.iter().enumerate() {
            nodes.iter().for_each(|&node| joined.entry(node).or_default().push(Unit::Group(first + i)));
        }
        let places = || joined.keys().map(|node| self.of_node[node.index()]);
        let (Some(low), Some(high)) = (places().min(), places().max()) else { return true };
        if high - low > FARTHEST {
            return false;
        }
        let units: Vec<Unit> = self.units[low..=high]
            .iter()
            .flatten()
            .flat_map(|&unit| match unit {
                Unit::Node(node) => joined.get(&node).cloned().unwrap_or_else(|| vec![unit]),
                Unit::Group(_) => vec![unit],
            })
            .collect();
        let is_new = |unit: Unit| matches!(unit, Unit::Group(group) if group >= first);
        let mut visited = 0;
        let mut before = |unit: Unit| {
            let all = dependencies(unit);
            visited += 1 + all.len();
            all.into_iter().filter(|&unit| is_new(unit) || self.place(unit) >= low).collect()
        };
        let sorted = sorted(&units, &mut before).filter(|sorted| sorted.len() <= high + 1 - low);
        self.visited += visited;
        let Some(sorted) = sorted else { return false };
        self.of_group.resize(first + members.len(), 0);
        self.units[low..=high].fill(None);
        for (place, unit) in (low..).zip(sorted) {
            self.units[place] = Some(unit);
            match unit {
                Unit::Node(node) => self.of_node[node.index()] = place,
                Unit::Group(group) => self.of_group[group] = place,
            }
        }
        true
    }

    fn place(&self, unit: Unit) -> usize {
        match unit {
            Unit::Node(node) => self.of_node[node.index()],
            Unit::Group(group) => self.of_group.get(group).copied().unwrap_or(0),
        }
    }
}

/// Returns units in an order in which each follows those that `before` returns for it; `None` if there is
/// none.
fn sorted(units: &[Unit], before: &mut dyn FnMut(Unit) -> Vec<Unit>) -> Option<Vec<Unit>> {
    let mut sorted = Vec::new();
    // False while the units before a unit are being sorted.
    let mut done: HashMap<Unit, bool> = HashMap::new();
    for &unit in units {
        if done.contains_key(&unit) {
            continue;
        }
        done.insert(unit, false);
        let mut path = vec![(unit, before(unit))];
        while let Some((unit, rest)) = path.last_mut() {
            let unit = *unit;
            let Some(next) = rest.pop() else {
                done.insert(unit, true);
                sorted.push(unit);
                path.pop();
                continue;
            };
            match done.get(&next) {
                Some(true) => {}
                Some(false) => return None,
                None => {
                    done.insert(next, false);
                    path.push((next, before(next)));
                }
            }
        }
    }
    Some(sorted)
}
