//! Events that the layer below HIP reports asynchronously: memory faults and hangs of a device.
//!
//! libamdhip64 is built on libhsa-runtime64, which ends the process with `abort` when a device reports a
//! memory fault or a hang, unless a handler consumes the event. The handler here consumes it while a backend
//! of this crate is open: the process continues and every AMD backend in it is lost, since the affected
//! device is not identified. Events of a queue (an illegal instruction, a refused packet) go to a handler of
//! HIP's own, which cannot be replaced: before HIP 7 it ends the process.
//!
//! Some releases pass no event on, or a part of them only. So the kernel's driver is asked as well, see
//! [`crate::sys::kfd`]: whoever reports first has the word. From the first report on, events are consumed after the last
//! backend is closed, too: the runtime may be late with the same one. An application that goes on with HIP of its own in
//! such a process hears of no further event.

use crate::sys::kfd;
use crate::sys::library::Library;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Instant;

/// Name of the library, which libamdhip64 has loaded.
const LIBRARY: &str = "libhsa-runtime64.so.1";

/// `HSA_STATUS_SUCCESS`: the handler consumed the event. Any other status leaves it to the runtime.
const CONSUMED: c_int = 0;
/// `HSA_STATUS_ERROR`.
const NOT_CONSUMED: c_int = 0x1000;

/// `hsa_amd_event_t`: the kind of event, the device's agent, and words whose meaning depends on the kind.
#[repr(C)]
struct Event {
    kind: c_int,
    agent: u64,
    words: [u32; 3],
}

type Handler = unsafe extern "C" fn(*const Event, *mut c_void) -> c_int;
type Register = unsafe extern "C" fn(Handler, *mut c_void) -> c_int;

/// Text of the first event.
static REPORTED: OnceLock<String> = OnceLock::new();

/// Events of the kernel's driver; `None` if there is no such driver, or it refuses.
static KERNEL: OnceLock<Option<kfd::Events>> = OnceLock::new();

/// Milliseconds between two questions to the kernel's driver. Waits ask for events at every poll.
const INTERVAL_MS: u64 = 10;

/// Number of drivers that check for events.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// Guard: events are consumed while it lives.
#[derive(Debug)]
pub(super) struct EventGuard(());

impl EventGuard {
    /// Registers the handler, once per process, if the runtime supports handlers, and opens the kernel's events.
    /// Must follow `hipInit`: before it the library refuses. `node` is the path of `/dev/kfd`.
    pub(super) fn new(node: &Path) -> EventGuard {
        KERNEL.get_or_init(|| kfd::Events::open(node));
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            if let Err(why) = register() {
                tracing::debug!(target: "diptych::hip", "a memory fault will end the process: {why}");
            }
        });
        GUARDS.fetch_add(1, Ordering::Relaxed);
        EventGuard(())
    }
}

