//! Buffers: computes the address from a resource (V#), offsets and an index, and the part of an access inside
//! the buffer.
//!
//! Source: the manuals' chapter "Vector Memory Buffer Instructions", "Buffer Addressing" and "Range
//! checking", and "Scalar Memory Operations" for scalar loads, which support neither index nor swizzling.

use super::group::Group;
use super::location::Location;
use super::wave::Wave;
use crate::code::SCRATCH_BASE;
use crate::fault::{Access, FaultKind, Range, Space};
use crate::isa::Kind;
use crate::isa::inst::Inst;
use crate::isa::op::lanes::LANES;

/// A buffer resource (V#).
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) base: u64,
    pub(super) stride: u64,
    pub(super) records: u64,
    swizzled: bool,
    add_lane: bool,
}

impl Resource {
    /// Reads the resource from four scalar registers.
    pub(super) fn of(wave: &Wave, first: u16) -> Resource {
        let word = |i: u16| wave.scalars.registers[usize::from((first + i) & 127)];
        let base = u64::from(word(0)) | u64::from(word(1)) << 32;
        Resource {
            // Addresses have 48 bits and are sign-extended.
            base: ((base << 16) as i64 >> 16) as u64,
            stride: (word(1) >> 16 & 0x3fff).into(),
            records: word(2).into(),
            swizzled: word(1) >> 31 != 0,
            add_lane: word(3) >> 23 & 1 != 0,
        }
    }

    /// Returns true if the address is base plus offset: neither swizzled nor per lane.
    pub(super) fn is_plain(&self) -> bool {
        !self.swizzled && !self.add_lane
    }

    /// Returns its size in bytes. With an index, `num_records` counts records of the stride; otherwise it
    /// counts bytes.
    pub(super) fn bytes(&self, indexed: bool) -> u64 {
        if indexed && self.stride != 0 { self.records * self.stride } else { self.records }
    }
}

impl Group<'_> {
    /// Returns the location of a lane's access through a resource.
    pub(super) fn buffer(
        &self,
        wave: &Wave,
        inst: &Inst,
        lane: usize,
        access: Access,
        bytes: u32,
    ) -> Result<Location, FaultKind> {
        let [vector, _, resource] = inst.src;
        let resource = Resource::of(wave, resource);
        let operand = |i: u16| u64::from(wave.vgpr[usize::from((vector + i) & 255)][lane]);
        let mut index = if inst.flags.idxen { operand(0) } else { 0 };
        let voffset = if inst.flags.offen { operand(u16::from(inst.flags.idxen)) } else { 0 };
        let offset = voffset + inst.offset as u64;
        let soffset = wave.scalar(inst.sdst, Kind::U32, 0);
        if resource.add_lane {
            index += lane as u64;
        }
        if resource.swizzled && resource.add_lane {
            // Scratch: the same word of all lanes is contiguous. The base is that of the wavefront's scratch,
            // and the scalar offset counts bytes of all lanes.
            let start = resource.base.wrapping_add(soffset).wrapping_sub(SCRATCH_BASE);
            // The sum has 32 bits, so that a register may be below 0: compilers move constants into the offset.
            let at = (start / LANES as u64).wrapping_add(offset);
            return Ok(Location::Scratch(at & u64::from(u32::MAX)));
        }
        if resource.swizzled {
            return Err(FaultKind::Unimplemented("a swizzled buffer that is no scratch".into()));
        }
        let at = offset + index * resource.stride;
        let address = resource.base.wrapping_add(soffset).wrapping_add(at);
        let (structured, all) = (inst.flags.idxen && resource.stride != 0, resource.bytes(inst.flags.idxen));
        let inside = match structured {
            true if index < resource.records => bytes,
            true => 0,
            false => inside(all, at + soffset, bytes),
        };
        let beyond = if structured { inside == 0 } else { at + soffset + u64::from(bytes) > all };
        if self.checks.ranges && beyond {
            let range = Range { space: Space::Global, access, at: address, bytes };
            return Err(FaultKind::BeyondBuffer { range, base: resource.base, bytes: all });
        }
        Ok(if inside == bytes { Location::Global(address) } else { Location::Clipped(address, inside) })
    }

    /// Returns the address of a scalar access through a resource, with its lowest two bits cleared, and the
    /// number of its bytes inside the buffer. Records have the size of the stride, if there is one.
    pub(super) fn scalar_buffer(
        &self,
        wave: &Wave,
        inst: &Inst,
        offset: u64,
        access: Access,
        bytes: u32,
    ) -> Result<(u64, u32), FaultKind> {
        let resource = Resource::of(wave, inst.src[0]);
        let (offset, all) = (offset & !3, resource.bytes(true));
        let address = resource.base.wrapping_add(offset) & !3;
        // Loads have 1, 2, 4, 8 or 16 words: a compiler that needs 3 words loads 4 and uses 3. So almost half
        // of a load, all but one word of it, may be beyond the buffer.
        let needed = match access {
            Access::Read if bytes > 4 => u64::from(bytes) / 2 + 4,
            _ => u64::from(bytes),
        };
        if self.checks.ranges && offset.checked_add(needed).is_none_or(|end| end > all) {
            let range = Range { space: Space::Global, access, at: address, bytes };
            return Err(FaultKind::BeyondBuffer { range, base: resource.base, bytes: all });
        }
        Ok((address, inside(all, offset, bytes)))
    }
}

/// Returns the bytes of an access at an offset that are inside a buffer; a word counts if it begins inside.
fn inside(all: u64, offset: u64, bytes: u32) -> u32 {
    let words = all.saturating_sub(offset).div_ceil(4);
    words.saturating_mul(4).min(bytes.into()) as u32
}
