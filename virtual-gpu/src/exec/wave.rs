//! A wavefront: registers, masks, and reads of scalar operands.

use super::waits::Waits;
use crate::fault::FaultKind;
pub(crate) use crate::isa::MODE_INDEX;
use crate::isa::flight::Begins;
use crate::isa::inst::{Body, Inst};
pub(crate) use crate::isa::op::file::REGISTERS;
use crate::isa::op::file::RegisterFile;
use crate::isa::op::lanes::{BITS, CHUNK, LANES, lanes};
use crate::isa::op::pick::pick;
use crate::isa::op::scalar_file::ScalarFile;
use crate::isa::operand::{EXEC, M0, NULL, SHARED_APERTURE, VCC, VGPR, ZERO, constant};
use crate::isa::{Effects, Kind};

/// A wavefront.
pub(crate) struct Wave {
    pub(crate) id: u32,
    /// A mask of all its lanes: 32 or 64.
    pub(crate) all: u64,
    pub(crate) scalars: ScalarFile,
    /// The vector registers, then the accumulation registers.
    pub(crate) vgpr: Box<RegisterFile>,
    /// Number of vector registers and of accumulation registers of the last kernel.
    pub(crate) vgprs: usize,
    pub(crate) accumulators: usize,
    /// Word index of the next instruction in the text.
    pub(crate) pc: usize,
    /// Word index of the current instruction, if it is the last of its block or had a fault.
    pub(crate) at: usize,
    /// The MODE register.
    pub(crate) mode: u32,
    /// Number of executed instructions.
    pub(crate) executed: u64,
    /// Scratch of all lanes: word w of lane l is at offset 256 w + 4 l.
    pub(crate) scratch: Vec<u8>,
    pub(crate) state: Progress,
    pub(crate) waits: Waits,
}

/// Execution state of a wavefront.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    /// Waits at the barrier at this word of the text.
    Waiting(usize),
    Ended,
}

