//! Instructions in a few bytes, as far as they need no more: what is executed most.

use super::Kind;
use super::inst::{Body, Inst, ScalarTable};
use super::op::run::Run;
use super::op::scalar::{Control, Outcome, ScalarRow, State};
use super::operand::{NULL, VGPR, ZERO, constant};
use super::plan::{Fetch, Usual};

/// An instruction in short.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Short {
    /// A vector instruction whose plan is plain. `names`: destination and sources.
    Plain {
        run: Run,
        names: [u8; 4],
    },
    /// The same, but the first source is a constant, or a scalar register.
    Constant {
        run: Run,
        names: [u8; 4],
        bits: u32,
    },
    Same {
        run: Run,
        names: [u8; 4],
        register: u8,
    },
    /// A scalar instruction without effects on EXEC or the program.
    Scalar {
        run: fn([u64; 2], State) -> Outcome,
        sources: [Bits; 2],
        dst: u8,
        result: Width,
    },
    /// A branch by so many words, if the condition holds.
    Branch {
        control: Control,
        words: i16,
    },
    /// Any other instruction.
    Other,
}

impl Short {
    /// Returns an instruction in short.
    pub(crate) fn of(inst: &Inst) -> Short {
        let row = match inst.body {
            Body::Vector(_, row) if inst.plan.plain && !inst.clamp => row,
            Body::Scalar(table, row) => return Short::of_scalar(inst, table, row).unwrap_or(Short::Other),
            _ => return Short::Other,
        };
        let [a, b, c] = inst.plan.registers.map(|[lo, _]| lo);
        let (run, names) = (row.run, [inst.dst as u8, a, b, c]);
        let source = &inst.plan.sources[0];
        match source.fetch {
            _ if inst.plan.others == 0 => Short::Plain { run, names },
            Fetch::Constant(bits) => Short::Constant { run, names, bits: bits as u32 },
            Fetch::Scalar if source.operand < ZERO => {
                Short::Same { run, names, register: source.operand as u8 }
            }
            _ => Short::Other,
        }
    }
}

impl Short {
    fn of_scalar(inst: &Inst, table: ScalarTable, row: &ScalarRow) -> Option<Short> {
        match row.control {
            // Floats depend on MODE, and some have a literal as a third source.
            Control::None if row.rounds() || row.src[0].is_float() => return None,
            Control::None if !row.special && row.exec.is_none() => {}
            Control::None | Control::Wait | Control::Barrier | Control::Nothing | Control::Other => {
                return None;
            }
            control => return Some(Short::Branch { control, words: inst.offset as i16 }),
        }
        let source = |i: usize| match row.src[i] {
            Kind::None => Some(Bits::CLEAR),
            _ if i == 1 && table == ScalarTable::Sopk => Some(Bits::signed(inst.offset)),
            kind => Bits::of(inst.src[i], kind, inst.literal),
        };
        let result = match row.dst {
            Kind::None => Width::None,
            kind if kind.is_wide() => Width::Double,
            _ => Width::Word,
        };
        Some(Short::Scalar { run: row.run, sources: [source(0)?, source(1)?], dst: inst.dst as u8, result })
    }
}

/// Words of the result of a scalar instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    None,
    Word,
    Double,
}

/// A scalar source: one or two registers, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    register: u8,
    /// The bits that count: those of the register and the one after it, those of the constant.
    kind: u8,
    constant: i32,
}

/// Bits of a pair of registers, and of a constant extended to 64 bits, by kind.
const OF_REGISTERS: [u64; 4] = [0, 0, u32::MAX as u64, u64::MAX];
const OF_CONSTANT: [u64; 4] = [u32::MAX as u64, u64::MAX, 0, 0];
const HIGH: [u32; 4] = [0, 0, 0, u32::MAX];

impl Bits {
    const CLEAR: Bits = Bits { register: 0, kind: 0, constant: 0 };

    fn signed(constant: i32) -> Bits {
        Bits { register: 0, kind: 1, constant }
    }

    /// Returns an operand; `None` for one that only the wavefront knows, and for constants that are too large.
    fn of(operand: u16, kind: Kind, literal: u32) -> Option<Bits> {
        if operand == NULL {
            return Some(Bits::CLEAR);
        }
        if operand < ZERO {
            return Some(Bits {
                register: operand as u8,
                kind: if kind.is_wide() { 3 } else { 2 },
                constant: 0,
            });
        }
        let bits = if operand < VGPR { constant(operand, kind, literal)? } else { return None };
        let value = bits as u32 as i32;
        if u64::from(value as u32) == bits {
            return Some(Bits { register: 0, kind: 0, constant: value });
        }
        (i64::from(value) as u64 == bits).then_some(Bits::signed(value))
    }

    /// Returns its value, of the registers that `word` reads.
    #[inline(always)]
    pub(crate) fn value(self, word: impl Fn(u8) -> u32) -> u64 {
        let kind = usize::from(self.kind % 4);
        // Word by word: a host waits for a store of a word before it loads two.
        let (low, high) = (word(self.register), word(self.register.wrapping_add(1)));
        let registers = u64::from(low) | u64::from(high & HIGH[kind]) << 32;
        registers & OF_REGISTERS[kind] | i64::from(self.constant) as u64 & OF_CONSTANT[kind]
    }
}

impl Usual {
    /// Adds the conditions of an instruction, if there is more of it than these.
    pub(crate) fn add(&mut self, other: Usual, short: &Short) {
        if matches!(short, Short::Plain { .. } | Short::Constant { .. } | Short::Same { .. }) {
            self.ones |= other.ones;
            self.zeros |= other.zeros;
        }
    }
}
