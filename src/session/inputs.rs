//! Encoding of the inputs of a batch.

use super::cells::{Cell, Cells, Token};
use super::followed::Followed;
use crate::model::{BatchGraph, MaskInputs, PredictorInputs, Window};
use ggml_core::op::CacheMask;
use ggml_core::{Result, TensorId};
use half::f16;
#[cfg(any(test, feature = "compare"))]
use std::collections::HashMap;

/// Callback that receives the contents of an input.
pub(super) type WriteInput<'a> = &'a mut dyn FnMut(TensorId, &[u8]) -> Result<()>;

/// Out-of-range index for padding tokens: GET_ROWS gives zeros for it, SET_ROWS skips it.
const NOWHERE: i32 = -1;

/// Reusable memory in which the inputs of batches are encoded.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    ints: Vec<i32>,
    floats: Vec<f32>,
    halves: Vec<f16>,
    /// Number of last tokens of the batch's only sequence that are drafts.
    pub(super) drafts: usize,
    /// Positions that the predictor has followed.
    pub(super) followed: Followed,
    /// True if batches compute nothing for the predictor.
    pub(super) unfollowed: bool,
}

impl Inputs {
    /// Writes the inputs of a graph for tokens whose cells are already assigned; `outputs` are the tokens
    /// whose logits are wanted.
    ///
    /// A graph may have more tokens than the batch. The padding tokens start as zeros, see nothing, belong to
    /// no sequence and write no state; no wanted row depends on them.
    pub(super) fn write(
        &mut self,
        graph: &BatchGraph,
        tokens: &[Token],
        outputs: &[usize],
        cells: &Cells,
        write: WriteInput<'_>,
    ) -> Result<()> {
        let (ids, shape) = (&graph.inputs, &graph.shape);
        self.ints(ids.tokens, tokens.iter().map(|t| t.id as i32), shape.tokens, NOWHERE, write)?;
        self.ints(ids.positions, tokens.iter().map(|t| t.at.position as i32), shape.tokens, 0, write)?;
        self.ints(ids.cache_rows, tokens.iter().map(|t| t.cell as i32), shape.tokens, NOWHERE, write)?;
        match ids.mask_inputs {
            Some(inputs) => self.mask_inputs(inputs, [shape.kv, shape.tokens], tokens, cells, write)?,
            None => {
                self.mask(ids.mask, graph, tokens, cells, None, write)?;
                if let Some(id) = ids.window_mask {
                    self.mask(id, graph, tokens, cells, graph.window, write)?;
                }
            }
        }
        if let Some(id) = ids.output_rows {
            self.ints(id, outputs.iter().map(|&i| i as i32), shape.outputs, NOWHERE, write)?;
        }
        if let (Some(id), Some(temperature)) = (ids.query_factors, graph.temperature) {
            self.floats.clear();
            self.floats.extend(tokens.iter().map(|t| temperature.factor(t.at.position)));
            self.floats.resize(shape.tokens, 1.0);
            write(id, bytemuck::cast_slice(&self.floats))?;
        }
        if let Some(id) = ids.runs {
            let drafts = self.drafts;
            let runs = (0..shape.sequences).flat_map(|sequence| {
                let [first, count, position] = tokens_of(tokens, sequence);
                let kept = (count - drafts as i32).max(0);
                [first, count, position].into_iter().chain(shape.drafts.then_some(kept))
            });
            self.ints(id, runs, if shape.drafts { 4 } else { 3 } * shape.sequences, 0, write)?;
        }
        match ids.predictor {
            Some(of) => self.predictor(of, shape.tokens, tokens, write),
            None => Ok(()),
        }
    }

