//! CDNA: what gfx90a and gfx942 (Instinct MI200 and MI300) have beyond GFX9, or encode otherwise.
//!
//! Sources: AMD, ""AMD Instinct MI200" Instruction Set Architecture" (2022) and ""AMD Instinct MI300" Instruction Set
//! Architecture" (2023); LLVM, "User Guide for AMDGPU Backend", "Syntax of gfx90a instructions" and "Syntax of gfx940
//! instructions".

mod matrix;
pub(super) mod memory;
pub(super) mod text;
pub(super) mod vector;

use super::Isa;
use super::inst::{Body, Form, Inst};
use super::op::matrix::MatrixRow;
use super::operand::{ACCUMULATORS, LITERAL, VGPR, ZERO};
use super::target::Target;

/// Vector registers of either kind.
const EACH: usize = 256;

/// Returns the matrix instruction with a number of format VOP3P.
fn find_matrix(target: Target, code: u16) -> Option<&'static MatrixRow> {
    let table = match target {
        Target::Gfx90a => matrix::GFX90A,
        Target::Gfx942 => matrix::GFX942,
        _ => return None,
    };
    table.binary_search_by_key(&code, |row| row.code).ok().map(|i| &table[i])
}

/// Decodes a matrix instruction; `None` if the words are none, or name registers that do not exist.
pub(super) fn matrix(isa: Isa, word: u32, second: u32) -> Option<Inst> {
    let row = find_matrix(isa.target, (word >> 16 & 127) as u16)?;
    let field = |word: u32, low: u32, count: u32| (word >> low & ((1 << count) - 1)) as u16;
    let mut inst = Inst::new(isa, row.name, Body::Matrix(row), 2);
    inst.form = Form::Long;
    let accumulators = word >> 15 & 1 != 0;
    inst.dst = field(word, 0, 8) + if accumulators { ACCUMULATORS - VGPR } else { 0 };
    // Where A is, B, and C or the index of a sparse A: a bit for each of the first two, and the one of D.
    let kinds = [second >> 27 & 1 != 0, second >> 28 & 1 != 0, accumulators && !row.sparse];
    let counts = [row.a_registers(), row.b_registers(), if row.sparse { 1 } else { row.registers() }];
    for (i, (in_accumulators, count)) in kinds.into_iter().zip(counts).enumerate() {
        let source = field(second, 9 * i as u32, 9);
        let constant = i == 2 && !row.sparse && (ZERO..LITERAL).contains(&source);
        let register = source >= VGPR && usize::from(source - VGPR) + count <= EACH;
        if !constant && !register {
            return None;
        }
        inst.src[i] = if register && in_accumulators { source + (ACCUMULATORS - VGPR) } else { source };
    }
    if usize::from(inst.dst) % EACH + row.registers() > EACH {
        return None;
    }
    // `cbsz`, `abid` and `blgp` are where other instructions have their modifiers.
    inst.abs = field(word, 8, 3) as u8;
    inst.op_sel = field(word, 11, 4) as u8;
    inst.neg = field(second, 29, 3) as u8;
    Some(inst)
}

/// Makes the operands of the moves between the two kinds of registers what they are.
pub(super) fn accumulate(inst: &mut Inst) {
    let (from, to) = match inst.name {
        "v_accvgpr_read_b32" => (true, false),
        "v_accvgpr_write_b32" => (false, true),
        "v_accvgpr_mov_b32" => (true, true),
        _ => return,
    };
    if from && inst.src[0] >= VGPR {
        inst.src[0] += ACCUMULATORS - VGPR;
    }
    if to {
        inst.dst += ACCUMULATORS - VGPR;
    }
}
