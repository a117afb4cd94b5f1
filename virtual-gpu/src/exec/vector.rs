//! Vector instructions: reads the sources with their modifiers, computes, writes the destination.

use super::rounding;
use super::simd::Host;
use super::wave::{Wave, is_vector};
use crate::fault::FaultKind;
use crate::isa::inst::{Dpp, Form, Inst, Sdwa, Table};
use crate::isa::lanes::{BITS, LANES, Mode, Results, Sources};
use crate::isa::math::sad_u8;
use crate::isa::{Kind, Row, flag, half, operand};

/// Buffers for operands, one set per host thread.
pub(crate) struct Unit {
    pub(crate) sources: Box<Sources>,
    pub(crate) results: Box<Results>,
    host: Host,
}

impl Unit {
    pub(crate) fn new() -> Unit {
        Unit { sources: Box::new(Sources::new()), results: Box::new(Results::new()), host: Host::detect() }
    }

    /// Executes an instruction.
    pub(crate) fn execute(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        table: Table,
        row: &'static Row,
    ) -> Result<(), FaultKind> {
        if row.is(flag::SPECIAL) {
            return special(wave, inst, row);
        }
        if inst.clamp && !row.dst.is_float() && !row.is(flag::SATURATES) {
            return Err(FaultKind::Unimplemented(format!("{} with clamp", row.name)));
        }
        let mode = wave.modes(inst.clamp);
        for (i, &kind) in row.src.iter().enumerate() {
            match kind {
                Kind::None => break,
                Kind::Mask => expand(wave.scalar(inst.src[i], kind, 0), &mut self.sources.carry),
                Kind::Vcc => expand(wave.vcc(), &mut self.sources.carry),
                _ => self.source(wave, inst, i, kind, mode),
            }
        }
        let mut enabled = wave.exec();
        if let Form::Dpp(dpp) = inst.form {
            enabled &= self.dpp(wave.exec(), dpp);
        }
        self.sources.mode = mode;
        if inst.rounds && (if row.dst == Kind::F32 { wave.mode & 3 } else { wave.mode & 12 }) != 0 {
            if !rounding::execute(row, wave.mode, &self.sources, &mut self.results) {
                return Err(FaultKind::Unimplemented(format!(
                    "{} in rounding mode {}",
                    row.name,
                    wave.mode & 15
                )));
            }
        } else {
            self.host.execute(table, row.code, &self.sources, &mut self.results);
        }
        self.finish(wave, inst, row, enabled, mode);
        Ok(())
    }

    /// Reads one source for all lanes, with its modifiers.
    #[inline(always)]
    fn source(&mut self, wave: &Wave, inst: &Inst, i: usize, kind: Kind, mode: Mode) {
        let operand = inst.src[i];
        let wide = kind.registers() == 2;
        if is_vector(operand) {
            let n = wave.register(operand, i as u32);
            self.sources.lo[i] = wave.vgpr[n];
            if wide {
                self.sources.hi[i] = wave.vgpr[(n + 1) & 255];
            }
        } else {
            let bits = wave.scalar(operand, kind, inst.literal);
            self.sources.lo[i] = [bits as u32; LANES];
            if wide {
                self.sources.hi[i] = [(bits >> 32) as u32; LANES];
            }
        }
        if !is_plain(inst, i, kind) {
            self.modify(inst, i, kind);
        }
        let keeps = match kind {
            Kind::F32 => mode.denormal32.0,
            Kind::F16 | Kind::PkF16 | Kind::F64 => mode.denormal16_64.0,
            _ => true,
        };
        if !keeps {
            self.host.flush(kind, &mut self.sources.lo[i], &mut self.sources.hi[i]);
        }
    }

