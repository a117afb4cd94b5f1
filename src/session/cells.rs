//! Cells: rows of the cache. Each holds a position of a sequence, or of several that share a prefix, or is free.
//!
//! Sequences share the rows. A new position gets the first free row. So attention reads as few rows as the
//! positions need, and a single sequence has position `i` in row `i`.
//!
//! A sequence has tokens, and cells for the first of them: the computed ones. The others are owed: the session
//! computes them before the next tokens that are appended.

/// Token of a batch with its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) id: u32,
    /// Sequence and position of the token.
    pub(super) at: Cell,
    /// Index of the cell that holds it.
    pub(super) cell: usize,
}

/// Position of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) sequence: usize,
    pub(super) position: usize,
}

/// Adjacent cells that hold consecutive positions of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellSpan {
    /// Index of the first cell.
    pub(super) cell: usize,
    /// Position in the first cell.
    pub(super) position: usize,
    /// Number of cells.
    pub(super) count: usize,
}

impl CellSpan {
    /// Returns one past the last position.
    fn end(&self) -> usize {
        self.position + self.count
    }
}

/// Tokens of a sequence and their cells.
#[derive(Clone, Debug, Default)]
struct Sequence {
    /// Tokens in the order of their positions.
    tokens: Vec<u32>,
    /// Cells of the computed positions, in the order of the positions.
    spans: Vec<CellSpan>,
}

impl Sequence {
    /// Returns the number of positions that have cells.
    fn computed(&self) -> usize {
        self.spans.last().map_or(0, CellSpan::end)
    }
}

/// Contents of all cells.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    /// Number of sequences that hold each cell; 0 if it is free.
    holders: Vec<u16>,
    sequences: Vec<Sequence>,
    /// Lower bound: no cell before this one is free.
    first: usize,
    /// Upper bound: no cell from this one on is held.
    end: usize,
    /// Number of changes so far; cells for tokens that a sequence has already are none.
    changes: u64,
}

impl Cells {
    /// Creates free cells for `sequences` sequences of `context` positions each.
    pub(super) fn new(context: usize, sequences: usize) -> Cells {
        // Allocate now, so that appending tokens later does not. A single sequence has one span.
        let spans = if sequences == 1 { 1 } else { context };
        let sequence = |_| Sequence { tokens: Vec::with_capacity(context), spans: Vec::with_capacity(spans) };
        let holders = vec![0; context * sequences];
        Cells { holders, sequences: (0..sequences).map(sequence).collect(), first: 0, end: 0, changes: 0 }
    }

    /// Frees all cells.
    pub(super) fn clear(&mut self) {
        self.holders[..self.end].fill(0);
        for sequence in &mut self.sequences {
            sequence.tokens.clear();
            sequence.spans.clear();
        }
        (self.first, self.end) = (0, 0);
        self.changes += 1;
    }

    /// Returns the number of sequences.
    pub(super) fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// Returns the number of positions of a sequence, owed ones included; 0 if it does not exist.
    pub(super) fn length(&self, sequence: usize) -> usize {
        self.tokens(sequence).len()
    }

    /// Returns the number of computed positions of a sequence; 0 if it does not exist.
    pub(super) fn computed(&self, sequence: usize) -> usize {
        self.sequences.get(sequence).map_or(0, Sequence::computed)
    }

    /// Returns the number of tokens of a sequence that have no cells yet.
    pub(super) fn owed(&self, sequence: usize) -> usize {
        self.length(sequence) - self.computed(sequence)
    }

    /// Returns the tokens of a sequence; none if it does not exist.
    pub(super) fn tokens(&self, sequence: usize) -> &[u32] {
        self.sequences.get(sequence).map_or(&[], |one| &one.tokens)
    }

    /// Returns the cells of a sequence in the order of its positions; none if it does not exist.
    pub(super) fn spans(&self, sequence: usize) -> &[CellSpan] {
        self.sequences.get(sequence).map_or(&[], |one| &one.spans)
    }

    /// Returns one past the last held cell.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Returns the number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Appends tokens to a sequence without cells. The caller ensures that no sequence exceeds `context`
    /// positions.
    pub(super) fn extend(&mut self, sequence: usize, tokens: &[u32]) {
        if let Some(own) = self.sequences.get_mut(sequence) {
            self.changes += 1;
            own.tokens.extend_from_slice(tokens);
        }
    }

