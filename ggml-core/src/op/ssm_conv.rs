//! SSM_CONV: the short causal convolution in front of a recurrent layer, with its state.
//!
//! Source of the method: Gu and Dao, "Mamba: linear-time sequence modeling with selective state spaces"
//! (2023). Unlike in ggml, the operation reads earlier inputs from the state itself and appends the new state
//! to the result. This needs no concatenation and no transposed copy, and sequences of a batch may have
//! different lengths.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Convolution along the tokens of each sequence, channel by channel.
///
/// * `x`: F32 `[channels, tokens]`, rows contiguous
/// * `w`: F32 `[taps, channels]`, contiguous, at least two taps; the last tap applies to the token itself
/// * `state`: F32 `[channels, taps - 1, slots]`, contiguous: the last inputs of each sequence, the newest
///   last
/// * `runs`: I32 `[3, slots]` or `[4, slots]`, contiguous: see [`Tokens`]
///
/// Result: F32 `[channels, tokens + (taps - 1) * slots]`: a row for each token (zeros for tokens of no run),
/// then the new state, slot by slot: the one after the run, or after its first tokens ([`Tokens::kept`]). Inputs before the first position of a sequence are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SsmConv {}

/// Tokens of a slot (a sequence) in a batch: a column of the operand `runs`. They are consecutive, and a
/// token belongs to at most one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Index of the first token in the batch.
    pub first: usize,
    /// Number of tokens; 0 if the batch has none of this slot: its state is then unchanged.
    pub count: usize,
    /// Position of the first token in its sequence; at 0 the state is treated as zeros.
    pub position: usize,
    /// Number of first tokens after which the state is stored. The others are drafts: they have results, but if they
    /// are rejected, the state does not have to be taken back. All tokens, unless the operand has four rows.
    pub kept: usize,
}

impl Tokens {
    /// Rows of the operand if drafts are possible: first token, number of tokens, position, kept tokens.
    pub const WITH_KEPT: usize = 4;

    /// Returns the run of a slot, limited to the tokens of the batch.
    pub(super) fn read(runs: &Operand<'_>, slot: usize, tokens: usize) -> Tokens {
        let field = |i| runs.at([i, slot, 0, 0]).max(0.0) as usize;
        let first = field(0).min(tokens);
        let count = field(1).min(tokens - first);
        let kept = if runs.ne[0] == Tokens::WITH_KEPT { field(3).min(count) } else { count };
        Tokens { first, count, position: field(2), kept }
    }

    /// Checks the operand's extents and returns the number of slots.
    pub(super) fn slots(runs: &Shape) -> Result<usize, String> {
        typed(runs, &[DType::I32], "runs")?;
        let rows = [3, Tokens::WITH_KEPT].contains(&runs.ne[0]);
        let right = rows && runs.ne[2] == 1 && runs.ne[3] == 1 && runs.is_contiguous();
        rule(right, || "runs must be [3, slots] or [4, slots], contiguous".into())?;
        Ok(runs.ne[1])
    }
}

impl Operation for SsmConv {
    fn name(&self) -> &'static str {
        "SSM_CONV"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 4, 4)?;
        let (x, w, state) = (src[0], src[1], src[2]);
        for (t, role) in [(x, "x"), (w, "w"), (state, "state")] {
            typed(t, &[DType::F32], role)?;
        }
        let slots = Tokens::slots(src[3])?;
        let ([channels, tokens, ..], taps) = (x.ne, w.ne[0]);
        rule(x.ne[2] == 1 && x.ne[3] == 1 && x.rows_contiguous(), || "x must be [channels, tokens]".into())?;
        rule(taps >= 2 && w.ne == [taps, channels, 1, 1] && w.is_contiguous(), || {
            "w must be [taps, channels], contiguous, with two taps or more".into()
        })?;
        rule(state.ne == [channels, taps - 1, slots, 1] && state.is_contiguous(), || {
            "state must be [channels, taps - 1, slots], contiguous".into()
        })?;
        Ok(Output::new(DType::F32, [channels, tokens + (taps - 1) * slots, 1, 1]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (x, w, state) = (&src[0], &src[1], &src[2]);
        let ([channels, tokens, ..], taps, slots) = (x.ne, w.ne[0], state.ne[2]);
        for t in 0..tokens {
            (0..channels).for_each(|c| out.set([c, t, 0, 0], 0.0));
        }
        for slot in 0..slots {
            let run = Tokens::read(&src[3], slot, tokens);
            // Input of channel `c` at token `j` of the run; negative tokens are in the state.
            let input = |c: usize, j: isize| {
                if j >= 0 {
                    x.at([c, run.first + j as usize, 0, 0])
                } else if run.position as isize + j < 0 && run.count > 0 {
                    0.0
                } else {
                    state.at([c, (taps as isize - 1 + j) as usize, slot, 0])
                }
            };
            for c in 0..channels {
                for j in 0..run.count as isize {
                    let tap = |i: usize| w.at([i, c, 0, 0]) * input(c, j + 1 + i as isize - taps as isize);
                    out.set([c, run.first + j as usize, 0, 0], (0..taps).map(tap).sum());
                }
                for i in 0..taps - 1 {
                    let newest = input(c, run.kept as isize + 1 + i as isize - taps as isize);
                    out.set([c, tokens + (taps - 1) * slot + i, 0, 0], newest);
                }
            }
        }
        Ok(())
    }
}
