//! Instructions in a few bytes, as far as they need no more: what is executed most.

use super::inst::{Body, Form, Inst, ScalarTable, Wait};
use super::op::change::{
    PARTS, absolute, negative, negative_absolute, value_of_high_half, value_of_low_half,
};
use super::op::file::Name;
use super::op::pick::pick;
use super::op::run::Run;
use super::op::scalar::{Control, ScalarRow};
use super::op::scalar_file::{Bits, ScalarFile, Step};
use super::operand::{NULL, VCC, ZERO};
use super::plan::{Carry, Fetch, Finish, SourcePlan, Usual};
use super::{Kind, Row};

/// A word that is the same for all lanes: a constant, or in a scalar register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    constant: u32,
    /// 128 for constants.
    register: u8,
}

impl Word {
    const NONE: Word = Word { constant: 0, register: 128 };

    fn of(source: &SourcePlan) -> Option<Word> {
        match source.fetch {
            Fetch::Constant(bits) => Some(Word { constant: bits as u32, ..Word::NONE }),
            Fetch::Scalar if source.operand < ZERO => {
                Some(Word { constant: 0, register: source.operand as u8 })
            }
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn read(self, file: &ScalarFile) -> u32 {
        let there = file.registers[usize::from(self.register & 127)];
        pick(self.register < 128, there, self.constant)
    }
}

/// A vector instruction with operands that are no vector registers: words and masks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    pub(crate) run: Run,
    /// Sources and destination.
    pub(crate) names: [Name; 4],
    /// The first source, if it is a word.
    pub(crate) first: Option<Word>,
    /// Another one and its number.
    pub(crate) other: Option<(u8, Word)>,
    /// A source with one bit for each lane, and such a result.
    pub(crate) carry: Option<u8>,
    pub(crate) bits: Option<u8>,
}

/// A vector instruction with sources that modifiers change: parts, signs. It works on copies of them.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) run: Run,
    /// Sources and destination.
    pub(crate) names: [Name; 4],
    /// By source: the operation that makes the copy, and of what.
    pub(crate) copies: [Option<(&'static Row, Name)>; 3],
    /// The first source, if it is a word, and another one with its number.
    pub(crate) first: Option<Word>,
    pub(crate) other: Option<(u8, Word)>,
}

impl Changed {
    /// Returns the instruction; `None` if there is more to it.
    fn of(inst: &Inst, row: &Row) -> Option<Changed> {
        let (plan, mut names) = (&inst.plan, inst.plan.operands.lo);
        if plan.carry != Carry::None || plan.finish != Finish::Register || row.carry_out {
            return None;
        }
        let (mut copies, mut first, mut other) = ([None; 3], None, None);
        for (i, source) in plan.sources.iter().enumerate().filter(|(i, _)| plan.others >> i & 1 != 0) {
            if source.modified {
                let change = change(inst, i, source).filter(|_| source.fetch == Fetch::Vector)?;
                copies[i] = Some((change, names[i]));
                names[i] = Name::source(i)[0];
            } else if i == 0 {
                first = Some(Word::of(source)?);
            } else if other.is_none() {
                other = Some((i as u8, Word::of(source)?));
                names[i] = Name::source(i)[0];
            } else {
                return None;
            }
        }
        Some(Changed { run: row.run, names, copies, first, other })
    }
}

/// Returns the operation that does what modifiers do to a source, if it is one of the frequent ones.
fn change(inst: &Inst, i: usize, source: &SourcePlan) -> Option<&'static Row> {
    let set = |mask: u8| mask >> i & 1 != 0;
    let signed = match (set(inst.neg), set(inst.abs)) {
        (true, true) => Some(&negative_absolute),
        (true, false) => Some(&negative),
        (false, true) => Some(&absolute),
        (false, false) => None,
    };
    match (source.kind, inst.form) {
        (Kind::F32 | Kind::F16 | Kind::U32 | Kind::I32 | Kind::U16 | Kind::I16, Form::Sdwa(sdwa))
            if i < 2 && !set(inst.neg | inst.abs | inst.op_sel) =>
        {
            PARTS[usize::from(sdwa.extend[i])].get(usize::from(sdwa.src[i])).copied()
        }
        (_, Form::Sdwa(_)) => None,
        (Kind::F32, _) => signed,
        (Kind::Mix, _) if !set(inst.op_sel_hi) => signed,
        (Kind::Mix, _) if signed.is_some() => None,
        (Kind::Mix, _) if set(inst.op_sel) => Some(&value_of_high_half),
        (Kind::Mix, _) => Some(&value_of_low_half),
        _ => None,
    }
}

/// An instruction in short.
#[derive(Debug)]
pub(crate) enum Short {
    /// A vector instruction whose plan is plain. `names`: sources and destination.
    Plain {
        run: Run,
        names: [Name; 4],
    },
    /// The same, but the first source is a word.
    Same {
        run: Run,
        names: [Name; 4],
        word: Word,
    },
    Mixed(Mixed),
    Changed(Box<Changed>),
    /// A scalar instruction without effects on the program.
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
    /// Returns what may be executed in short where not everything may: vector instructions depend on MODE. `early`:
    /// registers may be used before memory has filled them, which only instructions in full tell.
    #[inline(never)]
    pub(crate) fn allowed(&self, early: bool) -> &Short {
        match self {
            Short::Branch { .. } | Short::Nothing => self,
            Short::Scalar { .. } | Short::Wait(_) if !early => self,
            _ => &Short::Other,
        }
    }

