//! Faults of a running kernel and their location.

use std::fmt;

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Device memory and pinned host memory.
    Global,
    /// Memory that a work-group shares.
    Lds,
    /// Memory of one work-item.
    Scratch,
}

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A read-modify-write.
    Atomic,
}

/// The range of memory that an instruction accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Kind of memory.
    pub space: Space,
    /// Kind of access.
    pub access: Access,
    /// First byte: an address, or an offset in LDS or scratch.
    pub at: u64,
    /// Size in bytes.
    pub bytes: u32,
}

/// Kind of a fault.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The bytes are no valid code object for this processor.
    InvalidCodeObject(String),
    /// No hardware accepts the launch: too many threads, too much LDS, wrong size of arguments.
    InvalidLaunch(String),
    /// Not enough memory for this many bytes.
    OutOfMemory(u64),
    /// Another allocation overlaps the requested range.
    Occupied(Range),
    /// The range is not mapped.
    OutOfBounds(Range),
    /// An access goes beyond the end of a buffer resource (V#).
    BeyondBuffer {
        /// The access, by address.
        range: Range,
        /// First address of the buffer.
        base: u64,
        /// Size of the buffer in bytes.
        bytes: u64,
    },
    /// The memory was freed.
    FreedMemory(Range),
    /// The address is not a multiple of the alignment that the instruction needs.
    Misaligned(Range, u32),
    /// Two wavefronts accessed the same bytes of LDS without a barrier between them, and at least one wrote.
    /// Contains the range and the other wavefront.
    Race(Range, u32),
    /// Uninitialised bytes of LDS were read.
    Uninitialised(Range),
    /// Wavefronts of a work-group wait at different barriers, or some have ended while others wait.
    BarrierDivergence(String),
    /// A register is used before a wait for the load that fills it, or a store to LDS is in flight at a
    /// barrier.
    MissingWait(String),
    /// The word is no instruction of this processor.
    IllegalInstruction(u32),
    /// The emulator does not support the instruction or its mode.
    Unimplemented(String),
    /// A wavefront executed more instructions than allowed.
    Budget(u64),
    /// `s_trap`: the program aborted (assertion, `abort`, unreachable code).
    Trap(u8),
}

/// A fault and the instruction that caused it.
///
/// If no kernel was running, `kernel` and `instruction` are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Name of the kernel. A packet's kernel without a symbol has the address of its kernel object.
    pub kernel: String,
    /// Address of the instruction in its code object, or in memory if a packet launched it.
    pub address: u64,
    /// The instruction as text, as a disassembler prints it.
    pub instruction: String,
    /// Id of the work-group.
    pub group: [u32; 3],
    /// Index of the wavefront in its work-group.
    pub wave: u32,
}

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, Fault>;

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        let (kernel, instruction) = (String::new(), String::new());
        Fault { kind, kernel, address: 0, instruction, group: [0; 3], wave: 0 }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Atomic => "atomic access",
        };
        let space = match self.space {
            Space::Global => "global memory",
            Space::Lds => "LDS",
            Space::Scratch => "scratch",
        };
        write!(f, "{access} of {} bytes of {space} at {:#x}", self.bytes, self.at)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::InvalidCodeObject(why) => write!(f, "the code object {why}"),
            FaultKind::InvalidLaunch(why) => write!(f, "the launch {why}"),
            FaultKind::OutOfMemory(bytes) => write!(f, "out of memory: {bytes} bytes"),
            FaultKind::Occupied(range) => {
                write!(f, "{} bytes at {:#x} are in use", range.bytes, range.at)
            }
            FaultKind::BeyondBuffer { range, base, bytes } => {
                write!(f, "{range}: beyond its buffer of {bytes} bytes at {base:#x}")
            }
            FaultKind::OutOfBounds(range) => write!(f, "{range}: out of bounds"),
            FaultKind::FreedMemory(range) => write!(f, "{range}: the memory was freed"),
            FaultKind::Misaligned(range, to) => write!(f, "{range}: not aligned to {to} bytes"),
            FaultKind::Race(range, wave) => write!(f, "{range}: race with wavefront {wave}"),
            FaultKind::Uninitialised(range) => write!(f, "{range}: uninitialised"),
            FaultKind::BarrierDivergence(details) => write!(f, "divergent barriers: {details}"),
            FaultKind::MissingWait(what) => write!(f, "missing s_waitcnt: {what}"),
            FaultKind::IllegalInstruction(word) => write!(f, "{word:#010x} is not an instruction"),
            FaultKind::Unimplemented(what) => write!(f, "{what} is not implemented"),
            FaultKind::Budget(count) => write!(f, "more than {count} instructions of one wavefront"),
            FaultKind::Trap(id) => write!(f, "trap {id}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if self.instruction.is_empty() && !self.kernel.is_empty() {
            write!(f, " (kernel {})", self.kernel)?;
        } else if !self.kernel.is_empty() {
            let [x, y, z] = self.group;
            write!(f, " (kernel {}, {:#x}: {}", self.kernel, self.address, self.instruction)?;
            write!(f, ", work-group {x},{y},{z}, wavefront {})", self.wave)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
