//! The kernel's log since the start of a child, as far as this user may read it: what amdgpu, its compute driver and
//! the graphics core said.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Where the kernel offers its log.
pub(super) const PATH: &str = "/dev/kmsg";

/// The most lines that are kept, the last ones.
const LINES: usize = 40;

/// The most bytes of a line that are kept.
const LONGEST: usize = 300;

/// The most bytes that are read: the kernel's buffer is usually smaller.
const BYTES: usize = 4 << 20;

/// The longest time of reading: a log that grows faster than it is read has no end.
const LIMIT: Duration = Duration::from_millis(500);

/// Words of the drivers of a card.
const WORDS: [&str; 4] = ["amdgpu", "kfd", "drm", "gpu_sched"];

/// Lines of the kernel about graphics cards while a child ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLog {
    /// Lines about graphics cards, at most the last 40.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// The reason why the log was not read, and the command that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

impl KernelLog {
    /// True if nothing was logged, and nothing prevented its reading.
    pub fn is_empty(&self) -> bool {
        *self == KernelLog::default()
    }
}

/// The log from the moment of its opening on.
#[derive(Debug)]
pub(super) struct Since {
    opened: std::io::Result<File>,
    started: SystemTime,
}

impl Since {
    /// Remembers the end of the log at `path`.
    pub(super) fn now(path: &Path) -> Since {
        let mut options = OpenOptions::new();
        options.read(true);
        // Reading at the end has to return instead of waiting.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_CLOEXEC);
        let opened = options.open(path).and_then(|mut file| {
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        });
        Since { opened, started: SystemTime::now() }
    }

    /// Reads what was added since then.
    pub(super) fn read(self) -> KernelLog {
        let why = match self.opened {
            Ok(mut file) => return KernelLog { lines: lines(&mut file), unread: None },
            Err(error) => error,
        };
        // A system without this file has another log.
        if why.kind() == ErrorKind::NotFound {
            return KernelLog::default();
        }
        let at = humantime::format_rfc3339_seconds(self.started).to_string();
        let at = at.replace('T', " ").replace('Z', " UTC");
        let unread = format!(
            "the kernel's log was not read ({why}); as root: journalctl -k --since '{at}' | grep -E 'amdgpu|kfd|drm'"
        );
        KernelLog { lines: Vec::new(), unread: Some(unread) }
    }
}

/// Reads records "6,339,5140900,-;amdgpu 0000:43:00.0: a message", of which the kernel returns one for each call.
fn lines(log: &mut impl Read) -> Vec<String> {
    let (mut found, mut buffer, mut rest, mut read) = (Vec::new(), vec![0; 8192], String::new(), 0);
    let start = Instant::now();
    while read < BYTES && start.elapsed() < LIMIT {
        match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                read += n;
                rest.push_str(&String::from_utf8_lossy(&buffer[..n]));
                let complete = rest.rfind('\n').map_or(0, |at| at + 1);
                found.extend(rest[..complete].lines().filter_map(message));
                rest.drain(..complete);
            }
            // Records that were overwritten before they were read are skipped.
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) || e.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    found.extend(message(&rest));
    found.split_off(found.len().saturating_sub(LINES))
}

/// Returns the message of a record about graphics cards. Lines that begin with a space are fields of the one before.
fn message(line: &str) -> Option<String> {
    let (_, text) = line.split_once(';').filter(|_| !line.starts_with(' '))?;
    let text = text.trim_end();
    let is_word = |word: &&str| text.to_ascii_lowercase().contains(*word);
    WORDS.iter().any(is_word).then(|| text.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const FAULT: &str = "amdgpu 0000:43:00.0: [gfxhub0] no-retry page fault (src_id:0 ring:0 vmid:8)";

    #[test]
    fn lines_about_cards_since_the_start_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kmsg");
        std::fs::write(&path, format!("6,1,10,-;{FAULT} before\n")).unwrap();
        let since = Since::now(&path);
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        write!(log, "4,2,11,-;{FAULT}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:43:00.0;amdgpu\n").unwrap();
        write!(log, "6,3,12,-;usb 1-1: a secret name\n6,4,13,-;[DRM] ring timeout").unwrap();
        let found = since.read();
        assert_eq!(
            (found.lines.as_slice(), found.unread),
            (&[FAULT.into(), "[DRM] ring timeout".into()][..], None)
        );
    }

    #[test]
    fn it_is_bounded() {
        let text: String = (0..9000).map(|i| format!("6,{i},1,-;amdgpu {i} {}\n", "x".repeat(900))).collect();
        let found = lines(&mut text.as_bytes());
        assert!(found.len() == LINES && found.iter().all(|line| line.len() <= LONGEST));
    }

    #[test]
    fn a_log_that_may_not_be_read_has_a_command() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Since::now(&dir.path().join("absent")).read(), KernelLog::default());
        let denied =
            Since { opened: Err(ErrorKind::PermissionDenied.into()), started: SystemTime::UNIX_EPOCH };
        let note = denied.read().unread.unwrap();
        let command = "as root: journalctl -k --since '1970-01-01 00:00:00 UTC' | grep -E 'amdgpu|kfd|drm'";
        assert!(note.contains("permission denied") && note.ends_with(command), "{note}");
    }
}
