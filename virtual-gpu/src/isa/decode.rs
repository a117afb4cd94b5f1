//! Decodes words into instructions.

use super::memory::{self, MemoryRow, ScalarRow as SmemRow};
use super::registers::{self, Registers};
use super::sop::{self, ScalarRow};
use super::{Kind, Rate, Row, Target, find, flag, vop1, vop2, vop3, vop3p, vopc};

/// Operand numbers.
pub(crate) mod operand {
    pub(crate) const VCC: u16 = 106;
    pub(crate) const M0: u16 = 124;
    pub(crate) const EXEC: u16 = 126;
    /// 0, then 1 to 64, then -1 to -16.
    pub(crate) const ZERO: u16 = 128;
    pub(crate) const SDWA: u16 = 249;
    pub(crate) const DPP: u16 = 250;
    pub(crate) const LITERAL: u16 = 255;
    /// The first vector register.
    pub(crate) const VGPR: u16 = 256;
    /// "off": no scalar base.
    pub(crate) const OFF: u16 = 127;
}

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
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Scalar(ScalarTable, &'static ScalarRow),
    ScalarMemory(&'static SmemRow),
    Vector(Table, &'static Row),
    Memory(Segment, &'static MemoryRow),
    Lds(&'static MemoryRow),
}

/// Encoding of the sources and destination of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 32 bits.
    Short,
    /// 64 bits, with modifiers.
    Long,
    Sdwa(Sdwa),
    Dpp(Dpp),
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

/// Lane selection of DPP: lanes of the first source come from other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dpp {
    pub(crate) control: u16,
    pub(crate) bound: bool,
    pub(crate) banks: u8,
    pub(crate) rows: u8,
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) body: Body,
    pub(crate) form: Form,
    pub(crate) rate: Rate,
    /// True if the result depends on the rounding mode.
    pub(crate) rounds: bool,
    /// Length in words of 32 bits.
    pub(crate) words: u8,
    /// Destination: index of a vector register, or a scalar operand.
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
    /// Registers that it reads or writes immediately, and registers that memory fills later.
    pub(crate) used: Registers,
    pub(crate) fills: Registers,
}

/// Flag bits of memory instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) glc: bool,
    pub(crate) slc: bool,
    pub(crate) lds: bool,
    pub(crate) tfe: bool,
    pub(crate) idxen: bool,
    pub(crate) offen: bool,
    /// SMEM: the offset is a constant; a register is added to it.
    pub(crate) imm: bool,
    pub(crate) soffset: bool,
    pub(crate) gds: bool,
}

fn bits(word: u32, low: u32, count: u32) -> u16 {
    (word >> low & ((1 << count) - 1)) as u16
}

fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

fn signed(value: u32, width: u32) -> i32 {
    (value << (32 - width)) as i32 >> (32 - width)
}

impl Inst {
    fn new(body: Body, words: u8) -> Inst {
        Inst {
            body,
            form: Form::Short,
            rate: if let Body::Vector(_, row) = body { row.rate() } else { Rate::Full },
            rounds: matches!(body, Body::Vector(_, row) if row.rounds()),
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
            used: Registers::default(),
            fills: Registers::default(),
        }
    }

    /// Returns the mnemonic without suffix.
    pub(crate) fn name(&self) -> &'static str {
        match self.body {
            Body::Scalar(_, row) => row.name,
            Body::ScalarMemory(row) => row.name,
            Body::Vector(_, row) => row.name,
            Body::Memory(_, row) | Body::Lds(row) => row.name,
        }
    }
}

/// Decodes the instruction at the start of `words`. Returns `None` if the target has no such instruction.
pub(crate) fn decode(words: &[u32], target: Target) -> Option<Inst> {
    let mut inst = fields(words, target)?;
    (inst.used, inst.fills) = (registers::used(&inst), registers::filled(&inst));
    Some(inst)
}

fn fields(words: &[u32], target: Target) -> Option<Inst> {
    let first = *words.first()?;
    let second = words.get(1).copied();
    match first >> 23 {
        0b1_0111_1101 => scalar(ScalarTable::Sop1, sop::SOP1, bits(first, 8, 8), first, second),
        0b1_0111_1110 => scalar(ScalarTable::Sopc, sop::SOPC, bits(first, 16, 7), first, second),
        0b1_0111_1111 => scalar(ScalarTable::Sopp, sop::SOPP, bits(first, 16, 7), first, second),
        _ if first >> 28 == 0b1011 => scalar(ScalarTable::Sopk, sop::SOPK, bits(first, 23, 5), first, second),
        _ if first >> 30 == 0b10 => scalar(ScalarTable::Sop2, sop::SOP2, bits(first, 23, 7), first, second),
        _ if first >> 25 == 0b011_1111 => {
            short(Table::Vop1, find(vop1::ROWS, bits(first, 9, 8), target)?, first, second)
        }
        _ if first >> 25 == 0b011_1110 => {
            short(Table::Vopc, find(vopc::ROWS, bits(first, 17, 8), target)?, first, second)
        }
        _ if first >> 31 == 0 => {
            short(Table::Vop2, find(vop2::ROWS, bits(first, 25, 6), target)?, first, second)
        }
        0b1_1010_0111 => packed(find(vop3p::ROWS, bits(first, 16, 7), target)?, first, second?),
        _ => match first >> 26 {
            0b11_0000 => scalar_memory(first, second?),
            0b11_0100 => long(first, second?, target),
            0b11_0110 => lds(first, second?),
            0b11_0111 => flat(first, second?),
            0b11_1000 => buffer(first, second?),
            _ => None,
        },
    }
}

