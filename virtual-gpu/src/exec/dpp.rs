//! Lanes of a source that come from other lanes (DPP).

use super::simd::Host;
use crate::isa::inst::Dpp;
use crate::isa::moves::Moves;
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
        match &moves.groups {
            Some(groups) => self.move_groups(groups, before, after),
            None => {
                let from = moves.from.iter().map(|from| before[usize::from(*from) % LANES]);
                for ((after, word), mask) in after.iter_mut().zip(from).zip(&moves.words) {
                    *after = word & mask;
                }
            }
        }
        if exec == u64::MAX || exec == 0xffff_ffff && moves.in_halves {
            return moves.there & exec;
        }
        let mut found = moves.there;
        for (lane, (after, from)) in after.iter_mut().zip(&moves.from).enumerate() {
            if exec >> (from & 63) & 1 == 0 {
                found &= !(1 << lane);
                *after = 0;
            }
        }
        found
    }
}
