//! CACHE_MASK: the mask of the cache rows that each token of a batch sees.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Mask for [`FlashAttnExt`](super::FlashAttnExt), computed from the contents of the cells (rows) of a cache.
///
/// * `cells`: I32 `[kv, 2]`, contiguous: the sequence of each cell, then its position in the sequence
/// * `tokens`: I32 `[tokens, 2]`, contiguous: the same for the tokens
///
/// A negative sequence or position means none: the cell is free, or the token sees nothing.
///
/// Result: F16 `[kv, tokens]`: 0 if the cell and the token have the same sequence and the token sees the
/// cell's position, minus infinity otherwise. ggml has no such operation; there the host computes the mask.
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
            rule(t.ne[1..] == [2, 1, 1] && t.is_contiguous(), || {
                format!("{role} must be [n, 2], contiguous: sequences and positions")
            })?;
        }
        rule(self.window != Some(0), || "a window must have a position".into())?;
        rule(self.window.is_some() || !self.chunked, || "chunks must have a size: the window".into())?;
        Ok(Output::new(DType::F16, [src[0].ne[0], src[1].ne[0], 1, 1]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let place = |of: &Operand<'_>, i: usize| {
            let (sequence, position) = (of.at([i, 0, 0, 0]), of.at([i, 1, 0, 0]));
            (sequence >= 0.0 && position >= 0.0).then_some((sequence, position as usize))
        };
        let [kv, tokens, ..] = out.ne;
        for t in 0..tokens {
            let token = place(&src[1], t).map(|(sequence, position)| (sequence, self.seen(position)));
            for c in 0..kv {
                let sees = match (&token, place(&src[0], c)) {
                    (Some((own, seen)), Some((sequence, position))) => {
                        *own == sequence && seen.contains(&position)
                    }
                    _ => false,
                };
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
        let refused = |op: CacheMask, dtype, ne| {
            let mut g = Graph::new();
            let good = g.leaf("good", DType::I32, [16, 2, 1, 1], Source::Input).unwrap();
            let other = g.leaf("other", dtype, ne, Source::Input).unwrap();
            let both = [g.cache_mask(op, good, other), g.cache_mask(op, other, good)];
            both.iter().filter(|made| made.is_err()).count()
        };
        assert_eq!(refused(all, DType::I32, [9, 2, 1, 1]), 0);
        for (dtype, ne) in [
            (DType::F32, [9, 2, 1, 1]),
            (DType::I32, [9, 1, 1, 1]),
            (DType::I32, [9, 3, 1, 1]),
            (DType::I32, [9, 2, 2, 1]),
        ] {
            assert_eq!(refused(all, dtype, ne), 2, "{dtype} {ne:?}");
        }
        for op in [CacheMask { window: Some(0), ..all }, CacheMask { chunked: true, ..all }] {
            assert_eq!(refused(op, DType::I32, [9, 2, 1, 1]), 2, "{op:?}");
        }
    }
}
