//! Events that the layer below HIP reports asynchronously: memory faults and hangs of a device.
//!
//! libamdhip64 is built on libhsa-runtime64, which ends the process with `abort` when a device reports a
//! memory fault or a hang, unless a handler consumes the event. The handler here consumes it while a backend
//! of this crate is open: the process continues and every AMD backend in it is lost, since the affected
//! device is not identified. Events of a queue (an illegal instruction, a refused packet) go to a handler of
//! HIP's own, which cannot be replaced: before HIP 7 it ends the process.

use crate::sys::library::Library;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

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

/// Number of drivers that check for events.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// Guard: events are consumed while it lives.
#[derive(Debug)]
pub(super) struct EventGuard(());

impl EventGuard {
    /// Registers the handler, once per process, if the runtime supports handlers. Must follow `hipInit`:
    /// before it the library refuses.
    pub(super) fn new() -> EventGuard {
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
    REPORTED.get().cloned()
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
unsafe extern "C" fn handle(event: *const Event, _data: *mut c_void) -> c_int {
    if event.is_null() || GUARDS.load(Ordering::Relaxed) == 0 {
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
        0 => format!("memory fault at {address:#x}: {} (agent {agent:#x})", reasons(mask)),
        // The kind of reset, then its cause.
        1 if high == 0 => format!("hang of the device, which was reset (agent {agent:#x})"),
        1 => format!("uncorrectable memory error, the device was reset (agent {agent:#x})"),
        2 => format!("memory error at {address:#x} (agent {agent:#x})"),
        other => format!("event {other} of the HSA runtime (agent {agent:#x})"),
    }
}

/// Returns the names of the bits of `hsa_amd_memory_fault_reason_t`.
fn reasons(mask: u32) -> String {
    const REASONS: [&str; 8] = [
        "page not present",
        "read-only page",
        "page that is not executable",
        "page that only the host may access",
        "ECC failure of device memory",
        "inexact address",
        "ECC failure of on-chip memory",
        "hang",
    ];
    let set = |(bit, reason): (usize, &&'static str)| (mask >> bit & 1 == 1).then_some(*reason);
    let found: Vec<&str> = REASONS.iter().enumerate().filter_map(set).collect();
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
        assert!(event(1, [0, 0, 0]).starts_with("hang of the device"));
        assert!(event(9, [0; 3]).starts_with("event 9 of the HSA runtime"));
    }
}
