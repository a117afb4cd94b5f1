//! What goes wrong when a kernel runs, and where.

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

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A read-modify-write.
    Atomic,
}

/// A range that an instruction asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Memory.
    pub space: Space,
    /// What was to be done.
    pub access: Access,
    /// First byte: an address, or an offset in LDS or scratch.
    pub at: u64,
    /// Bytes.
    pub bytes: u32,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The bytes are no code object of this processor.
    InvalidCodeObject(String),
    /// A launch that no hardware accepts: too many threads, too much LDS, arguments of another length.
    InvalidLaunch(String),
    /// There is not that much memory.
    OutOfMemory(u64),
    /// Another allocation lies in the range that was asked for.
    Occupied(Range),
    /// No memory is there.
    OutOfBounds(Range),
    /// An access goes beyond what a buffer resource (V#) describes.
    BeyondBuffer {
        /// The access, by its address.
        range: Range,
        /// The first address of the buffer.
        base: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// The memory was given back before.
    FreedMemory(Range),
    /// The address is not a multiple of what the instruction needs.
    Misaligned(Range, u32),
    /// Two wavefronts touched the same bytes of LDS with no barrier between them and at least one wrote; the other
    /// wavefront.
    Race(Range, u32),
    /// Bytes of LDS were read that nobody wrote.
    Uninitialised(Range),
    /// Wavefronts of a work-group wait at different barriers, or some ended while others wait.
    BarrierDivergence(String),
    /// A register is used before the load that fills it is waited for, or a store to LDS is under way at a barrier.
    MissingWait(String),
    /// No instruction of this processor.
    IllegalInstruction(u32),
    /// An instruction, or a mode of one, that this emulator does not execute.
    Unimplemented(String),
    /// A wavefront executed more instructions than it may.
    Budget(u64),
    /// `s_trap`: the program stopped itself (assertions, `abort`, unreachable code).
    Trap(u8),
}

/// What went wrong, and the instruction that did it.
///
/// Where no kernel was running, `kernel` and `instruction` are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// Address of the instruction in its code object.
    pub address: u64,
    /// The instruction as a disassembler prints it.
    pub instruction: String,
    /// The work-group.
    pub group: [u32; 3],
    /// The wavefront in its work-group.
    pub wave: u32,
}

/// What a call gives.
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
            FaultKind::OutOfMemory(bytes) => write!(f, "{bytes} bytes are more than there is memory"),
            FaultKind::Occupied(range) => {
                write!(f, "{:#x} and {} bytes from there are in use", range.at, range.bytes)
            }
            FaultKind::BeyondBuffer { range, base, bytes } => {
                write!(f, "{range}: beyond its buffer of {bytes} bytes at {base:#x}")
            }
            FaultKind::OutOfBounds(range) => write!(f, "{range}: out of bounds"),
            FaultKind::FreedMemory(range) => write!(f, "{range}: the memory was freed"),
            FaultKind::Misaligned(range, to) => write!(f, "{range}: not aligned to {to} bytes"),
            FaultKind::Race(range, wave) => write!(f, "{range}: a race with wavefront {wave}"),
            FaultKind::Uninitialised(range) => write!(f, "{range}: nobody wrote there"),
            FaultKind::BarrierDivergence(how) => write!(f, "barriers diverge: {how}"),
            FaultKind::MissingWait(what) => write!(f, "no s_waitcnt: {what}"),
            FaultKind::IllegalInstruction(word) => write!(f, "{word:#010x} is no instruction"),
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
