//! Packets of HSA: kernels, barriers, and those of the vendor.
//!
//! Source: "HSA Platform System Architecture Specification" 1.2, section 2.9; `amd_hsa_queue.h` and
//! `hsa_ven_amd_aqlprofile.h` of ROCR-Runtime for the vendor's.

#![allow(unsafe_code)]

use super::Step;
use crate::inject::{Kind, Point};
use crate::process::{self, Signal};
use crate::record;
use crate::ring::Queue;
use crate::shared::Shared;
use std::sync::atomic::Ordering;
use virtual_gpu::{Fault, FaultKind};

/// Types of packets, in the low byte of the header.
const VENDOR: u16 = 0;
const INVALID: u16 = 1;
const DISPATCH: u16 = 2;
const BARRIER_AND: u16 = 3;
const BARRIER_OR: u16 = 5;

/// Formats of vendor packets.
const PM4: u8 = 1;
const BARRIER_VALUE: u8 = 2;

/// Bytes of a packet.
const BYTES: u64 = 64;

impl Queue {
    /// Processes one packet.
    pub(super) fn packet(&self, shared: &Shared) -> Step {
        // SAFETY: the doorbell is of the space. Ring and indices are the runtime's, which keeps them until it has
        // destroyed the queue; `stop` waits for this call.
        unsafe {
            // The doorbell gets the index of the last packet, or, by old runtimes, one before the newest.
            let rung = process::word64(self.doorbell).load(Ordering::Acquire).wrapping_add(1);
            let announced = self.announced.fetch_max(rung, Ordering::SeqCst).max(rung);
            let read = process::word64(self.read).load(Ordering::Relaxed);
            let bytes = self.bytes.load(Ordering::SeqCst);
            if read >= announced || bytes == 0 {
                return Step::Waits;
            }
            let address = self.ring.load(Ordering::SeqCst) + read * BYTES % bytes;
            let header = process::word16(address);
            let kind = header.load(Ordering::Acquire) & 0xff;
            if kind == INVALID {
                return Step::Waits;
            }
            let packet: [u8; BYTES as usize] = process::read(address);
            let start = shared.clock();
            match self.execute(shared, kind, address, &packet, read) {
                Step::Done => {}
                other => return other,
            }
            let abandoned = self.abandoned();
            if *abandoned {
                return Step::Broken;
            }
            let signal = Signal(u64_at(&packet, 56));
            header.store(INVALID, Ordering::Release);
            process::word64(self.read).store(read + 1, Ordering::Release);
            self.complete(shared, signal, start, kind == DISPATCH);
            Step::Done
        }
    }

    fn execute(&self, shared: &Shared, kind: u16, address: u64, packet: &[u8; 64], index: u64) -> Step {
        match kind {
            DISPATCH => self.dispatch(shared, address, packet, index),
            BARRIER_AND | BARRIER_OR => self.barrier(shared, kind == BARRIER_AND, packet),
            VENDOR => match packet[2] {
                PM4 => self.commands(shared, packet, index),
                BARRIER_VALUE => self.barrier_value(shared, packet),
                other => self.unknown(shared, &format!("a vendor packet of format {other}")),
            },
            other => self.unknown(shared, &format!("a packet of type {other}")),
        }
    }

    /// Reports a packet that the machine does not know as the card does: the queue fails.
    pub(super) fn unknown(&self, shared: &Shared, what: &str) -> Step {
        shared.log(|| format!("queue {}: {what} is unknown", self.id));
        shared.record.count("unknown", what);
        self.fault(shared, &FaultKind::Unimplemented(what.into()))
    }

