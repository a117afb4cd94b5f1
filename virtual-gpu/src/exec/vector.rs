//! Vector instructions: reads the sources with their modifiers, computes, writes the destination.

use super::approximate;
use super::cdna;
use super::cross;
use super::dpp::move_lanes;
use super::rounding;
use super::simd::Host;
use super::wave::{MODE_INDEX, Wave, is_vector};
use crate::fault::FaultKind;
use crate::isa::inst::{Form, Inst, Sdwa};
use crate::isa::op::lanes::{BITS, CHUNK, LANES, Mode, Results, lanes};
use crate::isa::op::math::sad_u8;
use crate::isa::op::matrix::MatrixRow;
use crate::isa::op::run::{Lanes, Run, Sources};
use crate::isa::plan::{Carry, Fetch, Finish, SourcePlan};
use crate::isa::{Generation, Kind, Rate, Row, flag, op::half, operand};

/// Buffers for operands, one set per host thread.
pub(crate) struct Unit {
    buffers: Box<Buffers>,
    results: Box<Results>,
    /// Lanes of the last instruction.
    lanes: Box<Lanes>,
    pub(super) host: Host,
    /// Seed of approximations, if they are random.
    pub(super) approximate: Option<u64>,
}

/// Sources that are no register as it is.
struct Buffers {
    operands: [Operand; 3],
    carry: [u32; LANES],
    moved: [[u32; LANES]; 2],
}

/// The words of a source.
#[derive(Clone, Copy)]
struct Operand {
    lo: [u32; LANES],
    hi: [u32; LANES],
}

impl Unit {
    pub(crate) fn new() -> Unit {
        let operands = [Operand { lo: [0; LANES], hi: [0; LANES] }; 3];
        let buffers = Buffers { operands, carry: [0; LANES], moved: [[0; LANES]; 2] };
        let (results, lanes) = (Box::new(Results::new()), Box::new(Lanes::new()));
        Unit { buffers: Box::new(buffers), results, lanes, host: Host::detect(), approximate: None }
    }

    /// Executes an instruction.
    #[inline(always)]
    pub(crate) fn execute(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        row: &'static Row,
    ) -> Result<(), FaultKind> {
        let plan = &inst.plan;
        if plan.separate {
            return separate(wave, inst, row);
        }
        let Buffers { operands, carry, moved } = &mut *self.buffers;
        // Most sources are registers as they are, and stay where they are.
        let mut lo = plan.registers.map(|[lo, _]| &wave.vgpr[usize::from(lo)]);
        let mut hi = plan.registers.map(|[_, hi]| &wave.vgpr[usize::from(hi)]);
        let others = if is_usual(wave.mode, plan.source_keeps) { plan.others } else { plan.all };
        for (i, buffer) in operands.iter_mut().enumerate() {
            if others >> i & 1 != 0 {
                (lo[i], hi[i]) = buffer.source(self.host, wave, inst, i, &plan.sources[i]);
            }
        }
        match plan.carry {
            Carry::None => {}
            Carry::Vcc => expand(wave.vcc(), carry),
            Carry::Source(i) => expand(wave.scalar(inst.src[usize::from(i) % 3], Kind::Mask, 0), carry),
        }
        let mut enabled = wave.exec();
        if let Form::Dpp(dpp) | Form::LongDpp(dpp) = inst.form {
            let [low, high] = moved;
            enabled &= move_lanes(wave.exec(), dpp, lo[0], low);
            if plan.sources[0].wide {
                move_lanes(wave.exec(), dpp, hi[0], high);
            }
            (lo[0], hi[0]) = (low, high);
        }
        let mode = Mode { bits: wave.mode, clamp: inst.clamp, negated: inst.neg };
        let sources = Sources { lo, hi, carry };
        if wave.mode & plan.rounding == 0 {
            self.host.compute(&row.run, &sources, mode, enabled, &mut self.results);
        } else if !rounding::execute(row, wave.mode, &sources, &mut self.results) {
            let mode = wave.mode & 15;
            return Err(FaultKind::Unimplemented(format!("{} in rounding mode {mode}", row.name)));
        }
        if let (Some(seed), Rate::Quarter) = (self.approximate, inst.rate) {
            approximate::perturb(seed, row, sources.lo[0], &mut self.results.lo);
        }
        self.finish(wave, inst, row, enabled);
        Ok(())
    }

    /// Executes an instruction of registers as they are, in short: most are. `names`: destination and sources.
    #[inline(always)]
    pub(crate) fn short(&mut self, wave: &mut Wave, run: &Run, names: [u8; 4]) {
        self.lanes.set(wave.exec());
        let mode = Mode { bits: wave.mode, clamp: false, negated: 0 };
        self.host.compute_in_place(run, wave.vgpr.ordinary(), names, None, mode, &self.lanes);
    }

