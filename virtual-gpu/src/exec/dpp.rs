//! Lanes of a source that come from other lanes (DPP).

use crate::isa::inst::Dpp;
use crate::isa::op::lanes::LANES;

/// Makes the lanes of a source come from other lanes (DPP); returns the lanes to write.
#[inline(never)]
pub(super) fn move_lanes(exec: u64, dpp: Dpp, before: &[u32; LANES], after: &mut [u32; LANES]) -> u64 {
    // Of each row of 16 lanes, the chosen banks of 4 lanes.
    let bank = |i: usize| if dpp.banks >> i & 1 != 0 { 15 << (4 * i) } else { 0 };
    let row = |i: usize| if dpp.rows >> i & 1 != 0 { 0xffff << (16 * i) } else { 0 };
    let banks = (0..4).fold(0, |mask, i| mask | bank(i)) * 0x0001_0001_0001_0001;
    let chosen = (0..4).fold(0u64, |mask, i| mask | row(i)) & banks;
    let n = dpp.control & 15;
    // Inactive lanes are read as if they were active, or as if they were not there.
    let exec = if dpp.inactive { u64::MAX } else { exec };
    if let Some(eight) = dpp.eight {
        gather(exec, before, after, |lane| Some(lane & !7 | (eight >> (3 * (lane & 7)) & 7) as usize));
        return u64::MAX;
    }
    // One loop for each frequent kind: there the compiler knows which lane a lane reads.
    let found = match dpp.control {
        control @ 0..=0xff => gather(exec, before, after, |lane| dpp_lane(control & 0xff, lane)),
        0x101..=0x10f => gather(exec, before, after, |lane| dpp_lane(0x100 | n, lane)),
        0x111..=0x11f => gather(exec, before, after, |lane| dpp_lane(0x110 | n, lane)),
        0x121..=0x12f => gather(exec, before, after, |lane| dpp_lane(0x120 | n, lane)),
        control => gather(exec, before, after, |lane| dpp_lane(control, lane)),
    };
    chosen & if dpp.bound { u64::MAX } else { found }
}

/// Reads each lane from another, or 0 if there is none that is active; returns the lanes that had one.
#[inline(always)]
fn gather(
    exec: u64,
    before: &[u32; LANES],
    after: &mut [u32; LANES],
    from: impl Fn(usize) -> Option<usize>,
) -> u64 {
    let mut found = 0;
    for (lane, after) in after.iter_mut().enumerate() {
        let other = from(lane).filter(|&other| exec >> other & 1 != 0);
        *after = other.map_or(0, |other| before[other % LANES]);
        found |= u64::from(other.is_some()) << lane;
    }
    found
}

/// Returns the lane that a lane reads with DPP; `None` if it is outside the row or wavefront.
#[inline(always)]
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
        0x150..=0x15f => Some(row + n),
        0x160..=0x16f => Some(row + (in_row ^ n)),
        _ => None,
    }
}
