//! Cells: rows of the cache. Each holds a position of a sequence, or is free.
//!
//! Sequences share the rows. A new position gets the first free row. So attention reads as few rows as the
//! positions need, and a single sequence has position `i` in row `i`.

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
    pub(super) at: Cell,
    /// Number of cells.
    pub(super) count: usize,
}

impl CellSpan {
    /// True if the next cell is `cell` and holds the next position, `at`.
    fn is_followed_by(&self, cell: usize, at: Cell) -> bool {
        let CellSpan { cell: first, at: from, count } = *self;
        at.sequence == from.sequence && cell == first + count && at.position == from.position + count
    }
}

/// Contents of all cells.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    held: Vec<Option<Cell>>,
    /// Tokens of each sequence in the order of their positions.
    tokens: Vec<Vec<u32>>,
    /// Lower bound: no cell before this one is free.
    first: usize,
    /// Upper bound: no cell from this one on is held.
    end: usize,
    /// Number of changes so far.
    changes: u64,
}

impl Cells {
    /// Creates free cells for `sequences` sequences of `context` positions each.
    pub(super) fn new(context: usize, sequences: usize) -> Cells {
        // Allocate now, so that appending tokens later does not.
        let tokens = (0..sequences).map(|_| Vec::with_capacity(context)).collect();
        Cells { held: vec![None; context * sequences], tokens, first: 0, end: 0, changes: 0 }
    }

    /// Frees all cells.
    pub(super) fn clear(&mut self) {
        self.held[..self.end].fill(None);
        self.tokens.iter_mut().for_each(Vec::clear);
        (self.first, self.end) = (0, 0);
        self.changes += 1;
    }

    /// Returns the number of sequences.
    pub(super) fn sequences(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the number of positions of a sequence; 0 if it does not exist.
    pub(super) fn length(&self, sequence: usize) -> usize {
        self.tokens(sequence).len()
    }

    /// Returns the tokens of a sequence; none if it does not exist.
    pub(super) fn tokens(&self, sequence: usize) -> &[u32] {
        self.tokens.get(sequence).map_or(&[], Vec::as_slice)
    }

    /// Returns one past the last held cell.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Returns the number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the content of a cell.
    #[cfg(test)]
    pub(super) fn get(&self, cell: usize) -> Option<Cell> {
        self.held.get(cell).copied().flatten()
    }

    /// Writes the contents of the first `count` cells to `spans`, in the order of the cells. It reserves
    /// memory for the maximum number of spans in `count` cells, so that a step with no more cells allocates
    /// nothing.
    pub(super) fn spans(&self, count: usize, spans: &mut Vec<CellSpan>) {
        spans.clear();
        spans.reserve(count.min(self.held.len()));
        for (cell, held) in self.held.iter().enumerate().take(count.min(self.end)) {
            let Some(at) = *held else { continue };
            match spans.last_mut() {
                Some(span) if span.is_followed_by(cell, at) => span.count += 1,
                _ => spans.push(CellSpan { cell, at, count: 1 }),
            }
        }
    }

    /// Returns the contents of the first `count` cells; cells past the end are free.
    pub(super) fn held(&self, count: usize) -> impl Iterator<Item = Option<Cell>> + Clone + '_ {
        self.held.iter().copied().chain(std::iter::repeat(None)).take(count)
    }

    /// Appends tokens to a sequence and adds them, with their cells, to `placed`. The caller ensures that no
    /// sequence exceeds `context` positions, so there is a free cell for each token.
    pub(super) fn append(&mut self, sequence: usize, tokens: &[u32], placed: &mut Vec<Token>) {
        let Some(own) = self.tokens.get_mut(sequence) else { return };
        self.changes += 1;
        let free = self.held.iter_mut().enumerate().skip(self.first).filter(|(_, held)| held.is_none());
        for (&id, (cell, held)) in tokens.iter().zip(free) {
            let at = Cell { sequence, position: own.len() };
            *held = Some(at);
            own.push(id);
            placed.push(Token { id, at, cell });
            self.first = cell + 1;
            self.end = self.end.max(cell + 1);
        }
    }

    /// Frees the cells of all positions from `length` on.
    pub(super) fn truncate(&mut self, sequence: usize, length: usize) {
        if self.length(sequence) <= length {
            return;
        }
        self.changes += 1;
        for cell in 0..self.end {
            if self.held[cell].is_some_and(|c| c.sequence == sequence && c.position >= length) {
                self.held[cell] = None;
                self.first = self.first.min(cell);
            }
        }
        self.tokens[sequence].truncate(length);
        self.end = self.held[..self.end].iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    }

