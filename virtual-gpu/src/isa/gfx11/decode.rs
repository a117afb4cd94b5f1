//! Decodes words into instructions of GFX11.
//!
//! Operand numbers become those of the other generations: M0 is 124 there and 125 here; here 124 is a register that is
//! always 0.

use super::{memory, scalar, vector, wmma};
use crate::isa::inst::{Body, Dpp, Flags, Form, Inst, Pair, ScalarTable, Segment, Table, Wait};
use crate::isa::op::memory::Op;
use crate::isa::op::scalar::Control;
use crate::isa::operand::{EXEC, LITERAL, M0, NULL, OFF, VCC, VGPR};
use crate::isa::tables::{Tables, find, find_memory, find_scalar};
use crate::isa::{Isa, Kind, Row, ScalarRow, flag, resolve};

/// Source operands that announce a second word: DPP over rows of 16 lanes, and over 8 lanes, the latter without and
/// with values of inactive lanes.
const DPP16: u16 = 250;
const DPP8: [u16; 2] = [233, 234];

fn bits(word: u32, low: u32, count: u32) -> u16 {
    (word >> low & ((1 << count) - 1)) as u16
}

fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

fn signed(value: u32, width: u32) -> i32 {
    (value << (32 - width)) as i32 >> (32 - width)
}

/// Returns the number of an operand that other generations have.
fn operand(number: u16) -> u16 {
    match number {
        124 => NULL,
        125 => M0,
        other => other,
    }
}

/// A table's instruction: its printed name and its operation.
type Found<T> = (&'static str, &'static T);

/// Decodes the instruction at the start of `words`.
pub(in crate::isa) fn decode(words: &[u32], isa: Isa) -> Option<Inst> {
    let first = *words.first()?;
    let second = words.get(1).copied();
    let tables = scalar(isa.target);
    let scalars =
        |table, rows: Tables<ScalarRow>, code| scalar_alu(isa, table, find(rows, code)?, first, second);
    let short = |table, rows: Tables<Row>, code| short(isa, table, find(rows, code)?, first, second);
    match first >> 23 {
        0b1_0111_1101 => scalars(ScalarTable::Sop1, tables.sop1, bits(first, 8, 8)),
        0b1_0111_1110 => scalars(ScalarTable::Sopc, tables.sopc, bits(first, 16, 7)),
        0b1_0111_1111 => scalars(ScalarTable::Sopp, tables.sopp, bits(first, 16, 7)),
        _ if first >> 28 == 0b1011 => scalars(ScalarTable::Sopk, &[scalar::SOPK], bits(first, 23, 5)),
        _ if first >> 30 == 0b10 => scalars(ScalarTable::Sop2, tables.sop2, bits(first, 23, 7)),
        _ if first >> 25 == 0b011_1111 => short(Table::Vop1, &[vector::VOP1], bits(first, 9, 8)),
        _ if first >> 25 == 0b011_1110 => short(Table::Vopc, &[vector::VOPC], bits(first, 17, 8)),
        _ if first >> 31 == 0 => short(Table::Vop2, &[vector::VOP2], bits(first, 25, 6)),
        _ if first >> 24 == 0b1100_1100 => packed(isa, first, second?, words.get(2).copied()),
        _ => match first >> 26 {
            0b11_0010 => pair(isa, first, second?, words.get(2).copied()),
            0b11_0101 => long(isa, first, second?, words.get(2).copied()),
            0b11_0110 => lds(isa, first, second?),
            0b11_0111 => flat(isa, first, second?),
            0b11_1000 => buffer(isa, first, second?),
            0b11_1101 => scalar_memory(isa, first, second?),
            _ => None,
        },
    }
}

