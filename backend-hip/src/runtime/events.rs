//! Events that runs use.

use super::session::{EventId, Session};
use ggml_core::Result;

/// Marks of progress that are under way at a time.
pub(crate) const MARKS: usize = 64;

/// Graphs of a program, a mark behind each: an error in one of them names the first node of a part of the program.
pub(crate) const GRAPHS: usize = 4;

/// Sets for runs that begin ahead: two programs take turns.
pub(crate) const AHEAD: usize = 2;

/// Events that runs use. Runs that are waited for at once do not overlap, so one set serves all programs; each run that
/// begins ahead has one of its own.
#[derive(Clone, Debug)]
pub(crate) struct RunEvents {
    /// Marks of progress.
    pub(crate) marks: Vec<EventId>,
    /// Begin and end of a run, where its time is measured.
    pub(crate) timing: Option<(EventId, EventId)>,
}

impl RunEvents {
    /// Makes the events: so many marks.
    pub(crate) fn open(session: &mut Session, marks: usize, timing: bool) -> Result<RunEvents> {
        let marks = (0..marks).map(|_| session.create_event(false)).collect::<Result<_>>()?;
        let timing =
            if timing { Some((session.create_event(true)?, session.create_event(true)?)) } else { None };
        Ok(RunEvents { marks, timing })
    }

    /// Waits for everything that was started.
    pub(crate) fn drain(&self, session: &mut Session) -> Result<()> {
        let Some(&mark) = self.marks.first() else { return Ok(()) };
        session.record(mark)?;
        session.wait(mark)
    }
}
