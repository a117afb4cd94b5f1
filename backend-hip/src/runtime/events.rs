//! Events used by runs.

use super::session::{EventId, Session};
use ggml_core::Result;

/// Number of progress marks in flight at a time.
pub(crate) const MARKS: usize = 64;

/// Number of graphs of a program, each followed by a mark. An error in a graph names its first node.
pub(crate) const GRAPHS: usize = 4;

/// Sets of events for runs that begin ahead: two programs alternate.
pub(crate) const AHEAD: usize = 2;

/// Events used by runs. Runs that are waited for immediately do not overlap, so one set serves all programs;
/// each run that begins ahead has a set of its own.
#[derive(Clone, Debug)]
pub(crate) struct RunEvents {
    /// Progress marks.
    pub(crate) marks: Vec<EventId>,
    /// Start and end of a run, if its time is measured.
    pub(crate) timing: Option<(EventId, EventId)>,
}

impl RunEvents {
    /// Creates the events, with the given number of marks.
    pub(crate) fn open(session: &mut Session, marks: usize, timing: bool) -> Result<RunEvents> {
        let marks = (0..marks).map(|_| session.create_event(false)).collect::<Result<_>>()?;
        let timing =
            if timing { Some((session.create_event(true)?, session.create_event(true)?)) } else { None };
        Ok(RunEvents { marks, timing })
    }

    /// Waits for all started work.
    pub(crate) fn drain(&self, session: &mut Session) -> Result<()> {
        let Some(&mark) = self.marks.first() else { return Ok(()) };
        session.record(mark)?;
        session.wait(mark)
    }
}
