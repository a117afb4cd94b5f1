//! Lanes of a source that come from other lanes (DPP).

use super::simd::Host;
use crate::isa::inst::Dpp;
use crate::isa::moves::{Kind, Moves};
use crate::isa::op::lanes::LANES;

/// Makes the lanes of a source come from other lanes (DPP); returns the lanes to write.
#[inline(always)]
pub(super) fn move_lanes(
    host: Host,
    exec: u64,
    (dpp, moves): (Dpp, &Moves),
    before: &[u32; LANES],
    after: &mut [u32; LANES],
) -> u64 {
    // Inactive lanes are read as if they were active, or as if they were not there.
    let found = host.move_lanes(moves, if dpp.inactive { u64::MAX } else { exec }, before, after);
    moves.chosen & if dpp.bound { u64::MAX } else { found }
}

impl Host {
    /// Reads each lane from another, or 0 if there is none that is active; returns the lanes that had one.
    #[inline(always)]
    pub(super) fn move_lanes(
        self,
        moves: &Moves,
        exec: u64,
        before: &[u32; LANES],
        after: &mut [u32; LANES],
    ) -> u64 {
        match &moves.kind {
            // One move of all lanes: what comes from other rows is masked.
            Kind::Shift(distance) => {
                let skipped = distance.unsigned_abs().min(LANES);
                let count = LANES - skipped;
                let (to, from) = if *distance < 0 { (skipped, 0) } else { (0, skipped) };
                after.fill(0);
                let moved = before[from..from + count].iter().zip(&moves.words[to..to + count]);
                for (after, (x, mask)) in after[to..to + count].iter_mut().zip(moved) {
                    *after = x & mask;
                }
            }
            Kind::Groups(groups, index) => self.move_groups((groups, index, &moves.words), before, after),
            Kind::Any => {
                for lane in 0..LANES {
                    after[lane] = before[usize::from(moves.from[lane]) % LANES] & moves.words[lane];
                }
            }
        }
        if exec == u64::MAX {
            return moves.there;
        }
        let mut found = moves.there;
        for lane in 0..LANES {
            if exec >> (moves.from[lane] & 63) & 1 == 0 {
                found &= !(1 << lane);
                after[lane] = 0;
            }
        }
        found
    }
}
