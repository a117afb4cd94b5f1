//! The machine of this process: options, driver, devices.

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use virtual_kfd::{Driver, Options, topology};

/// The driver; null before its first use, and after a fork in the child.
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
/// The driver of the process that forked this one.
static PARENTS: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());

/// Writes a line to standard error, which a program may have closed.
fn say(line: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "virtual-kfd: {line}");
}

/// Returns the options; `None` if they are wrong, which is said once.
pub(crate) fn options() -> Option<&'static Options> {
    static OPTIONS: OnceLock<Option<Options>> = OnceLock::new();
    OPTIONS.get_or_init(|| Options::from_environment().map_err(|e| say(&e)).ok()).as_ref()
}

/// Returns the driver; `None` if there can be none, which is said once.
pub(crate) fn driver() -> Option<&'static Driver> {
    if DRIVER.load(SeqCst).is_null() {
        let made = Driver::new(options()?).map_err(|e| {
            static SAID: AtomicBool = AtomicBool::new(false);
            if !SAID.swap(true, SeqCst) {
                say(&format_args!("no machine: {e}"));
            }
        });
        let made = Box::into_raw(Box::new(made.ok()?));
        if DRIVER.compare_exchange(std::ptr::null_mut(), made, SeqCst, SeqCst).is_err() {
            // SAFETY: made above, and published nowhere.
            drop(unsafe { Box::from_raw(made) });
        } else {
            register();
        }
    }
    // SAFETY: not null; a driver that was published is never freed.
    unsafe { DRIVER.load(SeqCst).as_ref() }
}

/// Registers what happens at the end of the process and in a child of a fork.
fn register() {
    extern "C" fn at_exit() {
        // SAFETY: as in `driver`.
        if let Some(driver) = unsafe { DRIVER.load(SeqCst).as_ref() } {
            driver.write_counts();
        }
    }
    // The child of a fork has no threads of queues: it begins anew, as a process that has not opened the device.
    extern "C" fn in_child() {
        let parents = DRIVER.swap(std::ptr::null_mut(), SeqCst);
        if !parents.is_null() {
            PARENTS.store(parents, SeqCst);
        }
    }
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, SeqCst) {
        // SAFETY: functions without arguments that live as long as this library, which nobody unloads.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(None, None, Some(in_child));
        }
    }
}

/// A device that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// `/dev/kfd`.
    Kfd,
    /// The render node of a card.
    Render(usize),
}

impl Node {
    /// Returns the device at a path.
    pub(crate) fn at(path: &CStr) -> Option<Node> {
        let path = path.to_bytes();
        if path == b"/dev/kfd" {
            return Some(Node::Kfd);
        }
        Node::render(std::str::from_utf8(path.strip_prefix(b"/dev/dri/renderD")?).ok()?.parse().ok()?)
    }

    /// Returns the render node of a number.
    pub(crate) fn render(minor: u32) -> Option<Node> {
        let card = minor.checked_sub(topology::FIRST_MINOR)? as usize;
        (card < options()?.cards.len()).then_some(Node::Render(card))
    }

    /// Opens it; -1 with errno if that fails.
    pub(crate) fn open(self) -> c_int {
        let card = match self {
            Node::Kfd => None,
            Node::Render(card) => Some(card),
        };
        driver().ok_or(libc::ENODEV).and_then(|driver| driver.open(card)).unwrap_or_else(failed)
    }
}

/// Returns the card of a render node's descriptor; the first one if it was opened in another way.
pub(crate) fn card_of(fd: c_int) -> usize {
    // SAFETY: as in `driver`.
    unsafe { DRIVER.load(SeqCst).as_ref() }.and_then(|driver| driver.card_of(fd)).unwrap_or(0)
}

/// Returns true if a descriptor is one of [`Node::open`], or a duplicate.
pub(crate) fn is_ours(fd: c_int) -> bool {
    // SAFETY: as in `driver`.
    unsafe { DRIVER.load(SeqCst).as_ref() }.is_some_and(|driver| driver.is_descriptor(fd))
}

/// Returns true if a descriptor is one that this process's parent opened before the fork.
pub(crate) fn is_parents(fd: c_int) -> bool {
    // SAFETY: as in `driver`; the child of a fork has a copy of its parent's driver.
    unsafe { PARENTS.load(SeqCst).as_ref() }.is_some_and(|driver| driver.is_descriptor(fd))
}

/// Answers an ioctl of `/dev/kfd`.
///
/// # Safety As [`Driver::ioctl`].
pub(crate) unsafe fn ioctl(request: u32, argument: *mut c_void) -> c_int {
    let Some(driver) = driver() else { return failed(libc::ENODEV) };
    // SAFETY: the caller's promise.
    let answer = unsafe { driver.ioctl(request, argument.cast()) };
    answer.map_or_else(failed, |()| 0)
}

/// Sets errno and returns -1.
pub(crate) fn failed(errno: c_int) -> c_int {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}
