//! Plan of the execution of a vector instruction, made once, when it is decoded.

use super::Kind;
use super::op::file::Name;
use super::op::run::Operands;

/// Where the bits of a source are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// In a vector register.
    Vector,
    /// The same for all lanes: these.
    Constant(u64),
    /// In a scalar register, or known to the wavefront only.
    Scalar,
}

/// A source of a vector instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourcePlan {
    pub(crate) fetch: Fetch,
    pub(crate) kind: Kind,
    pub(crate) operand: u16,
    /// True if it has two words.
    pub(crate) wide: bool,
    /// True if modifiers change it: a part is selected, a sign changed.
    pub(crate) modified: bool,
    /// Bits of MODE. If one is 0, denormals are replaced.
    pub(crate) keeps: u32,
}

/// A source of one bit per lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carry {
    None,
    Vcc,
    /// The mask in this source.
    Source(u8),
}

/// Destination of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Nothing,
    /// A mask, which is also written to EXEC or not.
    Mask {
        exec: bool,
    },
    Register,
}

/// Values of the MODE register: bits that are 1, and bits that are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usual {
    pub(crate) ones: u32,
    pub(crate) zeros: u32,
}

impl Usual {
    /// Returns true for a mode that is one of them.
    #[inline(always)]
    pub(crate) fn has(self, mode: u32) -> bool {
        mode & (self.ones | self.zeros) == self.ones
    }
}

/// The plan of a vector instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// True if the instruction is executed without its formula, or not at all.
    pub(crate) separate: bool,
    pub(crate) sources: [SourcePlan; 3],
    /// The registers of the sources and the destination.
    pub(crate) operands: Operands,
    /// Bits of MODE that sources need; if they are 1, all are registers as they are, except those of `others`, which is
    /// a bit for each.
    pub(crate) source_keeps: u32,
    pub(crate) others: u8,
    /// The sources, as bits.
    pub(crate) all: u8,
    pub(crate) carry: Carry,
    /// Bits of MODE. If one is 1, the result is not that of the formula, which rounds to the nearest.
    pub(crate) rounding: u32,
    /// Bits of MODE. If one is 0, denormals of the result are replaced.
    pub(crate) keeps: u32,
    /// True if the result is multiplied or clamped.
    pub(crate) scaled: bool,
    /// True if the result may fill only a part of the register.
    pub(crate) merged: bool,
    /// True if the result has two words.
    pub(crate) wide: bool,
    /// True if the results are registers, and the formula's.
    pub(crate) direct: bool,
    /// True if that is so for one register, or they are a mask, and all sources are words as they are or masks; and there is
    /// no exchange of lanes.
    pub(crate) plain: bool,
    /// True if that is so but for modifiers of sources.
    pub(crate) single: bool,
    /// Modes in which a plain plan holds.
    pub(crate) usual: Usual,
    pub(crate) finish: Finish,
}

impl Plan {
    /// The plan of an instruction that is none of the vector unit.
    pub(crate) const NONE: Plan = Plan {
        separate: true,
        sources: [SourcePlan {
            fetch: Fetch::Scalar,
            kind: Kind::None,
            operand: 0,
            wide: false,
            modified: false,
            keeps: 0,
        }; 3],
        operands: Operands { lo: [Name::register(0); 4], hi: [Name::register(0); 4], carry: 0 },
        source_keeps: 0,
        others: 0,
        all: 0,
        carry: Carry::None,
        rounding: 0,
        keeps: 0,
        scaled: false,
        merged: false,
        wide: false,
        direct: false,
        plain: false,
        single: false,
        usual: Usual { ones: 0, zeros: 0 },
        finish: Finish::Nothing,
    };
}
