//! `s_waitcnt`, checked: loads are complete at once here, but hardware returns them later, so a register that a load
//! will fill must not be used before a wait that covers the load, and an LDS store must not be under way at a barrier.
//!
//! A load fills a register only in the lanes that are on, so another instruction may use the register in other lanes
//! meanwhile: compilers fill a register in two halves of EXEC.
//!
//! Source: LLVM, "User Guide for AMDGPU Backend", "Memory Model gfx6-gfx9", and the manuals' chapters on data dependency
//! resolution: vector memory returns in order and counts in `vmcnt`; LDS returns in order, scalar memory in any order, and
//! both count in `lgkmcnt`; FLAT counts in both.

use super::wave::Wave;
use crate::fault::FaultKind;
use crate::isa::decode::operand::{OFF, VGPR, ZERO};
use crate::isa::decode::{Body, Inst, ScalarTable, Segment};
use crate::isa::lanes::LANES;
use crate::isa::memory::{Op, ScalarOp};
use crate::isa::{Kind, flag};

/// Registers as a set of bits: 256 vector and 128 scalar ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set {
    vector: [u64; 4],
    scalar: u128,
}

impl Set {
    fn vectors(first: u16, count: usize) -> Set {
        let mut set = Set::default();
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

    /// A source operand.
    fn add_operand(&mut self, operand: u16, kind: Kind) {
        if operand >= VGPR {
            self.add_vectors(operand - VGPR, kind.registers());
        } else if operand < ZERO {
            self.add_scalars(operand, kind.registers());
        }
    }

    fn add(&mut self, other: Set) {
        self.scalar |= other.scalar;
        self.vector.iter_mut().zip(other.vector).for_each(|(a, b)| *a |= b);
    }

    /// The name of a register that is in both.
    fn common(&self, other: &Set) -> Option<String> {
        let scalar = self.scalar & other.scalar;
        if scalar != 0 {
            return Some(format!("s{}", scalar.trailing_zeros()));
        }
        let word = (0..4).find(|&i| self.vector[i] & other.vector[i] != 0)?;
        Some(format!("v{}", 64 * word + (self.vector[word] & other.vector[word]).trailing_zeros() as usize))
    }
}

/// What is under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    fills: Set,
    /// In which lanes of the vector registers.
    lanes: u64,
    /// Returns in the order of its kind.
    ordered: bool,
    stores_lds: bool,
}

/// The two counters of a wavefront.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    vm: Vec<Pending>,
    lgkm: Vec<Pending>,
    /// All registers that are waited for.
    pending: Set,
}

impl Waits {
    pub(crate) fn clear(&mut self) {
        self.vm.clear();
        self.lgkm.clear();
        self.pending = Set::default();
    }

