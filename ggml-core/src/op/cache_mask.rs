//! CACHE_MASK: the mask of the cache rows that each token of a batch sees.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Mask for [`FlashAttnExt`](super::FlashAttnExt), computed from the contents of the cells (rows) of a cache.
///
/// * `cells`: I32 `[kv, 1 + words]`, contiguous: the position that each cell holds, then the sequences that hold it,
///   a bit for each: sequence `s` is bit `s % 32` of word `s / 32`. Sequences with a common prefix share its cells.
/// * `tokens`: I32 `[tokens, 2]`, contiguous: the sequence of each token, then its position
///
/// A negative position means that the cell is free. A token sees nothing if its sequence or position is negative, or
/// its sequence has no bit.
///
/// Result: F16 `[kv, tokens]`: 0 if the token's sequence holds the cell and the token sees the cell's position,
/// minus infinity otherwise. ggml has no such operation; there the host computes the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMask {
    /// True if positions after the token's own are hidden.
    pub causal: bool,
    /// Maximum number of positions that a token sees: its own and those before it, or those of its chunk.
    /// `None`: no limit.
    #[serde(default)]
    pub window: Option<usize>,
    /// True if the window is the token's chunk: positions are divided into chunks of the window's size, the
    /// first from 0 on. Otherwise a window hides no later position.
    #[serde(default)]
    pub chunked: bool,
}

impl CacheMask {
    /// Returns the number of words that hold a bit for each of some sequences.
    pub fn words(sequences: usize) -> usize {
        sequences.div_ceil(32)
    }

    /// Returns the word of a sequence and its bit there.
    pub fn place(sequence: usize) -> [usize; 2] {
        [sequence / 32, sequence % 32]
    }

    /// Returns the positions that a token at `position` sees.
    fn seen(&self, position: usize) -> Range<usize> {
        let end = if self.causal { position + 1 } else { usize::MAX };
        match self.window {
            None => 0..end,
            Some(size) if self.chunked => {
                let chunk = position / size;
                chunk * size..end.min((chunk + 1).saturating_mul(size))
            }
            Some(size) => (position + 1).saturating_sub(size)..end,
        }
    }
}

impl Operation for CacheMask {
    fn name(&self) -> &'static str {
        "CACHE_MASK"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 2, 2)?;
        for (t, role) in src.iter().zip(["cells", "tokens"]) {
            typed(t, &[DType::I32], role)?;
        }
        rule(src[0].ne[1] > 1 && src[0].ne[2..] == [1, 1] && src[0].is_contiguous(), || {
            "cells must be [n, 1 + words], contiguous: positions, and words of sequences".into()
        })?;
        rule(src[1].ne[1..] == [2, 1, 1] && src[1].is_contiguous(), || {
            "tokens must be [n, 2], contiguous: sequences and positions".into()
        })?;
        rule(self.window != Some(0), || "a window must have a position".into())?;
        rule(self.window.is_some() || !self.chunked, || "chunks must have a size: the window".into())?;
        Ok(Output::new(DType::F16, [src[0].ne[0], src[1].ne[0], 1, 1]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let ([kv, tokens, ..], words) = (out.ne, src[0].ne[1] - 1);
        let holds = |cell: usize, sequence: usize| {
            let [word, bit] = CacheMask::place(sequence);
            // Operands are read as F64, which represents each I32.
            word < words && (src[0].at([cell, 1 + word, 0, 0]) as i32) >> bit & 1 == 1
        };
        for t in 0..tokens {
            let [sequence, position] = [0, 1].map(|field| src[1].at([t, field, 0, 0]));
            let token = (sequence >= 0.0 && position >= 0.0)
                .then(|| (sequence as usize, self.seen(position as usize)));
            for c in 0..kv {
                let at = src[0].at([c, 0, 0, 0]);
                let sees = token.as_ref().is_some_and(|(sequence, seen)| {
                    at >= 0.0 && seen.contains(&(at as usize)) && holds(c, *sequence)
                });
                out.set([c, t, 0, 0], if sees { 0.0 } else { f64::NEG_INFINITY });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::tensor::Source;

    #[test]
    fn other_operands_are_refused() {
        let all = CacheMask { causal: true, window: None, chunked: false };
        // As cells, then as tokens.
        let refused = |op: CacheMask, dtype, ne| {
            let mut g = Graph::new();
            let good = g.leaf("good", DType::I32, [16, 2, 1, 1], Source::Input).unwrap();
            let other = g.leaf("other", dtype, ne, Source::Input).unwrap();
            [g.cache_mask(op, other, good), g.cache_mask(op, good, other)].map(|made| made.is_err())
        };
        assert_eq!(refused(all, DType::I32, [9, 2, 1, 1]), [false, false]);
        assert_eq!(refused(all, DType::I32, [9, 3, 1, 1]), [false, true]);
        for (dtype, ne) in
            [(DType::F32, [9, 2, 1, 1]), (DType::I32, [9, 1, 1, 1]), (DType::I32, [9, 2, 2, 1])]
        {
            assert_eq!(refused(all, dtype, ne), [true, true], "{dtype} {ne:?}");
        }
        for op in [CacheMask { window: Some(0), ..all }, CacheMask { chunked: true, ..all }] {
            assert_eq!(refused(op, DType::I32, [9, 2, 1, 1]), [true, true], "{op:?}");
        }
    }
}
