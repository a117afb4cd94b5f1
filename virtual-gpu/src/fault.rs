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
    /// The range is in memory, but in no window of the launch ([`crate::Launch::windows`]), or is written although the
    /// launch may only read it.
    OutsideWindows(Range),
    /// The memory was freed.
    FreedMemory(Range),
    /// The address is not a multiple of the alignment that the instruction needs.
    Misaligned(Range, u32),
    /// Two wavefronts accessed the same bytes of LDS without a barrier between them, and at least one wrote.
    /// Contains the range and the other wavefront.
    Race(Range, u32),
    /// Two wavefronts, of one work-group or of two, accessed the same bytes of global memory with nothing to order the
    /// accesses, and at least one wrote. Contains the first such byte and the other access.
    GlobalRace(Range, Box<Other>),
    /// A wavefront accessed bytes that another one of its work-group had stored before a barrier, without a wait for that
    /// store. Contains the first such byte and the store.
    StoreInFlight(Range, Box<Other>),
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

/// The other access of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// Kind of access.
    pub access: Access,
    /// Id of its work-group. `None` if it is one of more than are known by name; the fields below are then empty.
    pub group: Option<[u32; 3]>,
    /// Index of its wavefront in the work-group.
    pub wave: u32,
    /// Address of the instruction, as in [`Fault::address`].
    pub address: u64,
    /// The instruction as text.
    pub instruction: String,
    /// Source file and line of the instruction, if the code object has them.
    pub line: Option<String>,
    /// True for a store that was in flight when its work-group signalled by an atomic.
    pub in_flight: bool,
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
    pub instruction: Box<str>,
    /// Id of the work-group.
    pub group: [u32; 3],
    /// Index of the wavefront in its work-group.
    pub wave: u32,
    /// Where the instruction comes from, and what was random; none if no kernel was running.
    pub origin: Option<Box<Origin>>,
}

/// Source of an instruction, and the seed under which it was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Source file and line, if the code object has them (`-gline-tables-only`).
    pub line: Option<String>,
    /// Seed of the device ([`crate::Options::seed`]), if something is random.
    pub seed: Option<u64>,
}

impl Fault {
    /// Returns the source file and line of the instruction, if the code object has them.
    pub fn line(&self) -> Option<&str> {
        self.origin.as_ref()?.line.as_deref()
    }

    /// Returns the seed of the device, if something was random.
    pub fn seed(&self) -> Option<u64> {
        self.origin.as_ref()?.seed
    }
}

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, Fault>;

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        let (kernel, instruction) = (String::new(), Box::default());
        Fault { kind, kernel, address: 0, instruction, group: [0; 3], wave: 0, origin: None }
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

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Atomic => "atomic access",
        };
        let Some([x, y, z]) = self.group else { return write!(f, "{access} by another work-group") };
        write!(f, "{access} at {:#x}: {}", self.address, self.instruction)?;
        if let Some(line) = &self.line {
            write!(f, " ({line})")?;
        }
        write!(f, " by work-group {x},{y},{z}, wavefront {}", self.wave)?;
        if self.in_flight {
            write!(f, ", still in flight when its work-group signalled")?;
        }
        Ok(())
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
            FaultKind::OutsideWindows(range) => write!(f, "{range}: outside the operands of the launch"),
            FaultKind::FreedMemory(range) => write!(f, "{range}: the memory was freed"),
            FaultKind::Misaligned(range, to) => write!(f, "{range}: not aligned to {to} bytes"),
            FaultKind::Race(range, wave) => write!(f, "{range}: race with wavefront {wave}"),
            FaultKind::GlobalRace(range, other) => write!(f, "{range}: race with the {other}"),
            FaultKind::StoreInFlight(range, other) => {
                write!(f, "{range}: no s_waitcnt before the barrier after the {other}")
            }
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
            if let Some(line) = self.line() {
                write!(f, " ({line})")?;
            }
            write!(f, ", work-group {x},{y},{z}, wavefront {}", self.wave)?;
            if let Some(seed) = self.seed() {
                write!(f, ", seed {seed}")?;
            }
            write!(f, ")")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