    /// Executes such an instruction whose first source is the same for all lanes.
    #[inline(always)]
    pub(crate) fn short_same(&mut self, wave: &mut Wave, run: &Run, names: [u8; 4], bits: u32) {
        self.lanes.set(wave.exec());
        let mode = Mode { bits: wave.mode, clamp: false, negated: 0 };
        self.host.compute_in_place(run, wave.vgpr.ordinary(), names, Some(&[bits; CHUNK]), mode, &self.lanes);
    }

    /// Executes a matrix instruction.
    #[inline(always)]
    pub(crate) fn matrix(&mut self, wave: &mut Wave, inst: &Inst, row: &MatrixRow) {
        cdna::matrix(self.host, wave, inst, row);
    }

    /// Applies output modifiers, then writes the registers.
    #[inline(always)]
    fn finish(&mut self, wave: &mut Wave, inst: &Inst, row: &Row, enabled: u64) {
        let (plan, results) = (&inst.plan, &mut *self.results);
        if plan.simple && is_usual(wave.mode, plan.keeps) {
            write(&mut wave.vgpr[usize::from(inst.dst & 255)], &results.lo, enabled);
            return;
        }
        match plan.finish {
            Finish::Nothing => {}
            Finish::Mask { exec } => {
                let mask = collect(&results.carry) & enabled;
                wave.set_mask(inst.dst, mask);
                if exec {
                    wave.set_exec(mask);
                }
            }
            Finish::Register => {
                if !wave.mode & plan.keeps != 0 {
                    self.host.flush(row.dst, &mut results.lo, &mut results.hi);
                }
                if plan.scaled {
                    scale_and_clamp(row.dst, inst, wave.mode, results);
                }
                let n = wave.register(inst.dst, 3);
                if plan.merged {
                    merge(&wave.vgpr[n], inst, row, &mut results.lo);
                }
                write(&mut wave.vgpr[n], &results.lo, enabled);
                if plan.wide {
                    write(&mut wave.vgpr[(n + 1) & 255], &results.hi, enabled);
                }
                if row.carry_out {
                    wave.set_mask(inst.sdst, collect(&results.carry) & enabled);
                }
            }
        }
    }
}

impl Operand {
    /// Returns the words of one source for all lanes: those of a register, or of this buffer if they have to be
    /// computed.
    #[inline(always)]
    fn source<'a>(
        &'a mut self,
        host: Host,
        wave: &'a Wave,
        inst: &Inst,
        i: usize,
        plan: &SourcePlan,
    ) -> (&'a [u32; LANES], &'a [u32; LANES]) {
        let (kind, modified, flushed) = (plan.kind, plan.modified, !wave.mode & plan.keeps != 0);
        if plan.fetch == Fetch::Vector {
            let n = wave.register(plan.operand, i as u32);
            let (lo, hi) = (&wave.vgpr[n], &wave.vgpr[(n + 1) & 255]);
            if !modified && !flushed {
                return (lo, hi);
            }
            self.lo = *lo;
            if plan.wide {
                self.hi = *hi;
            }
        } else {
            let bits = match plan.fetch {
                Fetch::Constant(bits) => bits,
                _ => wave.scalar(plan.operand, kind, inst.literal),
            };
            self.lo = [bits as u32; LANES];
            if plan.wide {
                self.hi = [(bits >> 32) as u32; LANES];
            }
        }
        if modified {
            self.modify(inst, i, kind);
        }
        if flushed {
            host.flush(kind, &mut self.lo, &mut self.hi);
        }
        (&self.lo, &self.hi)
    }

    /// Applies source modifiers: selection of parts, absolute value, sign.
    #[inline(always)]
    fn modify(&mut self, inst: &Inst, i: usize, kind: Kind) {
        let (lo, hi) = (&mut self.lo, &mut self.hi);
        let set = |mask: u8| mask >> i & 1 != 0;
        match inst.form {
            Form::Sdwa(sdwa) if i < 2 => select(lo, sdwa.src[i], sdwa.extend[i]),
            _ => {}
        }
        match kind {
            Kind::Pk16 | Kind::PkF16 => {
                let constant = !is_vector(inst.src[i]) && inst.src[i] >= operand::ZERO;
                let gfx9 = inst.isa.target.generation() == Generation::Gfx9;
                let (low, high) = (set(inst.op_sel), set(inst.op_sel_hi));
                if constant && gfx9 {
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
                if kind == Kind::F16 || inst.name == "v_cndmask_b16" {
                    signs(lo, 15, set(inst.abs), set(inst.neg));
                }
            }
            Kind::Pk32 | Kind::PkF32 => {
                let before = (*lo, *hi);
                if set(inst.op_sel) {
                    *lo = before.1;
                }
                if !set(inst.op_sel_hi) {
                    *hi = before.0;
                }
                if kind == Kind::PkF32 {
                    signs(lo, 31, false, set(inst.neg));
                    signs(hi, 31, false, set(inst.abs));
                }
            }
            Kind::F32 => signs(lo, 31, set(inst.abs), set(inst.neg)),
            Kind::F64 => signs(hi, 31, set(inst.abs), set(inst.neg)),
            // v_cndmask supports these modifiers although its operands are untyped.
            Kind::U32 if inst.name == "v_cndmask_b32" => signs(lo, 31, set(inst.abs), set(inst.neg)),
            _ => {}
        }
    }
}

