//! Lanes of a source that come from other lanes (DPP).

use crate::isa::inst::Dpp;
use crate::isa::op::lanes::LANES;
use std::sync::OnceLock;

/// Makes the lanes of a source come from other lanes (DPP); returns the lanes to write.
#[inline(never)]
pub(super) fn move_lanes(exec: u64, dpp: Dpp, before: &[u32; LANES], after: &mut [u32; LANES]) -> u64 {
    // Of each row of 16 lanes, the chosen banks of 4 lanes.
    let bank = |i: usize| if dpp.banks >> i & 1 != 0 { 15 << (4 * i) } else { 0 };
    let row = |i: usize| if dpp.rows >> i & 1 != 0 { 0xffff << (16 * i) } else { 0 };
    let banks = (0..4).fold(0, |mask, i| mask | bank(i)) * 0x0001_0001_0001_0001;
    let chosen = (0..4).fold(0u64, |mask, i| mask | row(i)) & banks;
    // Inactive lanes are read as if they were active, or as if they were not there.
    let exec = if dpp.inactive { u64::MAX } else { exec };
    let eight;
    let moves = match dpp.eight {
        Some(lanes) => {
            eight = Moves::of(|lane| Some(lane & !7 | (lanes >> (3 * (lane & 7)) & 7) as usize));
            &eight
        }
        None => {
            let control = usize::from(dpp.control) % CONTROLS;
            KNOWN[control].get_or_init(|| Moves::of(|lane| dpp_lane(dpp.control, lane)))
        }
    };
    let found = moves.apply(exec, before, after);
    if dpp.eight.is_some() {
        return u64::MAX;
    }
    chosen & if dpp.bound { u64::MAX } else { found }
}

/// Number of controls.
const CONTROLS: usize = 512;
/// What each control does, once it was executed.
static KNOWN: [OnceLock<Moves>; CONTROLS] = [const { OnceLock::new() }; CONTROLS];

/// Which lane each lane reads.
struct Moves {
    /// 0 for lanes that read none.
    from: [u8; LANES],
    /// Lanes that read one: as bits, and as words of ones.
    there: u64,
    words: [u32; LANES],
    /// Lanes from each lane to the one that it reads, if that is the same for all.
    distance: Option<isize>,
}

impl Moves {
    fn of(from: impl Fn(usize) -> Option<usize>) -> Moves {
        let mut moves = Moves { from: [0; LANES], there: 0, words: [0; LANES], distance: None };
        let mut distances = (0..LANES).filter_map(|lane| Some(from(lane)? as isize - lane as isize));
        let first = distances.next();
        moves.distance = first.filter(|first| distances.all(|distance| distance == *first));
        for lane in 0..LANES {
            if let Some(other) = from(lane) {
                moves.from[lane] = (other % LANES) as u8;
                moves.there |= 1 << lane;
                moves.words[lane] = u32::MAX;
            }
        }
        moves
    }

    /// Reads each lane from another, or 0 if there is none that is active; returns the lanes that had one.
    fn apply(&self, exec: u64, before: &[u32; LANES], after: &mut [u32; LANES]) -> u64 {
        match self.distance {
            // One move of all lanes: what comes from other rows is masked.
            Some(distance) => {
                after.fill(0);
                let skipped = distance.unsigned_abs().min(LANES);
                let count = LANES - skipped;
                let (to, from) = if distance < 0 { (skipped, 0) } else { (0, skipped) };
                let masks = &self.words[to..to + count];
                let moved = before[from..from + count].iter().zip(masks);
                for (after, (x, mask)) in after[to..to + count].iter_mut().zip(moved) {
                    *after = x & mask;
                }
            }
            None => {
                for lane in 0..LANES {
                    after[lane] = before[usize::from(self.from[lane]) % LANES] & self.words[lane];
                }
            }
        }
        if exec == u64::MAX {
            return self.there;
        }
        let mut found = self.there;
        for lane in 0..LANES {
            if exec >> (self.from[lane] & 63) & 1 == 0 {
                found &= !(1 << lane);
                after[lane] = 0;
            }
        }
        found
    }
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
