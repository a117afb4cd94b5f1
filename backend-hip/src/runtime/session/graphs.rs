//! Launches as graphs, which a runtime starts as one: about a microsecond per launch instead of several.
//!
//! A graph has branches: independent launches of one level may run at the same time, so that one starts while
//! another ends. Branches are captured from streams of their own. These wait for the first stream where a
//! level starts, and the first stream waits for them where the level ends.

use super::{EventId, PreparedLaunch, Session};
use crate::driver::codes::Call;
use crate::driver::{LaunchGraph, Stream};
use ggml_core::{Error, Result};
use std::collections::HashMap;

/// Graph of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GraphId(u64);

/// Position of a launch in a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphPosition {
    /// Level; launches of a later level run after it.
    pub(crate) level: usize,
    /// Branch; launches of one level and branch run one after the other. Branch 0 is the session's own
    /// stream.
    pub(crate) branch: usize,
}

/// The graphs of a session.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    live: HashMap<GraphId, LaunchGraph>,
    next_id: u64,
    /// Event at the start of a level, and the branches after the first.
    begin: Option<EventId>,
    branches: Vec<Branch>,
}

/// Branch of graphs after the first.
#[derive(Clone, Copy, Debug)]
struct Branch {
    stream: Stream,
    end: EventId,
}

impl Session {
    /// Returns true if launches can be captured in graphs: the NULL stream cannot be captured.
    pub(crate) fn has_graphs(&self) -> bool {
        self.own_stream && self.driver.has_graphs()
    }

    /// Returns true if graphs can have branches.
    pub(crate) fn has_branches(&self) -> bool {
        self.driver.has_branches()
    }

    /// Captures launches in a graph, each at its position, in the order of levels. Nothing runs yet.
    pub(crate) fn capture(
        &mut self,
        launches: &[PreparedLaunch],
        positions: &[GraphPosition],
    ) -> Result<GraphId> {
        let most = positions.iter().map(|position| position.branch).max().unwrap_or(0);
        self.make_branches(most)?;
        let stream = self.stream;
        // SAFETY: the stream is this session's own (`has_graphs`).
        self.call(Call::BeginCapture, |d| unsafe { d.begin_capture(stream) })?;
        let launched = self.launch_at(launches, positions);
        // Ends the capture in any case, so that the stream executes work again.
        // SAFETY: the stream is capturing since the call above. Modules live until the session closes. Memory
        // that arguments point at lives as long as the program that holds the launches, and the program frees
        // the graph first.
        let graph = self.call(Call::EndCapture, |d| unsafe { d.end_capture(stream) });
        match (launched, graph) {
            (Ok(()), graph) => Ok(self.store(graph?)),
            // An incomplete graph is freed immediately; the first error is returned.
            (Err(error), Ok(graph)) => {
                let incomplete = self.store(graph);
                let _ = self.free_graph(incomplete);
                Err(error)
            }
            (Err(error), Err(_)) => Err(error),
        }
    }

    fn store(&mut self, graph: LaunchGraph) -> GraphId {
        let id = GraphId(self.graphs.next_id);
        self.graphs.next_id += 1;
        self.graphs.live.insert(id, graph);
        id
    }

    fn launch_at(&mut self, launches: &[PreparedLaunch], positions: &[GraphPosition]) -> Result<()> {
        let mut at = 0;
        for level in positions.chunk_by(|a, b| a.level == b.level) {
            let of_level = launches.iter().skip(at).zip(level);
            at += level.len();
            let used = level.iter().map(|position| position.branch).max().unwrap_or(0);
            let branches = self.graphs.branches[..used.min(self.graphs.branches.len())].to_vec();
            if let Some(begin) = self.graphs.begin.filter(|_| used > 0) {
                self.record(begin)?;
                branches.iter().try_for_each(|branch| self.wait_in(branch.stream, begin))?;
            }
            for (ready, position) in of_level {
                let branch = position.branch.checked_sub(1).and_then(|i| branches.get(i));
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

    /// Creates streams and events for the given number of branches after the first.
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

    /// Frees a graph.
    pub(crate) fn free_graph(&mut self, id: GraphId) -> Result<()> {
        let Some(graph) = self.graphs.live.remove(&id) else { return Ok(()) };
        // SAFETY: the graph was just removed from the table.
        self.call(Call::DestroyGraph, |d| unsafe { d.destroy_graph(graph) })
    }

    /// Frees all graphs.
    pub(super) fn free_graphs(&mut self) -> Result<()> {
        let all: Vec<GraphId> = self.graphs.live.keys().copied().collect();
        all.into_iter().map(|id| self.free_graph(id)).fold(Ok(()), Result::and)
    }

    /// Frees the streams of branches.
    pub(super) fn free_branches(&mut self) -> Result<()> {
        let mut freed = Ok(());
        for Branch { stream, .. } in std::mem::take(&mut self.graphs.branches) {
            // SAFETY: the stream was just removed from the table.
            freed = freed.and(self.call(Call::DestroyStream, |d| unsafe { d.destroy_stream(stream) }));
        }
        freed
    }
}
