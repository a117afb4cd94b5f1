//! Launches as graphs, which a runtime starts as one: about a microsecond a launch instead of several.

use super::{Ready, Session};
use crate::driver::LaunchGraph;
use crate::driver::codes::Call;
use ggml_core::{Error, Result};
use std::collections::HashMap;

/// A graph of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GraphId(u64);

/// The graphs of a session.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    live: HashMap<GraphId, LaunchGraph>,
    made: u64,
}

impl Session {
    /// Whether launches can be made a graph: the NULL stream cannot be captured.
    pub(crate) fn has_graphs(&self) -> bool {
        self.own_stream && self.driver.has_graphs()
    }

    /// The runtime's major version, where it has one.
    pub(crate) fn major(&self) -> Option<u32> {
        self.driver.major()
    }

    /// A graph of launches, one after the other. Nothing runs yet.
    pub(crate) fn capture(&mut self, launches: &[Ready]) -> Result<GraphId> {
        let stream = self.stream;
        // SAFETY: the stream is this session's own (`has_graphs`).
        self.call(Call::BeginCapture, |d| unsafe { d.begin_capture(stream) })?;
        let launched = launches.iter().try_for_each(|ready| self.launch(ready));
        // In any case, so that the stream runs again what is put into it.
        // SAFETY: the stream captures since the call above. Modules live until the session closes, what arguments point
        // at as long as the program that holds the launches, and it gives the graph back first.
        let graph = self.call(Call::EndCapture, |d| unsafe { d.end_capture(stream) });
        launched.and(graph).map(|graph| {
            let id = GraphId(self.graphs.made);
            self.graphs.made += 1;
            self.graphs.live.insert(id, graph);
            id
        })
    }

    /// Starts a graph.
    pub(crate) fn launch_graph(&mut self, id: GraphId) -> Result<()> {
        let graph = self.graphs.live.get(&id).copied();
        let graph =
            graph.ok_or_else(|| Error::argument("graph", "of another session", "one of this session"))?;
        let stream = self.stream;
        // SAFETY: the graph is in the table, so it is live.
        self.call(Call::LaunchGraph, |d| unsafe { d.launch_graph(graph, stream) })
    }

    /// Gives a graph back.
    pub(crate) fn free_graph(&mut self, id: GraphId) -> Result<()> {
        let Some(graph) = self.graphs.live.remove(&id) else { return Ok(()) };
        // SAFETY: the graph left the table just now.
        self.call(Call::DestroyGraph, |d| unsafe { d.destroy_graph(graph) })
    }

    /// Gives all graphs back.
    pub(super) fn free_graphs(&mut self) -> Result<()> {
        let all: Vec<GraphId> = self.graphs.live.keys().copied().collect();
        all.into_iter().map(|id| self.free_graph(id)).fold(Ok(()), Result::and)
    }
}
