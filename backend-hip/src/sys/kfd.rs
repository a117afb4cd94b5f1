//! The kernel's compute driver (`/dev/kfd`): the version of its interface, and its events of memory faults and resets.
//!
//! Runtimes differ in what they pass on. HIP 5.2 ignores a reset of the device, and the work that it ended never
//! completes; HIP 7.2 reports one as a failed launch. The driver itself tells every process that has a device open,
//! whatever its runtime does.

#[cfg(target_os = "linux")]
pub(crate) use linux::{Events, version};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{Events, version};

/// Text of a memory fault: its address in hexadecimal digits, and the reasons.
pub(crate) fn memory_fault(address: u64, reasons: &str) -> String {
    format!("memory fault at {address:#x}: {reasons}")
}

/// Text of a reset after a hang.
pub(crate) const HANG: &str = "hang of the device, which was reset";
/// Text of a reset after a memory error.
pub(crate) const ECC: &str = "uncorrectable memory error, the device was reset";

#[cfg(target_os = "linux")]
mod linux {
    use super::{ECC, HANG, memory_fault};
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsRawFd;
    use std::path::Path;

    /// `kfd_ioctl_get_version_args`.
    #[repr(C)]
    #[derive(Default)]
    struct Version {
        major: u32,
        minor: u32,
    }

    /// `kfd_ioctl_create_event_args`.
    #[repr(C)]
    #[derive(Default)]
    struct CreateEvent {
        page_offset: u64,
        trigger_data: u32,
        event_type: u32,
        auto_reset: u32,
        node_id: u32,
        event_id: u32,
        slot_index: u32,
    }

