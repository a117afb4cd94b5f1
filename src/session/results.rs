//! What batches gave, in memory that a session keeps.

use super::greedy;
use crate::model::{BatchGraph, Hparams, Want};
use bytemuck::Pod;
use ggml_core::{Result, TensorId};

/// Reads an output.
pub(super) type Get<'a> = &'a mut dyn FnMut(TensorId, &mut [u8]) -> Result<()>;

/// What follows a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row<'a> {
    /// The logits of all tokens.
    Logits(&'a [f32]),
    /// The best of them.
    Best(Best<'a>),
}

impl Row<'_> {
    /// The token with the largest logit, see [`greedy`](super::greedy).
    pub fn greedy(&self) -> u32 {
        match self {
            Row::Logits(logits) => greedy(logits),
            Row::Best(best) => best.tokens.first().copied().unwrap_or(0),
        }
    }
}

/// The best of the logits after a token, the largest first; of equals the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best<'a> {
    /// Tokens.
    pub tokens: &'a [u32],
    /// Their logits.
    pub logits: &'a [f32],
    /// Whether all logits are finite, also those that are not here.
    pub finite: bool,
}

/// The rows that a session's last call gave: for each item that after its last token, in memory of the session.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a>(pub(super) &'a Results);

impl<'a> Rows<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// A row by its number.
    pub fn get(&self, index: usize) -> Option<Row<'a>> {
        let r = self.0;
        let place = index * r.width..(index + 1) * r.width;
        let found = index < r.count;
        found.then(|| match r.want {
            // Hidden states are no rows: they are taken from the values.
            Want::Logits | Want::Hidden(_) => Row::Logits(&r.values[place]),
            Want::Best(_) => Row::Best(Best {
                tokens: &r.tokens[place.clone()],
                logits: &r.values[place],
                finite: r.finite[index],
            }),
        })
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let rows = *self;
        (0..rows.len()).filter_map(move |index| rows.get(index))
    }

    /// The logits of all rows, row after row.
    pub(super) fn values(&self) -> &'a [f32] {
        &self.0.values[..self.0.count * self.0.width]
    }
}

/// Room for the results of the batches of a call. It grows to what is needed most, and stays.
#[derive(Debug, Default)]
pub(super) struct Results {
    want: Want,
    /// Rows that are there.
    count: usize,
    /// Values of a row.
    width: usize,
    /// Logits.
    values: Vec<f32>,
    /// The tokens that they belong to, where they are the best.
    tokens: Vec<u32>,
    finite: Vec<bool>,
    /// See [`BestNodes::sums`](crate::model::BestNodes::sums).
    sums: Vec<f32>,
}

impl Results {
    /// Forgets all rows; those that come are as they are wanted.
    pub(super) fn begin(&mut self, want: Want, hparams: &Hparams) {
        self.want = want;
        self.count = 0;
        self.width = hparams.width(want);
    }

    /// Adds the rows of `outputs`, tokens of a batch that has run.
    pub(super) fn read(&mut self, graph: &BatchGraph, outputs: &[usize], get: Get<'_>) -> Result<()> {
        let (begin, rows) = (self.count, graph.shape.outputs);
        let (id, width) = (graph.best.as_ref().map_or(graph.logits, |best| best.logits), self.width);
        fetch(&mut self.values, begin * width, rows * width, id, get)?;
        if let Some(best) = &graph.best {
            fetch(&mut self.tokens, begin * width, rows * width, best.tokens, get)?;
            fetch(&mut self.sums, 0, rows * best.parts, best.sums, get)?;
            grow(&mut self.finite, begin + rows);
            let sums = self.sums.chunks_exact(best.parts);
            for (finite, sums) in self.finite[begin..].iter_mut().zip(sums).take(rows) {
                *finite = sums.iter().all(|sum| sum.is_finite());
            }
        }
        // Where no rows were chosen, each token has one.
        if graph.inputs.output_rows.is_none() {
            for (to, &from) in outputs.iter().enumerate().filter(|(to, from)| to != *from) {
                self.copy(begin + from, begin + to);
            }
        }
        self.count += outputs.len();
        Ok(())
    }

    fn copy(&mut self, from: usize, to: usize) {
        let place = from * self.width..(from + 1) * self.width;
        self.values.copy_within(place.clone(), to * self.width);
        if let Want::Best(_) = self.want {
            self.tokens.copy_within(place, to * self.width);
            self.finite[to] = self.finite[from];
        }
    }
}

/// Makes room for so many elements.
fn grow<T: Clone + Default>(all: &mut Vec<T>, count: usize) {
    if all.len() < count {
        all.resize(count, T::default());
    }
}

/// Reads a tensor of `count` elements into `all` from element `begin` on.
fn fetch<T: Pod + Default>(
    all: &mut Vec<T>,
    begin: usize,
    count: usize,
    id: TensorId,
    get: Get<'_>,
) -> Result<()> {
    grow(all, begin + count);
    get(id, bytemuck::cast_slice_mut(&mut all[begin..begin + count]))
}