    /// Applies source modifiers: selection of parts, absolute value, sign.
    #[inline(never)]
    fn modify(&mut self, inst: &Inst, i: usize, kind: Kind) {
        let (lo, hi) = (&mut self.sources.lo[i], &mut self.sources.hi[i]);
        let set = |mask: u8| mask >> i & 1 != 0;
        match inst.form {
            Form::Sdwa(sdwa) if i < 2 => select(lo, sdwa.src[i], sdwa.extend[i]),
            _ => {}
        }
        match kind {
            Kind::Pk16 | Kind::PkF16 => {
                let constant = !is_vector(inst.src[i]) && inst.src[i] >= operand::ZERO;
                let (low, high) = (set(inst.op_sel), set(inst.op_sel_hi));
                if constant {
                    // It is the low half; the high half is zero and selectable too.
                    lo.iter_mut().for_each(|x| *x &= 0xffff);
                }
                if low || !high {
                    lo.iter_mut().for_each(|x| *x = part(*x, low) | part(*x, high) << 16);
                }
                if kind == Kind::PkF16 {
                    let signs = u32::from(set(inst.neg)) << 15 | u32::from(set(inst.abs)) << 31;
                    if signs != 0 {
                        lo.iter_mut().for_each(|x| *x ^= signs);
                    }
                }
            }
            Kind::Mix => {
                let (is_half, upper) = (set(inst.op_sel_hi), set(inst.op_sel));
                for x in lo.iter_mut() {
                    if is_half {
                        *x = half::to_f32(part(*x, upper) as u16).to_bits();
                    }
                }
                signs(lo, 31, set(inst.abs), set(inst.neg));
            }
            Kind::U16 | Kind::I16 | Kind::F16 => {
                if set(inst.op_sel) {
                    lo.iter_mut().for_each(|x| *x >>= 16);
                }
                if kind == Kind::F16 {
                    signs(lo, 15, set(inst.abs), set(inst.neg));
                }
            }
            Kind::F32 => signs(lo, 31, set(inst.abs), set(inst.neg)),
            Kind::F64 => signs(hi, 31, set(inst.abs), set(inst.neg)),
            // v_cndmask supports these modifiers although its operands are untyped.
            Kind::U32 if inst.name() == "v_cndmask_b32" => signs(lo, 31, set(inst.abs), set(inst.neg)),
            _ => {}
        }
    }

    /// Reads the first source from other lanes (DPP); returns the lanes to write.
    fn dpp(&mut self, exec: u64, dpp: Dpp) -> u64 {
        let before = self.sources.lo[0];
        let mut enabled = 0u64;
        for lane in 0..LANES {
            let chosen = dpp.rows >> (lane / 16) & 1 != 0 && dpp.banks >> (lane / 4 % 4) & 1 != 0;
            let from = dpp_lane(dpp.control, lane).filter(|&l| exec >> l & 1 != 0);
            self.sources.lo[0][lane] = from.map_or(0, |l| before[l]);
            enabled |= u64::from(chosen && (from.is_some() || dpp.bound)) << lane;
        }
        enabled
    }

    /// Applies output modifiers, then writes the registers.
    #[inline(always)]
    fn finish(&mut self, wave: &mut Wave, inst: &Inst, row: &Row, enabled: u64, mode: Mode) {
        if row.dst == Kind::None {
            return;
        }
        if row.dst == Kind::Mask {
            let mask = collect(&self.results.carry) & enabled;
            wave.set_pair(inst.dst, mask);
            if row.is(flag::EXEC) {
                wave.set_exec(mask);
            }
            return;
        }
        if row.dst.is_float() {
            self.adjust(inst, row, mode);
        }
        let merged = !matches!(inst.form, Form::Short) || row.is(flag::KEEP_HIGH | flag::KEEP_LOW);
        let n = wave.register(inst.dst, 3);
        if merged {
            self.merge(&wave.vgpr[n], inst, row);
        }
        write(&mut wave.vgpr[n], &self.results.lo, enabled);
        if row.dst.registers() == 2 {
            write(&mut wave.vgpr[(n + 1) & 255], &self.results.hi, enabled);
        }
        if row.carry_out {
            wave.set_pair(inst.sdst, collect(&self.results.carry) & enabled);
        }
    }

    /// Applies denormal flushing, output multiplier and clamp.
    #[inline(always)]
    fn adjust(&mut self, inst: &Inst, row: &Row, mode: Mode) {
        let results = &mut *self.results;
        let keeps = if row.dst == Kind::F32 { mode.denormal32.1 } else { mode.denormal16_64.1 };
        if !keeps {
            self.host.flush(row.dst, &mut results.lo, &mut results.hi);
        }
        if inst.clamp || inst.omod != 0 {
            scale_and_clamp(row.dst, inst.omod, inst.clamp, mode, results);
        }
    }

    /// Completes results that fill only a part of the register with its old value.
    fn merge(&mut self, old: &[u32; LANES], inst: &Inst, row: &Row) {
        let new = &mut self.results.lo;
        if let Form::Sdwa(sdwa) = inst.form {
            insert(new, old, sdwa);
            return;
        }
        let half = matches!(row.dst, Kind::U16 | Kind::I16 | Kind::F16);
        if !half {
            return;
        }
        if row.is(flag::KEEP_LOW) || inst.op_sel & 8 != 0 {
            new.iter_mut().zip(old).for_each(|(n, o)| *n = *n << 16 | o & 0xffff);
        } else if row.is(flag::KEEP_HIGH) {
            new.iter_mut().zip(old).for_each(|(n, o)| *n = *n & 0xffff | o & 0xffff_0000);
        }
    }
}