fn scalar(
    table: ScalarTable,
    rows: &'static [ScalarRow],
    code: u16,
    word: u32,
    second: Option<u32>,
) -> Option<Inst> {
    let row = sop::find(rows, code)?;
    let mut inst = Inst::new(Body::Scalar(table, row), 1);
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

fn scalar_memory(word: u32, second: u32) -> Option<Inst> {
    let row = memory::find_scalar(bits(word, 18, 8))?;
    let mut inst = Inst::new(Body::ScalarMemory(row), 2);
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
fn short(table: Table, row: &'static Row, word: u32, second: Option<u32>) -> Option<Inst> {
    let mut inst = Inst::new(Body::Vector(table, row), 1);
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
    });
}

/// Decodes VOP3: its own instructions and those of the short formats.
fn long(word: u32, second: u32, target: Target) -> Option<Inst> {
    let code = bits(word, 16, 10);
    let (table, row) = match code {
        0x000..=0x0ff => (Table::Vopc, find(vopc::ROWS, code, target)?),
        0x100..=0x13f => (Table::Vop2, find(vop2::ROWS, code - 0x100, target)?),
        0x140..=0x1bf => (Table::Vop1, find(vop1::ROWS, code - 0x140, target)?),
        _ => (Table::Vop3, find(vop3::ROWS, code, target)?),
    };
    if row.is(flag::LITERAL1 | flag::LITERAL2) {
        return None;
    }
    let mut inst = Inst::new(Body::Vector(table, row), 2);
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

fn packed(row: &'static Row, word: u32, second: u32) -> Option<Inst> {
    let mut inst = Inst::new(Body::Vector(Table::Vop3p, row), 2);
    inst.form = Form::Long;
    inst.dst = bits(word, 0, 8);
    inst.src = [bits(second, 0, 9), bits(second, 9, 9), bits(second, 18, 9)];
    inst.clamp = bit(word, 15);
    inst.abs = bits(word, 8, 3) as u8;
    inst.neg = bits(second, 29, 3) as u8;
    inst.op_sel = bits(word, 11, 3) as u8;
    inst.op_sel_hi = bits(second, 27, 2) as u8 | (bits(word, 14, 1) as u8) << 2;
    Some(inst)
}

fn lds(word: u32, second: u32) -> Option<Inst> {
    let mut inst = Inst::new(Body::Lds(memory::find(memory::DS, bits(word, 17, 8))?), 2);
    inst.offset = (word & 0xffff) as i32;
    inst.flags.gds = bit(word, 16);
    inst.src = [bits(second, 0, 8), bits(second, 8, 8), bits(second, 16, 8)];
    inst.dst = bits(second, 24, 8);
    Some(inst)
}

fn flat(word: u32, second: u32) -> Option<Inst> {
    let segment = match bits(word, 14, 2) {
        0 => Segment::Flat,
        1 => Segment::Scratch,
        2 => Segment::Global,
        _ => return None,
    };
    let row = memory::find(memory::VECTOR, bits(word, 18, 7))?;
    let is_atomic = matches!(row.op, memory::Op::Atomic { .. });
    if segment == Segment::Scratch && is_atomic || row.op == memory::Op::Nothing {
        return None;
    }
    let mut inst = Inst::new(Body::Memory(segment, row), 2);
    // FLAT's offset has 12 bits and is unsigned.
    let offset = word & 0x1fff;
    inst.offset = if segment == Segment::Flat { (offset & 0xfff) as i32 } else { signed(offset, 13) };
    inst.flags = Flags { lds: bit(word, 13), glc: bit(word, 16), slc: bit(word, 17), ..Flags::default() };
    inst.src = [bits(second, 0, 8), bits(second, 8, 8), bits(second, 16, 7)];
    inst.dst = bits(second, 24, 8);
    Some(inst)
}

fn buffer(word: u32, second: u32) -> Option<Inst> {
    let row = memory::find(memory::VECTOR, bits(word, 18, 7))?;
    let mut inst = Inst::new(Body::Memory(Segment::Buffer, row), 2);
    inst.offset = (word & 0xfff) as i32;
    inst.flags = Flags {
        offen: bit(word, 12),
        idxen: bit(word, 13),
        glc: bit(word, 14),
        lds: bit(word, 16),
        slc: bit(word, 17),
        tfe: bit(second, 23),
        ..Flags::default()
    };
    // Address, data, resource; the scalar offset is stored in `sdst`.
    inst.src = [bits(second, 0, 8), bits(second, 8, 8), bits(second, 16, 5) * 4];
    inst.sdst = bits(second, 24, 8);
    inst.dst = inst.src[1];
    Some(inst)
}
