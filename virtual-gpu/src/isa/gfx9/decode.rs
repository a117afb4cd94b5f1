//! Decodes words into instructions of GFX9.

use super::{Vector, memory, memory_tables, scalar, vector};
use crate::isa::cdna;
use crate::isa::inst::{Body, Dpp, Flags, Form, Inst, ScalarTable, Sdwa, Segment, Table, Wait};
use crate::isa::op::memory::Op;
use crate::isa::op::scalar::Control;
use crate::isa::tables::{Tables, find, find_memory, find_scalar};
use crate::isa::{Isa, Kind, Row, ScalarRow, Target, flag, operand};

fn bits(word: u32, low: u32, count: u32) -> u16 {
    (word >> low & ((1 << count) - 1)) as u16
}

fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

fn signed(value: u32, width: u32) -> i32 {
    (value << (32 - width)) as i32 >> (32 - width)
}

/// A table's instruction: its printed name and its operation.
type Found<T> = (&'static str, &'static T);

/// Decodes the instruction at the start of `words`.
pub(in crate::isa) fn decode(words: &[u32], isa: Isa) -> Option<Inst> {
    let first = *words.first()?;
    let second = words.get(1).copied();
    let vectors = vector(isa.target);
    let scalars =
        |table, rows: Tables<ScalarRow>, code| scalar_alu(isa, table, find(rows, code)?, first, second);
    let short = |table, rows, code| short(isa, table, find(rows, code)?, first, second);
    match first >> 23 {
        0b1_0111_1101 => scalars(ScalarTable::Sop1, &[scalar::SOP1], bits(first, 8, 8)),
        0b1_0111_1110 => scalars(ScalarTable::Sopc, &[scalar::SOPC], bits(first, 16, 7)),
        0b1_0111_1111 => scalars(ScalarTable::Sopp, &[scalar::SOPP], bits(first, 16, 7)),
        _ if first >> 28 == 0b1011 => scalars(ScalarTable::Sopk, &[scalar::SOPK], bits(first, 23, 5)),
        _ if first >> 30 == 0b10 => scalars(ScalarTable::Sop2, &[scalar::SOP2], bits(first, 23, 7)),
        _ if first >> 25 == 0b011_1111 => short(Table::Vop1, vectors.vop1, bits(first, 9, 8)),
        _ if first >> 25 == 0b011_1110 => short(Table::Vopc, vectors.vopc, bits(first, 17, 8)),
        _ if first >> 31 == 0 => short(Table::Vop2, vectors.vop2, bits(first, 25, 6)),
        0b1_1010_0111 => match cdna::matrix(isa, first, second?) {
            None => packed(isa, find(vectors.vop3p, bits(first, 16, 7))?, first, second?),
            matrix => matrix,
        },
        _ => match first >> 26 {
            0b11_0000 => scalar_memory(isa, first, second?),
            0b11_0100 => long(isa, vectors, first, second?),
            0b11_0110 => lds(isa, first, second?),
            0b11_0111 => flat(isa, first, second?),
            0b11_1000 => buffer(isa, first, second?),
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
    inst.dst = bits(word, 16, 7);
    match table {
        ScalarTable::Sop2 => inst.src = [bits(word, 0, 8), bits(word, 8, 8), 0],
        ScalarTable::Sop1 => inst.src[0] = bits(word, 0, 8),
        ScalarTable::Sopc => {
            inst.src = [bits(word, 0, 8), bits(word, 8, 8), 0];
            inst.offset = i32::from(inst.src[1]);
        }
        ScalarTable::Sopk | ScalarTable::Sopp => {
            inst.offset = signed(word & 0xffff, 16);
            inst.src[0] = inst.dst;
            if row.control == Control::Wait {
                inst.wait = wait(word);
            }
            if row.name == "s_setreg_imm32_b32" {
                inst.literal = second?;
                inst.words = 2;
            }
        }
    }
    let named = match table {
        ScalarTable::Sop2 | ScalarTable::Sopc => 2,
        ScalarTable::Sop1 => 1,
        _ => 0,
    };
    if inst.src[..named].contains(&operand::LITERAL) {
        inst.literal = second?;
        inst.words = 2;
    }
    Some(inst)
}

/// Returns the counts of an `s_waitcnt`: `vmcnt` in bits 0 to 3, 14 and 15, `lgkmcnt` in bits 8 to 11. The largest value
/// of a counter is no wait.
fn wait(field: u32) -> Wait {
    let (vector, other) = ((field & 15 | field >> 10 & 48) as u8, (field >> 8 & 15) as u8);
    Wait { loads: (vector < 63).then_some(vector), lgkm: (other < 15).then_some(other), stores: None }
}

fn scalar_memory(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let row = find_scalar(memory::SCALAR, bits(word, 18, 8))?;
    let mut inst = Inst::new(isa, row.name, Body::ScalarMemory(row), 2);
    inst.dst = bits(word, 6, 7);
    inst.src = [bits(word, 0, 6) * 2, bits(second, 25, 7), 0];
    inst.flags = Flags { glc: bit(word, 16), imm: bit(word, 17), soffset: bit(word, 14), ..Flags::default() };
    inst.offset = signed(second & 0x1f_ffff, 21);
    if !inst.flags.imm && !inst.flags.soffset {
        // The offset field is a register number.
        inst.src[1] = bits(second, 0, 7);
        inst.flags.soffset = true;
        inst.offset = 0;
    }
    Some(inst)
}

/// Decodes VOP1, VOP2 and VOPC in 32 bits, or in 64 bits with SDWA or DPP.
fn short(isa: Isa, table: Table, (name, row): Found<Row>, word: u32, second: Option<u32>) -> Option<Inst> {
    let mut inst = Inst::new(isa, name, Body::Vector(table, row), 1);
    let vsrc1 = bits(word, 9, 8) + operand::VGPR;
    inst.dst = bits(word, 17, 8);
    inst.src = [bits(word, 0, 9), vsrc1, 0];
    match table {
        Table::Vopc => inst.dst = operand::VCC,
        Table::Vop1 => inst.src[1] = 0,
        _ => {}
    }
    match inst.src[0] {
        operand::LITERAL => (inst.literal, inst.words) = (second?, 2),
        operand::SDWA => sdwa(&mut inst, table, second?),
        operand::DPP => dpp(&mut inst, second?),
        _ => {}
    }
    if row.is(flag::LITERAL1 | flag::LITERAL2) {
        (inst.literal, inst.words) = (second?, 2);
        inst.src = if row.is(flag::LITERAL1) {
            [inst.src[0], operand::LITERAL, vsrc1]
        } else {
            [inst.src[0], vsrc1, operand::LITERAL]
        };
    }
    if row.is(flag::ACC) {
        inst.src[2] = inst.dst + operand::VGPR;
    } else if row.src[2] == Kind::Mask {
        inst.src[2] = operand::VCC;
    }
    cdna::accumulate(&mut inst);
    Some(inst)
}

fn sdwa(inst: &mut Inst, table: Table, word: u32) {
    inst.words = 2;
    let scalar = |at: u32| if bit(word, at) { 0 } else { operand::VGPR };
    inst.src[0] = bits(word, 0, 8) + scalar(23);
    if table != Table::Vop1 {
        inst.src[1] = inst.src[1] - operand::VGPR + scalar(31);
    }
    let mut form = Sdwa {
        dst: 6,
        unused: 0,
        src: [bits(word, 16, 3) as u8, bits(word, 24, 3) as u8],
        extend: [bit(word, 19), bit(word, 27)],
    };
    if table == Table::Vopc {
        inst.dst = if bit(word, 15) { bits(word, 8, 7) } else { operand::VCC };
    } else {
        form.dst = bits(word, 8, 3) as u8;
        form.unused = bits(word, 11, 2) as u8;
        inst.clamp = bit(word, 13);
        inst.omod = bits(word, 14, 2) as u8;
    }
    inst.neg = bits(word, 20, 1) as u8 | (bits(word, 28, 1) as u8) << 1;
    inst.abs = bits(word, 21, 1) as u8 | (bits(word, 29, 1) as u8) << 1;
    inst.form = Form::Sdwa(form);
}

fn dpp(inst: &mut Inst, word: u32) {
    inst.words = 2;
    inst.src[0] = bits(word, 0, 8) + operand::VGPR;
    inst.neg = bits(word, 20, 1) as u8 | (bits(word, 22, 1) as u8) << 1;
    inst.abs = bits(word, 21, 1) as u8 | (bits(word, 23, 1) as u8) << 1;
    inst.form = Form::Dpp(Dpp {
        control: bits(word, 8, 9),
        bound: bit(word, 19),
        banks: bits(word, 24, 4) as u8,
        rows: bits(word, 28, 4) as u8,
        inactive: false,
        eight: None,
    });
}

/// Decodes VOP3: its own instructions and those of the short formats.
fn long(isa: Isa, vectors: &Vector, word: u32, second: u32) -> Option<Inst> {
    let code = bits(word, 16, 10);
    let (table, (name, row)) = match code {
        0x000..=0x0ff => (Table::Vopc, find(vectors.vopc, code)?),
        0x100..=0x13f => (Table::Vop2, find(vectors.vop2, code - 0x100)?),
        0x140..=0x1bf => (Table::Vop1, find(vectors.vop1, code - 0x140)?),
        _ => (Table::Vop3, find(vectors.vop3, code)?),
    };
    if row.is(flag::LITERAL1 | flag::LITERAL2) {
        return None;
    }
    let mut inst = Inst::new(isa, name, Body::Vector(table, row), 2);
    inst.form = Form::Long;
    inst.dst = bits(word, 0, 8);
    inst.src = [bits(second, 0, 9), bits(second, 9, 9), bits(second, 18, 9)];
    inst.clamp = bit(word, 15);
    inst.omod = bits(second, 27, 2) as u8;
    inst.neg = bits(second, 29, 3) as u8;
    if row.carry_out {
        inst.sdst = bits(word, 8, 7);
    } else {
        inst.abs = bits(word, 8, 3) as u8;
        inst.op_sel = bits(word, 11, 4) as u8;
    }
    if row.is(flag::ACC) {
        inst.src[2] = inst.dst + operand::VGPR;
    }
    Some(inst)
}

fn packed(isa: Isa, (name, row): Found<Row>, word: u32, second: u32) -> Option<Inst> {
    let mut inst = Inst::new(isa, name, Body::Vector(Table::Vop3p, row), 2);
    inst.form = Form::Long;
    inst.dst = bits(word, 0, 8);
    inst.src = [bits(second, 0, 9), bits(second, 9, 9), bits(second, 18, 9)];
    inst.clamp = bit(word, 15);
    inst.abs = bits(word, 8, 3) as u8;
    inst.neg = bits(second, 29, 3) as u8;
    inst.op_sel = bits(word, 11, 3) as u8;
    inst.op_sel_hi = bits(second, 27, 2) as u8 | (bits(word, 14, 1) as u8) << 2;
    cdna::accumulate(&mut inst);
    Some(inst)
}

fn lds(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let row = find_memory(memory_tables(isa.target).lds, bits(word, 17, 8))?;
    let mut inst = Inst::new(isa, row.name, Body::Lds(row), 2);
    inst.offset = (word & 0xffff) as i32;
    inst.flags.gds = bit(word, 16);
    let add = accumulators(isa, word, 25);
    inst.src = [bits(second, 0, 8), bits(second, 8, 8) + add, bits(second, 16, 8) + add];
    inst.dst = bits(second, 24, 8) + add;
    Some(inst)
}

/// Returns what the bit that chooses accumulation registers adds to the number of a data register.
fn accumulators(isa: Isa, word: u32, at: u32) -> u16 {
    if bit(word, at) && isa.target.traits().accumulators { operand::ACCUMULATORS - operand::VGPR } else { 0 }
}

fn flat(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let segment = match bits(word, 14, 2) {
        0 => Segment::Flat,
        1 => Segment::Scratch,
        2 => Segment::Global,
        _ => return None,
    };
    let row = find_memory(memory_tables(isa.target).flat, bits(word, 18, 7))?;
    let is_atomic = matches!(row.op, Op::Atomic { .. });
    // FLAT adds F32 and halves on gfx942 only.
    let adds = matches!(row.name, "atomic_add_f32" | "atomic_pk_add_f16") && isa.target == Target::Gfx90a;
    let to_lds = matches!(row.op, Op::LoadLds { .. });
    let lacks = match segment {
        Segment::Scratch => is_atomic,
        Segment::Flat => adds || to_lds,
        _ => false,
    };
    if lacks || row.op == Op::Nothing {
        return None;
    }
    let mut inst = Inst::new(isa, row.name, Body::Memory(segment, row), 2);
    // FLAT's offset has 12 bits and is unsigned.
    let offset = word & 0x1fff;
    inst.offset = if segment == Segment::Flat { (offset & 0xfff) as i32 } else { signed(offset, 13) };
    let (add, traits) = (accumulators(isa, second, 23), isa.target.traits());
    inst.src = [bits(second, 0, 8), bits(second, 8, 8) + add, bits(second, 16, 7)];
    inst.dst = bits(second, 24, 8) + add;
    // Where hardware knows the scratch, its instructions have both registers, and a bit for this one.
    let enabled = traits.architected_scratch && segment == Segment::Scratch;
    inst.flags = Flags {
        lds: bit(word, 13) && !enabled,
        glc: bit(word, 16),
        slc: bit(word, 17),
        scc: traits.accumulators && bit(word, 25),
        vaddr: if enabled { bit(word, 13) } else { inst.src[2] == operand::OFF },
        ..Flags::default()
    };
    Some(inst)
}

fn buffer(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let row = find_memory(memory_tables(isa.target).buffer, bits(word, 18, 7))?;
    let mut inst = Inst::new(isa, row.name, Body::Memory(Segment::Buffer, row), 2);
    let cdna = isa.target.traits().accumulators;
    inst.offset = (word & 0xfff) as i32;
    inst.flags = Flags {
        offen: bit(word, 12),
        idxen: bit(word, 13),
        glc: bit(word, 14),
        lds: bit(word, 16),
        slc: bit(word, 17),
        scc: cdna && bit(word, 15),
        tfe: !cdna && bit(second, 23),
        ..Flags::default()
    };
    // Address, data, resource; the scalar offset is stored in `sdst`.
    let add = accumulators(isa, second, 23);
    inst.src = [bits(second, 0, 8), bits(second, 8, 8) + add, bits(second, 16, 5) * 4];
    inst.sdst = bits(second, 24, 8);
    inst.dst = inst.src[1];
    Some(inst)
}