    /// `kfd_event_data`: what an event tells, in a layout that depends on its kind; a pointer to more; its number.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct EventData {
        reported: [u32; 8],
        more: u64,
        event_id: u32,
        pad: u32,
    }

    /// `kfd_ioctl_wait_events_args`.
    #[repr(C)]
    #[derive(Default)]
    struct WaitEvents {
        events: u64,
        count: u32,
        all: u32,
        timeout_ms: u32,
        result: u32,
    }

    const READ: u64 = 2;
    const READ_WRITE: u64 = 3;
    /// `KFD_IOC_EVENT_HW_EXCEPTION`.
    const HARDWARE: u32 = 3;
    /// `KFD_IOC_EVENT_MEMORY`.
    const MEMORY: u32 = 8;
    /// `KFD_IOC_WAIT_RESULT_COMPLETE`.
    const COMPLETE: u32 = 0;

    /// Returns the number of a request of the kernel's driver 'K'.
    const fn request<T>(direction: u64, number: u64) -> u64 {
        direction << 30 | (size_of::<T>() as u64) << 16 | (b'K' as u64) << 8 | number
    }

    /// Makes a request. Returns false if the driver refuses it.
    ///
    /// # Safety
    /// `T` must be the structure of the request `number`, and pointers in it must be valid for what the request does.
    unsafe fn call<T>(file: &File, direction: u64, number: u64, arguments: &mut T) -> bool {
        let arguments: *mut T = arguments;
        // SAFETY: the request's number contains the structure's size, of which the kernel reads and writes no more;
        // the caller guarantees the rest.
        unsafe { libc::ioctl(file.as_raw_fd(), request::<T>(direction, number) as _, arguments) == 0 }
    }

    fn open(path: &Path) -> Option<File> {
        OpenOptions::new().read(true).write(true).open(path).ok()
    }

    /// Returns major and minor version of the interface of the driver behind a node; `None` if the node cannot be
    /// opened or is none of this driver.
    pub(crate) fn version(path: &Path) -> Option<(u32, u32)> {
        let file = open(path)?;
        let mut version = Version::default();
        // SAFETY: request 1 writes these two numbers.
        unsafe { call(&file, READ, 1, &mut version) }.then_some((version.major, version.minor))
    }

    /// Two events of this process: one for memory faults, one for resets. They stay set, and need no thread.
    #[derive(Debug)]
    pub(crate) struct Events {
        file: File,
        memory: u32,
        hardware: u32,
    }

    impl Events {
        /// Creates the events; `None` if the driver refuses.
        pub(crate) fn open(path: &Path) -> Option<Events> {
            let file = open(path)?;
            let create = |event_type| {
                let mut event = CreateEvent { event_type, ..CreateEvent::default() };
                // SAFETY: request 8 reads and writes this structure, and has no pointers.
                unsafe { call(&file, READ_WRITE, 8, &mut event) }.then_some(event.event_id)
            };
            let (memory, hardware) = (create(MEMORY)?, create(HARDWARE)?);
            Some(Events { file, memory, hardware })
        }

        /// Returns what happened to a device of this process since the events were created. Does not wait.
        pub(crate) fn poll(&self) -> Option<String> {
            let fault = self.look(self.memory).map(|reported| describe_fault(&reported));
            fault.or_else(|| self.look(self.hardware).map(|reported| describe_reset(&reported)))
        }

        fn look(&self, event_id: u32) -> Option<[u32; 8]> {
            let mut data = EventData { event_id, ..EventData::default() };
            let events = (&raw mut data).expose_provenance() as u64;
            let mut wait = WaitEvents { events, count: 1, ..WaitEvents::default() };
            // SAFETY: request 12 reads and writes this structure and `count` elements at `events`, here `data`, which
            // is live and used by nothing else during the call.
            let answered = unsafe { call(&self.file, READ_WRITE, 12, &mut wait) };
            (answered && wait.result == COMPLETE).then_some(data.reported)
        }
    }

    /// Describes `kfd_hsa_memory_exception_data`: four flags, the address, the device, the type of an error.
    pub(super) fn describe_fault(reported: &[u32; 8]) -> String {
        const REASONS: [&str; 4] =
            ["page not present", "read-only page", "page that is not executable", "inexact address"];
        const ERRORS: [&str; 4] = ["", "ECC failure of on-chip memory", "link error", "hang"];
        let flags = REASONS.iter().zip(reported).filter(|(_, flag)| **flag != 0).map(|(reason, _)| *reason);
        let error = ERRORS.get(reported[7] as usize).copied().unwrap_or("unknown error");
        let all: Vec<&str> = flags.chain([error]).filter(|reason| !reason.is_empty()).collect();
        let reasons = if all.is_empty() { "no reason given".into() } else { all.join(", ") };
        memory_fault(u64::from(reported[5]) << 32 | u64::from(reported[4]), &reasons)
    }

    /// Describes `kfd_hsa_hw_exception_data`: the type of the reset, its cause, whether memory was lost, the device.
    pub(super) fn describe_reset(reported: &[u32; 8]) -> String {
        match reported[1] {
            0 => HANG.into(),
            1 => ECC.into(),
            cause => format!("reset of the device with the unknown cause {cause:#x}"),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::path::Path;

    /// There is no such driver on this system.
    pub(crate) fn version(_: &Path) -> Option<(u32, u32)> {
        None
    }

    /// There are no such events on this system.
    #[derive(Debug)]
    pub(crate) struct Events(std::convert::Infallible);

    impl Events {
        /// Returns `None`.
        pub(crate) fn open(_: &Path) -> Option<Events> {
            None
        }

        /// Cannot be called.
        pub(crate) fn poll(&self) -> Option<String> {
            match self.0 {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::{describe_fault, describe_reset};
    use super::*;

    #[test]
    fn events_are_described() {
        let fault = |flags: [u32; 4], error| {
            let [a, b, c, d] = flags;
            describe_fault(&[a, b, c, d, 0xdead_0000, 0x7f00, 1234, error])
        };
        assert_eq!(fault([1, 0, 0, 0], 0), "memory fault at 0x7f00dead0000: page not present");
        assert_eq!(fault([0, 1, 0, 1], 0), "memory fault at 0x7f00dead0000: read-only page, inexact address");
        assert_eq!(fault([0; 4], 3), "memory fault at 0x7f00dead0000: hang");
        assert_eq!(fault([0; 4], 0), "memory fault at 0x7f00dead0000: no reason given");
        // The kernel's causes are numbers; the runtime's are bits.
        assert_eq!(describe_reset(&[0; 8]), HANG);
        assert_eq!(describe_reset(&[0, 1, 0, 0, 0, 0, 0, 0]), ECC);
        assert!(describe_reset(&[0, 9, 0, 0, 0, 0, 0, 0]).contains("unknown cause 0x9"));
    }

    /// A file that is no node of the driver is no error.
    #[test]
    fn other_files_have_no_version() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(version(file.path()), None);
        assert!(Events::open(file.path()).is_none());
        assert_eq!(version(std::path::Path::new("/nowhere/kfd")), None);
    }
}
