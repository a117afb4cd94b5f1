//! A decoded instruction: format, operands, modifiers and flags.

pub(crate) use super::moves::Dpp;
use super::moves::Moves;
use super::op::matrix::MatrixRow;
use super::op::memory::{MemoryRow, ScalarRow as SmemRow};
use super::op::wmma::WmmaRow;
use super::plan::Plan;
use super::{Isa, Rate, Row, ScalarRow, operand};
use std::sync::Arc;

/// Formats of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
}

/// Formats of scalar instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarTable {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
}

/// Memory that an instruction of the vector memory formats accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Flat,
    Scratch,
    Global,
    Buffer,
}

impl Segment {
    /// Returns the prefix of its instructions' names.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Segment::Flat => "flat_",
            Segment::Scratch => "scratch_",
            Segment::Global => "global_",
            Segment::Buffer => "buffer_",
        }
    }
}

/// Format and opcode of an instruction.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Scalar(ScalarTable, &'static ScalarRow),
    ScalarMemory(&'static SmemRow),
    Vector(Table, &'static Row),
    Matrix(&'static MatrixRow),
    Memory(Segment, &'static MemoryRow),
    Lds(&'static MemoryRow),
    Wmma(&'static WmmaRow),
    Pair(Arc<Pair>),
}

/// Two vector instructions executed at once: both read their sources before either writes.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) halves: [Inst; 2],
    /// True if both read a register of the same bank at once, which processors cannot do.
    pub(crate) conflict: bool,
}

/// Encoding of the sources and destination of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 32 bits.
    Short,
    /// 64 bits, with modifiers.
    Long,
    Sdwa(Sdwa),
    /// 32 bits, and the lanes that the first source comes from.
    Dpp(Dpp),
    /// 64 bits, and these.
    LongDpp(Dpp),
}

/// Selected parts of registers: 0 to 3 a byte, 4 and 5 a half, 6 the whole register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sdwa {
    pub(crate) dst: u8,
    /// Unselected bits of the destination: 0 zeros, 1 sign extension, 2 preserved.
    pub(crate) unused: u8,
    pub(crate) src: [u8; 2],
    /// True for sources to be sign-extended.
    pub(crate) extend: [bool; 2],
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub(crate) isa: Isa,
    /// Name without suffix; memory instructions lack the prefix of their segment.
    pub(crate) name: &'static str,
    pub(crate) body: Body,
    pub(crate) form: Form,
    pub(crate) rate: Rate,
    /// True if the result depends on the rounding mode.
    pub(crate) rounds: bool,
    /// Length in words of 32 bits.
    pub(crate) words: u8,
    /// Destination: index of a vector register, 256 more for an accumulation register, or a scalar operand.
    pub(crate) dst: u16,
    /// Additional scalar destination.
    pub(crate) sdst: u16,
    pub(crate) src: [u16; 3],
    pub(crate) literal: u32,
    pub(crate) neg: u8,
    /// Absolute-value bits; for packed instructions the negation bits of the upper halves.
    pub(crate) abs: u8,
    pub(crate) clamp: bool,
    pub(crate) omod: u8,
    pub(crate) op_sel: u8,
    pub(crate) op_sel_hi: u8,
    /// Constant, or offset of a branch or address. LDS: two 8-bit offsets.
    pub(crate) offset: i32,
    pub(crate) flags: Flags,
    /// Operations that it waits for.
    pub(crate) wait: Wait,
    /// Plan of its execution, if it is a vector instruction.
    pub(crate) plan: Plan,
    /// Lanes that read other lanes.
    pub(crate) moves: Option<Arc<Moves>>,
}

/// Flag bits of memory instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) glc: bool,
    pub(crate) slc: bool,
    pub(crate) dlc: bool,
    /// CDNA: system coherence (`scc`, `sc1`).
    pub(crate) scc: bool,
    pub(crate) lds: bool,
    pub(crate) tfe: bool,
    pub(crate) idxen: bool,
    pub(crate) offen: bool,
    /// SMEM: the offset is a constant; a register is added to it.
    pub(crate) imm: bool,
    pub(crate) soffset: bool,
    pub(crate) gds: bool,
    /// Scratch: a vector register is added to the address.
    pub(crate) vaddr: bool,
}

/// Effect of a wait: the operations of each counter that may be left in flight. `None`: it does not wait for this
/// counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Loads of vector memory, and stores where they have no counter of their own.
    pub(crate) loads: Option<u8>,
    /// Stores of vector memory, where they have a counter.
    pub(crate) stores: Option<u8>,
    /// LDS and scalar memory.
    pub(crate) lgkm: Option<u8>,
}

impl Inst {
    pub(super) fn new(isa: Isa, name: &'static str, body: Body, words: u8) -> Inst {
        let (rate, rounds) = match &body {
            Body::Vector(_, row) => (row.rate(), row.rounds()),
            Body::Scalar(_, row) => (Rate::Full, row.rounds()),
            _ => (Rate::Full, false),
        };
        Inst {
            isa,
            name,
            body,
            form: Form::Short,
            rate,
            rounds,
            words,
            dst: 0,
            sdst: operand::VCC,
            src: [0; 3],
            literal: 0,
            neg: 0,
            abs: 0,
            clamp: false,
            omod: 0,
            op_sel: 0,
            op_sel_hi: 0,
            offset: 0,
            flags: Flags::default(),
            wait: Wait::default(),
            plan: Plan::NONE,
            moves: None,
        }
    }
}
