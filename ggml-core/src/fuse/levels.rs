//! Levels of groups: groups of one level may run at the same time.

use super::group::Group;
use super::search::dependencies;
use crate::graph::Graph;
use crate::tensor::TensorId;
use std::collections::HashMap;

/// Returns the groups of a graph, each with its level: one above the highest level of its dependencies, so
/// groups of one level do not depend on each other. The groups are sorted by level, then by last member.
///
/// `None` if the groups depend on each other in a circle.
pub(crate) fn levels(graph: &Graph, groups: Vec<Group>) -> Option<Vec<(Group, usize)>> {
    let depends = dependencies(graph);
    // Intermediate results too: they may read state that a node outside of the group overwrites.
    let mut homes: HashMap<TensorId, Vec<usize>> = HashMap::new();
    for (i, group) in groups.iter().enumerate() {
        group.nodes().into_iter().for_each(|node| homes.entry(node).or_default().push(i));
    }
    let mut before = vec![0usize; groups.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for (i, group) in groups.iter().enumerate() {
        let nodes = group.nodes();
        let outside = nodes.iter().flat_map(|node| &depends[node.index()]).filter(|d| !nodes.contains(d));
        for &on in outside.filter_map(|d| homes.get(d)).flatten() {
            before[i] += 1;
            after[on].push(i);
        }
    }
    let mut level = vec![0; groups.len()];
    let mut ready: Vec<usize> = (0..groups.len()).filter(|&i| before[i] == 0).collect();
    let mut done = 0;
    while let Some(i) = ready.pop() {
        done += 1;
        for &next in &after[i] {
            level[next] = level[next].max(level[i] + 1);
            before[next] -= 1;
            if before[next] == 0 {
                ready.push(next);
            }
        }
    }
    let mut sorted: Vec<(Group, usize)> = groups.into_iter().zip(level).collect();
    sorted.sort_by_key(|(group, level)| (*level, group.last()));
    (done == sorted.len()).then_some(sorted)
}