    /// Writes the inputs of the predictor of a batch of `count` tokens with padding. Before the first token of a sequence
    /// in the batch comes a hidden state that is kept, if it still is; before the others, that of the token before.
    fn predictor(
        &mut self,
        ids: PredictorInputs,
        count: usize,
        tokens: &[Token],
        write: WriteInput<'_>,
    ) -> Result<()> {
        let kept = std::mem::take(&mut self.followed);
        let of = |i: usize| tokens.get(i).map(|token| token.at.sequence);
        let first = |i: usize| i == 0 || of(i - 1) != of(i);
        let all = 0..tokens.len();
        let second = |row: Option<usize>| [NOWHERE, row.map_or(NOWHERE, |row| row as i32)];
        self.ints(ids.embedded, all.clone().flat_map(|i| [i as i32, NOWHERE]), 2 * count, NOWHERE, write)?;
        if let Some(id) = ids.hidden {
            let here = all.clone().flat_map(|i| second((!first(i)).then(|| i - 1)));
            self.ints(id, here, 2 * count, NOWHERE, write)?;
        }
        let before = all.clone().flat_map(|i| second(kept.before(tokens[i].at).filter(|_| first(i))));
        self.ints(ids.kept, before, 2 * count, NOWHERE, write)?;
        if let Some(keep) = ids.keep {
            // The last ones stay: each row is written once.
            let last = |i: usize| of(i + Followed::MOST) != of(i);
            let rows = all.map(|i| if last(i) { kept.row(tokens[i].at) as i32 } else { NOWHERE });
            self.ints(keep, rows, count, NOWHERE, write)?;
        }
        self.followed = kept;
        Ok(())
    }

    /// Writes the inputs of a graph that drafts, for the places `at` of the drafts; the first one follows `token`.
    pub(super) fn write_drafts(
        &mut self,
        graph: &BatchGraph,
        token: u32,
        at: &[Token],
        cells: &Cells,
        write: WriteInput<'_>,
    ) -> Result<()> {
        let (ids, shape) = (&graph.inputs, &graph.shape);
        self.ints(ids.tokens, [token as i32].into_iter(), 1, NOWHERE, write)?;
        self.ints(ids.positions, at.iter().map(|t| t.at.position as i32), at.len(), 0, write)?;
        self.ints(ids.cache_rows, at.iter().map(|t| t.cell as i32), at.len(), NOWHERE, write)?;
        let columns = shape.mask_columns();
        self.halves.clear();
        for token in at {
            let begin = self.halves.len();
            add_row(&mut self.halves, columns, cells, token.at, true, None);
            let first = self.followed.first(token.at.sequence);
            for span in cells.spans(token.at.sequence).iter().take_while(|span| span.position < first) {
                let unknown = span.count.min(first - span.position).min(columns.saturating_sub(span.cell));
                self.halves[begin + span.cell..][..unknown].fill(f16::NEG_INFINITY);
            }
        }
        write(ids.mask, bytemuck::cast_slice(&self.halves))?;
        let (Some(of), Some(first)) = (ids.predictor, at.first()) else { return Ok(()) };
        self.ints(of.embedded, [0, NOWHERE].into_iter(), 2, NOWHERE, write)?;
        if let Some(id) = of.hidden {
            self.ints(id, [NOWHERE, 0].into_iter(), 2, NOWHERE, write)?;
        }
        let before = self.followed.before(first.at).map_or(NOWHERE, |row| row as i32);
        self.ints(of.kept, [NOWHERE, before].into_iter(), 2, NOWHERE, write)
    }

    /// Writes integers, padded with `others` to `count` elements.
    fn ints(
        &mut self,
        id: TensorId,
        values: impl Iterator<Item = i32>,
        count: usize,
        others: i32,
        write: WriteInput<'_>,
    ) -> Result<()> {
        self.ints.clear();
        self.ints.extend(values);
        self.ints.resize(count, others);
        write(id, bytemuck::cast_slice(&self.ints))
    }

    /// Writes the inputs of masks for `kv` cells and `count` tokens.
    fn mask_inputs(
        &mut self,
        inputs: MaskInputs,
        [kv, count]: [usize; 2],
        tokens: &[Token],
        cells: &Cells,
        write: WriteInput<'_>,
    ) -> Result<()> {
        let words = CacheMask::words(cells.sequences());
        self.ints.clear();
        self.ints.resize(kv, NOWHERE);
        self.ints.resize(kv * (1 + words), 0);
        for sequence in 0..cells.sequences() {
            let [word, bit] = CacheMask::place(sequence);
            for span in cells.spans(sequence) {
                for i in 0..span.count.min(kv.saturating_sub(span.cell)) {
                    self.ints[span.cell + i] = (span.position + i) as i32;
                    self.ints[kv * (1 + word) + span.cell + i] |= 1 << bit;
                }
            }
        }
        write(inputs.cells, bytemuck::cast_slice(&self.ints))?;
        let sequences = tokens.iter().map(|token| token.at.sequence as i32);
        self.ints.clear();
        self.ints.extend(sequences);
        self.ints.resize(count, NOWHERE);
        self.ints.extend(tokens.iter().map(|token| token.at.position as i32));
        self.ints.resize(2 * count, NOWHERE);
        write(inputs.tokens, bytemuck::cast_slice(&self.ints))
    }

