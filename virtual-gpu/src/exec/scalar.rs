//! Scalar instructions: arithmetic, branches, hardware registers, scalar loads.

use super::group::Group;
use super::wave::{MODE_INDEX, Progress, Wave};
use crate::fault::{Access, FaultKind, Range, Space};
use crate::isa::Kind;
use crate::isa::inst::{Inst, ScalarTable};
use crate::isa::op::memory::{ScalarOp, ScalarRow as SmemRow};
use crate::isa::op::scalar::{Control, SaveExec, ScalarRow};
use crate::isa::op::scalar_file::State;
use crate::isa::operand::{EXEC, NULL, PRIVATE_APERTURE, SHARED_APERTURE};

/// Messages of GFX11: vector registers are not needed any more; the time is asked for.
const DEALLOC_VGPRS: i32 = 3;
const GET_REALTIME: i32 = 0x83;

/// The message by which a kernel raises an interrupt, in the lower 4 bits of `s_sendmsg`.
const MSG_INTERRUPT: i32 = 1;

impl Wave {
    /// Returns true if a branch is taken.
    #[inline(always)]
    pub(super) fn is_taken(&self, control: Control) -> bool {
        match control {
            Control::Branch => true,
            Control::IfScc0 => !self.scalars.scc,
            Control::IfScc1 => self.scalars.scc,
            Control::IfVcc0 => self.vcc() == 0,
            Control::IfVcc => self.vcc() != 0,
            Control::IfExec0 => self.exec() == 0,
            Control::IfExec => self.exec() != 0,
            _ => false,
        }
    }
}

