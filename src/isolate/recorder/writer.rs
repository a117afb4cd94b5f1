//! Writer of events.

use super::Timed;
use ggml_core::{Error, Result, files};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Zero bytes at the start of a file, reserved for a few thousand events.
const ROOM: usize = 256 << 10;

/// Minimum interval between disk syncs for acts that were announced before. It limits the events that are
/// lost when the machine stops. (Every event is written to the file immediately in any case.)
const SYNC_EVERY: Duration = Duration::from_millis(50);

/// When an event has to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// No sync: it announces nothing that may stop the machine.
    Lazy,
    /// The event announces an act: synced immediately if an act of this name is new, else at most every
    /// [`SYNC_EVERY`].
    Act,
    /// Synced immediately.
    Now,
}

/// Creates a file that contains only the reserved space.
pub(crate) fn create(path: &Path) -> Result<()> {
    files::write_atomically(path, &vec![0; ROOM]).map_err(|e| Error::io(path, e))
}

/// Writer that appends to a file of events.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    /// Offset of the next event.
    end: u64,
    start: Instant,
    synced: Instant,
    known: HashSet<String>,
}

impl Writer {
    /// Begins a file that [`create`] made and nobody has written to.
    pub(crate) fn begin(path: &Path) -> Result<Writer> {
        let mut first = [1];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
        read.map_err(|e| Error::io(path, e))?;
        match first {
            [0] => Writer::open(path, 0),
            _ => {
                Err(Error::argument(path.display().to_string(), "has other contents", "a new file of events"))
            }
        }
    }

    /// Continues a file whose events end at byte `end`.
    pub(crate) fn open(path: &Path, end: u64) -> Result<Writer> {
        let file = files::open_to_write(path).map_err(|e| Error::io(path, e))?;
        let now = Instant::now();
        Ok(Writer { file, end, start: now, synced: now, known: HashSet::new() })
    }

    /// Releases the rest of the reserved space.
    pub(crate) fn trim(&self) {
        // If it fails, zeros at the end do no harm.
        let _ = self.file.set_len(self.end);
    }

    /// Appends an event; `act` is the act that it announces. An error loses only this event.
    pub(crate) fn append<E: Serialize>(&mut self, event: E, sync: Sync, act: &str) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&Timed { at: self.start.elapsed().as_secs_f64(), event })?;
        line.push(b'\n');
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&line)?;
        self.end += line.len() as u64;
        let due = match sync {
            Sync::Lazy => false,
            Sync::Act => self.known.insert(act.into()) || self.synced.elapsed() > SYNC_EVERY,
            Sync::Now => true,
        };
        if due {
            self.file.sync_data()?;
            self.synced = Instant::now();
        }
        Ok(())
    }
}
