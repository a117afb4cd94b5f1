//! Runs the finders of all kinds of groups, the longest patterns first.

use super::group::Group;
use super::search::Search;
use super::{best, chain, experts, heads, norm, products, recurrent, router};
use crate::graph::Graph;

/// Divides the computing nodes of a graph into groups. `joins` returns true if a backend computes a group as
/// one step.
pub(crate) fn groups(graph: &Graph, joins: &dyn Fn(&Group) -> bool) -> Vec<Group> {
    searched(graph, joins).finish()
}

/// Returns a search that has run all finders.
pub(super) fn searched<'a>(graph: &'a Graph, joins: &'a dyn Fn(&Group) -> bool) -> Search<'a> {
    let mut search = Search::new(graph, joins);
    heads::find(&mut search);
    recurrent::find(&mut search);
    best::find(&mut search);
    router::find(&mut search);
    experts::find(&mut search);
    products::find(&mut search);
    norm::find(&mut search);
    chain::find(&mut search);
    search
}
