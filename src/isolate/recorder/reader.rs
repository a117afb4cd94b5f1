//! Reader of events, also while they are being written.

use super::Timed;
use crate::json;
use ggml_core::{Error, Result};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes per read.
const CHUNK: usize = 64 << 10;

/// Reader of a growing file of events.
#[derive(Debug)]
pub(crate) struct Follower {
    file: File,
    /// Offset of the first event that has not been read.
    end: u64,
}

impl Follower {
    /// Opens a file, starting at its first event.
    pub(crate) fn open(path: &Path) -> Result<Follower> {
        Ok(Follower { file: File::open(path).map_err(|e| Error::io(path, e))?, end: 0 })
    }

    /// Returns the events added since the last call. Invalid lines, such as one torn by a full disk, are
    /// skipped.
    pub(crate) fn next<E: DeserializeOwned>(&mut self) -> std::io::Result<Vec<Timed<E>>> {
        let mut text = Vec::new();
        let mut chunk = vec![0; CHUNK];
        self.file.seek(SeekFrom::Start(self.end))?;
        // The reserved space after the events is zeros.
        while text.last() != Some(&0) {
            match self.file.read(&mut chunk)? {
                0 => break,
                n => text.extend_from_slice(&chunk[..n]),
            }
        }
        let written = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        let complete = text[..written].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        self.end += complete as u64;
        let lines = text[..complete].split(|&b| b == b'\n').filter(|line| !line.is_empty());
        Ok(lines.filter_map(|line| json::read(line).ok()).collect())
    }

    /// Returns the offset of the next event.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

/// Reads all events of a file.
pub(crate) fn read<E: DeserializeOwned>(path: &Path) -> Result<Vec<Timed<E>>> {
    Follower::open(path)?.next().map_err(|e| Error::io(path, e))
}

#[cfg(test)]
mod tests {
    use super::super::{Sync, Writer, create};
    use super::*;
    use crate::isolate::protocol::Message;
    use std::io::Write;

    fn node(name: &str) -> Message {
        Message::Node { name: name.into() }
    }

    /// Events arrive once and in order, also beyond the reserved space; torn lines are skipped.
    #[test]
    fn events_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        create(&path).unwrap();
        let room = std::fs::metadata(&path).unwrap().len();
        let mut follower = Follower::open(&path).unwrap();
        assert!(follower.next::<Message>().unwrap().is_empty());
        let mut writer = Writer::open(&path, 0).unwrap();
        for round in 0..3 {
            let sent: Vec<Message> =
                (0..2000).map(|i| node(&format!("{round} {i} {}", "x".repeat(50)))).collect();
            for message in &sent {
                writer.append(message, Sync::Lazy, "").unwrap();
            }
            let got: Vec<Message> = follower.next().unwrap().into_iter().map(|e| e.event).collect();
            assert_eq!(got, sent);
        }
        assert!(std::fs::metadata(&path).unwrap().len() > room, "the test means to fill the room");
        assert_eq!(read::<Message>(&path).unwrap().len(), 6000);

        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"at\": 1.0, \"event\": \"no").unwrap();
        assert!(follower.next::<Message>().unwrap().is_empty(), "not an entire line yet");
        file.write_all(b"de\", \"name\":\xff\n{\"at\":2.0,\"event\":\"leaving\"}\n").unwrap();
        let got: Vec<Message> = follower.next().unwrap().into_iter().map(|e| e.event).collect();
        assert_eq!(got, [Message::Leaving]);
    }
}
