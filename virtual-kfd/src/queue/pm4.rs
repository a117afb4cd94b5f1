//! Commands of the packet processor (PM4), which runtimes send in a vendor packet: invalidation of caches, and
//! writes, atomics and waits of stream operations.
//!
//! Source: `amd_gpu_pm4.h` of ROCR-Runtime; Linux, `drivers/gpu/drm/amd/amdgpu/soc15d.h`.

#![allow(unsafe_code)]

use super::Step;
use super::aql::u64_at;
use crate::process;
use crate::ring::Queue;
use crate::shared::Shared;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

const NOP: u32 = 0x10;
const ATOMIC_MEM: u32 = 0x1e;
const WRITE_DATA: u32 = 0x37;
const WAIT_REG_MEM: u32 = 0x3c;
const INDIRECT_BUFFER: u32 = 0x3f;
const RELEASE_MEM: u32 = 0x49;
const ACQUIRE_MEM: u32 = 0x58;

/// `TC_OP_ATOMIC_SWAP_RTN_64`.
const SWAP: u32 = 39;
/// `TC_OP_ATOMIC_ADD_RTN_64`.
const ADD: u32 = 47;
/// Most words of a buffer of commands.
const MOST_WORDS: u64 = 1 << 20;

impl Queue {
    /// Executes the buffer of commands of a vendor packet.
    pub(super) fn commands(&self, shared: &Shared, packet: &[u8; 64], index: u64) -> Step {
        let (jump, words) = (u64_at(packet, 4), u64_at(packet, 12) >> 32 & 0xf_ffff);
        let address = u64_at(packet, 8) & 0xffff_ffff_fffc;
        if opcode(jump as u32) != INDIRECT_BUFFER || words == 0 || words > MOST_WORDS {
            return self.unknown(shared, "a vendor packet without a buffer of commands");
        }
        // SAFETY: the runtime keeps the buffer until the packet is complete.
        let commands: Vec<u32> = unsafe { process::read_array(address, words as usize) };
        // Commands before one that waits are done once.
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let done = if progress.0 == index { progress.1 } else { 0 };
        let mut rest = commands.get(done..).unwrap_or_default();
        while let [header, ..] = *rest {
            let count = (header >> 16 & 0x3fff) as usize + 2;
            if header >> 30 != 3 || count > rest.len() {
                return self.unknown(shared, &format!("a command {header:#x}"));
            }
            match self.one(shared, opcode(header), &rest[1..count]) {
                Step::Done => {
                    rest = &rest[count..];
                    *progress = (index, commands.len() - rest.len());
                }
                other => return other,
            }
        }
        shared.record.count("packet", "PM4");
        Step::Done
    }

    fn one(&self, shared: &Shared, opcode: u32, words: &[u32]) -> Step {
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        let long = |i: usize| u64::from(word(i)) | u64::from(word(i + 1)) << 32;
        match opcode {
            NOP | RELEASE_MEM => Step::Done,
            ACQUIRE_MEM => {
                shared.devices[self.card].code.invalidate(None);
                Step::Done
            }
            WRITE_DATA => {
                for (i, &value) in words.iter().skip(3).enumerate() {
                    // SAFETY: the runtime names memory that it keeps until the packet is complete.
                    unsafe { process::word32(long(1) + 4 * i as u64) }.store(value, Ordering::Release);
                }
                Step::Done
            }
            ATOMIC_MEM => {
                // SAFETY: as above.
                let memory = unsafe { process::word64(long(1)) };
                match word(0) & 0x7f {
                    SWAP => drop(memory.swap(long(3), Ordering::AcqRel)),
                    ADD => drop(memory.fetch_add(long(3), Ordering::AcqRel)),
                    other => return self.unknown(shared, &format!("an atomic command {other}")),
                }
                Step::Done
            }
            WAIT_REG_MEM => {
                // SAFETY: as above.
                let now = unsafe { process::word32(long(1)) }.load(Ordering::Acquire) & word(4);
                if compares(word(0) & 7, now, word(3)) { Step::Done } else { Step::Waits }
            }
            other => self.unknown(shared, &format!("a command of kind {other:#x}")),
        }
    }
}

fn opcode(header: u32) -> u32 {
    header >> 8 & 0xff
}

/// Returns the result of a comparison by its number in commands of both engines.
pub(super) fn compares(function: u32, now: u32, reference: u32) -> bool {
    match function {
        0 => true,
        1 => now < reference,
        2 => now <= reference,
        3 => now == reference,
        4 => now != reference,
        5 => now >= reference,
        _ => now > reference,
    }
}
