//! The inputs of a batch, encoded.

use super::cells::{Cell, Cells, Token};
use crate::model::BatchGraph;
use ggml_core::{Result, TensorId};
#[cfg(feature = "compare")]
use std::collections::HashMap;

/// Takes the contents of an input.
pub(super) type Put<'a> = &'a mut dyn FnMut(TensorId, &[u8]) -> Result<()>;

/// An index that no operation finds: of a token whose row is zeros, of a row of the cache that is not written.
const NOWHERE: i32 = -1;

/// Memory in which the inputs of batches are put together, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    ints: Vec<i32>,
    floats: Vec<f32>,
}

impl Inputs {
    /// Puts the inputs of a graph for tokens whose cells are taken already; `outputs` are the tokens whose logits are
    /// wanted.
    ///
    /// A graph may have more tokens than there are. Those begin as zeros, see nothing, belong to no sequence and leave
    /// nothing behind: nothing depends on them.
    pub(super) fn put(
        &mut self,
        graph: &BatchGraph,
        tokens: &[Token],
        outputs: &[usize],
        cells: &Cells,
        put: Put<'_>,
    ) -> Result<()> {
        let (ids, shape) = (&graph.inputs, &graph.shape);
        self.ints(ids.tokens, tokens.iter().map(|t| t.id as i32), shape.tokens, NOWHERE, put)?;
        self.ints(ids.positions, tokens.iter().map(|t| t.at.position as i32), shape.tokens, 0, put)?;
        self.ints(ids.cache_rows, tokens.iter().map(|t| t.cell as i32), shape.tokens, NOWHERE, put)?;
        self.mask(ids.mask, graph, tokens, cells, &|_, _| true, put)?;
        if let (Some(id), Some(window)) = (ids.window_mask, graph.window) {
            self.mask(id, graph, tokens, cells, &|row, column| window.reaches(row, column), put)?;
        }
        if let Some(id) = ids.output_rows {
            self.ints(id, outputs.iter().map(|&i| i as i32), shape.outputs, NOWHERE, put)?;
        }
        if let (Some(id), Some(temperature)) = (ids.query_factors, graph.temperature) {
            self.floats.clear();
            self.floats.extend(tokens.iter().map(|t| temperature.factor(t.at.position)));
            self.floats.resize(shape.tokens, 1.0);
            put(id, bytemuck::cast_slice(&self.floats))?;
        }
        if let Some(id) = ids.runs {
            let runs = (0..shape.sequences).flat_map(|sequence| run(tokens, sequence));
            self.ints(id, runs, 3 * shape.sequences, 0, put)?;
        }
        Ok(())
    }

    /// Puts integers, and behind them so many `others` that there are `count`.
    fn ints(
        &mut self,
        id: TensorId,
        values: impl Iterator<Item = i32>,
        count: usize,
        others: i32,
        put: Put<'_>,
    ) -> Result<()> {
        self.ints.clear();
        self.ints.extend(values);
        self.ints.resize(count, others);
        put(id, bytemuck::cast_slice(&self.ints))
    }

    /// Puts a row for each token: 0 in the columns of those of the graph's cells that hold a position of the token's
    /// sequence no later than its own (any, of models that are not causal) which `reaches` (token's position, other position) admits, minus infinity elsewhere.
    fn mask(
        &mut self,
        id: TensorId,
        graph: &BatchGraph,
        tokens: &[Token],
        cells: &Cells,
        reaches: &dyn Fn(usize, usize) -> bool,
        put: Put<'_>,
    ) -> Result<()> {
        let kv = graph.shape.kv;
        self.floats.clear();
        for Token { at, .. } in tokens {
            let sees = |c: Cell| {
                c.sequence == at.sequence
                    && (c.position <= at.position || !graph.causal)
                    && reaches(at.position, c.position)
            };
            let value = |cell| if cells.get(cell).is_some_and(sees) { 0.0 } else { f32::NEG_INFINITY };
            self.floats.extend((0..kv).map(value));
        }
        self.floats.resize(graph.shape.tokens * kv, f32::NEG_INFINITY);
        put(id, bytemuck::cast_slice(&self.floats))
    }
}

/// The inputs of a graph that gives the logits of every one of some tokens, with those `before` them in a cache of its own.
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
    Inputs::default().put(graph, &placed, &[], &cells, &mut |id, bytes| {
        inputs.insert(id, bytes.to_vec());
        Ok(())
    })?;
    Ok(inputs)
}

/// Where the tokens of a sequence begin, how many there are, and the position of the first.
fn run(tokens: &[Token], sequence: usize) -> [i32; 3] {
    let mine = |t: &&Token| t.at.sequence == sequence;
    let first = tokens.iter().position(|t| mine(&t)).unwrap_or(0);
    let position = tokens.get(first).map_or(0, |t| t.at.position);
    [first, tokens.iter().filter(mine).count(), position].map(|n| n as i32)
}