    /// Returns the cells of a sequence in the order of its positions.
    pub(super) fn of(&self, sequence: usize) -> Vec<usize> {
        let mut cells = vec![0; self.length(sequence)];
        for (index, cell) in self.held[..self.end].iter().enumerate() {
            if let Some(cell) = cell.filter(|c| c.sequence == sequence) {
                cells[cell.position] = index;
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(cells: &mut Cells, sequence: usize, tokens: &[u32]) -> Vec<usize> {
        let mut placed = Vec::new();
        cells.append(sequence, tokens, &mut placed);
        assert!(placed.iter().map(|t| t.id).eq(tokens.iter().copied()));
        assert!(placed.iter().all(|t| cells.get(t.cell) == Some(t.at) && t.at.sequence == sequence));
        placed.iter().map(|t| t.cell).collect()
    }

    #[test]
    fn one_sequence_has_its_positions_in_order() {
        let mut cells = Cells::new(8, 1);
        assert_eq!(append(&mut cells, 0, &[7; 3]), [0, 1, 2]);
        assert_eq!(append(&mut cells, 0, &[7; 2]), [3, 4]);
        assert_eq!((cells.length(0), cells.end()), (5, 5));
        cells.truncate(0, 4);
        assert_eq!((append(&mut cells, 0, &[7; 4]), cells.end()), (vec![4, 5, 6, 7], 8));
        cells.truncate(0, 0);
        assert_eq!((cells.length(0), cells.end(), append(&mut cells, 0, &[7; 1])), (0, 0, vec![0]));
        append(&mut cells, 0, &[7; 5]);
        cells.clear();
        assert_eq!((cells.length(0), cells.end(), append(&mut cells, 0, &[7; 2])), (0, 0, vec![0, 1]));
    }

    #[test]
    fn runs_are_neighbours_of_one_sequence() {
        let mut cells = Cells::new(4, 3);
        append(&mut cells, 0, &[7; 2]);
        append(&mut cells, 1, &[7; 3]);
        append(&mut cells, 0, &[7; 1]);
        cells.truncate(1, 1);
        append(&mut cells, 2, &[7; 2]);
        // 0 0 1 2 2 0: cells 3 and 4 were freed.
        let mut spans = vec![CellSpan { cell: 9, at: Cell { sequence: 9, position: 9 }, count: 9 }];
        let span =
            |cell, sequence, position, count| CellSpan { cell, at: Cell { sequence, position }, count };
        cells.spans(8, &mut spans);
        assert_eq!(spans, [span(0, 0, 0, 2), span(2, 1, 0, 1), span(3, 2, 0, 2), span(5, 0, 2, 1)]);
        cells.spans(4, &mut spans);
        assert_eq!(spans, [span(0, 0, 0, 2), span(2, 1, 0, 1), span(3, 2, 0, 1)]);
        cells.truncate(2, 0);
        cells.spans(8, &mut spans);
        assert_eq!(spans, [span(0, 0, 0, 2), span(2, 1, 0, 1), span(5, 0, 2, 1)]);
    }

    #[test]
    fn freed_cells_are_used_again() {
        let mut cells = Cells::new(4, 3);
        assert_eq!(append(&mut cells, 0, &[7; 2]), [0, 1]);
        assert_eq!(append(&mut cells, 1, &[7; 3]), [2, 3, 4]);
        assert_eq!(append(&mut cells, 0, &[7; 1]), [5]);
        assert_eq!(cells.of(0), [0, 1, 5]);
        cells.truncate(1, 1);
        assert_eq!((cells.get(3), cells.end()), (None, 6));
        assert_eq!(append(&mut cells, 2, &[7; 4]), [3, 4, 6, 7]);
        assert_eq!(cells.get(6), Some(Cell { sequence: 2, position: 2 }));
        // The other cells are unchanged; all positions fit.
        assert_eq!((cells.of(0), cells.of(1)), (vec![0, 1, 5], vec![2]));
        assert_eq!(
            (append(&mut cells, 1, &[7; 3]), append(&mut cells, 0, &[7; 1])),
            (vec![8, 9, 10], vec![11])
        );
        assert_eq!((cells.of(1), cells.tokens(1)), (vec![2, 8, 9, 10], &[7; 4][..]));
    }
}