impl Group<'_> {
    /// Executes a scalar instruction. The program counter already points to the next one.
    #[inline(always)]
    pub(super) fn scalar(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        table: ScalarTable,
        row: &'static ScalarRow,
    ) -> Result<(), FaultKind> {
        if row.control != Control::None {
            return self.program(wave, inst, row);
        }
        if row.special {
            return self.special(wave, inst, row);
        }
        let source = |i: usize| match row.src[i] {
            Kind::None => 0,
            _ if i == 1 && table == ScalarTable::Sopk => inst.offset as i64 as u64,
            kind => wave.scalar(inst.src[i], kind, inst.literal),
        };
        let sources = [source(0), source(1)];
        let old = if row.dst == Kind::None { 0 } else { wave.scalar(inst.dst, row.dst, 0) };
        if inst.rounds && wave.mode & 15 != 0 {
            return Err(FaultKind::Unimplemented(format!(
                "{} in rounding mode {}",
                row.name,
                wave.mode & 15
            )));
        }
        let (scc, exec, mode) = (wave.scalars.scc, wave.pair(EXEC), wave.mode);
        let state = State { scc, exec, old, mode, literal: inst.literal };
        let (value, scc) = (row.run)(sources, state);
        wave.scalars.scc = scc.unwrap_or(wave.scalars.scc);
        if let Some(kept) = row.exec {
            wave.set_scalar(inst.dst, row.dst, if kept == SaveExec::Old { state.exec } else { value });
            wave.set_scalar(EXEC, row.dst, value);
        } else if row.dst != Kind::None {
            wave.set_scalar(inst.dst, row.dst, value);
        }
        Ok(())
    }

    /// Executes branches, barriers and waits.
    #[inline(always)]
    fn program(&mut self, wave: &mut Wave, inst: &Inst, row: &ScalarRow) -> Result<(), FaultKind> {
        match row.control {
            Control::Wait => {
                if self.checks.waits {
                    wave.waits.wait(inst.wait);
                }
            }
            Control::Nothing => {}
            Control::None | Control::Barrier | Control::Other => return self.control(wave, inst, row),
            control => {
                if wave.is_taken(control) {
                    wave.pc = wave.pc.wrapping_add_signed(inst.offset as isize);
                }
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn control(&mut self, wave: &mut Wave, inst: &Inst, row: &ScalarRow) -> Result<(), FaultKind> {
        match row.name {
            "s_barrier" => {
                if self.checks.waits {
                    wave.waits.check_barrier()?;
                }
                wave.state = Progress::Waiting(wave.at);
                return Ok(());
            }
            "s_endpgm" => wave.state = Progress::Ended,
            "s_trap" => return Err(FaultKind::Trap(inst.offset as u8)),
            "s_set_gpr_idx_off" => wave.mode &= !MODE_INDEX,
            "s_set_gpr_idx_mode" => {
                let m0 = usize::from(crate::isa::operand::M0);
                wave.scalars.registers[m0] =
                    wave.scalars.registers[m0] & !0xf000 | (inst.offset as u32 & 15) << 12;
            }
            "s_round_mode" => wave.mode = wave.mode & !15 | inst.offset as u32 & 15,
            "s_denorm_mode" => wave.mode = wave.mode & !0xf0 | (inst.offset as u32 & 15) << 4,
            // A wavefront that sleeps waits for something: perhaps for a thread of the host.
            "s_sleep" => std::thread::yield_now(),
            // The wavefront is about to end.
            "s_sendmsg" if inst.offset == DEALLOC_VGPRS => {}
            "s_sendmsg" if inst.offset & 15 == MSG_INTERRUPT => {
                let interrupt = self.context.interrupt;
                let interrupt = interrupt.ok_or_else(|| FaultKind::Unimplemented(row.name.to_string()))?;
                interrupt(wave.m0() & 0xff_ffff);
            }
            // Other messages, and instructions for graphics and debuggers only.
            name => return Err(FaultKind::Unimplemented(name.to_string())),
        }
        Ok(())
    }

    #[inline(never)]
    fn special(&mut self, wave: &mut Wave, inst: &Inst, row: &ScalarRow) -> Result<(), FaultKind> {
        let here = self.address_of(wave.pc);
        let source = |kind| wave.scalar(inst.src[0], kind, inst.literal);
        match row.name {
            "s_getpc_b64" => wave.set_pair(inst.dst, here),
            "s_setpc_b64" => wave.pc = self.word_at(source(Kind::U64))?,
            "s_swappc_b64" => {
                let to = self.word_at(source(Kind::U64))?;
                wave.set_pair(inst.dst, here);
                wave.pc = to;
            }
            "s_call_b64" => {
                wave.set_pair(inst.dst, here);
                wave.pc = wave.pc.wrapping_add_signed(inst.offset as isize);
            }
            "s_getreg_b32" => {
                let (id, offset, width) = hardware_register(inst.offset);
                let value = match id {
                    1 => wave.mode,
                    // Cycles.
                    29 => wave.executed as u32 & 0xf_ffff,
                    15 => PRIVATE_APERTURE >> 16 | SHARED_APERTURE & 0xffff_0000,
                    _ => 0,
                };
                let field = (u64::from(value) >> offset) as u32 & (u64::MAX >> (64 - width)) as u32;
                wave.set_scalar(inst.dst, Kind::U32, field.into());
            }
            "s_setreg_b32" | "s_setreg_imm32_b32" => {
                let value =
                    if row.name == "s_setreg_imm32_b32" { inst.literal } else { source(Kind::U32) as u32 };
                let (id, offset, width) = hardware_register(inst.offset);
                let mask = ((u64::MAX >> (64 - width)) << offset) as u32;
                if id == 1 {
                    wave.mode = wave.mode & !mask | value << offset & mask;
                }
            }
            "s_set_gpr_idx_on" => {
                let index = source(Kind::U32) as u32 & 255;
                let m0 = usize::from(crate::isa::operand::M0);
                wave.scalars.registers[m0] =
                    wave.scalars.registers[m0] & 0xffff_0f00 | index | (inst.offset as u32 & 15) << 12;
                wave.mode |= MODE_INDEX;
            }
            "s_set_gpr_idx_idx" => {
                let index = source(Kind::U32) as u32 & 255;
                let m0 = usize::from(crate::isa::operand::M0);
                wave.scalars.registers[m0] = wave.scalars.registers[m0] & !255 | index;
            }
            "s_movrels_b32" | "s_movrels_b64" => {
                let from = inst.src[0] + (wave.m0() & 127) as u16;
                let value = wave.scalar(from & 127, row.dst, 0);
                wave.set_scalar(inst.dst, row.dst, value);
            }
            "s_movreld_b32" | "s_movreld_b64" => {
                let value = wave.scalar(inst.src[0], row.dst, inst.literal);
                wave.set_scalar(inst.dst + (wave.m0() & 127) as u16, row.dst, value);
            }
            "s_movrelsd_2_b32" => {
                let from = inst.src[0] + (wave.m0() & 0x3ff) as u16;
                let value = wave.scalar(from & 127, Kind::U32, 0);
                wave.set_scalar(inst.dst + (wave.m0() >> 16 & 0x3ff) as u16, Kind::U32, value);
            }
            "s_version" => {}
            "s_sendmsg_rtn_b32" | "s_sendmsg_rtn_b64" if inst.offset == GET_REALTIME => {
                wave.set_scalar(inst.dst, row.dst, wave.executed);
            }
            name => return Err(FaultKind::Unimplemented(name.to_string())),
        }
        Ok(())
    }

    /// Executes scalar memory instructions.
    pub(super) fn scalar_memory(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        row: &SmemRow,
    ) -> Result<(), FaultKind> {
        let bytes = 4 * u32::from(row.registers);
        match row.op {
            ScalarOp::Nothing => return Ok(()),
            ScalarOp::Clock => {
                wave.set_pair(inst.dst, wave.executed);
                return Ok(());
            }
            ScalarOp::Other => return Err(FaultKind::Unimplemented(row.name.to_string())),
            ScalarOp::Load | ScalarOp::Store => {}
        }
        let access = if row.op == ScalarOp::Load { Access::Read } else { Access::Write };
        let mut offset = inst.offset as i64 as u64;
        if inst.flags.soffset {
            offset = offset.wrapping_add(wave.scalar(inst.src[1], Kind::U32, 0));
        }
        let (at, inside) = if row.buffer {
            self.scalar_buffer(wave, inst, offset, access, bytes)?
        } else {
            (wave.pair(inst.src[0]).wrapping_add(offset), bytes)
        };
        let range = Range { space: Space::Global, access, at, bytes: inside };
        if at % 4 != 0 {
            return Err(FaultKind::Misaligned(range, 4));
        }
        self.counters.scalar_read += u64::from(inside);
        if inst.dst == NULL {
            return Ok(());
        }
        let words = usize::from(row.registers);
        let registers = (0..words).map(|i| (usize::from(inst.dst) + i) & 127);
        // Nearly always all of them are in one region.
        if inside == bytes
            && row.op == ScalarOp::Load
            && let Some((region, offset)) = self.global(at, bytes.into())
        {
            self.note(wave, region, &range, inst.flags.glc);
            for (i, register) in registers.enumerate() {
                wave.scalars.registers[register] = region.load(offset + 4 * i as u64, 4)[0];
            }
            return Ok(());
        }
        for (i, register) in registers.enumerate() {
            if 4 * i >= inside as usize {
                if row.op == ScalarOp::Load {
                    wave.scalars.registers[register] = 0;
                }
                continue;
            }
            let address = at.wrapping_add(4 * i as u64);
            let (region, offset) = self.global(address, 4).ok_or_else(|| self.missing(range))?;
            if row.op == ScalarOp::Store && !region.writable {
                return Err(self.missing(range));
            }
            self.note(wave, region, &Range { at: address, bytes: 4, ..range }, inst.flags.glc);
            if row.op == ScalarOp::Load {
                wave.scalars.registers[register] = region.load(offset, 4)[0];
            } else {
                region.store(offset, 4, &[wave.scalars.registers[register], 0, 0, 0]);
            }
        }
        Ok(())
    }
}

/// Decodes the register number, first bit and width of a hardware register field.
fn hardware_register(immediate: i32) -> (u32, u32, u32) {
    let bits = immediate as u32;
    (bits & 63, bits >> 6 & 31, (bits >> 11 & 31) + 1)
}
