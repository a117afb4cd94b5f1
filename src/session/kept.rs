//! Hidden states of the last positions of each sequence, which the predictor continues from: which of them there are.

use super::cells::Cell;
use crate::model::Predictor;
use std::ops::Range;

/// Positions whose hidden states are kept, by sequence. Position `p` has row `p` modulo [`Kept::MOST`] of its sequence, so
/// those of drafts that were not accepted are overwritten.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    positions: Vec<Range<usize>>,
}

impl Kept {
    /// Number of positions of a sequence.
    pub(super) const MOST: usize = Predictor::KEPT;

    /// Returns the row of a position.
    pub(super) fn row(&self, at: Cell) -> usize {
        at.sequence * Self::MOST + at.position % Self::MOST
    }

    /// Returns the row of the position before, if it is kept.
    pub(super) fn before(&self, at: Cell) -> Option<usize> {
        let position = at.position.checked_sub(1)?;
        let kept = self.positions.get(at.sequence).is_some_and(|kept| kept.contains(&position));
        kept.then(|| self.row(Cell { position, ..at }))
    }

    /// Records that positions of a sequence were computed.
    pub(super) fn computed(&mut self, sequence: usize, positions: Range<usize>) {
        if self.positions.len() <= sequence {
            self.positions.resize(sequence + 1, 0..0);
        }
        let kept = &mut self.positions[sequence];
        let follows = positions.start > kept.start && positions.start <= kept.end;
        let begin = if follows { kept.start } else { positions.start };
        *kept = begin.max(positions.end.saturating_sub(Self::MOST))..positions.end;
    }

    /// Records that nothing of a sequence is kept.
    pub(super) fn forget(&mut self, sequence: usize) {
        if let Some(kept) = self.positions.get_mut(sequence) {
            *kept = 0..0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_positions_are_kept() {
        let (mut kept, n) = (Kept::default(), Kept::MOST);
        let at = |position| Cell { sequence: 1, position };
        assert_eq!(kept.before(at(1)), None);
        kept.computed(1, 0..3);
        assert_eq!([0, 1, 3, 4].map(|p| kept.before(at(p))), [None, Some(n), Some(n + 2), None]);
        // Long batches keep their end; a step adds one position.
        kept.computed(1, 3..100);
        kept.computed(1, 100..101);
        let held: Vec<usize> = (1..200).filter(|&p| kept.before(at(p)).is_some()).map(|p| p - 1).collect();
        assert_eq!(held, (101 - n..101).collect::<Vec<_>>());
        // A draft that was not accepted is computed again, as another token.
        kept.computed(1, 98..99);
        assert_eq!((kept.before(at(98)).is_some(), kept.before(at(100))), (true, None));
        // A sequence that went back further starts again.
        kept.computed(1, 50..52);
        assert_eq!([50, 51, 52, 53].map(|p| kept.before(at(p)).is_some()), [false, true, true, false]);
        kept.forget(1);
        assert_eq!(kept.before(at(51)), None);
    }
}
