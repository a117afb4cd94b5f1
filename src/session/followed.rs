//! Positions of each sequence that the predictor has followed: it has their keys and values, and continues from the hidden
//! states of the last ones.

use super::cells::Cell;
use crate::model::Predictor;
use std::ops::Range;

/// Positions that the predictor has followed, by sequence, up to the last one. The hidden states of the last
/// [`Followed::MOST`] of them are kept: that of position `p` in row `p` modulo this number, so those of drafts that were not
/// accepted are overwritten.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    followed: Vec<Range<usize>>,
    /// Number of positions at the end whose hidden states are kept.
    states: Vec<usize>,
}

impl Followed {
    /// Number of positions of a sequence.
    pub(super) const MOST: usize = Predictor::KEPT;

    /// Returns the row of a position.
    pub(super) fn row(&self, at: Cell) -> usize {
        at.sequence * Self::MOST + at.position % Self::MOST
    }

    /// Returns the row of the position before, if it is kept.
    pub(super) fn before(&self, at: Cell) -> Option<usize> {
        let position = at.position.checked_sub(1)?;
        let end = self.followed.get(at.sequence)?.end;
        let kept = position < end && position + self.states[at.sequence] >= end;
        kept.then(|| self.row(Cell { position, ..at }))
    }

    /// Returns the first position whose keys and values the predictor has. There is no hidden state before the first one
    /// that it has followed.
    pub(super) fn first(&self, sequence: usize) -> usize {
        self.followed.get(sequence).map_or(0, |followed| followed.start) + 1
    }

    /// Records that the predictor has followed the positions of a batch. A sequence may have gone back before.
    pub(super) fn follow(&mut self, sequence: usize, positions: Range<usize>) {
        if self.followed.len() <= sequence {
            self.followed.resize(sequence + 1, 0..0);
            self.states.resize(sequence + 1, 0);
        }
        let (followed, states) = (&mut self.followed[sequence], &mut self.states[sequence]);
        let (first, count) = (positions.start, positions.len());
        // Those after the first of the batch are overwritten.
        let before = (first + *states).saturating_sub(followed.end);
        let joined = first > followed.start && first <= followed.end;
        *states = (count + if joined { before.min(*states) } else { 0 }).min(Self::MOST);
        *followed = (if joined { followed.start } else { first })..positions.end;
    }

    /// Records that the predictor knows nothing of a sequence.
    pub(super) fn forget(&mut self, sequence: usize) {
        if let Some(followed) = self.followed.get_mut(sequence) {
            *followed = 0..0;
            self.states[sequence] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_positions_are_kept() {
        let (mut kept, n) = (Followed::default(), Followed::MOST);
        let at = |position| Cell { sequence: 1, position };
        assert_eq!(kept.before(at(1)), None);
        kept.follow(1, 0..3);
        assert_eq!([0, 1, 3, 4].map(|p| kept.before(at(p))), [None, Some(n), Some(n + 2), None]);
        // Long batches keep their end; a step adds one position.
        kept.follow(1, 3..100);
        kept.follow(1, 100..101);
        let held: Vec<usize> = (1..200).filter(|&p| kept.before(at(p)).is_some()).map(|p| p - 1).collect();
        assert_eq!(held, (101 - n..101).collect::<Vec<_>>());
        // A draft that was not accepted is computed again, as another token.
        kept.follow(1, 98..99);
        assert_eq!((kept.before(at(98)).is_some(), kept.before(at(100))), (true, None));
        // A sequence that went back further has no state before the batch, but keys and values.
        kept.follow(1, 50..52);
        assert_eq!([50, 51, 52, 53].map(|p| kept.before(at(p)).is_some()), [false, true, true, false]);
        assert_eq!((kept.first(1), kept.first(0), kept.first(7)), (1, 1, 1));
        // After positions that it has not followed, the predictor begins anew.
        kept.follow(1, 60..61);
        assert_eq!([52, 60, 61].map(|p| kept.before(at(p)).is_some()), [false, false, true]);
        assert_eq!(kept.first(1), 61);
        kept.forget(1);
        assert_eq!(kept.before(at(51)), None);
    }
}
