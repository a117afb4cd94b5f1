//! Launches as a queue of a runtime has them: an AQL packet in memory, and code that is already there.
//!
//! Source: HSA Foundation, "HSA Platform System Architecture Specification", "Kernel dispatch packet"; LLVM, "User Guide
//! for AMDGPU Backend", "Kernel Dispatch" and "Initial Kernel Execution State".

mod symbol;

use crate::code::{Descriptor, MOST_SCRATCH};
use crate::counters::Counters;
use crate::exec::group::{Context, Interrupt};
use crate::exec::sizes::Sizes;
use crate::fault::{Fault, FaultKind, Result};
use crate::gpu::{Gpu, fits, run};
use crate::instructions::Text;
use crate::isa::Isa;
use crate::memory::Region;
use crate::preload;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Type of a kernel dispatch in the header of a packet.
const KERNEL_DISPATCH: u16 = 2;
/// Bytes of a packet, and of a kernel's descriptor.
const PACKET: u64 = 64;
/// Alignment of a kernel's first instruction: the register for its address has no lower bits.
const ENTRY: u64 = 256;
/// Properties of a kernel that only code object version 2 has: numbers of work-groups in user SGPRs.
const GROUP_COUNTS: u32 = 7 << 7;

/// Code that packets launched, as an instruction cache holds it: pages that were executed, by the base of the memory in
/// which they lie.
///
/// Code that was executed and is overwritten needs [`PacketCode::invalidate`]. Memory that is freed, or mapped anew at the
/// same address, is never executed from here. It keeps no memory of a [`Gpu`].
#[derive(Default)]
pub struct PacketCode(Mutex<HashMap<u64, Arc<Text>>>);

impl PacketCode {
    /// Drops the code of the allocation that begins at `base`, or of all allocations. Launches that have begun go on with
    /// the code that they have.
    pub fn invalidate(&self, base: Option<u64>) {
        let mut known = self.known();
        match base {
            None => known.clear(),
            Some(base) => drop(known.remove(&base)),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Arc<Text>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the code of a region.
    fn of(&self, region: &Region, isa: Isa) -> Arc<Text> {
        let mut known = self.known();
        if let Some(text) = known.get(&region.base).filter(|text| text.is_of(region, isa)) {
            return text.clone();
        }
        known.retain(|_, text| !text.is_gone());
        let text = Arc::new(Text::of_region(region, isa));
        known.insert(region.base, text.clone());
        text
    }
}

impl std::fmt::Debug for PacketCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketCode").field("allocations", &self.known().len()).finish()
    }
}

/// The parts of an `hsa_kernel_dispatch_packet_t` that a launch needs.
#[derive(Clone, Copy, Debug)]
struct Packet {
    kind: u16,
    threads: [u32; 3],
    grid: [u32; 3],
    scratch_bytes: u32,
    lds_bytes: u32,
    kernel_object: u64,
    arguments: u64,
}

impl Packet {
    fn read(bytes: &[u8; PACKET as usize]) -> Packet {
        let number = |at: usize, size: usize| {
            bytes[at..at + size].iter().rev().fold(0, |number: u64, &byte| number << 8 | u64::from(byte))
        };
        Packet {
            kind: number(0, 1) as u16,
            threads: [4, 6, 8].map(|at| number(at, 2) as u32),
            grid: [12, 16, 20].map(|at| number(at, 4) as u32),
            scratch_bytes: number(24, 4) as u32,
            lds_bytes: number(28, 4) as u32,
            kernel_object: number(32, 8),
            arguments: number(40, 8),
        }
    }

    /// Checks all that does not depend on memory.
    fn check(&self) -> std::result::Result<(), String> {
        if self.kind != KERNEL_DISPATCH {
            return Err(format!(
                "is a packet of type {}, not a kernel dispatch ({KERNEL_DISPATCH})",
                self.kind
            ));
        }
        if self.threads.contains(&0) || self.grid.contains(&0) {
            let (grid, threads) = (self.grid, self.threads);
            return Err(format!("has {grid:?} work-items in work-groups of {threads:?}"));
        }
        if self.scratch_bytes > MOST_SCRATCH {
            let wanted = self.scratch_bytes;
            return Err(format!(
                "wants {wanted} bytes of scratch for a work-item, {MOST_SCRATCH} are the most"
            ));
        }
        Ok(())
    }
}

impl Gpu {
    /// Runs the kernel of an AQL packet (`hsa_kernel_dispatch_packet_t`) to its end. The grid need not be a multiple of
    /// the work-group: work-groups at its upper edges are smaller.
    ///
    /// `packet` is a copy of the packet at `packet_address`; the kernel reads it there if it wants to know sizes. `queue` is
    /// the address of the `amd_queue_t`, for kernels that want it. LDS and scratch have the sizes in the packet, and code
    /// comes from `code` or is read as it is executed. The packet's completion signal is left to the caller.
    ///
    /// A fault has the kernel's name if the code object in memory has a symbol for it; otherwise the address of the kernel
    /// object. [`Fault::address`] is an address in memory.
    ///
    /// # Errors [`FaultKind::InvalidLaunch`] for a packet of another type, a grid or work-group of no work-items, more
    /// work-items, LDS or scratch than there is, and for a packet, a kernel object or code that is not in memory;
    /// [`FaultKind::Unimplemented`] for kernels of code object version 2 or for other processors; otherwise as
    /// [`Gpu::launch`].
    pub fn launch_packet(
        &self,
        code: &PacketCode,
        packet: &[u8; 64],
        packet_address: u64,
        queue: u64,
    ) -> Result<Counters> {
        self.named(code, packet, packet_address, queue, None)
    }