    fn dispatch(&self, shared: &Shared, address: u64, packet: &[u8; 64], index: u64) -> Step {
        // A packet that is looked at again while it is delayed or stands still counts once.
        let injected = self.injected(shared, index, Point::Dispatch);
        match injected {
            Some(Kind::Stall) => return Step::Waits,
            Some(Kind::Late(by)) if self.is_delayed(index, by) => return Step::Waits,
            Some(Kind::Skip) => return Step::Done,
            Some(Kind::Illegal) => return self.fault(shared, &FaultKind::IllegalInstruction(0xbf92_0002)),
            Some(Kind::PageFault) => {
                shared.page_fault(self.card, 0x7ead_beef_0000);
                return Step::Broken;
            }
            Some(Kind::Reset) => {
                shared.reset(self.card);
                return Step::Broken;
            }
            _ => {}
        }
        let device = &shared.devices[self.card];
        let flight = device.in_flight.begin();
        // A kernel that calls the host (`printf`) raises interrupts itself.
        let interrupt = |event| {
            shared.record.count("interrupt", "kernel");
            shared.log(|| format!("queue {}: a kernel raises interrupt {event}", self.id));
            shared.interrupt(event);
        };
        let launch =
            || device.gpu.launch_interrupting_packet(&device.code, packet, address, self.queue(), &interrupt);
        let result = self.run_kernel(launch);
        drop(flight);
        match result {
            Ok(counters) => {
                let name = || device.gpu.kernel_name(u64_at(packet, 32));
                shared.log(|| format!("queue {}: {}, {} wavefronts", self.id, name(), counters.waves));
                shared.record.launched(name, &counters);
                shared.record.count("packet", "dispatch");
                Step::Done
            }
            Err(fault) => self.failed(shared, &fault),
        }
    }

    pub(super) fn failed(&self, shared: &Shared, fault: &Fault) -> Step {
        // The one place where a program learns of a bug that only this machine finds.
        let line = format!("queue {}: {fault}", self.id);
        if shared.record.has_log() {
            shared.log(|| line);
        } else {
            record::say(&line);
        }
        self.fault(shared, &fault.kind)
    }

    fn barrier(&self, shared: &Shared, all: bool, packet: &[u8; 64]) -> Step {
        let mut signals = (0..5).map(|i| Signal(u64_at(packet, 8 + 8 * i))).filter(|s| s.0 != 0).peekable();
        // SAFETY: signals of a packet live until it is complete.
        let is_zero = |signal: Signal| unsafe { signal.value() } == 0;
        let met = signals.peek().is_none() || if all { signals.all(is_zero) } else { signals.any(is_zero) };
        if !met {
            return Step::Waits;
        }
        shared.record.count("packet", if all { "barrier-and" } else { "barrier-or" });
        Step::Done
    }

    /// Waits until a signal's value, masked, compares to another value (`hsa_amd_barrier_value_packet_t`).
    fn barrier_value(&self, shared: &Shared, packet: &[u8; 64]) -> Step {
        let signal = Signal(u64_at(packet, 8));
        let (value, mask) = (u64_at(packet, 16) as i64, u64_at(packet, 24) as i64);
        // SAFETY: signals of a packet live until it is complete.
        let now = if signal.0 == 0 { value } else { (unsafe { signal.value() }) & mask };
        let met = match u64_at(packet, 32) as u32 {
            0 => now == value,
            1 => now != value,
            2 => now < value,
            _ => now >= value,
        };
        if signal.0 != 0 && !met {
            return Step::Waits;
        }
        shared.record.count("packet", "barrier-value");
        Step::Done
    }

    /// Completes a packet: times, value, interrupt.
    ///
    /// # Safety `signal` is 0 or a live signal.
    unsafe fn complete(&self, shared: &Shared, signal: Signal, start: u64, is_dispatch: bool) {
        if signal.0 == 0 {
            return;
        }
        // SAFETY: the caller's promise. All of the signal is read before its value says that it is free.
        unsafe {
            let mailbox = signal.mailbox();
            signal.complete(start, shared.clock());
            if is_dispatch && self.is_lost() {
                return;
            }
            self.interrupt(shared, mailbox);
        }
    }
}

/// Returns a word of a packet.
pub(super) fn u64_at(packet: &[u8; 64], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&packet[at..at + 8]);
    u64::from_le_bytes(bytes)
}
