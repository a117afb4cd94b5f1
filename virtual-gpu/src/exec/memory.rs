//! Vector memory instructions: FLAT, GLOBAL, SCRATCH and MUBUF.

use super::atomic::{apply32, apply64};
use super::buffer::Resource;
use super::group::Group;
use super::location::Location;
use super::wave::write;
use super::wave::{REGISTERS, Wave};
use crate::fault::{Access, FaultKind, Range, Space};
use crate::isa::Kind;
use crate::isa::inst::{Inst, Segment};
use crate::isa::op::lanes::{LANES, lanes};
use crate::isa::op::memory::{Atomic, MemoryRow, Op, RegisterBits};
use crate::isa::operand::{OFF, PRIVATE_APERTURE, SHARED_APERTURE};
use crate::memory::{Region, Span};

impl<'a> Group<'a> {
    /// Executes a vector memory instruction.
    #[inline(always)]
    pub(super) fn vector_memory(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        segment: Segment,
        row: &'static MemoryRow,
    ) -> Result<(), FaultKind> {
        if inst.flags.lds || inst.flags.tfe {
            let bit = if inst.flags.lds { "lds" } else { "tfe" };
            return Err(FaultKind::Unimplemented(format!("{}{} with {bit}", segment.prefix(), row.name)));
        }
        match row.op {
            Op::Load { bytes, signed, bits } => {
                self.load(wave, inst, segment, u32::from(bytes), signed, bits)
            }
            Op::Store { bytes, bits } => self.store(wave, inst, segment, u32::from(bytes), bits),
            Op::Atomic { op, bytes, .. } => self.atomic(wave, inst, segment, op, u32::from(bytes)),
            Op::LoadLds { bytes, signed } => self.load_to_lds(wave, inst, segment, u32::from(bytes), signed),
            // Caches are not modelled, but who invalidates them.
            Op::Nothing => {
                if row.name.contains("inv") {
                    self.note_invalidation();
                }
                Ok(())
            }
            _ => Err(FaultKind::Unimplemented(format!("{}{}", segment.prefix(), row.name))),
        }
    }

    #[inline(always)]
    fn load(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        segment: Segment,
        bytes: u32,
        signed: bool,
        bits: RegisterBits,
    ) -> Result<(), FaultKind> {
        let (exec, first, count) =
            (wave.exec(), usize::from(inst.dst) % REGISTERS, bytes.div_ceil(4) as usize);
        if let Some(span) = self.span(wave, inst, segment, bytes)
            && let Some(to) = wave.vgpr.get_mut(first..first + count)
        {
            self.note_span(wave.at, &span, Access::Read, inst.flags.glc || inst.flags.scc);
            self.counters.global_read += u64::from(bytes) * u64::from(exec.count_ones());
            if bytes >= 4 {
                span.load(to);
                return Ok(());
            }
            let mut values = [[0; LANES]];
            span.load(&mut values);
            narrow(&mut values[0], &to[0], bytes, signed, bits);
            write(&mut to[0], &values[0], exec);
            return Ok(());
        }
        self.load_by_lane(wave, inst, segment, bytes, signed, bits)
    }

    #[inline(never)]
    fn load_by_lane(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        segment: Segment,
        bytes: u32,
        signed: bool,
        bits: RegisterBits,
    ) -> Result<(), FaultKind> {
        let (exec, first, count) =
            (wave.exec(), usize::from(inst.dst) % REGISTERS, bytes.div_ceil(4) as usize);
        let mut values = [[0u32; LANES]; 4];
        for lane in lanes(exec) {
            let words = match self.location(wave, inst, segment, lane, Access::Read, bytes)? {
                Location::Global(at) => self.global_load(wave, inst, at, bytes)?,
                Location::Clipped(_, 0) => [0; 4],
                Location::Clipped(at, bytes) => self.global_load(wave, inst, at, bytes)?,
                Location::Lds(at) => self.lds.load(at, bytes)?,
                Location::Scratch(at) => self.scratch_load(wave, at, bytes, lane)?,
            };
            for (value, word) in values.iter_mut().zip(words).take(count) {
                value[lane] = word;
            }
        }
        if bytes < 4 {
            let old = wave.vgpr[first];
            narrow(&mut values[0], &old, bytes, signed, bits);
        }
        for (i, value) in values.iter().enumerate().take(count) {
            write(&mut wave.vgpr[(first + i) % REGISTERS], value, exec);
        }
        Ok(())
    }

