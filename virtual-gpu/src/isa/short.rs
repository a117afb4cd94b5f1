//! Instructions in a few bytes, as far as they need no more: what is executed most.

use super::Kind;
use super::inst::{Body, Inst, ScalarTable, Wait};
use super::op::file::Name;
use super::op::run::Run;
use super::op::scalar::{Control, ScalarRow};
use super::op::scalar_file::{Bits, ScalarFile, Step};
use super::operand::{NULL, ZERO};
use super::plan::{Fetch, Usual};

/// An instruction in short.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Short {
    /// A vector instruction whose plan is plain. `names`: sources and destination.
    Plain {
        run: Run,
        names: [Name; 4],
    },
    /// The same, but the first source is a constant, or a scalar register.
    Constant {
        run: Run,
        names: [Name; 4],
        bits: u32,
    },
    Same {
        run: Run,
        names: [Name; 4],
        register: u8,
    },
    /// A scalar instruction without effects on EXEC or the program.
    Scalar {
        run: fn(&mut ScalarFile, &Step),
        step: Step,
    },
    /// A branch by so many words, if the condition holds.
    Branch {
        control: Control,
        words: i16,
    },
    /// A wait for memory.
    Wait(Wait),
    /// An instruction without an effect here.
    Nothing,
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
        let (run, names) = (row.run, inst.plan.operands.lo);
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
            Control::None if row.special => return None,
            Control::Wait => return Some(Short::Wait(inst.wait)),
            Control::Nothing => return Some(Short::Nothing),
            Control::None | Control::Barrier | Control::Other => return None,
            control => return Some(Short::Branch { control, words: inst.offset as i16 }),
        }
        // It would not be written.
        if row.dst != Kind::None && inst.dst == NULL {
            return None;
        }
        let source = |i: usize| match row.src[i] {
            Kind::None => Some(Bits::CLEAR),
            _ if i == 1 && table == ScalarTable::Sopk => Some(Bits::constant(inst.offset as i64 as u64)),
            kind => Bits::of(inst.src[i], kind, inst.literal),
        };
        let step = Step { sources: [source(0)?, source(1)?], dst: inst.dst as u8 };
        Some(Short::Scalar { run: row.step, step })
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
