//! DS instructions.

use super::group::Group;
use super::memory::{apply, narrow};
use super::simd::Host;
use super::wave::write;
use super::wave::{REGISTERS, Wave};
use crate::fault::FaultKind;
use crate::isa::Generation;
use crate::isa::inst::Inst;
use crate::isa::op::lanes::{LANES, lanes, rounds};
use crate::isa::op::memory::{Atomic, MemoryRow, Op, RegisterBits};

impl Group<'_> {
    /// Executes a DS instruction.
    #[inline(always)]
    pub(super) fn ds(
        &mut self,
        host: Host,
        wave: &mut Wave,
        inst: &Inst,
        row: &'static MemoryRow,
    ) -> Result<(), FaultKind> {
        if inst.flags.gds {
            return Err(FaultKind::Unimplemented(format!("{} with gds", row.name)));
        }
        match row.op {
            Op::Load { bytes: 4, .. } => self.ds_load_words::<1, 1>(wave, inst, 0),
            Op::Load { bytes: 8, .. } => self.ds_load_words::<1, 2>(wave, inst, 0),
            Op::Load { bytes: 12, .. } => self.ds_load_words::<1, 3>(wave, inst, 0),
            Op::Load { bytes: 16, .. } => self.ds_load_words::<1, 4>(wave, inst, 0),
            Op::Load2 { bytes: 4, stride } => self.ds_load_words::<2, 1>(wave, inst, stride),
            Op::Load2 { stride, .. } => self.ds_load_words::<2, 2>(wave, inst, stride),
            Op::Store { bytes: 4, bits: RegisterBits::All } => self.ds_store_words::<1, 1>(wave, inst, 0),
            Op::Store { bytes: 8, .. } => self.ds_store_words::<1, 2>(wave, inst, 0),
            Op::Store { bytes: 12, .. } => self.ds_store_words::<1, 3>(wave, inst, 0),
            Op::Store { bytes: 16, .. } => self.ds_store_words::<1, 4>(wave, inst, 0),
            Op::Store2 { bytes: 4, stride } => self.ds_store_words::<2, 1>(wave, inst, stride),
            Op::Store2 { stride, .. } => self.ds_store_words::<2, 2>(wave, inst, stride),
            Op::Load { bytes, signed, bits } => self.ds_load_part(wave, inst, bytes.into(), signed, bits),
            Op::Store { bytes, bits } => self.ds_store_part(wave, inst, bytes.into(), bits),
            Op::Exchange2 { bytes, stride } => self.ds_exchange2(wave, inst, bytes, stride),
            Op::Atomic { op, bytes, returns } => self.ds_atomic(wave, inst, op, bytes, returns),
            Op::Swizzle => {
                swizzle(host, wave, inst);
                Ok(())
            }
            Op::Permute | Op::BackwardPermute => {
                permute(wave, inst, row.op == Op::Permute);
                Ok(())
            }
            Op::Append | Op::Consume => self.ds_count(wave, inst, row.op == Op::Append),
            Op::LoadByLane => {
                let exec = wave.exec();
                let mut values = [0; LANES];
                for lane in lanes(exec) {
                    let at = (inst.offset as u32).wrapping_add(wave.m0()).wrapping_add(4 * lane as u32);
                    values[lane] = self.lds.load(at, 4)?[0];
                }
                write(&mut wave.vgpr[usize::from(inst.dst)], &values, exec);
                Ok(())
            }
            Op::StoreByLane => {
                for lane in lanes(wave.exec()) {
                    let at = (inst.offset as u32).wrapping_add(wave.m0()).wrapping_add(4 * lane as u32);
                    let words = data(wave, inst.src[1], lane);
                    self.lds.store(at, 4, &words)?;
                }
                Ok(())
            }
            Op::Nothing => Ok(()),
            Op::Other | Op::LoadLds { .. } => Err(FaultKind::Unimplemented(row.name.to_string())),
        }
    }

    /// Loads a byte or two.
    #[inline(always)]
    fn ds_load_part(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        bytes: u32,
        signed: bool,
        bits: RegisterBits,
    ) -> Result<(), FaultKind> {
        let (exec, [at]) = (wave.exec(), addresses::<1>(wave, inst, 0));
        let mut values = [0; LANES];
        let loaded = match bytes {
            1 => self.lds.load_parts::<1>(&at, exec, &mut values),
            _ => self.lds.load_parts::<2>(&at, exec, &mut values),
        };
        if !loaded {
            for lane in lanes(exec) {
                values[lane] = self.lds.load(at[lane], bytes)?[0];
            }
        }
        let register = &mut wave.vgpr[usize::from(inst.dst) % REGISTERS];
        narrow(&mut values, register, bytes, signed, bits);
        write(register, &values, exec);
        Ok(())
    }

    /// Stores a byte or two.
    #[inline(always)]
    fn ds_store_part(
        &mut self,
        wave: &Wave,
        inst: &Inst,
        bytes: u32,
        bits: RegisterBits,
    ) -> Result<(), FaultKind> {
        let (exec, [at]) = (wave.exec(), addresses::<1>(wave, inst, 0));
        let (from, shift) = (
            &wave.vgpr[usize::from(inst.src[1]) % REGISTERS],
            if bits == RegisterBits::High { 16 } else { 0 },
        );
        let stored = match bytes {
            1 => self.lds.store_parts::<1>(&at, exec, from, shift),
            _ => self.lds.store_parts::<2>(&at, exec, from, shift),
        };
        if !stored {
            for lane in lanes(exec) {
                self.lds.store(at[lane], bytes, &[from[lane] >> shift, 0, 0, 0])?;
            }
        }
        Ok(())
    }

    /// Loads N words from one address or from each of two: straight into the registers, if there is nothing to
    /// report.
    #[inline(always)]
    fn ds_load_words<const COUNT: usize, const N: usize>(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        stride: u16,
    ) -> Result<(), FaultKind> {
        let (exec, at, first) = (wave.exec(), addresses::<COUNT>(wave, inst, stride), usize::from(inst.dst));
        let mut loaded = 0;
        if let Some(to) = wave.vgpr.get_mut(first..first + COUNT * N) {
            for (at, to) in at.iter().zip(to.as_chunks_mut::<N>().0) {
                loaded += usize::from(self.lds.load_lanes(at, exec, to));
            }
        }
        if loaded == COUNT {
            self.lds.read += u64::from((4 * COUNT * N) as u32 * exec.count_ones());
            return Ok(());
        }
        for lane in lanes(exec) {
            for (which, at) in at.iter().enumerate() {
                let words = self.lds.load(at[lane], 4 * N as u32)?;
                for (i, &word) in words.iter().enumerate().take(N) {
                    wave.vgpr[(first + which * N + i) % REGISTERS][lane] = word;
                }
            }
        }
        Ok(())
    }

    /// Stores N words at one address or at each of two.
    #[inline(always)]
    fn ds_store_words<const COUNT: usize, const N: usize>(
        &mut self,
        wave: &Wave,
        inst: &Inst,
        stride: u16,
    ) -> Result<(), FaultKind> {
        let (exec, at) = (wave.exec(), addresses::<COUNT>(wave, inst, stride));
        let from: [_; COUNT] =
            std::array::from_fn(|i| wave.vgpr.get(usize::from(inst.src[1 + i])..)?.first_chunk::<N>());
        if self.lds.store_lanes(&at, exec, from) {
            return Ok(());
        }
        for lane in lanes(exec) {
            for (at, &register) in at.iter().zip(&inst.src[1..]) {
                self.lds.store(at[lane], 4 * N as u32, &data(wave, register, lane))?;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn ds_exchange2(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        bytes: u8,
        stride: u16,
    ) -> Result<(), FaultKind> {
        let (exec, each) = (wave.exec(), usize::from(bytes) / 4);
        let mut values = [[0u32; LANES]; 4];
        for lane in lanes(exec) {
            for (which, at) in pair(wave, inst, lane, stride).into_iter().enumerate() {
                let words = data(wave, inst.src[1 + which], lane);
                let new = u64::from(words[0]) | u64::from(words[1]) << 32;
                let old = self.lds.atomic(at, bytes.into(), |_| new)?;
                values[which * each][lane] = old as u32;
                if each == 2 {
                    values[which * each + 1][lane] = (old >> 32) as u32;
                }
            }
        }
        write_all(wave, inst.dst, &values[..2 * each], exec);
        Ok(())
    }

    #[inline(never)]
    fn ds_atomic(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        op: Atomic,
        bytes: u8,
        returns: bool,
    ) -> Result<(), FaultKind> {
        let exec = wave.exec();
        let mut old = [[0u32; LANES]; 2];
        for lane in lanes(exec) {
            let operand = |register: u16| {
                let words = data(wave, register, lane);
                u64::from(words[0]) | if bytes == 8 { u64::from(words[1]) << 32 } else { 0 }
            };
            let (mut a, mut b) = (operand(inst.src[1]), operand(inst.src[2]));
            // DS instructions take the expected value first.
            if matches!(op, Atomic::CompareSwap | Atomic::FloatCompareSwap) {
                std::mem::swap(&mut a, &mut b);
            }
            let (at, bytes) = (address(wave, inst, lane), u32::from(bytes));
            let before = self.lds.atomic(at, bytes, |old| apply(op, bytes, old, a, b))?;
            (old[0][lane], old[1][lane]) = (before as u32, (before >> 32) as u32);
        }
        if returns {
            write_all(wave, inst.dst, &old[..usize::from(bytes) / 4], exec);
        }
        Ok(())
    }

    /// Adds or subtracts the number of active lanes to a counter at M0's upper half plus the offset; all
    /// lanes get the old value.
    #[inline(never)]
    fn ds_count(&mut self, wave: &mut Wave, inst: &Inst, up: bool) -> Result<(), FaultKind> {
        let (exec, at) = (wave.exec(), (wave.m0() >> 16).wrapping_add(inst.offset as u32));
        let count = u64::from(exec.count_ones());
        let step = |old: u64| if up { old.wrapping_add(count) } else { old.wrapping_sub(count) };
        let old = self.lds.atomic(at, 4, step)?;
        write(&mut wave.vgpr[usize::from(inst.dst)], &[old as u32; LANES], exec);
        Ok(())
    }
}

/// Returns the address: the register plus a 16-bit constant.
fn address(wave: &Wave, inst: &Inst, lane: usize) -> u32 {
    wave.vgpr[usize::from(inst.src[0])][lane].wrapping_add(inst.offset as u32 & 0xffff)
}

/// Returns the two addresses: the register plus two 8-bit constants in units of `stride`.
fn pair(wave: &Wave, inst: &Inst, lane: usize, stride: u16) -> [u32; 2] {
    let base = wave.vgpr[usize::from(inst.src[0])][lane];
    let offset = inst.offset as u32;
    [offset & 255, offset >> 8 & 255].map(|units| base.wrapping_add(units * u32::from(stride)))
}

/// Returns the one or two addresses of each lane.
#[inline(always)]
fn addresses<const COUNT: usize>(wave: &Wave, inst: &Inst, stride: u16) -> [[u32; LANES]; COUNT] {
    let (base, offset) = (&wave.vgpr[usize::from(inst.src[0] & 255)], inst.offset as u32);
    let units = [offset & 255, offset >> 8 & 255];
    let add = |i: usize| if COUNT == 1 { offset & 0xffff } else { units[i] * u32::from(stride) };
    let mut all = [[0; LANES]; COUNT];
    for (i, all) in all.iter_mut().enumerate() {
        let count = rounds(LANES);
        all[..count].iter_mut().zip(&base[..count]).for_each(|(at, base)| *at = base.wrapping_add(add(i)));
    }
    all
}

/// Returns up to four registers of a lane.
fn data(wave: &Wave, register: u16, lane: usize) -> [u32; 4] {
    [0, 1, 2, 3].map(|i| wave.vgpr[(usize::from(register) + i) % REGISTERS][lane])
}

fn write_all(wave: &mut Wave, register: u16, values: &[[u32; LANES]], exec: u64) {
    for (i, value) in values.iter().enumerate() {
        write(&mut wave.vgpr[(usize::from(register) + i) % REGISTERS], value, exec);
    }
}

/// Executes `ds_swizzle_b32`. An inactive source lane gives 0.
#[inline(never)]
fn swizzle(host: Host, wave: &mut Wave, inst: &Inst) {
    let (exec, mut values) = (wave.exec(), [0; LANES]);
    if let Some(moves) = &inst.moves {
        host.move_lanes(moves, exec, &wave.vgpr[usize::from(inst.src[0])], &mut values);
    }
    write(&mut wave.vgpr[usize::from(inst.dst)], &values, exec);
}

/// Executes `ds_permute_b32` (a lane writes to the lane that its address names) or `ds_bpermute_b32` (it
/// reads from there).
fn permute(wave: &mut Wave, inst: &Inst, forward: bool) {
    let (exec, addresses) = (wave.exec(), wave.vgpr[usize::from(inst.src[0])]);
    let source = wave.vgpr[usize::from(inst.src[1])];
    // Among all lanes, or among each 32.
    let all = if inst.isa.target.generation() == Generation::Gfx11 { 32 } else { wave.lanes() };
    let others = all - 1;
    let named = |lane: usize| {
        let other = addresses[lane].wrapping_add(inst.offset as u32) as usize / 4;
        (lane & !others | other & others) % LANES
    };
    let mut values = [0; LANES];
    for lane in lanes(exec) {
        if forward {
            values[named(lane)] = source[lane];
        } else if exec >> named(lane) & 1 != 0 {
            values[lane] = source[named(lane)];
        }
    }
    write(&mut wave.vgpr[usize::from(inst.dst)], &values, exec);
}
