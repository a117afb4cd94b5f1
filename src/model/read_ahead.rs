//! Reading of a file's weights ahead of their upload.
//!
//! Some threads bring the pages that come next into memory while one uploads, so that it copies at the speed of memory
//! and waits neither for the disk nor for page faults. Behind it the pages are given back, if the device's memory is
//! the host's: then a model does not lie in memory twice.

use ggml_core::Result;
use ggml_core::mapped::MappedBytes;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most threads that read.
const READERS: usize = 4;
/// Part of the bytes that are read ahead, at most.
const SHARE: usize = 32;
/// Limits of the bytes that are read ahead.
const AHEAD: [usize; 2] = [1 << 20, 256 << 20];
/// Largest number of bytes of an upload, and of those that a thread reads at a time.
const MOST: usize = 64 << 20;
const PIECE: usize = 8 << 20;

/// The bytes that reading may be ahead of the uploads, and the threads that read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// Bytes between the upload and the last ones that are read.
    ahead: usize,
    readers: usize,
}

impl Window {
    /// Chooses for a number of bytes: with one thread of the processor nobody reads ahead.
    pub(super) fn of(bytes: usize) -> Window {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Window::with(bytes, threads)
    }

    fn with(bytes: usize, threads: usize) -> Window {
        let ahead = (bytes / SHARE).clamp(AHEAD[0], AHEAD[1]);
        Window { ahead, readers: if threads > 1 && bytes > AHEAD[0] { threads.min(READERS) } else { 0 } }
    }

    /// True if threads read, so that the system need not guess what comes next.
    pub(super) fn reads(self) -> bool {
        self.readers > 0
    }

    /// Returns the bytes to upload at a time, so that those in use stay within the window.
    pub(super) fn upload_bytes(self) -> usize {
        (self.ahead / 2).min(MOST)
    }

    fn piece(self) -> usize {
        (self.ahead / 4).min(PIECE)
    }
}

/// Where uploads and readers are.
#[derive(Default)]
struct Position {
    uploaded: usize,
    /// Number of the next piece that nobody reads yet.
    next: usize,
    /// Pieces that have been read, and how many of them have no other before.
    read: Vec<bool>,
    in_order: usize,
    /// True if nobody has to wait for the other side any more.
    ended: bool,
}

/// The pieces to read with the bytes before them, and the position.
struct Shared {
    pieces: Vec<(usize, MappedBytes)>,
    ahead: usize,
    position: Mutex<Position>,
    moved: Condvar,
}

impl Shared {
    fn new(runs: &[MappedBytes], window: Window) -> Result<Shared> {
        let pieces = pieces(runs, window.piece())?;
        let position = Position { read: vec![false; pieces.len()], ..Position::default() };
        Ok(Shared { pieces, ahead: window.ahead, position: Mutex::new(position), moved: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, position: MutexGuard<'a, Position>) -> MutexGuard<'a, Position> {
        self.moved.wait(position).unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Position)) {
        change(&mut self.lock());
        self.moved.notify_all();
    }

    /// Takes the next piece as soon as the uploads are near; `None` at the end.
    fn take(&self) -> Option<(usize, &MappedBytes)> {
        let mut position = self.lock();
        loop {
            let (before, piece) = self.pieces.get(position.next).filter(|_| !position.ended)?;
            if *before <= position.uploaded + self.ahead {
                position.next += 1;
                return Some((position.next - 1, piece));
            }
            position = self.wait(position);
        }
    }

    fn read(&self) {
        while let Some((number, piece)) = self.take() {
            let read = piece.populate();
            self.change(|position| {
                position.read[number] = true;
                while position.read.get(position.in_order) == Some(&true) {
                    position.in_order += 1;
                }
                // The uploads then read for themselves.
                position.ended |= !read;
            });
        }
    }

    /// Waits until all bytes before `end` have been read.
    fn wait_for(&self, end: usize) {
        let mut position = self.lock();
        while !position.ended && self.pieces.get(position.in_order).is_some_and(|(before, _)| *before < end) {
            position = self.wait(position);
        }
    }
}

/// Ends the readers, also if an upload fails or panics.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.change(|position| position.ended = true);
    }
}

/// Calls `upload` for one run of bytes after the other, each when it is in memory, while threads read what follows. Waits
/// for the file as long as the file system takes, as an upload does that reads the file itself.
///
/// # Errors
/// Errors of `upload`, which then is not called again.
pub(super) fn each(
    runs: &[MappedBytes],
    window: Window,
    mut upload: impl FnMut(usize, &MappedBytes) -> Result<()>,
) -> Result<()> {
    let shared = Shared::new(runs, window)?;
    std::thread::scope(|scope| {
        let ending = Ending(&shared);
        let start = |_: &usize| {
            let builder = std::thread::Builder::new().name("diptych-read".into());
            builder.spawn_scoped(scope, || shared.read()).is_ok()
        };
        // Without a further thread the uploads read for themselves.
        let readers = (0..window.readers).take_while(start).count();
        let mut uploaded = 0;
        let result = runs.iter().enumerate().try_for_each(|(i, run)| {
            if readers > 0 {
                shared.wait_for(uploaded + run.len());
            }
            upload(i, run)?;
            uploaded += run.len();
            shared.change(|position| position.uploaded = uploaded);
            Ok(())
        });
        drop(ending);
        result
    })
}

