//! Files that are replaced as a whole, and the root of system paths.

mod root;

pub use root::Root;

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file atomically and creates its folder if needed: a reader sees the old content or all of the new
/// one. Several threads and processes may write the same file; the last one that finishes wins.
///
/// # Errors
/// Errors of the file system; then the file is unchanged and no temporary file is left.
pub fn write_atomically(path: &Path, data: &[u8]) -> io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = std::fs::File::create_new(&temporary).and_then(|mut file| {
        file.write_all(data)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that threads which write the same file at the same time do not share a temporary file: each
    /// write succeeds, and the file always has the content of one of them.
    #[test]
    fn concurrent_writes_of_one_file_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file.bin");
        let content = |i: u8| vec![i; 1000 + usize::from(i)];
        std::thread::scope(|scope| {
            for i in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..10 {
                        write_atomically(path, &content(i)).unwrap();
                        let read = std::fs::read(path).unwrap();
                        assert_eq!(read, content(read[0]));
                    }
                });
            }
        });
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
        let blocked = path.join("c");
        assert!(write_atomically(&blocked, b"").is_err(), "the folder is a file");
    }
}
