//! A remark of RADV that is kept from the terminal.

/// RADV's remark when it enumerates a null device, which is on no bus. It is written to standard error.
#[cfg(target_os = "linux")]
const REMARK: &[u8] = b"ac_compute_device_uuid's output is based on invalid pci bus info";

/// Runs `act`. If standard error is a terminal, RADV's remark is left out of what is written to it meanwhile. A
/// file or a pipe gets everything, as it is written.
pub(super) fn without_remark<T>(act: impl FnOnce() -> T) -> T {
    #[cfg(target_os = "linux")]
    let _redirected = std::io::IsTerminal::is_terminal(&std::io::stderr()).then(Redirected::begin);
    act()
}

/// Standard error, redirected to a file in memory until this value is dropped. A pipe would block a writer that
/// nobody reads.
#[cfg(target_os = "linux")]
struct Redirected {
    before: std::fs::File,
    written: std::fs::File,
}

#[cfg(target_os = "linux")]
impl Redirected {
    /// Redirects standard error; `None` if the system refuses it.
    fn begin() -> Option<Redirected> {
        use std::os::fd::AsFd;
        let before = std::io::stderr().as_fd().try_clone_to_owned().ok()?.into();
        let written = memory()?;
        redirect(&written).then_some(Redirected { before, written })
    }
}

#[cfg(target_os = "linux")]
impl Drop for Redirected {
    /// Writes the other lines to where standard error was.
    fn drop(&mut self) {
        use std::io::{Read, Seek, Write};
        redirect(&self.before);
        let mut bytes = Vec::new();
        if self.written.rewind().and_then(|()| self.written.read_to_end(&mut bytes)).is_ok() {
            for line in bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| !line.starts_with(REMARK))
            {
                // Nobody can be told that the terminal is closed.
                let _ = self.before.write_all(line);
            }
        }
    }
}

/// Returns an empty file in memory.
#[cfg(target_os = "linux")]
fn memory() -> Option<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"standard error".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is new, so nothing else owns it.
    (fd >= 0).then(|| unsafe { std::fs::File::from_raw_fd(fd) })
}

/// Makes standard error the same as a file.
#[cfg(target_os = "linux")]
fn redirect(file: &std::fs::File) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: both descriptors are open: the first belongs to `file`, and standard error is never closed.
    unsafe { libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO) >= 0 }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    /// Other threads of the tests may write meanwhile: only the two lines are looked for.
    #[test]
    fn only_the_remark_is_left_out() {
        let mut shown = memory().unwrap();
        let outer = Redirected::begin().unwrap();
        assert!(redirect(&shown));
        let inner = Redirected::begin().unwrap();
        let mut lines = REMARK.to_vec();
        lines.extend(b".\nWARNING: another line\n");
        // `eprint` would be captured by the test's harness.
        std::io::stderr().write_all(&lines).unwrap();
        drop(inner);
        drop(outer);
        let mut text = String::new();
        shown.rewind().unwrap();
        shown.read_to_string(&mut text).unwrap();
        assert!(text.contains("WARNING: another line\n") && !text.contains("pci bus info"), "{text}");
    }
}
