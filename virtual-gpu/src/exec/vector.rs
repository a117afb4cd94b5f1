//! Vector instructions: reads the sources with their modifiers, computes, writes the destination.

use super::approximate;
use super::cdna;
use super::cross;
use super::dpp::move_lanes;
use super::modifiers::{copy_modified, merge, modify, scale_and_clamp};
use super::rounding;
use super::simd::Host;
use super::wave::{MODE_INDEX, Wave, is_vector, write};
use crate::fault::FaultKind;
use crate::isa::inst::{Dpp, Form, Inst};
use crate::isa::moves::Moves;
use crate::isa::op::file::Name;
use crate::isa::op::lanes::{CHUNK, LANES, Mode};
use crate::isa::op::math::sad_u8;
use crate::isa::op::matrix::MatrixRow;
use crate::isa::op::run::{Lanes, Operands, Run};
use crate::isa::plan::{Carry, Fetch, Finish};
use crate::isa::short::{Changed, Mixed, Word};
use crate::isa::{Kind, Rate, Row, flag};

/// The vector unit, one for each host thread.
pub(crate) struct Unit {
    /// Lanes of the last instruction.
    lanes: Box<Lanes>,
    pub(super) host: Host,
    /// Seed of approximations, if they are random.
    pub(super) approximate: Option<u64>,
}

impl Unit {
    pub(crate) fn new() -> Unit {
        Unit { lanes: Box::new(Lanes::new()), host: Host::detect(), approximate: None }
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
        // Most operands are registers as they are, and stay where they are.
        let mut operands = plan.operands;
        let others = if is_usual(wave.mode, plan.source_keeps) { plan.others } else { plan.all };
        for i in 0..3 {
            if others >> i & 1 != 0 {
                [operands.lo[i], operands.hi[i]] = fetch(self.host, wave, inst, i);
            }
        }
        operands.carry = match plan.carry {
            Carry::None => 0,
            Carry::Vcc => wave.vcc(),
            Carry::Source(i) => wave.scalar(inst.src[usize::from(i) % 3], Kind::Mask, 0),
        };
        let mut enabled = wave.exec();
        if let (Form::Dpp(dpp) | Form::LongDpp(dpp), Some(moves)) = (inst.form, &inst.moves) {
            enabled &= exchange(self.host, wave, (dpp, moves), &mut operands, plan.sources[0].wide);
        }
        let approximates = self.approximate.filter(|_| inst.rate == Rate::Quarter);
        if plan.direct
            && is_usual(wave.mode, plan.keeps)
            && wave.mode & plan.rounding == 0
            && approximates.is_none()
        {
            self.lanes.set(enabled);
            let bits = self.compute(wave, inst, row, &operands, &self.lanes);
            if row.carry_out {
                wave.set_mask(inst.sdst, bits & enabled);
            }
            return Ok(());
        }
        [operands.lo[3], operands.hi[3]] = Name::RESULTS;
        let bits = if wave.mode & plan.rounding == 0 {
            self.compute(wave, inst, row, &operands, Lanes::all_of(enabled))
        } else if let Some(bits) = rounding::execute(row, wave.mode, &operands, &mut wave.vgpr) {
            bits
        } else {
            let mode = wave.mode & 15;
            return Err(FaultKind::Unimplemented(format!("{} in rounding mode {mode}", row.name)));
        };
        if let Some(seed) = approximates {
            let source = *wave.vgpr.row(operands.lo[0]);
            let (_, [results, _]) = wave.vgpr.with_results();
            approximate::perturb(seed, row, &source, results);
        }
        finish(self.host, wave, inst, row, enabled, bits);
        Ok(())
    }

    #[inline(always)]
    fn compute(&self, wave: &mut Wave, inst: &Inst, row: &Row, operands: &Operands, lanes: &Lanes) -> u64 {
        let mode = Mode { bits: wave.mode, clamp: inst.clamp, negated: inst.neg };
        self.host.compute(&row.run, &mut wave.vgpr, operands, mode, lanes)
    }

    /// Executes an instruction of registers as they are, in short: most are. `names`: sources and destination.
    #[inline(always)]
    pub(crate) fn short(&mut self, wave: &mut Wave, run: &Run, names: [Name; 4]) {
        self.lanes.set(wave.exec());
        let mode = Mode { bits: wave.mode, clamp: false, negated: 0 };
        self.host.compute(run, &mut wave.vgpr, &Operands::short(names), mode, &self.lanes);
    }

    /// Executes such an instruction whose first source is the same for all lanes.
    #[inline(always)]
    pub(crate) fn short_same(&mut self, wave: &mut Wave, run: &Run, names: [Name; 4], word: Word) {
        self.lanes.set(wave.exec());
        let mode = Mode { bits: wave.mode, clamp: false, negated: 0 };
        let (operands, same) = (Operands::short(names), [word.read(&wave.scalars); CHUNK]);
        self.host.compute_same(run, &mut wave.vgpr, &operands, Some(&same), mode, &self.lanes);
    }

    /// Executes an instruction in short that has words and masks too.
    #[inline(always)]
    pub(crate) fn short_mixed(&mut self, wave: &mut Wave, mixed: &Mixed) {
        let exec = wave.exec();
        self.lanes.set(exec);
        let mode = Mode { bits: wave.mode, clamp: false, negated: 0 };
        let carry = mixed.carry.map_or(0, |register| wave.pair(register.into()));
        let operands = Operands { carry, ..Operands::short(mixed.names) };
        if let Some((i, word)) = mixed.other {
            let (_, [row, _]) = wave.vgpr.with_source(i.into());
            *row = [word.read(&wave.scalars); LANES];
        }
        let same = mixed.first.map(|word| [word.read(&wave.scalars); CHUNK]);
        let bits =
            self.host.compute_same(&mixed.run, &mut wave.vgpr, &operands, same.as_ref(), mode, &self.lanes);
        if let Some(register) = mixed.bits {
            wave.set_mask(register.into(), bits & exec);
        }
    }

