//! Registers that an instruction uses, and those that memory fills for it.

use super::inst::{Body, Inst, ScalarTable, Segment};
use super::op::memory::{Op, ScalarOp};
use super::operand::{OFF, VGPR};
use super::registers::{Fill, Registers};
use super::{Kind, flag};

/// Returns the registers that an instruction fills when its memory access returns.
pub(crate) fn filled(inst: &Inst) -> Fill {
    let vectors = |count: usize| Fill::vectors(inst.dst, count);
    match inst.body {
        Body::ScalarMemory(row) if matches!(row.op, ScalarOp::Load | ScalarOp::Clock) => {
            Fill::scalars(inst.dst, row.registers.into())
        }
        Body::Lds(row) => match row.op {
            Op::Store { .. } | Op::Store2 { .. } | Op::StoreByLane | Op::Nothing => Fill::default(),
            Op::Atomic { returns: false, .. } => Fill::default(),
            op => vectors(op.loaded_registers()),
        },
        Body::Memory(_, row) => match row.op {
            Op::Load { .. } => vectors(row.op.loaded_registers()),
            Op::Atomic { .. } if inst.flags.glc => vectors(row.op.loaded_registers()),
            _ => Fill::default(),
        },
        _ => Fill::default(),
    }
}

/// Returns the registers that an instruction reads or writes immediately. Loads write later.
pub(crate) fn used(inst: &Inst) -> Registers {
    let mut set = Registers::default();
    match &inst.body {
        &Body::Scalar(table, row) => {
            let sources = row.src.iter().enumerate().take(2).filter(|(_, k)| **k != Kind::None);
            for (i, &kind) in sources {
                // The second operand of `s_set_gpr_idx_on` is a number.
                let is_number = i == 1 && row.name == "s_set_gpr_idx_on";
                if (table != ScalarTable::Sopk || i == 0) && !is_number {
                    set.add_operand(inst.src[i], kind.registers(inst.isa));
                }
            }
            if row.dst != Kind::None {
                set.add_scalars(inst.dst, row.dst.registers(inst.isa));
            }
        }
        Body::ScalarMemory(row) => {
            if !matches!(row.op, ScalarOp::Nothing | ScalarOp::Clock) {
                set.add_scalars(inst.src[0], if row.buffer { 4 } else { 2 });
            }
            if inst.flags.soffset {
                set.add_operand(inst.src[1], 1);
            }
            if row.op == ScalarOp::Store {
                set.add_scalars(inst.dst, row.registers.into());
            }
        }
        Body::Vector(_, row) => {
            for (i, &kind) in row.src.iter().enumerate().take(3) {
                set.add_operand(inst.src[i], kind.registers(inst.isa));
            }
            let scalar = row.dst == Kind::Mask || row.is(flag::SPECIAL) && row.name.starts_with("v_read");
            if scalar {
                set.add_scalars(inst.dst, row.dst.registers(inst.isa));
            } else {
                set.add_vectors(inst.dst, row.dst.registers(inst.isa));
            }
            if row.carry_out {
                set.add_scalars(inst.sdst, inst.isa.mask_registers());
            }
        }
        Body::Matrix(row) => {
            set.add_operand(inst.src[0], row.a_registers());
            set.add_operand(inst.src[1], row.b_registers());
            set.add_operand(inst.src[2], if row.sparse { 1 } else { row.registers() });
            set.add_vectors(inst.dst, row.registers());
        }
        Body::Lds(row) => {
            let (_, data) = row.op.lds_registers();
            set.add_vectors(inst.src[0], 1);
            set.add_vectors(inst.src[1], data[0]);
            set.add_vectors(inst.src[2], data[1]);
        }
        Body::Memory(segment, row) => memory(&mut set, inst, *segment, row.op),
        Body::Wmma(row) => {
            let sums = 256 / usize::from(inst.isa.lanes);
            set.add_operand(inst.src[0], row.factor_registers());
            set.add_operand(inst.src[1], row.factor_registers());
            if inst.src[2] >= VGPR {
                set.add_operand(inst.src[2], sums);
            }
            set.add_vectors(inst.dst, sums);
        }
        Body::Pair(pair) => {
            for half in &pair.halves {
                set.add(used(half));
            }
        }
    }
    set
}

fn memory(set: &mut Registers, inst: &Inst, segment: Segment, op: Op) {
    // Commands to caches have no operand.
    if op == Op::Nothing {
        return;
    }
    let [address, data, scalar] = inst.src;
    let based = scalar != OFF;
    match segment {
        Segment::Flat => set.add_vectors(address, 2),
        Segment::Global if based => set.add_vectors(address, 1),
        Segment::Global => set.add_vectors(address, 2),
        Segment::Scratch => set.add_vectors(address, usize::from(inst.flags.vaddr)),
        Segment::Buffer => {
            set.add_vectors(address, usize::from(inst.flags.idxen) + usize::from(inst.flags.offen))
        }
    }
    match segment {
        Segment::Global if based => set.add_scalars(scalar, 2),
        Segment::Scratch if based => set.add_scalars(scalar, 1),
        Segment::Buffer => {
            set.add_scalars(scalar, 4);
            set.add_operand(inst.sdst, 1);
        }
        _ => {}
    }
    set.add_vectors(data, op.stored_registers());
}
