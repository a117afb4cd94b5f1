//! Events of the session: marks in a stream, and waiting for them.

use super::{EventId, Session};
use crate::driver::codes::Call;
use crate::driver::{Event, Stream};
use ggml_core::{Error, Result};
use std::time::Duration;

impl Session {
    /// Creates an event.
    pub(crate) fn create_event(&mut self, timing: bool) -> Result<EventId> {
        let event = self.call(Call::CreateEvent, |d| d.create_event(timing))?;
        self.events.push(event);
        Ok(EventId(self.events.len() - 1))
    }

    pub(super) fn event(&self, id: EventId) -> Result<Event> {
        self.events
            .get(id.0)
            .copied()
            .ok_or_else(|| Error::argument("event", "of another session", "one of this session"))
    }

    /// Records an event after all started work.
    pub(crate) fn record(&mut self, id: EventId) -> Result<()> {
        self.record_in(self.stream, id)
    }

    pub(super) fn record_in(&mut self, stream: Stream, id: EventId) -> Result<()> {
        let event = self.event(id)?;
        // SAFETY: event and stream are this session's; events live until it closes.
        self.call(Call::Record, |d| unsafe { d.record(event, stream) })
    }

    /// Returns true if everything before an event's last record is complete.
    pub(crate) fn complete(&self, id: EventId) -> Result<bool> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        let event = self.event(id)?;
        // SAFETY: as in `record`.
        self.call(Call::Query, |d| unsafe { d.complete(event) })
    }

    /// Polls an event until the current job's deadline.
    pub(crate) fn wait(&self, id: EventId) -> Result<()> {
        let mut pause = Duration::from_micros(10);
        let deadline = self.monitor.deadline();
        let mut polls = 0u32;
        while !self.complete(id)? {
            if deadline.passed() {
                return Err(self.monitor.timeout());
            }
            polls += 1;
            // Short work ends within a few polls; long work does not justify a busy core.
            if polls < 200 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(pause);
                pause = (pause * 5 / 4).min(Duration::from_micros(100));
            }
        }
        Ok(())
    }

    /// Returns the device time between two complete events, if the driver measures it.
    pub(crate) fn elapsed(&self, from: EventId, to: EventId) -> Option<Duration> {
        let (from, to) = (self.event(from).ok()?, self.event(to).ok()?);
        // SAFETY: as in `record`.
        let ms = self.attempt(Call::Elapsed, |d| unsafe { d.elapsed_ms(from, to) }).ok()??;
        Duration::try_from_secs_f64(f64::from(ms) / 1000.0).ok()
    }
}
