//! Finds the plan of a vector instruction.

use super::inst::{Body, Form, Inst, Table};
use super::moves::Moves;
use super::op::file::Name;
use super::op::memory::Op;
use super::operand::{VGPR, ZERO, constant};
use super::plan::{Carry, Fetch, Finish, Plan, SourcePlan, Usual};
use super::{Generation, Kind, Row, flag};

/// Bits of MODE: denormals of F32 are preserved in sources and in results, those of F16 and F64 likewise.
const F32_SOURCES: u32 = 1 << 4;
const F32_RESULTS: u32 = 1 << 5;
const OTHER_SOURCES: u32 = 1 << 6;
const OTHER_RESULTS: u32 = 1 << 7;

/// SDWA's selection of a whole register.
const WHOLE: u8 = 6;

/// Bit of MODE: registers are numbered relative to M0.
pub(crate) const MODE_INDEX: u32 = 1 << 27;

/// Returns the plan of an instruction.
pub(crate) fn plan(inst: &Inst) -> Plan {
    let Body::Vector(table, row) = inst.body else { return Plan::NONE };
    let signs = table == Table::Vop3 && row.src[0] == Kind::PkF16 && inst.neg | inst.abs != 0;
    let unknown = inst.clamp && !row.dst.is_float() && !row.is(flag::SATURATES) || signs;
    let mut plan = Plan { separate: row.is(flag::SPECIAL) || unknown, ..Plan::NONE };
    for (i, &kind) in row.src.iter().enumerate() {
        match kind {
            Kind::None => break,
            Kind::Mask => plan.carry = Carry::Source(i as u8),
            Kind::Vcc => plan.carry = Carry::Vcc,
            _ if i < 3 => add(&mut plan, i, source(inst, i, kind)),
            _ => {}
        }
    }
    if inst.rounds {
        plan.rounding = if row.dst.is_f32() { 3 } else { 12 };
    }
    result(&mut plan, inst, row);
    let simple = plan.direct && !plan.wide || plan.finish == (Finish::Mask { exec: false });
    let lanes = matches!(inst.form, Form::Short | Form::Long | Form::Sdwa(_));
    plan.single = simple && !plan.separate && lanes && plan.sources.iter().all(|s| !s.wide);
    let same = plan.sources.iter().all(|s| !s.modified);
    plan.plain = plan.single && same && !matches!(inst.form, Form::Sdwa(_));
    plan.usual = Usual { ones: plan.source_keeps | plan.keeps, zeros: plan.rounding | MODE_INDEX };
    plan
}

/// Returns the lanes that read other lanes, if an instruction moves lanes.
pub(crate) fn moves(inst: &Inst) -> Option<Moves> {
    match (&inst.body, inst.form) {
        (_, Form::Dpp(dpp) | Form::LongDpp(dpp)) => Some(Moves::of_dpp(dpp)),
        (Body::Lds(row), _) if row.op == Op::Swizzle => Some(Moves::of_swizzle(inst.offset as u32)),
        _ => None,
    }
}

fn add(plan: &mut Plan, i: usize, source: SourcePlan) {
    plan.sources[i] = source;
    [plan.operands.lo[i], plan.operands.hi[i]] = pair(source.operand);
    plan.source_keeps |= source.keeps;
    plan.all |= 1 << i;
    plan.others |= u8::from(source.fetch != Fetch::Vector || source.modified) << i;
}

fn source(inst: &Inst, i: usize, kind: Kind) -> SourcePlan {
    let operand = inst.src[i];
    // The constants of 16-bit integers are those of 32 bits.
    let of_32 = inst.isa.target.generation() == Generation::Gfx11
        && matches!(kind, Kind::U16 | Kind::I16 | Kind::Pk16);
    let fetch = match constant(operand, if of_32 { Kind::U32 } else { kind }, inst.literal) {
        _ if operand >= VGPR => Fetch::Vector,
        Some(bits) if operand >= ZERO => Fetch::Constant(bits),
        _ => Fetch::Scalar,
    };
    let keeps = match kind {
        Kind::F32 | Kind::PkF32 => F32_SOURCES,
        Kind::F16 | Kind::PkF16 | Kind::F64 => OTHER_SOURCES,
        _ => 0,
    };
    let (wide, modified) = (kind.is_wide(), is_modified(inst, i, kind));
    SourcePlan { fetch, kind, operand, wide, modified, keeps }
}

fn result(plan: &mut Plan, inst: &Inst, row: &Row) {
    plan.finish = match row.dst {
        Kind::None => Finish::Nothing,
        Kind::Mask => Finish::Mask { exec: row.is(flag::EXEC) },
        _ => Finish::Register,
    };
    if row.dst.is_float() {
        plan.keeps = if row.dst.is_f32() { F32_RESULTS } else { OTHER_RESULTS };
        plan.scaled = inst.clamp || inst.omod != 0;
    }
    plan.merged = match inst.form {
        Form::Sdwa(sdwa) if sdwa.dst != WHOLE => true,
        _ if !matches!(row.dst, Kind::U16 | Kind::I16 | Kind::F16) => false,
        _ if inst.isa.target.generation() == Generation::Gfx11 => true,
        _ => row.is(flag::KEEP_HIGH | flag::KEEP_LOW) || inst.op_sel & 8 != 0,
    };
    plan.wide = row.dst.is_wide();
    plan.direct = plan.finish == Finish::Register && !plan.scaled && !plan.merged;
    [plan.operands.lo[3], plan.operands.hi[3]] = pair(inst.dst);
}

/// Returns the names of a vector register and the next one.
fn pair(operand: u16) -> [Name; 2] {
    let register = operand as u8;
    [register, register.wrapping_add(1)].map(Name::register)
}

/// Returns true if modifiers change a source: a part is selected, a sign changed.
fn is_modified(inst: &Inst, i: usize, kind: Kind) -> bool {
    let changed = (inst.neg | inst.abs | inst.op_sel) >> i & 1 != 0;
    match inst.form {
        Form::Short => inst.op_sel >> i & 1 != 0,
        Form::Long | Form::LongDpp(_) if kind.is_packed() => {
            inst.src[i] < VGPR || changed || inst.op_sel_hi >> i & 1 == 0
        }
        Form::Sdwa(_) | Form::Dpp(_) if kind.is_packed() => true,
        Form::Sdwa(sdwa) if i < 2 && sdwa.src[i] != WHOLE => true,
        // The part is that of halves.
        Form::Long | Form::LongDpp(_) if kind == Kind::Mix => {
            (inst.op_sel_hi | inst.neg | inst.abs) >> i & 1 != 0
        }
        Form::Long | Form::LongDpp(_) | Form::Dpp(_) | Form::Sdwa(_) => kind == Kind::Mix || changed,
    }
}