    /// Assigns cells to the next `count` owed tokens of a sequence and adds the tokens to `placed`. There is a free
    /// cell for each token, because no sequence exceeds `context` positions.
    pub(super) fn place(&mut self, sequence: usize, count: usize, placed: &mut Vec<Token>) {
        let Some(own) = self.sequences.get_mut(sequence) else { return };
        let free = self.holders.iter_mut().enumerate().skip(self.first).filter(|(_, holders)| **holders == 0);
        let begin = own.computed();
        for ((position, &id), (cell, holders)) in
            own.tokens.iter().enumerate().skip(begin).take(count).zip(free)
        {
            *holders = 1;
            match own.spans.last_mut() {
                Some(span) if span.cell + span.count == cell => span.count += 1,
                _ => own.spans.push(CellSpan { cell, position, count: 1 }),
            }
            placed.push(Token { id, at: Cell { sequence, position }, cell });
            self.first = cell + 1;
            self.end = self.end.max(cell + 1);
        }
    }

    /// Appends tokens to a sequence and assigns cells to all its tokens that have none.
    pub(super) fn append(&mut self, sequence: usize, tokens: &[u32], placed: &mut Vec<Token>) {
        self.extend(sequence, tokens);
        self.place(sequence, self.owed(sequence), placed);
    }

    /// Removes all positions of a sequence from `length` on.
    pub(super) fn truncate(&mut self, sequence: usize, length: usize) {
        if self.length(sequence) > length {
            self.unplace(sequence, length);
            self.changes += 1;
            self.sequences[sequence].tokens.truncate(length);
        }
    }

    /// Takes the cells of all positions from `length` on from a sequence. Its tokens there are owed then.
    pub(super) fn unplace(&mut self, sequence: usize, length: usize) {
        if self.computed(sequence) <= length {
            return;
        }
        self.changes += 1;
        let spans = &mut self.sequences[sequence].spans;
        while let Some(span) = spans.last_mut().filter(|span| span.end() > length) {
            let kept = length.saturating_sub(span.position);
            for cell in span.cell + kept..span.cell + span.count {
                self.holders[cell] -= 1;
                if self.holders[cell] == 0 {
                    self.first = self.first.min(cell);
                }
            }
            span.count = kept;
            if kept == 0 {
                spans.pop();
            }
        }
        self.end = self.holders[..self.end].iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
    }

    /// Makes a sequence hold the first `length` tokens of another one, in the same cells as far as `computed` positions.
    pub(super) fn share(&mut self, from: usize, to: usize, length: usize, computed: usize) {
        if from == to || from.max(to) >= self.sequences.len() {
            return;
        }
        self.truncate(to, 0);
        self.changes += 1;
        // Taken and put back, so that memory that was allocated stays.
        let mut own = std::mem::take(&mut self.sequences[to]);
        let other = &self.sequences[from];
        own.tokens.extend_from_slice(&other.tokens[..length.min(other.tokens.len())]);
        for span in other.spans.iter().take_while(|span| span.position < computed) {
            let count = span.count.min(computed - span.position);
            own.spans.push(CellSpan { count, ..*span });
            self.holders[span.cell..span.cell + count].iter_mut().for_each(|holders| *holders += 1);
        }
        self.sequences[to] = own;
    }