    /// Executes an instruction in short that modifiers change sources of.
    #[inline(always)]
    pub(crate) fn short_changed(&mut self, wave: &mut Wave, changed: &Changed) {
        let exec = wave.exec();
        let mode = Mode { bits: wave.mode, clamp: false, negated: 0 };
        for (i, copy) in changed.copies.iter().enumerate() {
            if let Some((row, from)) = *copy {
                let operands = Operands::short([from, from, from, Name::source(i)[0]]);
                self.host.compute(&row.run, &mut wave.vgpr, &operands, mode, Lanes::all_of(exec));
            }
        }
        if let Some((i, word)) = changed.other {
            let (_, [row, _]) = wave.vgpr.with_source(i.into());
            *row = [word.read(&wave.scalars); LANES];
        }
        self.lanes.set(exec);
        let (operands, vgpr) = (Operands::short(changed.names), &mut wave.vgpr);
        let same = changed.first.map(|word| [word.read(&wave.scalars); CHUNK]);
        self.host.compute_same(&changed.run, vgpr, &operands, same.as_ref(), mode, &self.lanes);
    }

    /// Executes a matrix instruction.
    #[inline(always)]
    pub(crate) fn matrix(&mut self, wave: &mut Wave, inst: &Inst, row: &MatrixRow) {
        cdna::matrix(self.host, wave, inst, row);
    }
}

/// Moves the lanes of the first source; returns the lanes to write.
#[inline(always)]
fn exchange(host: Host, wave: &mut Wave, dpp: (Dpp, &Moves), operands: &mut Operands, wide: bool) -> u64 {
    let exec = wave.exec();
    let (low, moved) = wave.vgpr.with_moved(operands.lo[0], false);
    let lanes = move_lanes(host, exec, dpp, low, moved);
    if wide {
        let (high, moved) = wave.vgpr.with_moved(operands.hi[0], true);
        move_lanes(host, exec, dpp, high, moved);
    }
    [operands.lo[0], operands.hi[0]] = Name::MOVED;
    lanes
}

/// Applies output modifiers to the buffered results, then writes the registers. `bits`: the result with a bit for each lane.
#[inline(always)]
fn finish(host: Host, wave: &mut Wave, inst: &Inst, row: &Row, enabled: u64, bits: u64) {
    let plan = &inst.plan;
    match plan.finish {
        Finish::Nothing => {}
        Finish::Mask { exec } => {
            wave.set_mask(inst.dst, bits & enabled);
            if exec {
                wave.set_exec(bits & enabled);
            }
        }
        Finish::Register => {
            let n = wave.register(inst.dst, 3);
            let (registers, [lo, hi]) = wave.vgpr.with_results();
            if !wave.mode & plan.keeps != 0 {
                host.flush(row.dst, lo, hi);
            }
            if plan.scaled {
                scale_and_clamp(row.dst, inst, wave.mode, lo, hi);
            }
            if plan.merged {
                merge(&registers[n], inst, row, lo);
            }
            write(&mut registers[n], lo, enabled);
            if plan.wide {
                write(&mut registers[(n + 1) & 255], hi, enabled);
            }
            if row.carry_out {
                wave.set_mask(inst.sdst, bits & enabled);
            }
        }
    }
}

/// Returns the rows of a source: a register, or a buffer if its words have to be computed.
#[inline(always)]
fn fetch(host: Host, wave: &mut Wave, inst: &Inst, i: usize) -> [Name; 2] {
    let plan = &inst.plan.sources[i];
    let (kind, modified, flushed) = (plan.kind, plan.modified, !wave.mode & plan.keeps != 0);
    if plan.fetch == Fetch::Vector {
        let n = wave.register(plan.operand, i as u32) as u8;
        let names = [Name::register(n), Name::register(n.wrapping_add(1))];
        if !modified && !flushed {
            return names;
        }
        let (registers, [lo, hi]) = wave.vgpr.with_source(i);
        if modified && copy_modified(inst, i, kind, &registers[usize::from(n)], lo) {
            if flushed {
                host.flush(kind, lo, hi);
            }
            return Name::source(i);
        }
        *lo = registers[usize::from(n)];
        if plan.wide {
            *hi = registers[usize::from(n.wrapping_add(1))];
        }
    } else {
        let bits = match plan.fetch {
            Fetch::Constant(bits) => bits,
            _ => wave.scalar(plan.operand, kind, inst.literal),
        };
        let (_, [lo, hi]) = wave.vgpr.with_source(i);
        *lo = [bits as u32; LANES];
        if plan.wide {
            *hi = [(bits >> 32) as u32; LANES];
        }
    }
    let (_, [lo, hi]) = wave.vgpr.with_source(i);
    if modified {
        modify(inst, i, kind, lo, hi);
    }
    if flushed {
        host.flush(kind, lo, hi);
    }
    Name::source(i)
}

/// Returns true if MODE is as most kernels have it: the bits of `keeps` are 1, so that no denormals are replaced, and no
/// registers are numbered relative to M0.
#[inline(always)]
fn is_usual(mode: u32, keeps: u32) -> bool {
    (mode ^ keeps) & (keeps | MODE_INDEX) == 0
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