    /// Writes a mask row for each token: 0 in the columns of the graph's cells that hold a position of the
    /// token's sequence that is no later than its own (any position, for non-causal models) and within
    /// `window`; minus infinity elsewhere.
    ///
    /// The visible cells of a span are contiguous, so rows are filled by ranges. Testing cell by cell took 12
    /// ms for a prompt of 512 tokens after 4096 others, as long as an H200 takes for everything else of a
    /// model of 1 billion parameters.
    fn mask(
        &mut self,
        id: TensorId,
        graph: &BatchGraph,
        tokens: &[Token],
        cells: &Cells,
        window: Option<Window>,
        write: WriteInput<'_>,
    ) -> Result<()> {
        let kv = graph.shape.kv;
        self.halves.clear();
        self.halves.reserve(graph.shape.tokens * kv);
        for token in tokens {
            add_row(&mut self.halves, kv, cells, token.at, graph.causal, window);
        }
        self.halves.resize(graph.shape.tokens * kv, f16::NEG_INFINITY);
        write(id, bytemuck::cast_slice(&self.halves))
    }
}

/// Appends the row of a token to a mask of `kv` columns.
fn add_row(mask: &mut Vec<f16>, kv: usize, cells: &Cells, at: Cell, causal: bool, window: Option<Window>) {
    let begin = mask.len();
    let reach = window.map_or(0..usize::MAX, |window| window.reach(at.position));
    let end = if causal { reach.end.min(at.position + 1) } else { reach.end };
    mask.resize(begin + kv, f16::NEG_INFINITY);
    let row = &mut mask[begin..];
    for span in cells.spans(at.sequence) {
        let first = reach.start.saturating_sub(span.position);
        let count = end.saturating_sub(span.position).min(span.count).min(kv.saturating_sub(span.cell));
        if first < count {
            row[span.cell + first..span.cell + count].fill(f16::ZERO);
        }
    }
}

/// Returns the inputs of a graph for the logits of all of `tokens`, with the tokens `before` them in a
/// separate cache.
#[cfg(feature = "compare")]
pub(crate) fn inputs_after(
    graph: &BatchGraph,
    before: &[u32],
    tokens: &[u32],
) -> Result<HashMap<TensorId, Vec<u8>>> {
    let (mut cells, mut inputs) = (Cells::new(graph.shape.context, 1), HashMap::new());
    cells.append(0, before, &mut Vec::new());
    let mut placed = Vec::new();
    cells.append(0, tokens, &mut placed);
    Inputs::default().write(graph, &placed, &[], &cells, &mut |id, bytes| {
        inputs.insert(id, bytes.to_vec());
        Ok(())
    })?;
    Ok(inputs)
}

