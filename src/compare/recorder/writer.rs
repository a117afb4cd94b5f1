//! Appending events.

use super::Timed;
use ggml_core::{Error, Result};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Zero bytes that a file begins with: a few thousand events need no other space.
const ROOM: usize = 256 << 10;

/// Acts that were announced before are made to reach the disk no more often than this: so much is unknown at most after
/// the machine has stopped. (What was written reaches the file at once in any case.)
const SYNC_EVERY: Duration = Duration::from_millis(50);

/// Whether an event has to be on the disk before what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::compare) enum Sync {
    /// Not: it announces nothing that may stop the machine.
    Lazy,
    /// It announces an act of this name: at once where the act is new, else not too often.
    Act,
    /// At once.
    Now,
}

/// Makes an empty file with room in it.
pub(in crate::compare) fn create(path: &Path) -> Result<()> {
    let made = File::create(path).and_then(|mut file| {
        file.write_all(&vec![0; ROOM])?;
        file.sync_all()
    });
    made.map_err(|e| Error::io(path, e))
}

/// Appends to a file of events.
#[derive(Debug)]
pub(in crate::compare) struct Writer {
    file: File,
    /// Where the next event goes.
    end: u64,
    start: Instant,
    synced: Instant,
    known: HashSet<String>,
}

impl Writer {
    /// Continues a file whose events end at that byte.
    pub(in crate::compare) fn open(path: &Path, end: u64) -> Result<Writer> {
        let file = OpenOptions::new().write(true).open(path).map_err(|e| Error::io(path, e))?;
        let now = Instant::now();
        Ok(Writer { file, end, start: now, synced: now, known: HashSet::new() })
    }

    /// Gives the room back that is left.
    pub(in crate::compare) fn trim(&self) {
        // Zeros at the end do no harm.
        let _ = self.file.set_len(self.end);
    }

    /// Adds an event; `act` is what it announces. An error loses the event and nothing else.
    pub(in crate::compare) fn append<E: Serialize>(
        &mut self,
        event: E,
        sync: Sync,
        act: &str,
    ) -> std::io::Result<()> {
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