/// Cuts runs into pieces, with the bytes before each.
fn pieces(runs: &[MappedBytes], piece: usize) -> Result<Vec<(usize, MappedBytes)>> {
    let (mut all, mut before) = (Vec::new(), 0);
    for run in runs.iter().filter(|run| run.is_mapped()) {
        for from in (0..run.len()).step_by(piece.max(1)) {
            let part = run.slice(from..run.len().min(from + piece))?;
            let len = part.len();
            all.push((before, part));
            before += len;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::error::Error;

    fn mapped(bytes: usize) -> (tempfile::TempDir, MappedBytes) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, (0..bytes).map(|i| i as u8).collect::<Vec<_>>()).unwrap();
        let mapped = MappedBytes::map(&path).unwrap();
        (folder, mapped)
    }

    #[test]
    fn windows_suit_the_model() {
        assert_eq!(Window::with(4 << 30, 8), Window { ahead: 128 << 20, readers: 4 });
        assert_eq!(Window::with(64 << 30, 2), Window { ahead: 256 << 20, readers: 2 });
        assert_eq!(Window::with(4 << 30, 1).readers, 0);
        assert_eq!(Window::with(1 << 20, 8), Window { ahead: 1 << 20, readers: 0 });
        assert_eq!(
            (Window::with(4 << 30, 8).upload_bytes(), Window::with(0, 8).piece()),
            (64 << 20, 256 << 10)
        );
    }

    /// Every run comes once, in order, whatever the readers do; pieces are the runs, without gaps.
    #[test]
    fn all_bytes_arrive_in_order() {
        let (_folder, all) = mapped(1_000_000);
        let runs: Vec<MappedBytes> =
            (0..10).map(|i| all.slice(i * 100_000..(i + 1) * 100_000).unwrap()).collect();
        for readers in [0, 1, 4] {
            let window = Window { ahead: 150_000, readers };
            let mut seen = Vec::new();
            let take = |i: usize, run: &MappedBytes| {
                assert_eq!(**run, *runs[i]);
                seen.push(i);
                Ok(())
            };
            each(&runs, window, take).unwrap();
            assert_eq!(seen, (0..10).collect::<Vec<_>>());
        }
        let cut = pieces(&runs, 30_000).unwrap();
        assert_eq!(cut.len(), 40);
        assert_eq!((cut[4].0, cut[4].1.len(), cut[7].1.len()), (100_000, 30_000, 10_000));
        assert!(pieces(&[MappedBytes::from(vec![1, 2, 3])], 1).unwrap().is_empty());
    }

    /// Readers stay within the window: with nothing uploaded, they take what begins within it and wait.
    #[test]
    fn readers_wait_for_uploads() {
        let (_folder, all) = mapped(1_000_000);
        let shared = Shared::new(&[all], Window { ahead: 400_000, readers: 0 }).unwrap();
        for number in 0..5 {
            assert_eq!(shared.take().map(|(n, piece)| (n, piece.len())), Some((number, 100_000)));
        }
        std::thread::scope(|scope| {
            let sixth = scope.spawn(|| shared.take().map(|(number, _)| number));
            shared.change(|position| position.uploaded = 99_999);
            assert!(!sixth.is_finished());
            shared.change(|position| position.uploaded = 100_000);
            assert_eq!(sixth.join().unwrap(), Some(5));
        });
        shared.change(|position| position.ended = true);
        assert!(shared.take().is_none());
    }

    /// Uploads wait for all pieces of their bytes, in whatever order these are read.
    #[test]
    fn uploads_wait_for_readers() {
        let (_folder, all) = mapped(1_000_000);
        let shared = Shared::new(&[all], Window { ahead: 400_000, readers: 0 }).unwrap();
        shared.change(|position| (position.read[1], position.in_order) = (true, 0));
        std::thread::scope(|scope| {
            let upload = scope.spawn(|| shared.wait_for(200_000));
            assert!(!upload.is_finished());
            shared.change(|position| position.in_order = 1);
            assert!(!upload.is_finished());
            shared.change(|position| position.in_order = 2);
            upload.join().unwrap();
        });
        // Nor do they wait for readers that have ended.
        shared.change(|position| position.ended = true);
        shared.wait_for(1_000_000);
    }

    /// A failed upload ends the readers, which wait for it.
    #[test]
    fn a_failure_ends_it() {
        let (_folder, all) = mapped(1_000_000);
        let runs = vec![all; 3];
        let mut calls = 0;
        let failing = |_: usize, _: &MappedBytes| {
            calls += 1;
            Err(Error::argument("upload", "failed", ""))
        };
        assert!(each(&runs, Window { ahead: 1, readers: 4 }, failing).is_err());
        assert_eq!(calls, 1);
    }
}