/// Returns true if MODE is as most kernels have it: the bits of `keeps` are 1, so that no denormals are replaced, and no
/// registers are numbered relative to M0.
#[inline(always)]
fn is_usual(mode: u32, keeps: u32) -> bool {
    (mode ^ keeps) & (keeps | MODE_INDEX) == 0
}

/// Completes results that fill only a part of the register with its old value.
fn merge(old: &[u32; LANES], inst: &Inst, row: &Row, new: &mut [u32; LANES]) {
    if let Form::Sdwa(sdwa) = inst.form {
        insert(new, old, sdwa);
    } else if row.is(flag::KEEP_LOW) || inst.op_sel & 8 != 0 {
        new.iter_mut().zip(old).for_each(|(n, o)| *n = *n << 16 | o & 0xffff);
    } else {
        new.iter_mut().zip(old).for_each(|(n, o)| *n = *n & 0xffff | o & 0xffff_0000);
    }
}

#[inline(always)]
fn part(x: u32, upper: bool) -> u32 {
    if upper { x >> 16 } else { x & 0xffff }
}

/// Applies absolute value, then negation, to floats with the sign at `bit` of a word.
#[inline(always)]
fn signs(words: &mut [u32; LANES], bit: u32, absolute: bool, negative: bool) {
    let (keep, flip) = (if absolute { !(1u32 << bit) } else { u32::MAX }, u32::from(negative) << bit);
    words.iter_mut().for_each(|x| *x = *x & keep ^ flip);
}

/// Applies SDWA's source selection: 0 to 3 a byte, 4 and 5 a half, 6 the whole word.
#[inline(always)]
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
    for lane in lanes(mask) {
        register[lane] = values[lane];
    }
}

/// Multiplies by 2, 4 or 0.5, then clamps to 0 .. 1; a NaN becomes 0 if DX10_CLAMP is set.
#[inline(never)]
fn scale_and_clamp(kind: Kind, inst: &Inst, mode: u32, results: &mut Results) {
    let (clamp, mode) = (inst.clamp, Mode { bits: mode, clamp: inst.clamp, negated: 0 });
    let factor = [1.0, 2.0, 4.0, 0.5][usize::from(inst.omod & 3)];
    let limited = |x: f64| match x {
        _ if !clamp => x,
        _ if x.is_nan() => {
            if mode.dx10_clamp() {
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
            Kind::PkF32 => {
                let each = |bits: u32| (value(f32::from_bits(bits).into()) as f32).to_bits();
                (results.lo[lane], results.hi[lane]) = (each(lo), each(hi));
            }
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

/// Executes instructions without a formula, between vector and scalar registers, and refuses those with a clamp bit
/// that is not supported.
#[inline(never)]
fn separate(wave: &mut Wave, inst: &Inst, row: &Row) -> Result<(), FaultKind> {
    if !row.is(flag::SPECIAL) {
        return Err(FaultKind::Unimplemented(format!("{} with these modifiers", row.name)));
    }
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
            let first = wave.exec().trailing_zeros() as usize % wave.lanes();
            let value = lane_of(wave, first);
            wave.set_scalar(inst.dst, Kind::U32, value.into());
        }
        "v_readlane_b32" => {
            let lane = wave.scalar(inst.src[1], Kind::U32, inst.literal) as usize % wave.lanes();
            let value = lane_of(wave, lane);
            wave.set_scalar(inst.dst, Kind::U32, value.into());
        }
        "v_writelane_b32" => {
            let lane = wave.scalar(inst.src[1], Kind::U32, inst.literal) as usize % wave.lanes();
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
        "v_accvgpr_read_b32"
        | "v_accvgpr_write_b32"
        | "v_accvgpr_mov_b32"
        | "v_cvt_sr_fp8_f32"
        | "v_cvt_sr_bf8_f32" => return cdna::separate(wave, inst),
        _ => return cross::execute(wave, inst, row),
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