/// Returns true if a source has no modifiers: no part selected, no sign changed.
#[inline(always)]
fn is_plain(inst: &Inst, i: usize, kind: Kind) -> bool {
    let changed = (inst.neg | inst.abs | inst.op_sel) >> i & 1 != 0;
    match inst.form {
        Form::Short => true,
        Form::Long if matches!(kind, Kind::Pk16 | Kind::PkF16) => {
            is_vector(inst.src[i]) && !changed && inst.op_sel_hi >> i & 1 != 0
        }
        Form::Long => kind != Kind::Mix && !changed,
        Form::Sdwa(_) | Form::Dpp(_) => false,
    }
}

fn part(x: u32, upper: bool) -> u32 {
    if upper { x >> 16 } else { x & 0xffff }
}

/// Applies absolute value, then negation, to floats with the sign at `bit` of a word.
fn signs(words: &mut [u32; LANES], bit: u32, absolute: bool, negative: bool) {
    let (keep, flip) = (if absolute { !(1u32 << bit) } else { u32::MAX }, u32::from(negative) << bit);
    words.iter_mut().for_each(|x| *x = *x & keep ^ flip);
}

/// Applies SDWA's source selection: 0 to 3 a byte, 4 and 5 a half, 6 the whole word.
fn select(words: &mut [u32; LANES], which: u8, extend: bool) {
    let which = u32::from(which);
    for x in words.iter_mut() {
        *x = match (which, extend) {
            (0..=3, false) => *x >> (8 * which) & 255,
            (0..=3, true) => (*x >> (8 * which)) as i8 as u32,
            (4 | 5, false) => *x >> (16 * (which - 4)) & 0xffff,
            (4 | 5, true) => (*x >> (16 * (which - 4))) as i16 as u32,
            _ => *x,
        };
    }
}

/// Applies SDWA's destination selection.
fn insert(new: &mut [u32; LANES], old: &[u32; LANES], sdwa: Sdwa) {
    let (shift, mask) = match sdwa.dst {
        0..=3 => (8 * u32::from(sdwa.dst), 0xff),
        4 | 5 => (16 * u32::from(sdwa.dst - 4), 0xffff),
        _ => return,
    };
    for (n, &o) in new.iter_mut().zip(old) {
        let value = *n & mask;
        let shifted = value << shift;
        *n = match sdwa.unused {
            0 => shifted,
            1 if value > mask / 2 => shifted | !(mask << shift) & (u32::MAX << shift),
            1 => shifted,
            _ => o & !(mask << shift) | shifted,
        };
    }
}

/// Returns the lane that a lane reads with DPP; `None` if it is outside the row or wavefront.
fn dpp_lane(control: u16, lane: usize) -> Option<usize> {
    let (row, in_row) = (lane & !15, lane & 15);
    let n = usize::from(control & 15);
    match control {
        0..=0xff => Some(lane & !3 | usize::from(control >> (2 * (lane & 3)) & 3)),
        0x101..=0x10f => (in_row + n < 16).then_some(lane + n),
        0x111..=0x11f => in_row.checked_sub(n).map(|l| row + l),
        0x121..=0x12f => Some(row + (in_row + 16 - n) % 16),
        0x130 => (lane + 1 < LANES).then_some(lane + 1),
        0x134 => Some((lane + 1) % LANES),
        0x138 => lane.checked_sub(1),
        0x13c => Some((lane + LANES - 1) % LANES),
        0x140 => Some(row + 15 - in_row),
        0x141 => Some((lane & !7) + 7 - (lane & 7)),
        0x142 => row.checked_sub(1),
        0x143 => (lane >= 32).then_some(31),
        _ => None,
    }
}

/// Expands a mask to one word per lane.
#[inline(always)]
fn expand(mask: u64, to: &mut [u32; LANES]) {
    for (half, to) in to.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let mask = (mask >> (32 * half)) as u32;
        to.iter_mut().zip(&BITS).for_each(|(to, bit)| *to = u32::from(mask & bit != 0));
    }
}

#[inline(always)]
fn collect(bits: &[u32; LANES]) -> u64 {
    let mut mask = 0;
    for (half, bits) in bits.as_chunks::<32>().0.iter().enumerate() {
        let one = bits.iter().zip(&BITS).fold(0, |one, (on, bit)| one | on.wrapping_neg() & bit);
        mask |= u64::from(one) << (32 * half);
    }
    mask
}

/// Writes the lanes of a mask.
#[inline(always)]
pub(super) fn write(register: &mut [u32; LANES], values: &[u32; LANES], mask: u64) {
    if mask == u64::MAX {
        *register = *values;
        return;
    }
    let halves = register.as_chunks_mut().0.iter_mut().zip(values.as_chunks().0);
    for (half, (register, values)) in halves.enumerate() {
        blend(register, values, (mask >> (32 * half)) as u32);
    }
}

