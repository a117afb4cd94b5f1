//! Addresses that follow or repeat from lane to lane: tiles of products are read so. What is the same is done once.

use crate::isa::op::lanes::{LANES, rounds};

/// Pattern of the addresses of all lanes of a wavefront.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Not in one of these ways.
    None,
    /// Each lane's is behind the bytes of the one before.
    Consecutive,
    /// Each eight lanes have one address.
    Runs,
    /// After so many lanes they begin again: 8, 16 or 32.
    Period(usize),
}

/// Lanes of a run.
pub(super) const RUN: usize = 8;

impl Repeat {
    /// Returns how the addresses of the first `count` lanes, 32 or 64, of accesses of so many bytes follow each other.
    #[inline(always)]
    pub(super) fn of(at: &[u32; LANES], count: usize, bytes: u32) -> Repeat {
        let runs = at[..rounds(count)].as_chunks::<RUN>().0;
        // The first two lanes tell what may be.
        if at[1] == at[0] {
            return if are_runs(runs) { Repeat::Runs } else { Repeat::None };
        }
        if at[1] == at[0].wrapping_add(bytes) && are_consecutive(runs, bytes) {
            return Repeat::Consecutive;
        }
        let mut period = count;
        while period > RUN && again(at, period / 2) {
            period /= 2;
        }
        if period == count { Repeat::None } else { Repeat::Period(period) }
    }

    /// Returns the number of lanes of `count` among which all addresses are, and the step from one to another.
    #[inline(always)]
    pub(super) fn different(self, count: usize) -> (usize, usize) {
        match self {
            Repeat::Runs => (count, RUN),
            Repeat::Period(period) => (period, 1),
            Repeat::None | Repeat::Consecutive => (count, 1),
        }
    }
}

#[inline(always)]
fn are_runs(runs: &[[u32; RUN]]) -> bool {
    let mut differ = [0; RUN];
    for run in runs {
        for n in 0..RUN {
            differ[n] |= run[n] ^ run[0];
        }
    }
    differ.iter().fold(0, |all, x| all | x) == 0
}

#[inline(always)]
fn are_consecutive(runs: &[[u32; RUN]], bytes: u32) -> bool {
    let mut apart = [0; RUN];
    let mut next: [u32; RUN] = std::array::from_fn(|n| runs[0][0].wrapping_add(n as u32 * bytes));
    for run in runs {
        for n in 0..RUN {
            apart[n] |= run[n] ^ next[n];
            next[n] = next[n].wrapping_add(RUN as u32 * bytes);
        }
    }
    apart.iter().fold(0, |all, x| all | x) == 0
}

/// Copies the first `P` of `count` words behind them, again and again.
#[inline(always)]
pub(super) fn repeat<const P: usize>(words: &mut [u32; LANES], count: usize) {
    let parts = words.as_chunks_mut::<P>().0;
    let first = parts[0];
    for part in parts.iter_mut().take(count / P) {
        *part = first;
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
            Repeat::of(&std::array::from_fn(|lane| at(lane as u32)), count, 4)
        };
        assert_eq!(of(64, |lane| lane), Repeat::None);
        assert_eq!(of(64, |lane| 40 + 4 * lane), Repeat::Consecutive);
        assert_eq!(of(64, |lane| if lane == 63 { 1 } else { 4 * lane }), Repeat::None);
        assert_eq!(of(32, |lane| if lane == 63 { 1 } else { 4 * lane }), Repeat::Consecutive);
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
