//! System-specific code: the signal or exception that ended a process, and the kernel's description of a
//! process that does not end.

use super::record::Stuck;
use std::path::Path;
use std::process::ExitStatus;

/// Name of the signal that a terminal sends to end a program.
pub(crate) const INTERRUPT: &str = "SIGINT";

/// True if a signal of this name was sent by somebody: no instruction causes it.
pub(crate) fn is_from_outside(signal: &str) -> bool {
    ["SIGHUP", INTERRUPT, "SIGKILL", "SIGQUIT", "SIGTERM"].contains(&signal)
}

/// Reads the kernel's description of a process that does not end when it is killed, below `proc` (`/proc`).
/// Fields that are not readable, or are missing on other systems, are empty.
pub(crate) fn stuck(proc: &Path, pid: u32) -> Stuck {
    let read =
        |name: &str| std::fs::read_to_string(proc.join(pid.to_string()).join(name)).unwrap_or_default();
    let status = read("status");
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default();
    // "[<0>] amdgpu_fence_wait+0x1c/0x40 [amdgpu]"
    let function = |line: &str| line.split_once("] ").map_or(line, |(_, name)| name).trim().to_string();
    Stuck {
        state: state.trim().into(),
        wchan: read("wchan").trim_matches(['0', '\n']).into(),
        stack: read("stack").lines().map(function).filter(|line| !line.is_empty()).collect(),
    }
}

/// Returns the resident bytes of this process.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the name of the signal that ended a process.
#[cfg(unix)]
pub(crate) fn ended_by(status: ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    status.signal().map(|signal| match signal {
        libc::SIGINT => INTERRUPT.into(),
        libc::SIGSEGV => "SIGSEGV".into(),
        libc::SIGABRT => "SIGABRT".into(),
        libc::SIGBUS => "SIGBUS".into(),
        libc::SIGILL => "SIGILL".into(),
        libc::SIGFPE => "SIGFPE".into(),
        libc::SIGHUP => "SIGHUP".into(),
        libc::SIGQUIT => "SIGQUIT".into(),
        libc::SIGKILL => "SIGKILL".into(),
        libc::SIGTERM => "SIGTERM".into(),
        libc::SIGTRAP => "SIGTRAP".into(),
        libc::SIGSYS => "SIGSYS".into(),
        other => format!("signal {other}"),
    })
}

/// Returns the name of the exception that ended a process. Windows has no signals: the exit status is the
/// exception's code, and the codes of errors start with the bits 11 (the NTSTATUS values of Microsoft's
/// [MS-ERREF], section 2.3).
#[cfg(not(unix))]
pub(crate) fn ended_by(status: ExitStatus) -> Option<String> {
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

    /// A recorded description of a process; the description of a missing process is empty.
    #[test]
    fn a_process_that_does_not_end_is_described() {
        let dir = tempfile::tempdir().unwrap();
        let process = dir.path().join("77");
        std::fs::create_dir(&process).unwrap();
        std::fs::write(process.join("status"), "Name:\tcompare\nState:\tD (disk sleep)\nPid:\t77\n").unwrap();
        std::fs::write(process.join("wchan"), "amdgpu_fence_wait").unwrap();
        let stack = "[<0>] amdgpu_fence_wait+0x1c/0x40 [amdgpu]\n[<0>] do_syscall_64+0x5b/0x80\n";
        std::fs::write(process.join("stack"), stack).unwrap();
        let known = stuck(dir.path(), 77);
        assert_eq!((known.state.as_str(), known.wchan.as_str()), ("D (disk sleep)", "amdgpu_fence_wait"));
        assert_eq!(known.stack, ["amdgpu_fence_wait+0x1c/0x40 [amdgpu]", "do_syscall_64+0x5b/0x80"]);
        assert_eq!(
            known.describe(),
            "it is in state D (disk sleep) in the kernel's amdgpu_fence_wait (amdgpu_fence_wait+0x1c/0x40 [amdgpu] < \
             do_syscall_64+0x5b/0x80)"
        );
        assert_eq!(stuck(dir.path(), 78), Stuck::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_in_memory() {
        assert!(resident().unwrap() > 1 << 20);
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(ended_by(ExitStatus::from_raw(11)).as_deref(), Some("SIGSEGV"));
        assert_eq!(ended_by(ExitStatus::from_raw(1)).as_deref(), Some("SIGHUP"));
        assert_eq!(ended_by(ExitStatus::from_raw(10)).as_deref(), Some("signal 10"));
        assert_eq!(ended_by(ExitStatus::from_raw(3 << 8)), None);
    }
}
