//! One run on the driver thread: it copies the written inputs, starts every launch, and polls events until
//! all are complete or the deadline passes. The events are progress marks ([`RunEvents`]): the first
//! incomplete one identifies the node that was running.

use super::load::Launches;
use crate::driver::codes::is_fatal;
use crate::runtime::events::RunEvents;
use crate::runtime::session::{EventId, Location, Session};
use ggml_core::Result;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// One run on the driver thread.
pub(super) struct Execution {
    pub(super) launches: Arc<Launches>,
    pub(super) events: Arc<RunEvents>,
    pub(super) copies: Vec<(Location, Location, usize)>,
    pub(super) range: Range<usize>,
    /// Number of launches from mark to mark.
    pub(super) every: usize,
    /// True if the launches are started as graphs, with a mark after each.
    pub(super) graphs: bool,
}

impl Execution {
    /// Executes the whole run.
    pub(super) fn execute(&self, session: &mut Session) -> Result<Option<Duration>> {
        self.with_monitor(session, |session| match self.graphs {
            true => self.start_graphs(session).and_then(|()| self.wait_for_graphs(session)),
            false => self.launch_all(session),
        })
    }

    /// Starts the graphs.
    pub(super) fn begin(&self, session: &mut Session) -> Result<()> {
        self.with_monitor(session, |session| self.start_graphs(session))
    }

    /// Waits for the started graphs.
    pub(super) fn finish(&self, session: &mut Session) -> Result<Option<Duration>> {
        self.with_monitor(session, |session| self.wait_for_graphs(session))
    }

    /// Calls `work` while the monitor has the names of the program's nodes.
    fn with_monitor<T>(
        &self,
        session: &mut Session,
        work: impl FnOnce(&mut Session) -> Result<T>,
    ) -> Result<T> {
        session.monitor().set_nodes(Some(self.launches.names.clone()));
        self.record_progress(session, self.range.start);
        let result = work(session);
        if let Err(error) = &result
            && !is_fatal(error)
        {
            // Started work must end before memory is freed or written.
            self.events.drain(session)?;
        }
        session.monitor().set_nodes(None);
        result
    }

    /// Copies inputs and records the start of the work.
    fn copy_inputs(&self, session: &mut Session) -> Result<()> {
        for (to, from, bytes) in &self.copies {
            session.upload(to, from, *bytes)?;
        }
        match self.events.timing {
            Some((begin, _)) => session.record(begin),
            None => Ok(()),
        }
    }

    fn start_graphs(&self, session: &mut Session) -> Result<()> {
        self.copy_inputs(session)?;
        for ((launches, graph), &mark) in self.launches.graphs.iter().zip(&self.events.marks) {
            let first = &self.launches.names[self.launches.step[launches.start]];
            session.launch_graph(*graph).map_err(|e| e.with_node(first))?;
            session.record(mark)?;
        }
        match self.events.timing {
            Some((_, end)) => session.record(end),
            None => Ok(()),
        }
    }

    fn wait_for_graphs(&self, session: &mut Session) -> Result<Option<Duration>> {
        for ((launches, _), &mark) in self.launches.graphs.iter().zip(&self.events.marks) {
            session.wait(mark)?;
            self.record_progress(session, launches.end);
        }
        let Some((begin, end)) = self.events.timing else { return Ok(None) };
        session.wait(end)?;
        Ok(session.elapsed(begin, end))
    }

    /// Starts launch after launch, with marks between them.
    fn launch_all(&self, session: &mut Session) -> Result<Option<Duration>> {
        self.copy_inputs(session)?;
        let deadline = session.monitor().deadline();
        let mut marks = VecDeque::new();
        let mut next_mark = self.events.marks.iter().cycle();
        for i in self.range.clone() {
            let launched = session.launch(&self.launches.ready[i]);
            launched.map_err(|e| e.with_node(&self.launches.names[self.launches.step[i]]))?;
            let last = i + 1 == self.range.end;
            if !last && !(i + 1 - self.range.start).is_multiple_of(self.every) {
                continue;
            }
            if marks.len() == self.events.marks.len() {
                self.remove_mark(session, &mut marks, true)?;
            }
            if let Some(&mark) = next_mark.next() {
                session.record(mark)?;
                marks.push_back((mark, i));
            }
            while self.remove_mark(session, &mut marks, false)? {}
            if deadline.passed() {
                return Err(session.monitor().timeout());
            }
        }
        if let Some((_, end)) = self.events.timing {
            session.record(end)?;
        }
        while self.remove_mark(session, &mut marks, true)? {}
        let Some((begin, end)) = self.events.timing else {
            // Without launches there is no mark after the copies.
            return if self.range.is_empty() { self.events.drain(session).map(|()| None) } else { Ok(None) };
        };
        session.wait(end)?;
        Ok(session.elapsed(begin, end))
    }

    /// Removes the oldest mark if it is complete, or after waiting for it. Returns false if none was removed.
    fn remove_mark(
        &self,
        session: &mut Session,
        marks: &mut VecDeque<(EventId, usize)>,
        wait: bool,
    ) -> Result<bool> {
        let Some(&(mark, launch)) = marks.front() else { return Ok(false) };
        if wait {
            session.wait(mark)?;
        } else if !session.complete(mark)? {
            return Ok(false);
        }
        marks.pop_front();
        self.record_progress(session, launch + 1);
        Ok(true)
    }

    /// Records that everything before a launch is complete.
    fn record_progress(&self, session: &Session, launch: usize) {
        if let Some(&step) = self.launches.step.get(launch) {
            session.monitor().set_node(step);
        }
    }
}
