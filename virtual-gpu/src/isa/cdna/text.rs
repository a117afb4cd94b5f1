//! Texts of matrix instructions.

use crate::isa::inst::Inst;
use crate::isa::names::{name, vgprs};
use crate::isa::op::matrix::MatrixRow;
use crate::isa::{Kind, operand};

/// Returns the operands of a matrix instruction.
pub(in crate::isa) fn operands(inst: &Inst, row: &MatrixRow) -> Vec<String> {
    let counts = [row.a_registers(), row.b_registers(), if row.sparse { 1 } else { row.registers() }];
    let source = |(source, count): (u16, usize)| match source.checked_sub(operand::VGPR) {
        Some(register) => vgprs(register, count),
        None if row.is_wide() => name(inst.isa, source, Kind::F64, 0),
        None => name(inst.isa, source, Kind::F32, 0),
    };
    let mut all = vec![vgprs(inst.dst, row.registers())];
    all.extend(inst.src.into_iter().zip(counts).map(source));
    all
}

/// Returns the modifiers of a matrix instruction that are not 0.
pub(in crate::isa) fn modifiers(inst: &Inst, row: &MatrixRow) -> Vec<String> {
    let mut all = Vec::new();
    let last = if row.negates { "neg" } else { "blgp" };
    for (name, value) in [("cbsz", inst.abs), ("abid", inst.op_sel), (last, inst.neg)] {
        if value == 0 {
            continue;
        }
        all.push(match name {
            "neg" => format!("neg:[{},{},{}]", value & 1, value >> 1 & 1, value >> 2),
            _ => format!("{name}:{value}"),
        });
    }
    all
}