    /// Whether nothing is under way.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.vm.is_empty() && self.lgkm.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &Pending> {
        self.vm.iter().chain(&self.lgkm)
    }

    /// An error if an instruction uses a register that a load is still to fill.
    #[inline(never)]
    pub(crate) fn check(&self, wave: &Wave, inst: &Inst) -> Result<(), FaultKind> {
        let used = used(inst);
        if used.common(&self.pending).is_some() {
            let lanes = lanes_used(wave, inst);
            let early = |p: &Pending| {
                used.common(&if p.lanes & lanes == 0 { Set { vector: [0; 4], ..p.fills } } else { p.fills })
            };
            if let Some(register) = self.all().find_map(early) {
                let what = format!("{register} is used before a load has filled it");
                return Err(FaultKind::MissingWait(what));
            }
        }
        let barrier = matches!(inst.body, Body::Scalar(ScalarTable::Sopp, row) if row.name == "s_barrier");
        if barrier && self.lgkm.iter().any(|p| p.stores_lds) {
            return Err(FaultKind::MissingWait("a store to LDS is under way at a barrier".into()));
        }
        Ok(())
    }

    /// After an instruction: what it left under way, or waited for.
    #[inline(always)]
    pub(crate) fn after(&mut self, inst: &Inst, lanes: u64) {
        match inst.body {
            Body::Vector(..) => {}
            Body::Scalar(table, row) => {
                if table == ScalarTable::Sopp && row.name == "s_waitcnt" {
                    self.wait(inst.offset as u32);
                }
            }
            Body::ScalarMemory(row) => {
                let mut fills = Set::default();
                if matches!(row.op, ScalarOp::Load | ScalarOp::Clock) {
                    fills.add_scalars(inst.dst, row.registers.into());
                }
                self.push(false, Pending { fills, lanes, ordered: false, stores_lds: false });
            }
            Body::Lds(row) => {
                let returns =
                    !matches!(row.op, Op::Store { .. } | Op::Store2 { .. } | Op::StoreByLane | Op::Nothing);
                let silent = matches!(row.op, Op::Atomic { returns: false, .. });
                let fills = if returns && !silent {
                    Set::vectors(inst.dst, row.op.loaded_registers())
                } else {
                    Set::default()
                };
                let exchange =
                    matches!(row.op, Op::Swizzle | Op::Permute | Op::BackwardPermute | Op::Nothing);
                let load = matches!(row.op, Op::Load { .. } | Op::Load2 { .. } | Op::LoadByLane);
                self.push(false, Pending { fills, lanes, ordered: true, stores_lds: !exchange && !load });
            }
            Body::Memory(segment, row) => {
                let loads = matches!(row.op, Op::Load { .. })
                    || matches!(row.op, Op::Atomic { .. }) && inst.flags.glc;
                let fills =
                    if loads { Set::vectors(inst.dst, row.op.loaded_registers()) } else { Set::default() };
                let flat = segment == Segment::Flat;
                self.push(true, Pending { fills, lanes, ordered: !flat, stores_lds: false });
                if flat {
                    self.push(false, Pending { fills, lanes, ordered: false, stores_lds: !loads });
                }
            }
        }
    }

    fn push(&mut self, vm: bool, pending: Pending) {
        let (queue, most) = if vm { (&mut self.vm, 63) } else { (&mut self.lgkm, 15) };
        queue.push(pending);
        self.pending.add(pending.fills);
        // A full counter holds the wavefront back.
        if queue.len() > most {
            retire(queue, most);
            merge(queue, most);
            self.update();
        }
    }

    /// `s_waitcnt`: `vmcnt` in bits 0 to 3, 14 and 15; `lgkmcnt` in bits 8 to 11.
    fn wait(&mut self, field: u32) {
        let (vm, lgkm) = ((field & 15 | field >> 10 & 48) as usize, (field >> 8 & 15) as usize);
        if vm < 63 {
            retire(&mut self.vm, vm);
        }
        if lgkm < 15 {
            retire(&mut self.lgkm, lgkm);
        }
        self.update();
    }

    fn update(&mut self) {
        let mut pending = Set::default();
        self.all().for_each(|p| pending.add(p.fills));
        self.pending = pending;
    }
}

/// What is complete when only `left` are not: all if none is left; of those that return in order one that so many later
/// ones of its kind follow. Nothing is known of the others before all are complete.
fn retire(queue: &mut Vec<Pending>, left: usize) {
    if left == 0 {
        return queue.clear();
    }
    let mut later = queue.iter().filter(|p| p.ordered).count();
    queue.retain(|p| {
        later -= usize::from(p.ordered);
        !p.ordered || later < left
    });
}

/// Makes one of those that return in any order, where there are more than the counter counts.
fn merge(queue: &mut Vec<Pending>, most: usize) {
    let mut places = (0..queue.len()).filter(|&i| !queue[i].ordered);
    let (Some(first), Some(second)) = (places.next(), places.next()) else { return };
    if queue.len() > most {
        let other = queue.remove(second);
        let into = &mut queue[first];
        into.fills.add(other.fills);
        into.lanes |= other.lanes;
        into.stores_lds |= other.stores_lds;
    }
}

/// The lanes in which an instruction uses vector registers: those that are on, or the one that it names.
fn lanes_used(wave: &Wave, inst: &Inst) -> u64 {
    let exec = wave.exec();
    match inst.name() {
        "v_readfirstlane_b32" if exec == 0 => 1,
        "v_readfirstlane_b32" => exec & exec.wrapping_neg(),
        "v_readlane_b32" | "v_writelane_b32" => {
            1 << (wave.scalar(inst.src[1], Kind::U32, inst.literal) % LANES as u64)
        }
        _ => exec,
    }
}

/// Registers that an instruction reads, and those that it writes at once. Loads write later, in order.
fn used(inst: &Inst) -> Set {
    let mut set = Set::default();
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

fn memory(set: &mut Set, inst: &Inst, segment: Segment, op: Op) {
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
