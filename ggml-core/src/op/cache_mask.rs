//! CACHE_MASK: which rows of a cache the tokens of a batch see.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A mask for [`FlashAttnExt`](super::FlashAttnExt), made from what the rows of a cache hold: its cells.
///
/// * `cells`: I32 `[kv, 2]`, contiguous: the sequence that each cell belongs to, then its position there
/// * `tokens`: I32 `[tokens, 2]`, contiguous: the same of the tokens
///
/// A sequence or a position below 0 is none: such a cell is free, and such a token sees nothing.
///
/// Result: F16 `[kv, tokens]`: 0 where the cell's sequence is the token's and its position is one that the token sees,
/// minus infinity elsewhere. ggml has no such operation: the mask is made by the host there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMask {
    /// Whether positions behind the token's own are hidden from it.
    pub causal: bool,
    /// Positions that a token sees at the most: its own and those before it, or those of its chunk; all where there is no
    /// such number.
    #[serde(default)]
    pub window: Option<usize>,
    /// Whether the window is the token's chunk: positions are divided into chunks of the window's size, the first from 0
    /// on. Else a window hides no later position.
    #[serde(default)]
    pub chunked: bool,
}

impl CacheMask {
    /// The positions that a token at `position` sees.
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

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
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

/// Sequences, then positions: `n` cells of some sequences that lie between each other, with free ones.
fn cells(n: usize, sequences: usize) -> Fill {
    let mut lengths = vec![0; sequences];
    let (mut of, mut at) = (Vec::new(), Vec::new());
    for i in 0..n {
        let sequence = i / 5 % sequences;
        let free = i % 11 == 7;
        of.push(if free { -1.0 } else { sequence as f32 });
        at.push(if free { 0.0 } else { lengths[sequence] as f32 });
        lengths[sequence] += usize::from(!free);
    }
    Fill::Values([of, at].concat())
}

/// Sequences, then positions: `n` tokens of some sequences, from the beginnings of these to behind their ends, and such
/// that see nothing.
fn tokens(n: usize, sequences: usize, positions: usize) -> Fill {
    let of = (0..n).map(|i| if i % 6 == 4 { -1.0 } else { (i % sequences) as f32 });
    let at = (0..n).map(|i| (i * positions / n + i % 3) as f32);
    Fill::Values(of.chain(at).collect())
}

/// Test cases: one cell, rows of whole words and others, one sequence and several, all kinds of windows, positions at the
/// ends of their range and below it, operands within others.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, op: CacheMask, [kv, n]: [usize; 2], fills: [Fill; 2]| {
        let (causal, chunks) =
            (if op.causal { ", causal" } else { "" }, if op.chunked { " in chunks" } else { "" });
        let window = op.window.map_or(String::new(), |size| format!(", window={size}{chunks}"));
        cases.push(Case::new(format!("CACHE_MASK({name}kv={kv}, tokens={n}{causal}{window})"), |g, c| {
            let [cells, tokens] = fills;
            let cells = c.leaf(g, "cells", DType::I32, [kv, 2, 1, 1], cells)?;
            let tokens = c.leaf(g, "tokens", DType::I32, [n, 2, 1, 1], tokens)?;
            g.cache_mask(op, cells, tokens)
        }));
    };
    for (kv, n, sequences) in [(1, 1, 1), (8, 3, 1), (37, 5, 2), (256, 33, 3), (1032, 9, 1), (2050, 4, 4)] {
        for causal in [true, false] {
            for (window, chunked) in [(None, false), (Some(7), false), (Some(16), true)] {
                let op = CacheMask { causal, window, chunked };
                add(String::new(), op, [kv, n], [cells(kv, sequences), tokens(n, sequences, kv / sequences)]);
            }
        }
    }
    // Those that F32 has of the largest I32, and nothing.
    let largest = 2_147_483_520.0;
    let places = vec![
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
        -1.0,
        -3.0,
        3.0,
        largest,
        largest - 128.0,
        0.0,
        1.0,
        -1.0,
        -1.0,
        -3.0,
        1.0,
    ];
    for causal in [true, false] {
        let windows = [None, Some(1), Some(129), Some(1 << 31), Some(usize::MAX)];
        let windows = windows.into_iter().map(|window| (window, false));
        let chunks = [1, 128, 3_000_000_000].map(|size| (Some(size), true));
        for (window, chunked) in windows.chain(chunks) {
            let fills = [(); 2].map(|()| Fill::Values(places.clone()));
            add("largest positions, ".into(), CacheMask { causal, window, chunked }, [8, 8], fills);
        }
    }
    let op = CacheMask { causal: true, window: None, chunked: false };
    cases.push(Case::new("CACHE_MASK(window)", |g, c| {
        let all = c.leaf(g, "cells", DType::I32, [100, 1, 1, 1], cells(50, 2))?;
        let cells = g.view(all, [48, 2, 1, 1], [4, 192, 384, 384], 12)?;
        let all = c.leaf(g, "tokens", DType::I32, [40, 1, 1, 1], tokens(20, 2, 30))?;
        let tokens = g.view(all, [19, 2, 1, 1], [4, 76, 152, 152], 4)?;
        g.cache_mask(op, cells, tokens)
    }));
    cases
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