/// Returns the index of the first token of a sequence, its number of tokens, and the position of the first.
fn tokens_of(tokens: &[Token], sequence: usize) -> [i32; 3] {
    let mine = |t: &&Token| t.at.sequence == sequence;
    let first = tokens.iter().position(|t| mine(&t)).unwrap_or(0);
    let position = tokens.get(first).map_or(0, |t| t.at.position);
    [first, tokens.iter().filter(mine).count(), position].map(|n| n as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::evaluate::evaluate;
    use ggml_core::precision::Precision;
    use ggml_core::reference::ReferenceBackend;
    use ggml_core::{DType, Graph, Source};

    /// Returns sequences with interleaved cells, some of them freed and some shared, in the first and the second word
    /// of sequences, and the tokens that are held.
    fn crowd() -> (Cells, Vec<Token>) {
        let (mut cells, mut placed) = (Cells::new(16, 35), Vec::new());
        for (sequence, count) in [(0, 5), (1, 3), (0, 2), (2, 4), (1, 6), (0, 4)] {
            cells.append(sequence, &[7; 6][..count], &mut placed);
        }
        cells.truncate(2, 1);
        placed.retain(|token| token.at.sequence != 2 || token.at.position < 1);
        for other in [31, 34] {
            cells.share(0, other, 6, 6);
            cells.append(other, &[7; 2], &mut placed);
        }
        cells.truncate(34, 7);
        placed.retain(|token| token.at.sequence != 34 || token.at.position < 7);
        (cells, placed)
    }

    /// Returns the positions that each cell holds, with their sequences.
    fn held(cells: &Cells, kv: usize) -> Vec<Vec<Cell>> {
        let mut held = vec![Vec::new(); kv];
        for sequence in 0..cells.sequences() {
            for (position, &cell) in cells.of(sequence).iter().enumerate().filter(|(_, cell)| **cell < kv) {
                held[cell].push(Cell { sequence, position });
            }
        }
        held
    }

    /// Returns mask parameters: numbers of cells below and above those held and those that exist, causal and
    /// not, with and without windows.
    fn rules() -> impl Iterator<Item = (usize, bool, Option<Window>)> {
        let windows = [None, Some(Window::nearest(3)), Some(Window { size: 4, chunked: true })];
        [20, 24, 40, 50]
            .into_iter()
            .flat_map(|kv| [true, false].map(|causal| (kv, causal)))
            .flat_map(move |(kv, causal)| windows.map(|window| (kv, causal, window)))
    }

    /// Checks that the mask computed on the device has the same bits as the mask that the host fills.
    #[test]
    fn both_masks_are_the_same() {
        let (cells, placed) = crowd();
        // Two padding tokens after the tokens.
        let tokens = placed.len() + 2;
        for (kv, causal, window) in rules() {
            let mut expected = Vec::new();
            placed.iter().for_each(|token| add_row(&mut expected, kv, &cells, token.at, causal, window));
            expected.resize(tokens * kv, f16::NEG_INFINITY);

            let mut graph = Graph::new();
            let mut leaf =
                |name, n, fields| graph.leaf(name, DType::I32, [n, fields, 1, 1], Source::Input).unwrap();
            let (of_cells, of_tokens) = (leaf("cells", kv, 3), leaf("tokens", tokens, 2));
            let mask = graph.cache_mask(Window::mask(window, causal), of_cells, of_tokens).unwrap();
            graph.output(mask).unwrap();
            let (mut inputs, mut data) = (Inputs::default(), HashMap::new());
            let mut write = |id, bytes: &[u8]| {
                data.insert(id, bytes.to_vec());
                Ok(())
            };
            let ids = MaskInputs { cells: of_cells, tokens: of_tokens };
            inputs.mask_inputs(ids, [kv, tokens], &placed, &cells, &mut write).unwrap();
            let made = evaluate(&ReferenceBackend::default(), &graph, &data, Precision::Exact).unwrap();
            assert_eq!(made[0].bytes, bytemuck::cast_slice::<_, u8>(&expected), "{kv} {causal} {window:?}");
        }
    }

    /// Checks against the rule, cell by cell.
    #[test]
    fn a_row_of_a_mask_has_what_its_token_sees() {
        let (cells, placed) = crowd();
        let (mut mask, mut seen) = (Vec::new(), 0);
        for (kv, causal, window) in rules() {
            mask.clear();
            placed.iter().for_each(|token| add_row(&mut mask, kv, &cells, token.at, causal, window));
            let held = held(&cells, kv);
            let sees = |at: Cell, c: Cell| {
                let later = c.position > at.position;
                let near = match window {
                    Some(Window { size, chunked: true }) => at.position / size == c.position / size,
                    Some(Window { size, .. }) => later || at.position - c.position < size,
                    None => true,
                };
                c.sequence == at.sequence && !(causal && later) && near
            };
            let expected =
                placed.iter().flat_map(|token| held.iter().map(|all| all.iter().any(|&c| sees(token.at, c))));
            let expected: Vec<bool> = expected.collect();
            seen += expected.iter().filter(|&&seen| seen).count();
            let is_zero = |x: &f16| {
                if x.to_bits() == 0 {
                    true
                } else {
                    assert_eq!(*x, f16::NEG_INFINITY);
                    false
                }
            };
            assert_eq!(mask.iter().map(is_zero).collect::<Vec<_>>(), expected, "{kv} {causal} {window:?}");
        }
        assert!(seen > 500, "{seen}");
    }
}
