//! The inputs of a batch, encoded.

use super::cells::{Cell, Cells};
use crate::model::BatchGraph;
use ggml_core::TensorId;
use std::collections::HashMap;

/// A token of a batch with its place.
pub(super) struct Token {
    pub(super) id: u32,
    /// Its sequence, and its position there.
    pub(super) at: Cell,
    /// The cell that holds it.
    pub(super) cell: usize,
}

/// The inputs of a graph for tokens whose cells are taken already; `outputs` are the tokens whose logits are wanted.
pub(super) fn batch_inputs(
    graph: &BatchGraph,
    tokens: &[Token],
    outputs: &[usize],
    cells: &Cells,
) -> HashMap<TensorId, Vec<u8>> {
    let (ids, kv) = (&graph.inputs, graph.shape.kv);
    let ints = |of: &dyn Fn(&Token) -> usize| encode(tokens.iter().map(of));
    let mut inputs = HashMap::from([
        (ids.tokens, ints(&|t| t.id as usize)),
        (ids.positions, ints(&|t| t.at.position)),
        (ids.cache_rows, ints(&|t| t.cell)),
        (ids.mask, mask(tokens, kv, cells, |_, _| true)),
    ]);
    if let (Some(id), Some(window)) = (ids.window_mask, graph.window) {
        inputs.insert(id, mask(tokens, kv, cells, |row, column| window.reaches(row, column)));
    }
    if let Some(id) = ids.output_rows {
        inputs.insert(id, encode(outputs.iter().copied()));
    }
    if let Some(id) = ids.runs {
        inputs.insert(id, runs(tokens, graph.shape.sequences));
    }
    inputs
}

/// The inputs of a prompt's graph that gives the logits of every token, in a cache of its own.
#[cfg(feature = "compare")]
pub(crate) fn prompt_inputs(graph: &BatchGraph, prompt: &[u32]) -> HashMap<TensorId, Vec<u8>> {
    let mut cells = Cells::new(graph.shape.context, 1);
    let tokens: Vec<Token> = place(&mut cells, 0, prompt);
    batch_inputs(graph, &tokens, &[], &cells)
}

/// Appends tokens to a sequence.
pub(super) fn place(cells: &mut Cells, sequence: usize, tokens: &[u32]) -> Vec<Token> {
    let begin = cells.length(sequence);
    let places = cells.append(sequence, tokens);
    let at = |i: usize| Cell { sequence, position: begin + i };
    tokens.iter().zip(places).enumerate().map(|(i, (&id, cell))| Token { id, at: at(i), cell }).collect()
}

/// As I32, little-endian.
fn encode(values: impl Iterator<Item = usize>) -> Vec<u8> {
    values.flat_map(|v| (v as i32).to_le_bytes()).collect()
}

/// For each sequence where its tokens begin, how many there are, and the position of the first.
fn runs(tokens: &[Token], sequences: usize) -> Vec<u8> {
    let run = |sequence: usize| {
        let mine = |t: &&Token| t.at.sequence == sequence;
        let first = tokens.iter().position(|t| mine(&t)).unwrap_or(0);
        let position = tokens.get(first).map_or(0, |t| t.at.position);
        [first, tokens.iter().filter(mine).count(), position]
    };
    encode((0..sequences).flat_map(run))
}

/// A row for each token: 0 in the columns of those of the first `kv` cells that hold a position of the token's sequence
/// no later than its own which `reaches` (token's position, other position) admits, minus infinity elsewhere.
fn mask(tokens: &[Token], kv: usize, cells: &Cells, reaches: impl Fn(usize, usize) -> bool) -> Vec<u8> {
    let mut mask = Vec::with_capacity(tokens.len() * kv * 4);
    for Token { at, .. } in tokens {
        let sees = |c: Cell| {
            c.sequence == at.sequence && c.position <= at.position && reaches(at.position, c.position)
        };
        for cell in 0..kv {
            let value = if cells.get(cell).is_some_and(sees) { 0.0 } else { f32::NEG_INFINITY };
            mask.extend_from_slice(&value.to_le_bytes());
        }
    }
    mask
}