#[inline(always)]
fn blend(register: &mut [u32; 32], values: &[u32; 32], mask: u32) {
    for lane in 0..32 {
        let keep = u32::from(mask & BITS[lane] != 0).wrapping_sub(1);
        register[lane] = register[lane] & keep | values[lane] & !keep;
    }
}

/// Multiplies by 2, 4 or 0.5, then clamps to 0 .. 1; a NaN becomes 0 if DX10_CLAMP is set.
#[inline(never)]
fn scale_and_clamp(kind: Kind, omod: u8, clamp: bool, mode: Mode, results: &mut Results) {
    let factor = [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)];
    let limited = |x: f64| match x {
        _ if !clamp => x,
        _ if x.is_nan() => {
            if mode.dx10_clamp {
                0.0
            } else {
                x
            }
        }
        _ => x.clamp(0.0, 1.0) + 0.0,
    };
    let value = |x: f64| limited(x * factor);
    for lane in 0..LANES {
        let (lo, hi) = (results.lo[lane], results.hi[lane]);
        match kind {
            Kind::F32 => results.lo[lane] = (value(f32::from_bits(lo).into()) as f32).to_bits(),
            Kind::F16 => results.lo[lane] = half::from_f64(value(half::to_f32(lo as u16).into())).into(),
            Kind::PkF16 => {
                let each = |bits: u32| u32::from(half::from_f64(value(half::to_f32(bits as u16).into())));
                results.lo[lane] = each(lo) | each(lo >> 16) << 16;
            }
            _ => {
                let bits = value(f64::from_bits(u64::from(lo) | u64::from(hi) << 32)).to_bits();
                (results.lo[lane], results.hi[lane]) = (bits as u32, (bits >> 32) as u32);
            }
        }
    }
}

/// Executes instructions between vector and scalar registers.
fn special(wave: &mut Wave, inst: &Inst, row: &Row) -> Result<(), FaultKind> {
    let lane_of = |wave: &Wave, lane: usize| {
        let source = inst.src[0];
        if is_vector(source) {
            wave.vgpr[wave.register(source, 0)][lane]
        } else {
            wave.scalar(source, Kind::U32, inst.literal) as u32
        }
    };
    match row.name {
        "v_readfirstlane_b32" => {
            let first = wave.exec().trailing_zeros() as usize % LANES;
            let value = lane_of(wave, first);
            wave.sgpr[usize::from(inst.dst & 127)] = value;
        }
        "v_readlane_b32" => {
            let lane = wave.scalar(inst.src[1], Kind::U32, inst.literal) as usize % LANES;
            let value = lane_of(wave, lane);
            wave.sgpr[usize::from(inst.dst & 127)] = value;
        }
        "v_writelane_b32" => {
            let lane = wave.scalar(inst.src[1], Kind::U32, inst.literal) as usize % LANES;
            let value = wave.scalar(inst.src[0], Kind::U32, inst.literal) as u32;
            let n = wave.register(inst.dst, 3);
            wave.vgpr[n][lane] = value;
        }
        "v_swap_b32" => {
            let (a, b) = (wave.register(inst.dst, 3), wave.register(inst.src[0], 0));
            let (x, y, exec) = (wave.vgpr[a], wave.vgpr[b], wave.exec());
            write(&mut wave.vgpr[a], &y, exec);
            write(&mut wave.vgpr[b], &x, exec);
        }
        "v_mqsad_u32_u8" => quad_sums(wave, inst),
        name => return Err(FaultKind::Unimplemented(name.to_string())),
    }
    Ok(())
}

/// Executes `v_mqsad_u32_u8`: four masked sums of absolute differences, each added to a word of the third
/// source.
fn quad_sums(wave: &mut Wave, inst: &Inst) {
    let exec = wave.exec();
    let word = |wave: &Wave, i: usize, n: u16, lane: usize| {
        let operand = inst.src[i];
        let value = if is_vector(operand) {
            wave.vgpr[usize::from((operand + n) & 255)][lane].into()
        } else {
            wave.scalar(operand + n, Kind::U32, inst.literal)
        };
        value as u32
    };
    let mut sums = [[0; LANES]; 4];
    for lane in 0..LANES {
        let a = u64::from(word(wave, 0, 0, lane)) | u64::from(word(wave, 0, 1, lane)) << 32;
        for (n, sum) in sums.iter_mut().enumerate() {
            sum[lane] =
                sad_u8((a >> (8 * n)) as u32, word(wave, 1, 0, lane), word(wave, 2, n as u16, lane), true);
        }
    }
    for (n, sum) in sums.iter().enumerate() {
        write(&mut wave.vgpr[(usize::from(inst.dst) + n) & 255], sum, exec);
    }
}
