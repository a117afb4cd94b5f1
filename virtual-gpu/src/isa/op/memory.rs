//! Memory instructions: scalar loads, FLAT, GLOBAL, SCRATCH, buffers and LDS.
//!
//! FLAT, GLOBAL, SCRATCH and MUBUF use the same numbers for the same operations. They share one table; a
//! prefix completes the name ("global_" + "load_dword").

/// Bits of a register that a load fills or a store reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterBits {
    /// The whole register; a shorter value is extended.
    All,
    /// The lower half; a load preserves the upper half.
    Low,
    /// The upper half; a load preserves the lower half.
    High,
}

/// Function of an atomic operation on memory and operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Swap,
    CompareSwap,
    Add,
    Sub,
    /// Subtracts, but not below 0.
    SubClamp,
    /// Operand minus memory.
    ReverseSub,
    SignedMin,
    UnsignedMin,
    SignedMax,
    UnsignedMax,
    And,
    Or,
    Xor,
    /// Adds 1; becomes 0 if memory is at or above the operand.
    Inc,
    /// Subtracts 1; becomes the operand if memory is 0 or above the operand.
    Dec,
    /// Clears the bits of the first operand, then sets those of the second.
    MaskedOr,
    FloatAdd,
    FloatMin,
    FloatMax,
    FloatCompareSwap,
    /// LDS only: as the other two, but the first operand is the new value.
    CompareStore,
    FloatCompareStore,
    /// Two halves or two BF16, each sum rounded to the nearest.
    PackedAddF16,
    PackedAddBf16,
    /// LDS only: subtracts the operand, or adds the second operand if memory is below the first.
    Wrap,
}

/// Operation of a memory instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Load {
        bytes: u8,
        signed: bool,
        bits: RegisterBits,
    },
    Store {
        bytes: u8,
        bits: RegisterBits,
    },
    /// 4 or 8 bytes. `returns`: the old value is returned (LDS only; elsewhere a bit of the instruction
    /// decides).
    Atomic {
        op: Atomic,
        bytes: u8,
        returns: bool,
    },
    /// A load whose lanes store to LDS instead of a register: 4 bytes each, one after the other from M0 on.
    LoadLds {
        bytes: u8,
        signed: bool,
    },
    /// LDS: two values of 4 or 8 bytes at two offsets, in units of one value or of 64 values.
    Load2 {
        bytes: u8,
        stride: u16,
    },
    Store2 {
        bytes: u8,
        stride: u16,
    },
    Exchange2 {
        bytes: u8,
        stride: u16,
    },
    /// Exchange between lanes, through the LDS hardware but not its memory.
    Swizzle,
    Permute,
    BackwardPermute,
    /// Adds (`Append`) or subtracts (`Consume`) the number of active lanes to a counter in LDS.
    Append,
    Consume,
    /// At an address that depends on the lane index.
    LoadByLane,
    StoreByLane,
    Nothing,
    /// Not supported: a fault names it.
    Other,
}

/// A memory instruction: number, name without prefix, operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryRow {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) op: Op,
}

pub(crate) const fn row(code: u16, name: &'static str, op: Op) -> MemoryRow {
    MemoryRow { code, name, op }
}

pub(crate) const fn load(
    code: u16,
    name: &'static str,
    bytes: u8,
    signed: bool,
    bits: RegisterBits,
) -> MemoryRow {
    row(code, name, Op::Load { bytes, signed, bits })
}

pub(crate) const fn store(code: u16, name: &'static str, bytes: u8, bits: RegisterBits) -> MemoryRow {
    row(code, name, Op::Store { bytes, bits })
}

pub(crate) const fn atomic(code: u16, name: &'static str, op: Atomic, bytes: u8, returns: bool) -> MemoryRow {
    row(code, name, Op::Atomic { op, bytes, returns })
}

pub(crate) const fn to_lds(code: u16, name: &'static str, bytes: u8, signed: bool) -> MemoryRow {
    row(code, name, Op::LoadLds { bytes, signed })
}

impl Op {
    /// Returns the number of data registers written to memory.
    pub(crate) fn stored_registers(self) -> usize {
        match self {
            Op::Store { bytes, .. } => usize::from(bytes).div_ceil(4),
            Op::Atomic { op: Atomic::CompareSwap | Atomic::FloatCompareSwap, bytes, .. } => {
                usize::from(bytes) / 2
            }
            Op::Atomic { bytes, .. } => usize::from(bytes) / 4,
            _ => 0,
        }
    }

    /// Returns the number of data registers read from memory.
    pub(crate) fn loaded_registers(self) -> usize {
        match self {
            Op::Load { bytes, .. } => usize::from(bytes).div_ceil(4),
            Op::Atomic { bytes, .. } => usize::from(bytes) / 4,
            Op::Load2 { bytes, .. } | Op::Exchange2 { bytes, .. } => usize::from(bytes) / 2,
            _ => 1,
        }
    }
}

impl Op {
    /// Returns the number of registers of the result and of the two data operands of a DS instruction.
    pub(crate) fn lds_registers(self) -> (usize, [usize; 2]) {
        match self {
            Op::Load { .. } | Op::Load2 { .. } => (self.loaded_registers(), [0, 0]),
            Op::Store { bytes, .. } => (0, [usize::from(bytes).div_ceil(4), 0]),
            Op::Store2 { bytes, .. } => (0, [usize::from(bytes) / 4; 2]),
            Op::Exchange2 { bytes, .. } => (self.loaded_registers(), [usize::from(bytes) / 4; 2]),
            Op::Atomic { op, bytes, returns } => {
                let n = usize::from(bytes) / 4;
                let two = matches!(
                    op,
                    Atomic::CompareSwap
                        | Atomic::FloatCompareSwap
                        | Atomic::CompareStore
                        | Atomic::FloatCompareStore
                        | Atomic::MaskedOr
                        | Atomic::Wrap
                );
                (if returns { n } else { 0 }, [n, if two { n } else { 0 }])
            }
            Op::Swizzle | Op::Append | Op::Consume | Op::LoadByLane => (1, [0, 0]),
            Op::Permute | Op::BackwardPermute => (1, [1, 0]),
            Op::StoreByLane => (0, [1, 0]),
            Op::Other => (2, [2, 0]),
            Op::Nothing | Op::LoadLds { .. } => (0, [0, 0]),
        }
    }
}

/// Operation of a scalar memory instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarOp {
    Load,
    Store,
    /// Cache operations; caches are not modelled.
    Nothing,
    /// An increasing counter.
    Clock,
    Other,
}

/// A scalar memory instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalarRow {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) op: ScalarOp,
    pub(crate) registers: u8,
    pub(crate) buffer: bool,
}

pub(crate) const fn scalar(
    code: u16,
    name: &'static str,
    op: ScalarOp,
    registers: u8,
    buffer: bool,
) -> ScalarRow {
    ScalarRow { code, name, op, registers, buffer }
}
