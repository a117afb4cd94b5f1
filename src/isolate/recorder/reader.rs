//! Reader of events, also while they are being written.

use super::Timed;
use crate::json;
use ggml_core::{Error, Result};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of the first read; each further one reads twice as many, up to [`CHUNK`]. Most calls find nothing new, and
/// they are made every few milliseconds while the child is measured.
const FIRST: usize = 256;

/// Maximum bytes of a read.
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
        let text = written_after(&mut self.file, self.end)?;
        let complete = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        self.end += complete as u64;
        let lines = text[..complete].split(|&b| b == b'\n').filter(|line| !line.is_empty());
        Ok(lines.filter_map(|line| json::read(line).ok()).collect())
    }

    /// Returns the offset of the next event.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

/// Returns the bytes from an offset to the reserved space after the events, which is zeros.
fn written_after(file: &mut (impl Read + Seek), begin: u64) -> std::io::Result<Vec<u8>> {
    let (mut text, mut size) = (Vec::new(), FIRST);
    file.seek(SeekFrom::Start(begin))?;
    while text.last() != Some(&0) {
        let before = text.len();
        text.resize(before + size, 0);
        let read = file.read(&mut text[before..])?;
        text.truncate(before + read);
        if read == 0 {
            break;
        }
        size = CHUNK.min(2 * size);
    }
    text.truncate(text.iter().position(|&b| b == 0).unwrap_or(text.len()));
    Ok(text)
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
    use std::io::{Cursor, Write};

    fn node(name: &str) -> Message {
        Message::Node { name: name.into() }
    }

    struct Counted {
        file: Cursor<Vec<u8>>,
        bytes: usize,
    }

    impl Read for Counted {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let read = self.file.read(out)?;
            self.bytes += read;
            Ok(read)
        }
    }

    impl Seek for Counted {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            self.file.seek(to)
        }
    }

    /// A call that finds nothing new reads little of the reserved space, and one that finds events reads little more
    /// than these.
    #[test]
    fn nothing_new_costs_little() {
        for written in [0, 1, 255, 256, 5_000, 300_000] {
            let mut file = vec![b'x'; written];
            file.resize(1 << 20, 0);
            let mut file = Counted { file: Cursor::new(file), bytes: 0 };
            assert_eq!(written_after(&mut file, 0).unwrap(), vec![b'x'; written]);
            assert!(file.bytes <= 512 + 2 * written, "{written}: {} bytes are read", file.bytes);
        }
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