fn scalar_alu(
    isa: Isa,
    table: ScalarTable,
    (name, row): Found<ScalarRow>,
    word: u32,
    second: Option<u32>,
) -> Option<Inst> {
    let mut inst = Inst::new(isa, name, Body::Scalar(table, row), 1);
    inst.dst = operand(bits(word, 16, 7));
    let has_literal = match table {
        ScalarTable::Sop2 | ScalarTable::Sopc => {
            inst.src = [operand(bits(word, 0, 8)), operand(bits(word, 8, 8)), 0];
            inst.src.contains(&LITERAL) || matches!(row.name, "s_fmaak_f32" | "s_fmamk_f32")
        }
        ScalarTable::Sop1 => {
            inst.src[0] = operand(bits(word, 0, 8));
            inst.offset = i32::from(bits(word, 0, 8));
            inst.src[0] == LITERAL
        }
        ScalarTable::Sopk | ScalarTable::Sopp => {
            inst.offset = signed(word & 0xffff, 16);
            inst.src[0] = inst.dst;
            if row.control == Control::Wait {
                inst.wait = wait(row.name, word, inst.src[0]);
            }
            row.name == "s_setreg_imm32_b32"
        }
    };
    if has_literal {
        (inst.literal, inst.words) = (second?, 2);
    }
    Some(inst)
}

/// Returns what a wait instruction waits for. The largest value of a counter is no wait. One with a register may wait for
/// less than its constant says: it counts for nothing.
fn wait(name: &str, field: u32, register: u16) -> Wait {
    let count = |low: u32| Some(bits(field, low, 6) as u8).filter(|&n| n < 63);
    match name {
        "s_waitcnt" => Wait { loads: count(10), lgkm: count(4), stores: None },
        "s_wait_idle" => Wait { loads: Some(0), lgkm: Some(0), stores: Some(0) },
        _ if register != NULL => Wait::default(),
        "s_waitcnt_vscnt" => Wait { stores: count(0), ..Wait::default() },
        "s_waitcnt_vmcnt" => Wait { loads: count(0), ..Wait::default() },
        "s_waitcnt_lgkmcnt" => Wait { lgkm: count(0), ..Wait::default() },
        _ => Wait::default(),
    }
}

fn scalar_memory(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let row = find_scalar(memory::SCALAR, bits(word, 18, 8))?;
    let mut inst = Inst::new(isa, row.name, Body::ScalarMemory(row), 2);
    inst.dst = operand(bits(word, 6, 7));
    inst.src = [bits(word, 0, 6) * 2, operand(bits(second, 25, 7)), 0];
    inst.offset = signed(second & 0x1f_ffff, 21);
    let (imm, register) = (inst.offset != 0, inst.src[1] != NULL);
    inst.flags =
        Flags { glc: bit(word, 14), dlc: bit(word, 13), imm, soffset: register || !imm, ..Flags::default() };
    Some(inst)
}

/// Decodes VOP1, VOP2 and VOPC in 32 bits, or in 64 bits with DPP.
fn short(isa: Isa, table: Table, (name, row): Found<Row>, word: u32, second: Option<u32>) -> Option<Inst> {
    let mut inst = Inst::new(isa, name, Body::Vector(table, row), 1);
    let vsrc1 = bits(word, 9, 8) + VGPR;
    inst.dst = bits(word, 17, 8);
    inst.src = [operand(bits(word, 0, 9)), vsrc1, 0];
    match table {
        Table::Vopc => inst.dst = if row.is(flag::EXEC) { EXEC } else { VCC },
        Table::Vop1 => inst.src[1] = 0,
        _ => {}
    }
    match inst.src[0] {
        LITERAL => (inst.literal, inst.words) = (second?, 2),
        _ => {
            if let Some((dpp, source)) = dpp(inst.src[0], second) {
                (inst.form, inst.src[0], inst.words) = (Form::Dpp(dpp), source, 2);
                if let (Dpp { eight: None, .. }, Some(word)) = (dpp, second) {
                    inst.neg = bits(word, 20, 1) as u8 | (bits(word, 22, 1) as u8) << 1;
                    inst.abs = bits(word, 21, 1) as u8 | (bits(word, 23, 1) as u8) << 1;
                }
            }
        }
    }
    if row.is(flag::LITERAL1 | flag::LITERAL2) {
        if inst.form != Form::Short {
            return None;
        }
        (inst.literal, inst.words) = (second?, 2);
        inst.src = if row.is(flag::LITERAL1) {
            [inst.src[0], LITERAL, vsrc1]
        } else {
            [inst.src[0], vsrc1, LITERAL]
        };
    }
    inst.op_sel_hi = 7;
    halves(&mut inst, row);
    if row.is(flag::ACC) {
        inst.src[2] = inst.dst + VGPR;
        inst.op_sel |= inst.op_sel >> 1 & 4;
    } else if row.src[2] == Kind::Mask {
        inst.src[2] = VCC;
    }
    Some(inst)
}

