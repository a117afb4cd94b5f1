//! Addresses that repeat from lane to lane: tiles of products are read so. What is the same is done once.

use crate::isa::op::lanes::{LANES, rounds};

/// Repetition of the addresses of all lanes of a wavefront.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Not in one of these ways.
    None,
    /// Each eight lanes have one address.
    Runs,
    /// After so many lanes they begin again: 8, 16 or 32.
    Period(usize),
}

/// Lanes of a run.
pub(super) const RUN: usize = 8;

impl Repeat {
    /// Returns how the addresses of the first `count` lanes repeat: 32 or 64.
    #[inline(always)]
    pub(super) fn of(at: &[u32; LANES], count: usize) -> Repeat {
        let runs = at[..rounds(count)].as_chunks::<RUN>().0;
        let differ = |run: &[u32; RUN]| run.iter().fold(0, |all, x| all | x ^ run[0]);
        if runs.iter().fold(0, |all, run| all | differ(run)) == 0 {
            return Repeat::Runs;
        }
        let mut period = count;
        while period > RUN && again(at, period / 2) {
            period /= 2;
        }
        if period == count { Repeat::None } else { Repeat::Period(period) }
    }
}

/// Returns true if the addresses of the first lanes stand again behind them.
#[inline(always)]
fn again(at: &[u32; LANES], period: usize) -> bool {
    let (first, second) = at[..rounds(2 * period)].split_at(period);
    first.iter().zip(second).fold(0, |all, (x, y)| all | x ^ y) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_repeat() {
        let of = |count: usize, at: fn(u32) -> u32| {
            Repeat::of(&std::array::from_fn(|lane| at(lane as u32)), count)
        };
        assert_eq!(of(64, |lane| lane), Repeat::None);
        assert_eq!(of(64, |_| 7), Repeat::Runs);
        assert_eq!((of(64, |lane| lane / 8), of(32, |lane| lane / 16)), (Repeat::Runs, Repeat::Runs));
        assert_eq!(
            (of(64, |lane| lane % 8), of(64, |lane| lane % 16)),
            (Repeat::Period(8), Repeat::Period(16))
        );
        assert_eq!((of(64, |lane| lane % 32), of(32, |lane| lane % 32)), (Repeat::Period(32), Repeat::None));
        // One lane is another.
        assert_eq!(of(64, |lane| if lane == 63 { 1 } else { 0 }), Repeat::None);
        assert_eq!(of(64, |lane| if lane == 24 { 99 } else { lane % 16 }), Repeat::None);
        assert_eq!(of(64, |lane| if lane % 32 == 24 { 99 } else { lane % 16 }), Repeat::Period(32));
    }
}
