//! Results of batches, in memory that a session reuses.

use super::{can_choose, greedy, no_best};
use crate::model::{BatchGraph, Hparams, Want};
use bytemuck::Pod;
use ggml_core::{Result, TensorId};

/// Callback that reads an output.
pub(super) type ReadOutput<'a> = &'a mut dyn FnMut(TensorId, &mut [u8]) -> Result<()>;

/// Result after a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row<'a> {
    /// Logits of all tokens.
    Logits(&'a [f32]),
    /// Best logits.
    Best(Best<'a>),
}

impl Row<'_> {
    /// Returns the token with the largest logit.
    ///
    /// # Errors
    /// As [`greedy`](super::greedy).
    pub fn greedy(&self) -> Result<u32> {
        match self {
            Row::Logits(logits) => greedy(logits),
            Row::Best(best) => best.token().ok_or_else(no_best),
        }
    }
}

/// Best logits after a token in descending order; equal logits are in the order of their tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best<'a> {
    /// Tokens of these logits.
    pub tokens: &'a [u32],
    /// Best logits.
    pub logits: &'a [f32],
    /// True if a token may be chosen by the logits, see [`can_choose`](super::can_choose); logits that are not
    /// listed count.
    pub valid: bool,
}

impl Best<'_> {
    /// Returns the best token; `None` if none may be chosen. The device takes NaN for the smallest logit.
    fn token(&self) -> Option<u32> {
        self.tokens.first().copied().filter(|_| self.logits.first().is_some_and(|&x| x > f32::NEG_INFINITY))
    }
}

/// Rows of a session's last call, one for each item after its last token, in memory of the session.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a>(pub(super) &'a Results);

impl<'a> Rows<'a> {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// Returns a row by its index.
    pub fn get(&self, index: usize) -> Option<Row<'a>> {
        let r = self.0;
        let range = index * r.width..(index + 1) * r.width;
        let found = index < r.count;
        found.then(|| match r.want {
            // Hidden states are read from the values directly.
            Want::Logits | Want::Hidden(_) => Row::Logits(&r.values[range]),
            Want::Best(_) => Row::Best(Best {
                tokens: &r.tokens[range.clone()],
                logits: &r.values[range],
                valid: r.valid[index],
            }),
        })
    }

    /// Returns all rows.
    pub fn iter(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let rows = *self;
        (0..rows.len()).filter_map(move |index| rows.get(index))
    }

    /// Returns the values of all rows, row after row.
    pub(super) fn values(&self) -> &'a [f32] {
        &self.0.values[..self.0.count * self.0.width]
    }
}

/// Memory for the results of the batches of a call. It grows to the largest call and is reused.
#[derive(Debug, Default)]
pub(super) struct Results {
    want: Want,
    /// Number of valid rows.
    count: usize,
    /// Number of values in a row.
    width: usize,
    /// Logits, or hidden states.
    values: Vec<f32>,
    /// Tokens of the best logits.
    tokens: Vec<u32>,
    valid: Vec<bool>,
    /// Sums of the parts, see [`BestNodes::sums`](crate::model::BestNodes::sums).
    sums: Vec<f32>,
    /// All logits of a batch, if the sums do not say whether they are valid.
    all: Vec<f32>,
    vocabulary: usize,
}

impl Results {
    /// Clears all rows; the next rows have the form `want`.
    pub(super) fn begin(&mut self, want: Want, hparams: &Hparams) {
        self.want = want;
        self.count = 0;
        self.width = want.width(hparams);
        self.vocabulary = hparams.vocabulary;
    }

    /// Adds the rows of `outputs`, tokens of a batch that has run.
    pub(super) fn read(&mut self, graph: &BatchGraph, outputs: &[usize], read: ReadOutput<'_>) -> Result<()> {
        let (begin, rows) = (self.count, graph.shape.outputs);
        let (id, width) = (graph.best.as_ref().map_or(graph.logits, |best| best.logits), self.width);
        fetch(&mut self.values, begin * width, rows * width, id, read)?;
        if let Some(best) = &graph.best {
            fetch(&mut self.tokens, begin * width, rows * width, best.tokens, read)?;
            fetch(&mut self.sums, 0, rows * best.parts, best.sums, read)?;
            grow(&mut self.valid, begin + rows);
            let sums = self.sums.chunks_exact(best.parts);
            for (valid, sums) in self.valid[begin..].iter_mut().zip(sums).take(rows) {
                *valid = sums.iter().all(|sum| sum.is_finite());
            }
            // Large logits and minus infinity are valid too, but have no finite sums.
            if self.valid[begin..begin + rows].contains(&false) {
                fetch(&mut self.all, 0, rows * self.vocabulary, graph.logits, read)?;
                let all = self.all.chunks_exact(self.vocabulary);
                for (valid, logits) in self.valid[begin..].iter_mut().zip(all).take(rows) {
                    *valid = can_choose(logits);
                }
            }
        }
        // Without selected rows, each token of the batch has a row.
        if graph.inputs.output_rows.is_none() {
            for (to, &from) in outputs.iter().enumerate().filter(|(to, from)| to != *from) {
                self.copy(begin + from, begin + to);
            }
        }
        self.count += outputs.len();
        Ok(())
    }

    fn copy(&mut self, from: usize, to: usize) {
        let range = from * self.width..(from + 1) * self.width;
        self.values.copy_within(range.clone(), to * self.width);
        if let Want::Best(_) = self.want {
            self.tokens.copy_within(range, to * self.width);
            self.valid[to] = self.valid[from];
        }
    }
}

/// Extends `all` to at least `count` elements.
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
    read: ReadOutput<'_>,
) -> Result<()> {
    grow(all, begin + count);
    read(id, bytemuck::cast_slice_mut(&mut all[begin..begin + count]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a logit that can be chosen there is no best token: token 0 would hide that a device computes only
    /// NaN.
    #[test]
    fn nan_is_no_token() {
        let best = |logits, valid| Row::Best(Best { tokens: &[7], logits, valid }).greedy().ok();
        assert_eq!(greedy(&[f32::NAN, 1.0, f32::NAN]).unwrap(), 1);
        for logits in [&[f32::NAN; 3][..], &[f32::NEG_INFINITY; 2], &[]] {
            assert_eq!((Row::Logits(logits).greedy().ok(), best(logits, false)), (None, None));
        }
        assert_eq!((best(&[1.0], true), best(&[1.0], false)), (Some(7), Some(7)));
        assert!(greedy(&[f32::NAN]).unwrap_err().to_string().contains("all are NaN"));
    }
}