/// Replaces operands of 16 bits that are the upper halves of the first 128 registers: they have the numbers from 128 on.
fn halves(inst: &mut Inst, row: &Row) {
    let is_half = |kind: Kind| matches!(kind, Kind::U16 | Kind::I16 | Kind::F16);
    for (i, source) in inst.src.iter_mut().enumerate() {
        if is_half(row.src[i]) && *source >= VGPR + 128 {
            *source -= 128;
            inst.op_sel |= 1 << i;
        }
    }
    if is_half(row.dst) && inst.dst >= 128 {
        inst.dst -= 128;
        inst.op_sel |= 8;
    }
}

/// Returns the lanes that a source comes from and the register, if it is an operand of DPP.
fn dpp(source: u16, word: Option<u32>) -> Option<(Dpp, u16)> {
    let word = word.filter(|_| source == DPP16 || DPP8.contains(&source))?;
    let form = if source == DPP16 {
        Dpp {
            control: bits(word, 8, 9),
            bound: bit(word, 19),
            inactive: bit(word, 18),
            banks: bits(word, 24, 4) as u8,
            rows: bits(word, 28, 4) as u8,
            eight: None,
        }
    } else {
        Dpp {
            control: 0,
            bound: true,
            inactive: source == DPP8[1],
            banks: 15,
            rows: 15,
            eight: Some(word >> 8),
        }
    };
    Some((form, bits(word, 0, 8) + VGPR))
}

/// Decodes VOP3: its own instructions and those of the short formats.
fn long(isa: Isa, word: u32, second: u32, third: Option<u32>) -> Option<Inst> {
    let code = bits(word, 16, 10);
    let (table, (name, row)) = match code {
        0x000..=0x0ff => (Table::Vopc, find(&[vector::VOPC], code)?),
        0x100..=0x13f => (Table::Vop2, find(&[vector::VOP2], code - 0x100)?),
        0x180..=0x1ff => (Table::Vop1, find(&[vector::VOP1], code - 0x180)?),
        _ => (Table::Vop3, find(&[vector::VOP3], code)?),
    };
    const SHORT_ONLY: [&str; 6] = [
        "v_dot2c_f32_f16",
        "v_pk_fmac_f16",
        "v_readfirstlane_b32",
        "v_swap_b32",
        "v_swaprel_b32",
        "v_permlane64_b32",
    ];
    if row.is(flag::LITERAL1 | flag::LITERAL2) || SHORT_ONLY.contains(&row.name) {
        return None;
    }
    let mut inst = Inst::new(isa, name, Body::Vector(table, row), 2);
    (inst.form, inst.op_sel_hi) = (Form::Long, 7);
    inst.dst = bits(word, 0, 8);
    if row.dst == Kind::Mask || row.name == "v_readlane_b32" {
        inst.dst = operand(inst.dst);
    }
    long_sources(&mut inst, row, second, third)?;
    inst.clamp = bit(word, 15);
    inst.omod = bits(second, 27, 2) as u8;
    inst.neg = bits(second, 29, 3) as u8;
    if row.carry_out {
        inst.sdst = operand(bits(word, 8, 7));
    } else {
        inst.abs = bits(word, 8, 3) as u8;
        inst.op_sel = bits(word, 11, 4) as u8;
    }
    if row.is(flag::ACC) {
        inst.src[2] = inst.dst + VGPR;
        inst.op_sel = inst.op_sel & !4 | inst.op_sel >> 1 & 4;
    }
    Some(inst)
}

