//! DS instructions.

use super::group::Group;
use super::memory::{apply, narrow};
use super::vector::write;
use super::wave::Wave;
use crate::fault::FaultKind;
use crate::isa::inst::Inst;
use crate::isa::lanes::{LANES, lanes};
use crate::isa::memory::{Atomic, MemoryRow, Op, RegisterBits};

impl Group<'_> {
    /// Executes a DS instruction.
    pub(super) fn ds(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        row: &'static MemoryRow,
    ) -> Result<(), FaultKind> {
        if inst.flags.gds {
            return Err(FaultKind::Unimplemented(format!("{} with gds", row.name)));
        }
        self.counters.lds += 1;
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
            Op::Load { bytes, signed, bits } => self.ds_load(wave, inst, u32::from(bytes), signed, bits),
            Op::Store { bytes, bits } => {
                for lane in lanes(wave.exec()) {
                    let mut words = data(wave, inst.src[1], lane);
                    if bits == RegisterBits::High {
                        words[0] >>= 16;
                    }
                    let at = address(wave, inst, lane);
                    self.lds.store(at, bytes.into(), &words, wave.id, self.checks)?;
                }
                Ok(())
            }
            Op::Exchange2 { bytes, stride } => self.ds_exchange2(wave, inst, bytes, stride),
            Op::Atomic { op, bytes, returns } => self.ds_atomic(wave, inst, op, bytes, returns),
            Op::Swizzle => {
                exchange(wave, inst, |lane| swizzle(inst.offset as u32, lane));
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
                    values[lane] = self.lds.load(at, 4, wave.id, self.checks)?[0];
                }
                write(&mut wave.vgpr[usize::from(inst.dst)], &values, exec);
                Ok(())
            }
            Op::StoreByLane => {
                for lane in lanes(wave.exec()) {
                    let at = (inst.offset as u32).wrapping_add(wave.m0()).wrapping_add(4 * lane as u32);
                    let words = data(wave, inst.src[1], lane);
                    self.lds.store(at, 4, &words, wave.id, self.checks)?;
                }
                Ok(())
            }
            Op::Nothing => Ok(()),
            Op::Other => Err(FaultKind::Unimplemented(row.name.to_string())),
        }
    }

    fn ds_load(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        bytes: u32,
        signed: bool,
        bits: RegisterBits,
    ) -> Result<(), FaultKind> {
        let (exec, count) = (wave.exec(), bytes.div_ceil(4) as usize);
        let mut values = [[0u32; LANES]; 4];
        for lane in lanes(exec) {
            let words = self.lds.load(address(wave, inst, lane), bytes, wave.id, self.checks)?;
            for (value, word) in values.iter_mut().zip(words).take(count) {
                value[lane] = word;
            }
        }
        if bytes < 4 {
            let old = wave.vgpr[usize::from(inst.dst)];
            narrow(&mut values[0], &old, bytes, signed, bits);
        }
        write_all(wave, inst.dst, &values[..count], exec);
        Ok(())
    }

    /// Loads N words from one address or from each of two.
    fn ds_load_words<const COUNT: usize, const N: usize>(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        stride: u16,
    ) -> Result<(), FaultKind> {
        let exec = wave.exec();
        let mut values = [[[0u32; LANES]; N]; COUNT];
        for lane in lanes(exec) {
            let addresses = addresses::<COUNT>(wave, inst, lane, stride);
            for (at, values) in addresses.into_iter().zip(&mut values) {
                if let Some(words) = self.lds.load_words::<N>(at, wave.id, self.checks) {
                    (0..N).for_each(|i| values[i][lane] = words[i]);
                } else {
                    let words = self.lds.load(at, 4 * N as u32, wave.id, self.checks)?;
                    (0..N).for_each(|i| values[i][lane] = words[i]);
                }
            }
        }
        write_all(wave, inst.dst, values.as_flattened(), exec);
        Ok(())
    }

    /// Stores N words at one address or at each of two.
    fn ds_store_words<const COUNT: usize, const N: usize>(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        stride: u16,
    ) -> Result<(), FaultKind> {
        for lane in lanes(wave.exec()) {
            let addresses = addresses::<COUNT>(wave, inst, lane, stride);
            for (at, register) in addresses.into_iter().zip(&inst.src[1..]) {
                let register = usize::from(*register);
                let words: [u32; N] = std::array::from_fn(|i| wave.vgpr[(register + i) & 255][lane]);
                if self.lds.store_words(at, words, wave.id, self.checks).is_none() {
                    let mut values = [0; 4];
                    values[..N].copy_from_slice(&words);
                    self.lds.store(at, 4 * N as u32, &values, wave.id, self.checks)?;
                }
            }
        }
        Ok(())
    }

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
                let old = self.lds.atomic(at, bytes.into(), wave.id, self.checks, |_| new)?;
                values[which * each][lane] = old as u32;
                if each == 2 {
                    values[which * each + 1][lane] = (old >> 32) as u32;
                }
            }
        }
        write_all(wave, inst.dst, &values[..2 * each], exec);
        Ok(())
    }

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
            let before =
                self.lds.atomic(at, bytes, wave.id, self.checks, |old| apply(op, bytes, old, a, b))?;
            (old[0][lane], old[1][lane]) = (before as u32, (before >> 32) as u32);
        }
        if returns {
            write_all(wave, inst.dst, &old[..usize::from(bytes) / 4], exec);
        }
        Ok(())
    }

    /// Adds or subtracts the number of active lanes to a counter at M0's upper half plus the offset; all
    /// lanes get the old value.
    fn ds_count(&mut self, wave: &mut Wave, inst: &Inst, up: bool) -> Result<(), FaultKind> {
        let (exec, at) = (wave.exec(), (wave.m0() >> 16).wrapping_add(inst.offset as u32));
        let count = u64::from(exec.count_ones());
        let step = |old: u64| if up { old.wrapping_add(count) } else { old.wrapping_sub(count) };
        let old = self.lds.atomic(at, 4, wave.id, self.checks, step)?;
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

/// Returns the one or two addresses of an instruction.
#[inline(always)]
fn addresses<const COUNT: usize>(wave: &Wave, inst: &Inst, lane: usize, stride: u16) -> [u32; COUNT] {
    let one = if COUNT == 1 { [address(wave, inst, lane); 2] } else { pair(wave, inst, lane, stride) };
    std::array::from_fn(|i| one[i])
}

/// Returns up to four registers of a lane.
fn data(wave: &Wave, register: u16, lane: usize) -> [u32; 4] {
    [0, 1, 2, 3].map(|i| wave.vgpr[(usize::from(register) + i) & 255][lane])
}

fn write_all(wave: &mut Wave, register: u16, values: &[[u32; LANES]], exec: u64) {
    for (i, value) in values.iter().enumerate() {
        write(&mut wave.vgpr[(usize::from(register) + i) & 255], value, exec);
    }
}

/// Makes each lane read the register of another. An inactive source lane gives 0.
fn exchange(wave: &mut Wave, inst: &Inst, from: impl Fn(usize) -> usize) {
    let (exec, source) = (wave.exec(), wave.vgpr[usize::from(inst.src[0])]);
    let values = std::array::from_fn(|lane| {
        let other = from(lane);
        if exec >> other & 1 != 0 { source[other] } else { 0 }
    });
    write(&mut wave.vgpr[usize::from(inst.dst)], &values, exec);
}

/// Returns the source lane of `ds_swizzle_b32`: a permutation of four lanes; and, or, xor with the lane index
/// among 32; or a rotation.
fn swizzle(offset: u32, lane: usize) -> usize {
    let n = lane as u32;
    let other = if offset & 0xe000 == 0xc000 {
        // Rotation of 32 lanes within the groups that the mask preserves.
        let (mask, count) = (offset & 31, offset >> 5 & 31);
        let moved = if offset & 0x400 == 0 { n + count } else { n.wrapping_sub(count) };
        n & 32 | n & mask | moved & 31 & !mask
    } else if offset & 0x8000 != 0 {
        n & !3 | offset >> (2 * (n & 3)) & 3
    } else {
        let (and, or, xor) = (offset & 31, offset >> 5 & 31, offset >> 10 & 31);
        n & 32 | ((n & 31 & and | or) ^ xor)
    };
    other as usize
}

/// Executes `ds_permute_b32` (a lane writes to the lane that its address names) or `ds_bpermute_b32` (it
/// reads from there).
fn permute(wave: &mut Wave, inst: &Inst, forward: bool) {
    let (exec, addresses) = (wave.exec(), wave.vgpr[usize::from(inst.src[0])]);
    let source = wave.vgpr[usize::from(inst.src[1])];
    let named = |lane: usize| (addresses[lane].wrapping_add(inst.offset as u32) / 4) as usize % LANES;
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