    /// Returns an instruction in short.
    pub(crate) fn of(inst: &Inst) -> Short {
        match inst.body {
            Body::Vector(_, row) if inst.plan.plain && !inst.clamp => Short::of_vector(inst, row),
            Body::Vector(_, row) if inst.plan.single && !inst.clamp => {
                Changed::of(inst, row).map(|changed| Short::Changed(Box::new(changed)))
            }
            Body::Scalar(table, row) => Short::of_scalar(inst, table, row),
            _ => None,
        }
        .unwrap_or(Short::Other)
    }

    fn of_vector(inst: &Inst, row: &Row) -> Option<Short> {
        let (plan, run, mut names) = (&inst.plan, row.run, inst.plan.operands.lo);
        let carry = match plan.carry {
            Carry::None => None,
            Carry::Vcc => Some(VCC),
            Carry::Source(i) => Some(inst.src[usize::from(i) % 3]),
        };
        let bits = match plan.finish {
            Finish::Mask { .. } => Some(inst.dst),
            _ if row.carry_out => Some(inst.sdst),
            _ => None,
        };
        let mask = |register: Option<u16>| match register {
            None => Some(None),
            Some(register) if register < ZERO => Some(Some(register as u8)),
            Some(_) => None,
        };
        let (carry, bits) = (mask(carry)?, mask(bits)?);
        let first = if plan.others & 1 != 0 { Some(Word::of(&plan.sources[0])?) } else { None };
        let other = match plan.others >> 1 {
            0 => None,
            1 => Some((1, Word::of(&plan.sources[1])?)),
            2 => Some((2, Word::of(&plan.sources[2])?)),
            _ => return None,
        };
        if let Some((i, _)) = other {
            names[usize::from(i)] = Name::source(i.into())[0];
        }
        Some(match (first, other, carry, bits) {
            (None, None, None, None) => Short::Plain { run, names },
            (Some(word), None, None, None) => Short::Same { run, names, word },
            _ => Short::Mixed(Mixed { run, names, first, other, carry, bits }),
        })
    }

    fn of_scalar(inst: &Inst, table: ScalarTable, row: &ScalarRow) -> Option<Short> {
        match row.control {
            // Floats depend on MODE, and some have a literal as a third source.
            Control::None if row.rounds() || row.src[0].is_float() => return None,
            Control::None if !row.special => {}
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
        if matches!(short, Short::Plain { .. } | Short::Same { .. } | Short::Mixed(_) | Short::Changed(_)) {
            self.ones |= other.ones;
            self.zeros |= other.zeros;
        }
    }
}