/// Reads the sources of a 64-bit encoding, with a third word for a literal or DPP.
fn long_sources(inst: &mut Inst, row: &Row, second: u32, third: Option<u32>) -> Option<()> {
    inst.src = [bits(second, 0, 9), bits(second, 9, 9), bits(second, 18, 9)].map(operand);
    let used = row.src.iter().filter(|k| !matches!(k, Kind::None | Kind::Vcc)).count();
    let has_literal = inst.src.iter().take(used).any(|&source| source == LITERAL);
    if let Some((dpp, source)) = dpp(inst.src[0], third) {
        // There is one word for either.
        if has_literal {
            return None;
        }
        (inst.form, inst.src[0], inst.words) = (Form::LongDpp(dpp), source, 3);
    } else if has_literal {
        (inst.literal, inst.words) = (third?, 3);
    }
    Some(())
}

fn packed(isa: Isa, word: u32, second: u32, third: Option<u32>) -> Option<Inst> {
    let code = bits(word, 16, 7);
    let mut inst = if let Some(row) = wmma::ROWS.iter().find(|row| row.code == code) {
        let mut inst = Inst::new(isa, row.name, Body::Wmma(row), 2);
        inst.src = [bits(second, 0, 9), bits(second, 9, 9), bits(second, 18, 9)].map(operand);
        if inst.src[..2].iter().any(|&source| source < VGPR) {
            return None;
        }
        inst
    } else {
        let (name, row) = find(&[vector::VOP3P], code)?;
        let mut inst = Inst::new(isa, name, Body::Vector(Table::Vop3p, row), 2);
        inst.form = Form::Long;
        long_sources(&mut inst, row, second, third)?;
        inst
    };
    inst.dst = bits(word, 0, 8);
    inst.clamp = bit(word, 15);
    inst.abs = bits(word, 8, 3) as u8;
    inst.neg = bits(second, 29, 3) as u8;
    inst.op_sel = bits(word, 11, 3) as u8;
    inst.op_sel_hi = bits(second, 27, 2) as u8 | (bits(word, 14, 1) as u8) << 2;
    Some(inst)
}

/// Decodes VOPD: two operations at once, which share a literal.
fn pair(isa: Isa, word: u32, second: u32, third: Option<u32>) -> Option<Inst> {
    if isa.lanes != 32 {
        return None;
    }
    let (dst_x, dst_y) = (bits(second, 24, 8), bits(second, 17, 7) * 2);
    // The second destination is even where the first is odd.
    let dst_y = dst_y | (dst_x & 1 ^ 1);
    let half = |rows: Tables<Row>, code: u16, dst: u16, source: u16, vsrc1: u16| {
        let (name, row) = find(rows, code)?;
        let table = if row.src[1] == Kind::None { Table::Vop1 } else { Table::Vop2 };
        let mut inst = Inst::new(isa, name, Body::Vector(table, row), 2);
        inst.dst = dst;
        inst.src = match row.flags {
            f if f & flag::LITERAL1 != 0 => [operand(source), LITERAL, vsrc1 + VGPR],
            f if f & flag::LITERAL2 != 0 => [operand(source), vsrc1 + VGPR, LITERAL],
            f if f & flag::ACC != 0 => [operand(source), vsrc1 + VGPR, dst + VGPR],
            _ if row.src[2] == Kind::Mask => [operand(source), vsrc1 + VGPR, VCC],
            _ if table == Table::Vop1 => [operand(source), 0, 0],
            _ => [operand(source), vsrc1 + VGPR, 0],
        };
        // DPP has no place here.
        let is_dpp = source == DPP16 || DPP8.contains(&source);
        (!is_dpp).then_some(inst)
    };
    let first = half(&[vector::DUAL], bits(word, 22, 4), dst_x, bits(word, 0, 9), bits(word, 9, 8))?;
    let second = half(
        &[vector::DUAL, vector::DUAL_Y],
        bits(word, 17, 5),
        dst_y,
        bits(second, 0, 9),
        bits(second, 9, 8),
    )?;
    let mut halves = [first, second];
    let has_literal = halves.iter().any(|half| half.src.contains(&LITERAL));
    for half in &mut halves {
        half.literal = if has_literal { third? } else { 0 };
        half.plan = resolve::plan(half);
    }
    let name = halves[0].name;
    let conflict = conflicts(&halves);
    let words = if has_literal { 3 } else { 2 };
    Some(Inst::new(isa, name, Body::Pair(std::sync::Arc::new(Pair { halves, conflict })), words))
}

