//! Launches as graphs, which a runtime starts as one: about a microsecond a launch instead of several.
//!
//! A graph has branches: launches of one level that share nothing may run at the same time, so that one begins while another
//! one ends. They are captured from streams of their own, which wait for the first one where a level begins, and for which it
//! waits where the level ends.

use super::{EventId, Ready, Session};
use crate::driver::codes::Call;
use crate::driver::{LaunchGraph, Stream};
use ggml_core::{Error, Result};
use std::collections::HashMap;

/// A graph of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GraphId(u64);

/// Where a launch stands in a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Launches of a later level are after those of this one.
    pub(crate) level: usize,
    /// Those of a level and a branch are one after the other; branch 0 is the session's own stream.
    pub(crate) branch: usize,
}

/// The graphs of a session.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    live: HashMap<GraphId, LaunchGraph>,
    made: u64,
    /// What a level begins with, and the branches beside the first.
    begin: Option<EventId>,
    branches: Vec<Branch>,
}

/// A further branch of graphs.
#[derive(Clone, Copy, Debug)]
struct Branch {
    stream: Stream,
    end: EventId,
}

impl Session {
    /// Whether launches can be made a graph: the NULL stream cannot be captured.
    pub(crate) fn has_graphs(&self) -> bool {
        self.own_stream && self.driver.has_graphs()
    }

    /// Whether these can have branches.
    pub(crate) fn has_branches(&self) -> bool {
        self.driver.has_branches()
    }

    /// The runtime's major version, where it has one.
    pub(crate) fn major(&self) -> Option<u32> {
        self.driver.major()
    }

    /// A graph of launches, each at its place; levels are in order. Nothing runs yet.
    pub(crate) fn capture(&mut self, launches: &[Ready], places: &[Place]) -> Result<GraphId> {
        let most = places.iter().map(|place| place.branch).max().unwrap_or(0);
        self.make_branches(most)?;
        let stream = self.stream;
        // SAFETY: the stream is this session's own (`has_graphs`).
        self.call(Call::BeginCapture, |d| unsafe { d.begin_capture(stream) })?;
        let launched = self.launch_at(launches, places);
        // In any case, so that the stream runs again what is put into it.
        // SAFETY: the stream captures since the call above. Modules live until the session closes, what arguments point
        // at as long as the program that holds the launches, and it gives the graph back first.
        let graph = self.call(Call::EndCapture, |d| unsafe { d.end_capture(stream) });
        match (launched, graph) {
            (Ok(()), graph) => Ok(self.keep(graph?)),
            // One that is not whole is given back at once; what went wrong first is told.
            (Err(error), Ok(graph)) => {
                let part = self.keep(graph);
                let _ = self.free_graph(part);
                Err(error)
            }
            (Err(error), Err(_)) => Err(error),
        }
    }

    fn keep(&mut self, graph: LaunchGraph) -> GraphId {
        let id = GraphId(self.graphs.made);
        self.graphs.made += 1;
        self.graphs.live.insert(id, graph);
        id
    }

    fn launch_at(&mut self, launches: &[Ready], places: &[Place]) -> Result<()> {
        let mut at = 0;
        for level in places.chunk_by(|a, b| a.level == b.level) {
            let of_level = launches.iter().skip(at).zip(level);
            at += level.len();
            let used = level.iter().map(|place| place.branch).max().unwrap_or(0);
            let branches = self.graphs.branches[..used.min(self.graphs.branches.len())].to_vec();
            if let Some(begin) = self.graphs.begin.filter(|_| used > 0) {
                self.record(begin)?;
                branches.iter().try_for_each(|branch| self.wait_in(branch.stream, begin))?;
            }
            for (ready, place) in of_level {
                let branch = place.branch.checked_sub(1).and_then(|i| branches.get(i));
                self.launch_into(branch.map_or(self.stream, |branch| branch.stream), ready)?;
            }
            for branch in &branches {
                self.record_in(branch.stream, branch.end)?;
                self.wait_in(self.stream, branch.end)?;
            }
        }
        Ok(())
    }

    fn wait_in(&mut self, stream: Stream, id: EventId) -> Result<()> {
        let event = self.event(id)?;
        // SAFETY: event and stream are this session's.
        self.call(Call::WaitEvent, |d| unsafe { d.wait_event(stream, event) })
    }

    /// Makes streams and events for so many branches beside the first.
    fn make_branches(&mut self, count: usize) -> Result<()> {
        if count > 0 && self.graphs.begin.is_none() {
            self.graphs.begin = Some(self.create_event(false)?);
        }
        while self.graphs.branches.len() < count {
            let end = self.create_event(false)?;
            let stream = self.call(Call::CreateStream, |d| d.create_stream())?;
            self.graphs.branches.push(Branch { stream, end });
        }
        Ok(())
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

    /// Gives the streams of branches back.
    pub(super) fn free_branches(&mut self) -> Result<()> {
        let mut freed = Ok(());
        for Branch { stream, .. } in std::mem::take(&mut self.graphs.branches) {
            // SAFETY: the stream left the table just now.
            freed = freed.and(self.call(Call::DestroyStream, |d| unsafe { d.destroy_stream(stream) }));
        }
        freed
    }
}
