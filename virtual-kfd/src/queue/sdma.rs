//! Commands of the copy engine (SDMA 4 to 6).
//!
//! Source: `sdma_registers.h` and `amd_blit_sdma.cpp` of ROCR-Runtime; Linux,
//! `drivers/gpu/drm/amd/amdgpu/vega10_sdma_pkt_open.h`.

#![allow(unsafe_code)]

use super::Step;
use super::pm4::compares;
use crate::inject::{Kind, Point};
use crate::process;
use crate::ring::Queue;
use crate::shared::Shared;
use std::sync::atomic::Ordering;

/// Operations, in the low byte of the header.
const NOP: u32 = 0;
const COPY: u32 = 1;
const WRITE: u32 = 2;
const FENCE: u32 = 5;
const TRAP: u32 = 6;
const POLL: u32 = 8;
const ATOMIC: u32 = 10;
const FILL: u32 = 11;
const TIMESTAMP: u32 = 13;
/// Writes caches back and invalidates them; from SDMA 5 on.
const CACHES: u32 = 17;

/// Sub-operations of copies.
const LINEAR: u32 = 0;
const RECTANGLE: u32 = 4;
/// Sub-operation of [`CACHES`]: those that a program's memory is in.
const USER: u32 = 1;
/// Atomic operation: a sum of 64 bits.
const ADD: u32 = 47;

/// Words of the ring from an index on.
struct Words<'a> {
    queue: &'a Queue,
    at: u64,
    ring: u64,
    bytes: u64,
}

impl Words<'_> {
    fn word(&self, i: u64) -> u32 {
        // SAFETY: inside the ring, which the runtime keeps until it has destroyed the queue.
        unsafe { process::read(self.ring + (self.at + 4 * i) % self.bytes) }
    }

    fn long(&self, i: u64) -> u64 {
        u64::from(self.word(i)) | u64::from(self.word(i + 1)) << 32
    }
}

/// Extent of a rectangle in elements, and its pitches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rectangle {
    /// Address of the first element.
    pub(super) from: u64,
    /// Bytes from a row to the next.
    pub(super) pitch: u64,
    /// Bytes from a slice to the next.
    pub(super) slice: u64,
}

impl Queue {
    /// Executes one command.
    pub(super) fn command(&self, shared: &Shared) -> Step {
        let (ring, bytes) = (self.ring.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst));
        // SAFETY: the runtime keeps the indices until it has destroyed the queue.
        let (read, write) = unsafe { (process::word64(self.read), process::word64(self.write)) };
        // Indices count bytes and do not wrap.
        let at = read.load(Ordering::Relaxed);
        if at >= write.load(Ordering::Acquire) || bytes == 0 {
            return Step::Waits;
        }
        let words = Words { queue: self, at, ring, bytes };
        match self.injected(shared, at, Point::Copy) {
            Some(Kind::Stall) => return Step::Waits,
            Some(Kind::Late(by)) if self.is_delayed(at, by) => return Step::Waits,
            Some(Kind::Skip) => {
                let Some(length) = length(&words) else { return self.unknown_command(shared, &words) };
                read.store(at + 4 * length, Ordering::Release);
                return Step::Done;
            }
            _ => {}
        }
        let step = words.execute(shared);
        let abandoned = self.abandoned();
        if step == Step::Done
            && let Some(length) = length(&words)
            && !*abandoned
        {
            read.store(at + 4 * length, Ordering::Release);
        }
        step
    }

    fn unknown_command(&self, shared: &Shared, words: &Words<'_>) -> Step {
        self.unknown(shared, &format!("a command {:#x} of a copy engine", words.word(0)))
    }
}

/// Returns the number of words of a command; `None` if it is unknown.
fn length(words: &Words<'_>) -> Option<u64> {
    let header = words.word(0);
    Some(match (header & 0xff, header >> 8 & 0xff) {
        (NOP, _) => 1 + u64::from(header >> 16 & 0x3fff),
        (COPY, LINEAR) => 7,
        (COPY, RECTANGLE) => 13,
        (WRITE, LINEAR) => 5 + u64::from(words.word(3) & 0xf_ffff),
        (FENCE, _) => 4,
        (TRAP, _) => 2,
        (POLL, _) => 6,
        (ATOMIC, _) => 8,
        (FILL, _) => 5,
        (TIMESTAMP, _) => 3,
        (CACHES, USER) => 5,
        _ => return None,
    })
}