    /// Runs the kernel of a packet as [`Gpu::launch_packet`] does, for a host that takes interrupts: a kernel that calls
    /// the host, as `printf` does, sends the message `MSG_INTERRUPT`. `interrupt` gets the lower 24 bits of its data (M0),
    /// on one of the threads that run the kernel, which goes on when it returns. Stores before the message are visible to
    /// it.
    ///
    /// # Errors As [`Gpu::launch_packet`], where such a message is [`FaultKind::Unimplemented`].
    pub fn launch_interrupting_packet(
        &self,
        code: &PacketCode,
        packet: &[u8; 64],
        packet_address: u64,
        queue: u64,
        interrupt: &(dyn Fn(u32) + Sync),
    ) -> Result<Counters> {
        self.named(code, packet, packet_address, queue, Some(interrupt))
    }

    fn named(
        &self,
        code: &PacketCode,
        packet: &[u8; 64],
        packet_address: u64,
        queue: u64,
        interrupt: Option<&Interrupt<'_>>,
    ) -> Result<Counters> {
        let packet = Packet::read(packet);
        self.run_packet(code, &packet, packet_address, queue, interrupt)
            .map_err(|fault| Fault { kernel: self.kernel_name(packet.kernel_object), ..fault })
    }

    /// Returns the name of the kernel whose kernel object is at an address: that of its symbol if the code object in
    /// memory has one, otherwise the address.
    pub fn kernel_name(&self, object: u64) -> String {
        let whole = self.memory.whole(object, PACKET);
        let named = whole.and_then(|(region, offset)| symbol::of_kernel(&region, offset));
        named.unwrap_or_else(|| format!("{object:#x}"))
    }

    fn run_packet(
        &self,
        code: &PacketCode,
        packet: &Packet,
        packet_address: u64,
        queue: u64,
        interrupt: Option<&Interrupt<'_>>,
    ) -> Result<Counters> {
        let invalid = FaultKind::InvalidLaunch;
        packet.check().map_err(invalid)?;
        if self.memory.whole(packet_address, PACKET).is_none() {
            return Err(
                invalid(format!("has its packet at {packet_address:#x}, which is not in memory")).into()
            );
        }
        // The view first: it keeps the memory in which the code is found, or the code is not found.
        let view = self.memory.view();
        let descriptor = self.descriptor(packet.kernel_object)?;
        fits(packet.threads, packet.lds_bytes, &descriptor, self.target).map_err(invalid)?;
        let entry = descriptor.entry;
        if entry % ENTRY != 0 {
            let why = format!("has its code at {entry:#x}, which is no multiple of {ENTRY}");
            return Err(invalid(why).into());
        }
        let (region, _) = self
            .memory
            .whole(entry, 4)
            .ok_or_else(|| invalid(format!("has its code at {entry:#x}, which is not in memory")))?;
        let text = code.of(&region, descriptor.isa(self.target));
        let (sizes, groups) = Sizes::of_grid(packet.grid, packet.threads);
        let scratch_bytes = descriptor.scratch(packet.scratch_bytes);
        let (memory, arguments) = (&self.memory, packet.arguments);
        let user = preload::user_sgprs(memory, &descriptor, packet_address, queue, arguments, scratch_bytes)?;
        let context = Context {
            kernel: "",
            descriptor,
            text: &text,
            code_base: 0,
            memory: &self.memory,
            view,
            sizes,
            lds_bytes: packet.lds_bytes,
            scratch_bytes,
            user_sgprs: &user,
            checks: self.options.checks,
            max_instructions: self.options.max_instructions,
            interrupt,
            footprint: None,
            noise: &self.noise,
            lines: None,
        };
        // The region is held until the end: the code is read from it.
        let counters = run(&self.machines, &context, [0; 3], groups);
        drop(region);
        counters
    }

    /// Reads the descriptor of a kernel. Its entry is an address in memory.
    fn descriptor(&self, object: u64) -> std::result::Result<Descriptor, FaultKind> {
        let (region, offset) = self.memory.whole(object, PACKET).ok_or_else(|| {
            FaultKind::InvalidLaunch(format!("has its kernel object at {object:#x}, which is not in memory"))
        })?;
        let mut words = [0; PACKET as usize / 4];
        region.load_into(offset, &mut words);
        if is_version_2(&words) {
            return Err(FaultKind::Unimplemented(
                "a kernel of code object version 2 (amd_kernel_code_t)".into(),
            ));
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let descriptor = Descriptor::parse(&bytes, object, self.target)
            .map_err(|what| FaultKind::Unimplemented(format!("a kernel {what}")))?;
        if descriptor.properties & GROUP_COUNTS != 0 {
            return Err(FaultKind::Unimplemented("a kernel with numbers of work-groups in registers".into()));
        }
        Ok(descriptor)
    }
}

/// Returns true for the first words of an `amd_kernel_code_t` that a compiler wrote: version 1 of its layout, for kind 1 of
/// machines (AMDGPU). A kernel's descriptor has sizes there, of LDS, scratch and arguments; 64 KiB of arguments and 1 byte
/// of LDS are no kernel's.
///
/// Runtimes also build such structures for their own kernels, with zeros in place of versions. These run: what a
/// processor needs of them is where a descriptor has it, and sizes are in the packet.
fn is_version_2(words: &[u32]) -> bool {
    words[0] == 1 && words[1] <= 2 && words[2] & 0xffff == 1 && words[2] >> 16 != 0
}
