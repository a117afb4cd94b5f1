//! Registers that an instruction uses, and those that memory fills for it.

use super::decode::operand::{OFF, VGPR, ZERO};
use super::decode::{Body, Inst, ScalarTable, Segment};
use super::memory::{Op, ScalarOp};
use super::{Kind, flag};

/// A set of registers as bit masks: 256 vector and 128 scalar ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    vector: [u64; 4],
    scalar: u128,
}

impl Registers {
    fn vectors(first: u16, count: usize) -> Registers {
        let mut set = Registers::default();
        set.add_vectors(first, count);
        set
    }

    fn add_vectors(&mut self, first: u16, count: usize) {
        for n in 0..count {
            let register = (usize::from(first) + n) & 255;
            self.vector[register / 64] |= 1 << (register % 64);
        }
    }

    fn add_scalars(&mut self, first: u16, count: usize) {
        for n in 0..count {
            self.scalar |= 1 << ((usize::from(first) + n) & 127);
        }
    }

    /// Adds the registers of a source operand.
    fn add_operand(&mut self, operand: u16, kind: Kind) {
        if operand >= VGPR {
            self.add_vectors(operand - VGPR, kind.registers());
        } else if operand < ZERO {
            self.add_scalars(operand, kind.registers());
        }
    }

    pub(crate) fn add(&mut self, other: Registers) {
        self.scalar |= other.scalar;
        self.vector.iter_mut().zip(other.vector).for_each(|(a, b)| *a |= b);
    }

    /// Returns true if the sets intersect.
    #[inline(always)]
    pub(crate) fn meets(&self, other: &Registers) -> bool {
        let vector = self.vector.iter().zip(other.vector).fold(0, |all, (a, b)| all | a & b);
        vector != 0 || self.scalar & other.scalar != 0
    }

    /// Returns the name of a scalar register in both sets.
    pub(crate) fn common_scalar(&self, other: &Registers) -> Option<String> {
        let scalar = self.scalar & other.scalar;
        (scalar != 0).then(|| format!("s{}", scalar.trailing_zeros()))
    }

    /// Returns the name of a register in both sets.
    pub(crate) fn common(&self, other: &Registers) -> Option<String> {
        if let Some(scalar) = self.common_scalar(other) {
            return Some(scalar);
        }
        let word = (0..4).find(|&i| self.vector[i] & other.vector[i] != 0)?;
        Some(format!("v{}", 64 * word + (self.vector[word] & other.vector[word]).trailing_zeros() as usize))
    }
}

/// Returns the registers that an instruction fills when its memory access returns.
pub(crate) fn filled(inst: &Inst) -> Registers {
    let vectors = |count: usize| Registers::vectors(inst.dst, count);
    match inst.body {
        Body::ScalarMemory(row) if matches!(row.op, ScalarOp::Load | ScalarOp::Clock) => {
            let mut set = Registers::default();
            set.add_scalars(inst.dst, row.registers.into());
            set
        }
        Body::Lds(row) => match row.op {
            Op::Store { .. } | Op::Store2 { .. } | Op::StoreByLane | Op::Nothing => Registers::default(),
            Op::Atomic { returns: false, .. } => Registers::default(),
            op => vectors(op.loaded_registers()),
        },
        Body::Memory(_, row) => match row.op {
            Op::Load { .. } => vectors(row.op.loaded_registers()),
            Op::Atomic { .. } if inst.flags.glc => vectors(row.op.loaded_registers()),
            _ => Registers::default(),
        },
        _ => Registers::default(),
    }
}

/// Returns the registers that an instruction reads or writes immediately. Loads write later.
pub(crate) fn used(inst: &Inst) -> Registers {
    let mut set = Registers::default();
    match inst.body {
        Body::Scalar(table, row) => {
            let sources = row.src.iter().enumerate().take(2).filter(|(_, k)| **k != Kind::None);
            for (i, &kind) in sources {
                if table != ScalarTable::Sopk || i == 0 {
                    set.add_operand(inst.src[i], kind);
                }
            }
            if row.dst != Kind::None {
                set.add_scalars(inst.dst, row.dst.registers());
            }
        }
        Body::ScalarMemory(row) => {
            if !matches!(row.op, ScalarOp::Nothing | ScalarOp::Clock) {
                set.add_scalars(inst.src[0], if row.buffer { 4 } else { 2 });
            }
            if inst.flags.soffset {
                set.add_operand(inst.src[1], Kind::U32);
            }
            if row.op == ScalarOp::Store {
                set.add_scalars(inst.dst, row.registers.into());
            }
        }
        Body::Vector(_, row) => {
            for (i, &kind) in row.src.iter().enumerate().take(3) {
                set.add_operand(inst.src[i], kind);
            }
            let scalar = row.dst == Kind::Mask || row.is(flag::SPECIAL) && row.name.starts_with("v_read");
            if scalar {
                set.add_scalars(inst.dst, row.dst.registers());
            } else {
                set.add_vectors(inst.dst, row.dst.registers());
            }
            if row.carry_out {
                set.add_scalars(inst.sdst, 2);
            }
        }
        Body::Lds(row) => {
            let (_, data) = row.op.lds_registers();
            set.add_vectors(inst.src[0], 1);
            set.add_vectors(inst.src[1], data[0]);
            set.add_vectors(inst.src[2], data[1]);
        }
        Body::Memory(segment, row) => memory(&mut set, inst, segment, row.op),
    }
    set
}

fn memory(set: &mut Registers, inst: &Inst, segment: Segment, op: Op) {
    let [address, data, scalar] = inst.src;
    let based = scalar != OFF;
    match segment {
        Segment::Flat => set.add_vectors(address, 2),
        Segment::Global if based => set.add_vectors(address, 1),
        Segment::Global => set.add_vectors(address, 2),
        Segment::Scratch if based => {}
        Segment::Scratch => set.add_vectors(address, 1),
        Segment::Buffer => {
            set.add_vectors(address, usize::from(inst.flags.idxen) + usize::from(inst.flags.offen))
        }
    }
    match segment {
        Segment::Global if based => set.add_scalars(scalar, 2),
        Segment::Scratch if based => set.add_scalars(scalar, 1),
        Segment::Buffer => {
            set.add_scalars(scalar, 4);
            set.add_operand(inst.sdst, Kind::U32);
        }
        _ => {}
    }
    set.add_vectors(data, op.stored_registers());
}