impl Wave {
    pub(crate) fn new() -> Wave {
        Wave {
            id: 0,
            all: u64::MAX,
            scalars: ScalarFile { registers: [0; 128], scc: false },
            vgpr: RegisterFile::new(),
            vgprs: 0,
            accumulators: 0,
            pc: 0,
            at: 0,
            mode: 0,
            executed: 0,
            scratch: Vec::new(),
            state: Progress::Ended,
            waits: Waits::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn pair(&self, register: u16) -> u64 {
        let n = usize::from(register & 127);
        if register == NULL {
            return 0;
        }
        self.scalars.pair(n)
    }

    #[inline(always)]
    pub(crate) fn set_pair(&mut self, register: u16, value: u64) {
        let n = usize::from(register & 127);
        if register == NULL {
            return;
        }
        self.scalars.registers[n] = value as u32;
        self.scalars.registers[(n + 1) & 127] = (value >> 32) as u32;
    }

    /// Returns the mask in a register: one bit per lane.
    #[inline(always)]
    pub(crate) fn mask(&self, register: u16) -> u64 {
        self.pair(register) & self.all
    }

    /// Writes a mask to a register, or to two if a wavefront has 64 lanes.
    #[inline(always)]
    pub(crate) fn set_mask(&mut self, register: u16, mask: u64) {
        if self.all == u64::MAX {
            self.set_pair(register, mask);
        } else {
            self.set_scalar(register, Kind::U32, mask);
        }
    }

    #[inline(always)]
    pub(crate) fn exec(&self) -> u64 {
        self.mask(EXEC)
    }

    #[inline(always)]
    pub(crate) fn set_exec(&mut self, mask: u64) {
        self.set_mask(EXEC, mask);
    }

    #[inline(always)]
    pub(crate) fn vcc(&self) -> u64 {
        self.mask(VCC)
    }

    /// Returns the number of its lanes.
    pub(crate) fn lanes(&self) -> usize {
        self.all.count_ones() as usize
    }

    pub(crate) fn m0(&self) -> u32 {
        self.scalars.registers[usize::from(M0)]
    }

    /// Writes a scalar register or pair.
    #[inline(always)]
    pub(crate) fn set_scalar(&mut self, register: u16, kind: Kind, value: u64) {
        if kind.is_wide() {
            self.set_pair(register, value);
        } else if register != NULL {
            self.scalars.registers[usize::from(register & 127)] = value as u32;
        }
    }

    /// Returns the bits of a scalar operand: register, constant or literal.
    #[inline(always)]
    pub(crate) fn scalar(&self, operand: u16, kind: Kind, literal: u32) -> u64 {
        if operand < ZERO {
            let low = u64::from(self.scalars.registers[usize::from(operand)]);
            return if kind.is_wide() || kind == Kind::Mask { self.pair(operand) } else { low };
        }
        self.constant(operand, kind, literal)
    }

    #[inline(never)]
    fn constant(&self, operand: u16, kind: Kind, literal: u32) -> u64 {
        match operand {
            251 => u64::from(self.vcc() == 0),
            252 => u64::from(self.exec() == 0),
            253 => u64::from(self.scalars.scc),
            _ => constant(operand, kind, literal).unwrap_or(0),
        }
    }

    /// Returns the index of a vector register. M0 may add an index to it (`s_set_gpr_idx_on`): `which` is 0
    /// to 2 for the sources, 3 for the destination.
    #[inline(always)]
    pub(crate) fn register(&self, operand: u16, which: u32) -> usize {
        let n = usize::from(operand & 255);
        if self.mode & MODE_INDEX != 0 && self.m0() >> (12 + which) & 1 != 0 {
            return (n + (self.m0() & 255) as usize) & 255;
        }
        n
    }

    /// Returns an error if an instruction needs a wait that the program lacks: it uses a register that a load
    /// in flight fills.
    #[inline(never)]
    pub(crate) fn check_waits(&self, inst: &Inst, effects: &Effects) -> Result<(), FaultKind> {
        self.waits.check_registers(effects, self.lanes_used(inst))
    }

    /// Notes that the memory operation of an instruction is in flight. It was not executed yet.
    #[inline(always)]
    pub(crate) fn begin_waiting(&mut self, inst: &Inst, effects: &Effects) {
        match &effects.begins {
            Begins::Nothing => {}
            Begins::One(counter, pending) => self.waits.begin(*counter, pending, self.exec()),
            Begins::Flat(counter, pending) => {
                let in_lds = self.lanes_in_lds(inst);
                self.waits.begin_flat(*counter, pending, self.exec(), in_lds);
            }
        }
    }

    /// Returns the active lanes in which a FLAT instruction accesses LDS.
    fn lanes_in_lds(&self, inst: &Inst) -> u64 {
        let (register, offset) = (usize::from(inst.src[0]), inst.offset as i64 as u64);
        let in_lds =
            |lane| (self.lane_pair(register, lane).wrapping_add(offset) >> 32) as u32 == SHARED_APERTURE;
        lanes(self.exec()).fold(0, |mask, lane| mask | u64::from(in_lds(lane)) << lane)
    }

    /// Returns the lanes in which an instruction uses vector registers: the active ones, or the lane that it
    /// names.
    fn lanes_used(&self, inst: &Inst) -> u64 {
        let exec = self.exec();
        match inst.name {
            "v_readfirstlane_b32" if exec == 0 => 1,
            "v_readfirstlane_b32" => exec & exec.wrapping_neg(),
            "v_readlane_b32" | "v_writelane_b32" => {
                1 << (self.scalar(inst.src[1], Kind::U32, inst.literal) % self.lanes() as u64)
            }
            _ if matches!(inst.body, Body::Matrix(_)) => self.all,
            _ => exec,
        }
    }

    /// Returns 64 bits of a lane from two consecutive registers.
    #[inline(always)]
    pub(crate) fn lane_pair(&self, register: usize, lane: usize) -> u64 {
        let n = [register, register + 1].map(|n| n % REGISTERS);
        u64::from(self.vgpr[n[0]][lane]) | u64::from(self.vgpr[n[1]][lane]) << 32
    }
}

/// Returns true if an operand is a vector register.
#[inline(always)]
pub(crate) fn is_vector(operand: u16) -> bool {
    operand >= VGPR
}

/// Writes the lanes of a mask.
#[inline(always)]
pub(super) fn write(register: &mut [u32; LANES], values: &[u32; LANES], mask: u64) {
    if mask == u64::MAX {
        *register = *values;
        return;
    }
    let chunks = register.as_chunks_mut::<CHUNK>().0.iter_mut().zip(values.as_chunks::<CHUNK>().0);
    for (chunk, (register, values)) in chunks.enumerate() {
        let (bits, old, mut new) = ((mask >> (CHUNK * chunk)) as u32, *register, [0; CHUNK]);
        for lane in 0..CHUNK {
            new[lane] = pick(bits & BITS[lane] != 0, values[lane], old[lane]);
        }
        *register = new;
    }
}
