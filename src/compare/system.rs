//! What differs between systems: how a process says what ended it.

use std::process::ExitStatus;

/// Name of the signal that ended a process.
#[cfg(unix)]
pub(super) fn ended_by(status: ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    status.signal().map(|signal| match signal {
        libc::SIGSEGV => "SIGSEGV".into(),
        libc::SIGABRT => "SIGABRT".into(),
        libc::SIGBUS => "SIGBUS".into(),
        libc::SIGILL => "SIGILL".into(),
        libc::SIGFPE => "SIGFPE".into(),
        libc::SIGKILL => "SIGKILL".into(),
        libc::SIGTERM => "SIGTERM".into(),
        libc::SIGTRAP => "SIGTRAP".into(),
        libc::SIGSYS => "SIGSYS".into(),
        other => format!("signal {other}"),
    })
}

/// Name of the exception that ended a process. Windows has no signals: the exit status is the exception's code, and
/// those of errors begin with the bits 11 (the NTSTATUS values of Microsoft's [MS-ERREF], section 2.3).
#[cfg(not(unix))]
pub(super) fn ended_by(status: ExitStatus) -> Option<String> {
    let code = status.code()? as u32;
    Some(match code {
        0..0xC000_0000 => return None,
        0xC000_0005 => "STATUS_ACCESS_VIOLATION".into(),
        0xC000_001D => "STATUS_ILLEGAL_INSTRUCTION".into(),
        0xC000_0094 => "STATUS_INTEGER_DIVIDE_BY_ZERO".into(),
        0xC000_00FD => "STATUS_STACK_OVERFLOW".into(),
        0xC000_0374 => "STATUS_HEAP_CORRUPTION".into(),
        0xC000_0409 => "STATUS_STACK_BUFFER_OVERRUN".into(),
        other => format!("exception {other:#010X}"),
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn signals_have_names() {
        assert_eq!(ended_by(ExitStatus::from_raw(11)).as_deref(), Some("SIGSEGV"));
        assert_eq!(ended_by(ExitStatus::from_raw(1)).as_deref(), Some("signal 1"));
        assert_eq!(ended_by(ExitStatus::from_raw(3 << 8)), None);
    }
}