/// Returns true if both halves of a pair read a register of one bank at once: first and second sources have four banks,
/// third ones two.
fn conflicts([x, y]: &[Inst; 2]) -> bool {
    let third = |inst: &Inst| inst.src[2];
    let banks = |a: u16, b: u16, count: u16| a >= VGPR && b >= VGPR && a % count == b % count;
    let second = |inst: &Inst| if inst.src[1] == LITERAL { 0 } else { inst.src[1] };
    banks(x.src[0], y.src[0], 4) || banks(second(x), second(y), 4) || banks(third(x), third(y), 2)
}

fn lds(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let row = find_memory(&[memory::DS], bits(word, 18, 8))?;
    let mut inst = Inst::new(isa, row.name, Body::Lds(row), 2);
    inst.offset = (word & 0xffff) as i32;
    inst.flags.gds = bit(word, 17);
    inst.src = [bits(second, 0, 8), bits(second, 8, 8), bits(second, 16, 8)];
    inst.dst = bits(second, 24, 8);
    Some(inst)
}

fn flat(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let segment = match bits(word, 16, 2) {
        0 => Segment::Flat,
        1 => Segment::Scratch,
        2 => Segment::Global,
        _ => return None,
    };
    let tables: &[&[_]] =
        if segment == Segment::Global { &[memory::VECTOR, memory::GLOBAL] } else { &[memory::VECTOR] };
    let row = find_memory(tables, bits(word, 18, 7))?;
    if segment == Segment::Scratch && matches!(row.op, Op::Atomic { .. }) {
        return None;
    }
    let mut inst = Inst::new(isa, row.name, Body::Memory(segment, row), 2);
    // FLAT's offset is unsigned.
    let offset = word & 0x1fff;
    inst.offset = if segment == Segment::Flat { offset as i32 } else { signed(offset, 13) };
    let based = bits(second, 16, 7);
    let vaddr = segment != Segment::Scratch || bit(second, 23);
    inst.flags =
        Flags { glc: bit(word, 14), dlc: bit(word, 13), slc: bit(word, 15), vaddr, ..Flags::default() };
    let base = match operand(based) {
        NULL => OFF,
        OFF => return None,
        other => other,
    };
    if segment == Segment::Flat && base != OFF {
        return None;
    }
    inst.src = [bits(second, 0, 8), bits(second, 8, 8), base];
    inst.dst = bits(second, 24, 8);
    Some(inst)
}

fn buffer(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let row = find_memory(&[memory::VECTOR, memory::BUFFER], bits(word, 18, 8))?;
    let mut inst = Inst::new(isa, row.name, Body::Memory(Segment::Buffer, row), 2);
    inst.offset = (word & 0xfff) as i32;
    inst.flags = Flags {
        slc: bit(word, 12),
        dlc: bit(word, 13),
        glc: bit(word, 14),
        tfe: bit(second, 21),
        offen: bit(second, 22),
        idxen: bit(second, 23),
        ..Flags::default()
    };
    // Address, data, resource; the scalar offset is stored in `sdst`.
    inst.src = [bits(second, 0, 8), bits(second, 8, 8), bits(second, 16, 5) * 4];
    inst.sdst = operand(bits(second, 24, 8));
    inst.dst = inst.src[1];
    Some(inst)
}
