//! Management tools: opens their descriptors, and writes the lines of events.

use crate::abi::SmiEvents;
use crate::shared::{Answer, Shared};
use crate::smi::Smi;
use crate::topology::gpu_id;
use std::os::fd::IntoRawFd;
use std::sync::atomic::Ordering::SeqCst;

/// `KFD_QUEUE_EVICTION_TRIGGER_SUSPEND`.
const SUSPENDED: u32 = 3;
/// Cause of a reset in words (`amdgpu_reset_get_desc`).
const CAUSE: &str = "HWS hang";

impl Shared {
    /// Opens a descriptor of a card's events.
    pub(crate) fn open_events(&self, a: &mut SmiEvents) -> Answer {
        let card = self.card(a.gpu_id)?;
        a.fd = self.smi[card].open()?.into_raw_fd() as u32;
        Ok(())
    }

    /// Informs the tools that want it of an event of a card.
    pub(crate) fn inform(&self, card: usize, event: Smi) {
        let listeners = &self.smi[card];
        let pid = std::process::id();
        // The events of queues came with 1.10.
        if event == Smi::QueuesEvicted && self.minor < 10 {
            return;
        }
        let text = match event {
            Smi::PageFault => format!("{pid:x}:{}", program()),
            Smi::BeforeReset => format!("{:x} {CAUSE}", listeners.resets.fetch_add(1, SeqCst) + 1),
            Smi::AfterReset => format!("{:x} ", listeners.resets.load(SeqCst)),
            Smi::QueuesEvicted => {
                format!("{} -{pid} {:x} {SUSPENDED}", self.start.elapsed().as_nanos(), gpu_id(card))
            }
        };
        let line = format!("{:x} {text}\n", event.number());
        listeners.send(event, &line);
    }
}

/// Returns the name of this program, as the kernel has it.
fn program() -> String {
    std::fs::read_to_string("/proc/self/comm").map_or_else(|_| "?".into(), |name| name.trim_end().into())
}