    /// Loads into LDS: lane after lane from M0 and the offset on, a word each.
    #[inline(never)]
    fn load_to_lds(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        segment: Segment,
        bytes: u32,
        signed: bool,
    ) -> Result<(), FaultKind> {
        let exec = wave.exec();
        let mut values = [0; LANES];
        for lane in lanes(exec) {
            values[lane] = match self.location(wave, inst, segment, lane, Access::Read, bytes)? {
                Location::Global(at) => self.global_load(wave, inst, at, bytes)?[0],
                Location::Clipped(_, 0) => 0,
                Location::Clipped(at, bytes) => self.global_load(wave, inst, at, bytes)?[0],
                Location::Lds(at) => self.lds.load(at, bytes)?[0],
                Location::Scratch(at) => self.scratch_load(wave, at, bytes, lane)?[0],
            };
        }
        narrow(&mut values, &[0; LANES], bytes, signed, RegisterBits::All);
        let first = (wave.m0() & 0xffff).wrapping_add(inst.offset as u32);
        for lane in lanes(exec) {
            self.lds.store(first.wrapping_add(4 * lane as u32), 4, &[values[lane], 0, 0, 0])?;
        }
        Ok(())
    }

    #[inline(always)]
    fn store(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        segment: Segment,
        bytes: u32,
        bits: RegisterBits,
    ) -> Result<(), FaultKind> {
        let (exec, data, count) = (wave.exec(), usize::from(inst.src[1]), bytes.div_ceil(4) as usize);
        if bits == RegisterBits::All
            && let Some(span) = self.span(wave, inst, segment, bytes).filter(|span| self.is_plain_store(span))
            && let Some(from) = wave.vgpr.get(data..data + count)
        {
            self.note_span(wave.at, &span, Access::Write, false);
            self.counters.global_written += u64::from(bytes) * u64::from(exec.count_ones());
            span.store(from);
            return Ok(());
        }
        self.store_by_lane(wave, inst, segment, bytes, bits)
    }