impl Words<'_> {
    fn execute(&self, shared: &Shared) -> Step {
        let header = self.word(0);
        let name = match (header & 0xff, header >> 8 & 0xff) {
            (NOP, _) => "nothing",
            (COPY, LINEAR) => {
                let bytes = u64::from(self.word(1) & 0x3fff_ffff) + 1;
                shared
                    .log(|| format!("copy of {bytes} bytes from {:#x} to {:#x}", self.long(3), self.long(5)));
                match self.copy(shared, self.long(5), self.long(3), bytes) {
                    Step::Done => "copy",
                    other => return other,
                }
            }
            (COPY, RECTANGLE) => match self.copy_rectangle(shared) {
                Step::Done => "copy of a rectangle",
                other => return other,
            },
            (WRITE, LINEAR) => {
                let values =
                    (0..=u64::from(self.word(3) & 0xf_ffff)).flat_map(|i| self.word(4 + i).to_le_bytes());
                match self.write(shared, self.long(1), &values.collect::<Vec<u8>>()) {
                    Step::Done => "write",
                    other => return other,
                }
            }
            (FILL, _) => {
                let count = u64::from(self.word(4) & 0x3fff_ffff) / 4 + 1;
                let values = (0..count).flat_map(|_| self.word(3).to_le_bytes());
                match self.write(shared, self.long(1), &values.collect::<Vec<u8>>()) {
                    Step::Done => "fill",
                    other => return other,
                }
            }
            // SAFETY: fences, timestamps and atomics are at signals, which live until the command is complete.
            (FENCE, _) => unsafe {
                process::word32(self.long(1)).store(self.word(3), Ordering::Release);
                "fence"
            },
            (TRAP, _) => {
                shared.interrupt(self.word(1) & 0xfff_ffff);
                "trap"
            }
            // Without the bit, it flushes the processor's writes to the card's memory, which are never late here.
            (POLL, _) if header >> 31 == 0 => "flush",
            // SAFETY: as above.
            (POLL, _) => unsafe {
                let now = process::word32(self.long(1)).load(Ordering::Acquire) & self.word(4);
                if !compares(header >> 28 & 7, now, self.word(3)) {
                    return Step::Waits;
                }
                "poll"
            },
            // SAFETY: as above.
            (ATOMIC, _) if header >> 25 == ADD => unsafe {
                process::word64(self.long(1)).fetch_add(self.long(3), Ordering::AcqRel);
                "atomic"
            },
            // SAFETY: as above.
            (TIMESTAMP, _) => unsafe {
                process::word64(self.long(1)).store(shared.clock(), Ordering::Release);
                "timestamp"
            },
            // Copies go past no cache here. Those of code are invalidated by the packet processor.
            (CACHES, USER) => "caches",
            _ => return self.queue.unknown_command(shared, self),
        };
        shared.record.count("copy engine", name);
        Step::Done
    }

    /// Copies between two ranges.
    fn copy(&self, shared: &Shared, to: u64, from: u64, bytes: u64) -> Step {
        let device = &shared.devices[self.queue.card];
        let _flight = device.in_flight.begin();
        match device.gpu.copy(to, from, bytes as usize) {
            Ok(()) => Step::Done,
            Err(fault) => self.queue.failed(shared, &fault),
        }
    }

    fn write(&self, shared: &Shared, to: u64, bytes: &[u8]) -> Step {
        let device = &shared.devices[self.queue.card];
        let _flight = device.in_flight.begin();
        match device.gpu.write(to, bytes) {
            Ok(()) => Step::Done,
            Err(fault) => self.queue.failed(shared, &fault),
        }
    }

    /// Copies a box of rows and slices.
    fn copy_rectangle(&self, shared: &Shared) -> Step {
        let (from, to, size) = self.rectangle();
        shared.log(|| format!("copy of {size:?} from {from:x?} to {to:x?}"));
        for z in 0..size[2] {
            for y in 0..size[1] {
                let (from, to) = (from.row(y, z), to.row(y, z));
                match self.copy(shared, to, from, size[0]) {
                    Step::Done => {}
                    other => return other,
                }
            }
        }
        Step::Done
    }

    /// Reads source, target and size: bytes of a row, rows, slices.
    fn rectangle(&self) -> (Rectangle, Rectangle, [u64; 3]) {
        // log2 of the bytes of an element, in which offsets, pitches and width are given.
        let element = self.word(0) >> 29;
        let side = |first: u64| {
            let (offset, z, slice) = (self.word(first + 2), self.word(first + 3), self.word(first + 4));
            let pitch = (u64::from(z >> 13) + 1) << element;
            let slice = (u64::from(slice & 0xfff_ffff) + 1) << element;
            let x = u64::from(offset & 0x3fff) << element;
            let rows = u64::from(offset >> 16 & 0x3fff) * pitch + u64::from(z & 0x7ff) * slice;
            Rectangle { from: self.long(first) + x + rows, pitch, slice }
        };
        let (xy, z) = (self.word(11), self.word(12));
        let width = (u64::from(xy & 0x3fff) + 1) << element;
        (side(1), side(6), [width, u64::from(xy >> 16 & 0x3fff) + 1, u64::from(z & 0x7ff) + 1])
    }
}

impl Rectangle {
    fn row(self, y: u64, z: u64) -> u64 {
        self.from + y * self.pitch + z * self.slice
    }
}