    /// Returns the cells of a sequence in the order of its computed positions.
    pub(super) fn of(&self, sequence: usize) -> Vec<usize> {
        self.spans(sequence).iter().flat_map(|span| span.cell..span.cell + span.count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(cells: &mut Cells, sequence: usize, tokens: &[u32]) -> Vec<usize> {
        let mut placed = Vec::new();
        cells.append(sequence, tokens, &mut placed);
        assert!(placed.iter().map(|t| t.id).eq(tokens.iter().copied()));
        let of = cells.of(sequence);
        assert!(placed.iter().all(|t| of[t.at.position] == t.cell && t.at.sequence == sequence));
        placed.iter().map(|t| t.cell).collect()
    }

    fn span(cell: usize, position: usize, count: usize) -> CellSpan {
        CellSpan { cell, position, count }
    }

    #[test]
    fn one_sequence_has_its_positions_in_order() {
        let mut cells = Cells::new(8, 1);
        assert_eq!(append(&mut cells, 0, &[7; 3]), [0, 1, 2]);
        assert_eq!(append(&mut cells, 0, &[7; 2]), [3, 4]);
        assert_eq!((cells.length(0), cells.end()), (5, 5));
        cells.truncate(0, 4);
        assert_eq!((append(&mut cells, 0, &[7; 4]), cells.end()), (vec![4, 5, 6, 7], 8));
        assert_eq!(cells.spans(0), [span(0, 0, 8)]);
        cells.truncate(0, 0);
        assert_eq!((cells.length(0), cells.end(), append(&mut cells, 0, &[7; 1])), (0, 0, vec![0]));
        append(&mut cells, 0, &[7; 5]);
        cells.clear();
        assert_eq!((cells.length(0), cells.end(), append(&mut cells, 0, &[7; 2])), (0, 0, vec![0, 1]));
    }

    #[test]
    fn spans_are_neighbours_of_one_sequence() {
        let mut cells = Cells::new(4, 3);
        append(&mut cells, 0, &[7; 2]);
        append(&mut cells, 1, &[7; 3]);
        append(&mut cells, 0, &[7; 1]);
        cells.truncate(1, 1);
        append(&mut cells, 2, &[7; 3]);
        // 0 0 1 2 2 0 2: cells 3 and 4 were freed.
        assert_eq!(cells.spans(0), [span(0, 0, 2), span(5, 2, 1)]);
        assert_eq!(cells.spans(1), [span(2, 0, 1)]);
        assert_eq!(cells.spans(2), [span(3, 0, 2), span(6, 2, 1)]);
        cells.truncate(2, 1);
        assert_eq!((cells.spans(2), cells.end()), (&[span(3, 0, 1)][..], 6));
        assert_eq!(cells.spans(3), []);
    }

    #[test]
    fn freed_cells_are_used_again() {
        let mut cells = Cells::new(4, 3);
        assert_eq!(append(&mut cells, 0, &[7; 2]), [0, 1]);
        assert_eq!(append(&mut cells, 1, &[7; 3]), [2, 3, 4]);
        assert_eq!(append(&mut cells, 0, &[7; 1]), [5]);
        assert_eq!(cells.of(0), [0, 1, 5]);
        cells.truncate(1, 1);
        assert_eq!(cells.end(), 6);
        assert_eq!(append(&mut cells, 2, &[7; 4]), [3, 4, 6, 7]);
        // The other cells are unchanged; all positions fit.
        assert_eq!((cells.of(0), cells.of(1)), (vec![0, 1, 5], vec![2]));
        assert_eq!(
            (append(&mut cells, 1, &[7; 3]), append(&mut cells, 0, &[7; 1])),
            (vec![8, 9, 10], vec![11])
        );
        assert_eq!((cells.of(1), cells.tokens(1)), (vec![2, 8, 9, 10], &[7; 4][..]));
    }

    #[test]
    fn owed_tokens_get_cells_first() {
        let mut cells = Cells::new(8, 2);
        append(&mut cells, 0, &[1, 2, 3, 4]);
        cells.unplace(0, 1);
        assert_eq!((cells.length(0), cells.computed(0), cells.owed(0), cells.end()), (4, 1, 3, 1));
        append(&mut cells, 1, &[9; 2]);
        cells.extend(0, &[5]);
        let mut placed = Vec::new();
        cells.place(0, 2, &mut placed);
        cells.place(0, 9, &mut placed);
        let found: Vec<_> = placed.iter().map(|t| (t.id, t.at.position, t.cell)).collect();
        assert_eq!(found, [(2, 1, 3), (3, 2, 4), (4, 3, 5), (5, 4, 6)]);
        assert_eq!((cells.tokens(0), cells.owed(0)), (&[1, 2, 3, 4, 5][..], 0));
    }

    #[test]
    fn shared_cells_are_free_when_nobody_holds_them() {
        let mut cells = Cells::new(6, 3);
        append(&mut cells, 0, &[1, 2, 3, 4]);
        append(&mut cells, 1, &[8; 2]);
        append(&mut cells, 0, &[5]);
        append(&mut cells, 2, &[9]);
        cells.share(0, 2, 5, 4);
        assert_eq!(
            (cells.of(2), cells.tokens(2), cells.owed(2)),
            (vec![0, 1, 2, 3], &[1, 2, 3, 4, 5][..], 1)
        );
        // Cell 7 was freed and is used again; what one appends is its own.
        let mut placed = Vec::new();
        cells.append(2, &[6], &mut placed);
        assert_eq!((cells.of(2), cells.of(0)), (vec![0, 1, 2, 3, 7, 8], vec![0, 1, 2, 3, 6]));
        cells.truncate(0, 2);
        assert_eq!((cells.of(2), cells.of(0)), (vec![0, 1, 2, 3, 7, 8], vec![0, 1]));
        assert_eq!(append(&mut cells, 0, &[4]), [6]);
        cells.truncate(2, 0);
        assert_eq!((append(&mut cells, 1, &[8; 3]), cells.of(0)), (vec![2, 3, 7], vec![0, 1, 6]));
    }
}