impl Drop for EventGuard {
    fn drop(&mut self) {
        GUARDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the text of the first event in this process.
pub(super) fn reported() -> Option<String> {
    if REPORTED.get().is_none()
        && let Some(text) = told_by_kernel()
    {
        let _ = REPORTED.set(text);
    }
    REPORTED.get().cloned()
}

/// Asks the kernel's driver, unless it was asked a moment ago.
fn told_by_kernel() -> Option<String> {
    static START: OnceLock<Instant> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let events = KERNEL.get()?.as_ref()?;
    let now = START.get_or_init(Instant::now).elapsed().as_millis() as u64;
    if now < NEXT.load(Ordering::Relaxed) {
        return None;
    }
    NEXT.store(now + INTERVAL_MS, Ordering::Relaxed);
    events.poll()
}

fn register() -> Result<(), String> {
    let library = Library::loaded(Path::new(LIBRARY)).ok_or_else(|| format!("{LIBRARY} is not loaded"))?;
    let name = c"hsa_amd_register_system_event_handler";
    let address = library.symbol(name).ok_or_else(|| format!("{LIBRARY} has no {name:?}"))?;
    // SAFETY: the address is that of the function with this name, which has this signature in every release
    // that has it; the library is never unloaded.
    let register = unsafe { std::mem::transmute::<*mut c_void, Register>(address) };
    // SAFETY: the handler lives as long as the process and uses no data.
    match unsafe { register(handle, null_mut()) } {
        0 => Ok(()),
        code => Err(format!("{name:?} returned {code:#x}")),
    }
}

/// Handler, called on a thread of the runtime: stores a text and does nothing else.
///
/// It also takes an event that the kernel's driver has told before: the backend may be closed by the time at which the
/// runtime gets to it, and its error reported.
unsafe extern "C" fn handle(event: *const Event, _data: *mut c_void) -> c_int {
    let concerns_no_one = GUARDS.load(Ordering::Relaxed) == 0 && REPORTED.get().is_none();
    if event.is_null() || concerns_no_one {
        return NOT_CONSUMED;
    }
    // SAFETY: the runtime passes an event that lives until this function returns. Each kind has at least the
    // words that `describe` reads of it, and the union is as large as the largest.
    let text = describe(unsafe { &*event });
    let _ = REPORTED.set(text);
    CONSUMED
}

fn describe(event: &Event) -> String {
    let Event { kind, agent, words: [low, high, mask] } = *event;
    let address = u64::from(high) << 32 | u64::from(low);
    match kind {
        0 => format!("{} (agent {agent:#x})", kfd::memory_fault(address, &reasons(mask))),
        // The first word is the kind of reset, which has one value, the second its cause.
        1 => format!("{} (agent {agent:#x})", reset(high)),
        2 => format!("memory error at {address:#x} (agent {agent:#x})"),
        other => format!("event {other} of the HSA runtime (agent {agent:#x})"),
    }
}

/// Returns what the bits of `hsa_amd_hw_exception_reset_cause_t` mean.
fn reset(cause: u32) -> String {
    const GPU_HANG: u32 = 1 << 0;
    const ECC: u32 = 1 << 1;
    match cause {
        cause if cause & GPU_HANG != 0 => kfd::HANG.into(),
        cause if cause & ECC != 0 => kfd::ECC.into(),
        other => format!("reset of the device with the unknown cause {other:#x}"),
    }
}

/// Returns the names of the bits of `hsa_amd_memory_fault_reason_t`.
fn reasons(mask: u32) -> String {
    const REASONS: [(u32, &str); 8] = [
        (1 << 0, "page not present"),
        (1 << 1, "read-only page"),
        (1 << 2, "page that is not executable"),
        (1 << 3, "page that only the host may access"),
        (1 << 4, "ECC failure of device memory"),
        (1 << 5, "inexact address"),
        (1 << 6, "ECC failure of on-chip memory"),
        (1 << 31, "hang"),
    ];
    let set = REASONS.iter().filter(|(bit, _)| mask & bit != 0);
    let mut found: Vec<String> = set.map(|(_, reason)| (*reason).into()).collect();
    let unknown = REASONS.iter().fold(mask, |mask, (bit, _)| mask & !bit);
    if unknown != 0 {
        found.push(format!("reason {unknown:#x}"));
    }
    if found.is_empty() { "no reason given".into() } else { found.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_described() {
        let event = |kind, words| describe(&Event { kind, agent: 7, words });
        assert_eq!(
            event(0, [0xdead_0000, 0x7f00, 0b10_0001]),
            "memory fault at 0x7f00dead0000: page not present, inexact address (agent 0x7)"
        );
        assert!(event(0, [0; 3]).contains("no reason given"));
        assert!(event(0, [0, 0, 1 << 31]).ends_with(": hang (agent 0x7)"));
        assert!(event(0, [0, 0, 1 << 7 | 1]).ends_with(": page not present, reason 0x80 (agent 0x7)"));
        // The kind of reset, always 1, and its cause.
        assert!(event(1, [1, 1, 0]).starts_with("hang of the device, which was reset"));
        assert!(event(1, [1, 2, 0]).starts_with("uncorrectable memory error, the device was reset"));
        assert!(event(1, [1, 4, 0]).starts_with("reset of the device with the unknown cause 0x4"));
        assert!(event(9, [0; 3]).starts_with("event 9 of the HSA runtime"));
    }
}