    #[inline(never)]
    fn store_by_lane(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        segment: Segment,
        bytes: u32,
        bits: RegisterBits,
    ) -> Result<(), FaultKind> {
        let (exec, data, count) = (wave.exec(), usize::from(inst.src[1]), bytes.div_ceil(4) as usize);
        self.track.begin_store();
        for lane in lanes(exec) {
            let mut words = [0; 4];
            for (i, word) in words.iter_mut().enumerate().take(count) {
                *word = wave.vgpr[(data + i) % REGISTERS][lane];
            }
            if bits == RegisterBits::High {
                words[0] >>= 16;
            }
            match self.location(wave, inst, segment, lane, Access::Write, bytes)? {
                Location::Global(at) => self.global_store(wave, at, bytes, &words)?,
                Location::Clipped(_, 0) => {}
                Location::Clipped(at, bytes) => self.global_store(wave, at, bytes, &words)?,
                Location::Lds(at) => self.lds.store(at, bytes, &words)?,
                Location::Scratch(at) => self.scratch_store(wave, at, bytes, &words, lane)?,
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn atomic(
        &mut self,
        wave: &mut Wave,
        inst: &Inst,
        segment: Segment,
        op: Atomic,
        bytes: u32,
    ) -> Result<(), FaultKind> {
        let (exec, data) = (wave.exec(), usize::from(inst.src[1]));
        self.track.begin_atomic();
        let mut old = [[0u32; LANES]; 2];
        for lane in lanes(exec) {
            let operand = |i: usize| {
                if bytes == 4 {
                    wave.vgpr[(data + i) % REGISTERS][lane].into()
                } else {
                    wave.lane_pair(data + 2 * i, lane)
                }
            };
            // Only compare-and-swaps have a second operand.
            let two = matches!(op, Atomic::CompareSwap | Atomic::FloatCompareSwap);
            let (a, b) = (operand(0), if two { operand(1) } else { 0 });
            let before = match self.location(wave, inst, segment, lane, Access::Atomic, bytes)? {
                Location::Global(at) => self.global_atomic(wave, inst, at, bytes, (op, a, b))?,
                Location::Lds(at) => self.lds.atomic(at, bytes, |old| apply(op, bytes, old, a, b))?,
                Location::Scratch(_) => {
                    return Err(FaultKind::Unimplemented("an atomic access to scratch".into()));
                }
                // An atomic access that is not entirely inside the buffer has no effect.
                Location::Clipped(..) => 0,
            };
            (old[0][lane], old[1][lane]) = (before as u32, (before >> 32) as u32);
        }
        if inst.flags.glc {
            for (i, value) in old.iter().enumerate().take(bytes as usize / 4) {
                write(&mut wave.vgpr[(usize::from(inst.dst) + i) % REGISTERS], value, exec);
            }
        }
        Ok(())
    }

    /// Returns the accesses of all lanes if they are in one region and all inside the buffer.
    #[inline(always)]
    fn span(&mut self, wave: &Wave, inst: &Inst, segment: Segment, bytes: u32) -> Option<Span<'a>> {
        const NOTHING: [u32; LANES] = [0; LANES];
        let (exec, [vector, _, scalar]) = (wave.exec(), inst.src);
        let lane = if exec == 0 { return None } else { exec.trailing_zeros() as usize };
        let (offset, vector) = (inst.offset as i64 as u64, usize::from(vector & 255));
        let mut add = &wave.vgpr[vector];
        let (base, limit) = match segment {
            Segment::Global if scalar != OFF => (wave.pair(scalar).wrapping_add(offset), u64::MAX),
            Segment::Global | Segment::Flat => {
                let first = wave.lane_pair(vector, lane).wrapping_add(offset);
                let (region, _) = self.global(first, bytes.into())?;
                return region.span_of_addresses(add, &wave.vgpr[(vector + 1) & 255], offset, exec, bytes);
            }
            Segment::Buffer if !inst.flags.idxen => {
                let resource = Resource::of(wave, scalar);
                let offset = offset + wave.scalar(inst.sdst, Kind::U32, 0);
                if !inst.flags.offen {
                    add = &NOTHING;
                }
                let limit = resource.bytes(false).checked_sub(offset + u64::from(bytes))?;
                (resource.is_plain().then_some(resource.base.wrapping_add(offset))?, limit)
            }
            Segment::Buffer | Segment::Scratch => return None,
        };
        let first = base.wrapping_add(add[lane].into());
        let (region, at) = self.global(first, bytes.into())?;
        region.span(at.checked_sub(add[lane].into())?, limit, add, exec, bytes)
    }

    fn global_load(&mut self, wave: &Wave, inst: &Inst, at: u64, bytes: u32) -> Result<[u32; 4], FaultKind> {
        self.counters.global_read += u64::from(bytes);
        let range = Range { space: Space::Global, access: Access::Read, at, bytes };
        match self.global(at, bytes.into()) {
            Some((region, offset)) => {
                self.note(wave, region, &range, inst.flags.glc || inst.flags.scc);
                Ok(region.load(offset, bytes.into()))
            }
            None => Err(self.missing(range)),
        }
    }

    fn global_store(&mut self, wave: &Wave, at: u64, bytes: u32, words: &[u32; 4]) -> Result<(), FaultKind> {
        self.counters.global_written += u64::from(bytes);
        let range = Range { space: Space::Global, access: Access::Write, at, bytes };
        let (region, offset) = self.writable(range)?;
        if self.is_signal(at, bytes) {
            let range = Range { access: Access::Atomic, ..range };
            self.signal(wave, at, false, || region.store(offset, bytes.into(), words));
            self.note(wave, region, &range, false);
            return Ok(());
        }
        self.note(wave, region, &range, false);
        region.store(offset, bytes.into(), words);
        Ok(())
    }

    fn global_atomic(
        &mut self,
        wave: &Wave,
        inst: &Inst,
        at: u64,
        bytes: u32,
        (op, a, b): (Atomic, u64, u64),
    ) -> Result<u64, FaultKind> {
        self.counters.global_written += u64::from(bytes);
        let range = Range { space: Space::Global, access: Access::Atomic, at, bytes };
        if at % u64::from(bytes) != 0 {
            return Err(FaultKind::Misaligned(range, bytes));
        }
        let (region, offset) = self.writable(range)?;
        let old = self.signal(wave, at, inst.flags.glc, || match bytes {
            4 => region.update32(offset, |old| apply32(op, old, a as u32, b as u32)).into(),
            _ => region.update64(offset, |old| apply64(op, old, a, b)),
        });
        self.note(wave, region, &range, false);
        Ok(old)
    }

    /// Returns the region of a range that is written.
    fn writable(&mut self, range: Range) -> Result<(&'a Region, u64), FaultKind> {
        match self.global(range.at, range.bytes.into()) {
            Some((region, offset)) if region.writable => Ok((region, offset)),
            _ => Err(self.missing(range)),
        }
    }

    /// Returns the location of a lane's access.
    #[inline(always)]
    fn location(
        &self,
        wave: &Wave,
        inst: &Inst,
        segment: Segment,
        lane: usize,
        access: Access,
        bytes: u32,
    ) -> Result<Location, FaultKind> {
        let [address, _, scalar] = inst.src;
        let offset = inst.offset as i64 as u64;
        let vector = usize::from(address);
        Ok(match segment {
            Segment::Global if scalar == OFF => {
                Location::Global(wave.lane_pair(vector, lane).wrapping_add(offset))
            }
            Segment::Global => {
                let base = wave.pair(scalar);
                Location::Global(base.wrapping_add(wave.vgpr[vector][lane].into()).wrapping_add(offset))
            }
            Segment::Flat => {
                let at = wave.lane_pair(vector, lane).wrapping_add(offset);
                match (at >> 32) as u32 {
                    SHARED_APERTURE => Location::Lds(at as u32),
                    PRIVATE_APERTURE => Location::Scratch(at & 0xffff_ffff),
                    _ => Location::Global(at),
                }
            }
            Segment::Scratch => {
                let base = if inst.flags.vaddr { wave.vgpr[vector][lane] } else { 0 };
                let scalar =
                    if scalar == OFF { 0 } else { wave.scalars.registers[usize::from(scalar & 127)] };
                Location::Scratch(u64::from(base.wrapping_add(scalar)).wrapping_add(offset) & 0xffff_ffff)
            }
            Segment::Buffer => self.buffer(wave, inst, lane, access, bytes)?,
        })
    }

    fn scratch_range(&self, wave: &Wave, at: u64, bytes: u32, access: Access) -> Result<(), FaultKind> {
        let limit = (wave.scratch.len() / LANES) as u64;
        let inside = at.checked_add(bytes.into()).is_some_and(|end| end <= limit);
        let range = Range { space: Space::Scratch, access, at, bytes };
        if inside { Ok(()) } else { Err(FaultKind::OutOfBounds(range)) }
    }

    fn scratch_load(&mut self, wave: &Wave, at: u64, bytes: u32, lane: usize) -> Result<[u32; 4], FaultKind> {
        self.scratch_range(wave, at, bytes, Access::Read)?;
        self.counters.scratch += u64::from(bytes);
        let mut words = [0; 4];
        for i in 0..bytes as usize {
            let byte = wave.scratch[swizzle(at as usize + i, lane)];
            words[i / 4] |= u32::from(byte) << (8 * (i % 4));
        }
        Ok(words)
    }

    fn scratch_store(
        &mut self,
        wave: &mut Wave,
        at: u64,
        bytes: u32,
        words: &[u32; 4],
        lane: usize,
    ) -> Result<(), FaultKind> {
        self.scratch_range(wave, at, bytes, Access::Write)?;
        self.counters.scratch += u64::from(bytes);
        for i in 0..bytes as usize {
            wave.scratch[swizzle(at as usize + i, lane)] = (words[i / 4] >> (8 * (i % 4))) as u8;
        }
        Ok(())
    }
}

/// Converts an offset in a lane's scratch to an offset in the wavefront's scratch.
fn swizzle(at: usize, lane: usize) -> usize {
    at / 4 * 4 * LANES + lane * 4 + at % 4
}

pub(super) fn apply(op: Atomic, bytes: u32, old: u64, a: u64, b: u64) -> u64 {
    if bytes == 4 { apply32(op, old as u32, a as u32, b as u32).into() } else { apply64(op, old, a, b) }
}

/// Extends loaded bytes and halves, or inserts them into a half of the register's old value.
pub(super) fn narrow(
    values: &mut [u32; LANES],
    old: &[u32; LANES],
    bytes: u32,
    signed: bool,
    bits: RegisterBits,
) {
    for (value, &old) in values.iter_mut().zip(old) {
        let wide = match (bytes, signed) {
            (1, true) => *value as i8 as u32,
            (2, true) => *value as i16 as u32,
            _ => *value,
        };
        *value = match bits {
            RegisterBits::All => wide,
            RegisterBits::Low => old & 0xffff_0000 | wide & 0xffff,
            RegisterBits::High => old & 0xffff | wide << 16,
        };
    }
}
