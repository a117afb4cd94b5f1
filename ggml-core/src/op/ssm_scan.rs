//! SSM_SCAN: the selective state space of Mamba-2.
//!
//! Source: Dao and Gu, "Transformers are SSMs: generalized models and efficient algorithms through structured
//! state space duality" (2024). As in ggml, the softplus of the steps is part of the operation, and the new
//! state follows the result. Unlike in ggml, sequences of a batch may have different lengths, and the decay
//! of a head is one value, not one for each element of the state (Mamba-1).

use super::ssm_conv::Tokens;
use super::unary::Activation;
use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Maximum number of state elements of a channel.
pub const MAX_STATE: usize = 256;

/// State space recurrence. For each head `h`, with the group `h / (heads / groups)`, and each token of a
/// sequence in order:
///
/// ```text
/// step  = ln(1 + exp(dt)) S     = exp(step a) S + b (step x)^T out   = S^T c
/// ```
///
/// * `x`: F32 `[d, heads, tokens]`, rows contiguous
/// * `dt`: F32 `[heads, tokens]`, contiguous
/// * `a`: F32 `[1, heads]`, contiguous, at most 0
/// * `b`, `c`: F32 `[n, groups, tokens]`, rows contiguous, `n` at most [`MAX_STATE`], `groups` divides
///   `heads`
/// * `state`: F32 `[n, d, heads, slots]`, contiguous
/// * `runs`: I32 `[3, slots]` or `[4, slots]`: see [`Tokens`]
///
/// Result: F32 `[d * heads, tokens + n * slots]`: a row for each token (zeros for tokens of no run), then the
/// new state, slot by slot, each with the layout of `state`: the one after [`Tokens::kept`] tokens. A run that begins at position 0 starts with a
/// state of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SsmScan {}

impl Operation for SsmScan {
    fn name(&self) -> &'static str {
        "SSM_SCAN"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 7, 7)?;
        let (x, dt, a, b, c, state) = (src[0], src[1], src[2], src[3], src[4], src[5]);
        for (t, role) in [(x, "x"), (dt, "dt"), (a, "a"), (b, "b"), (c, "c"), (state, "state")] {
            typed(t, &[DType::F32], role)?;
        }
        let slots = Tokens::slots(src[6])?;
        let ([d, heads, tokens, _], [n, groups, ..]) = (x.ne, b.ne);
        rule(x.ne[3] == 1, || "x must be [d, heads, tokens]".into())?;
        rule(b.ne == [n, groups, tokens, 1] && c.ne == b.ne, || {
            "b and c must be [n, groups, tokens]".into()
        })?;
        rule(n <= MAX_STATE, || format!("channels have a state of {n}, at most {MAX_STATE} are possible"))?;
        rule(groups > 0 && heads % groups == 0, || "the groups must divide the heads".into())?;
        rule([x, b, c].iter().all(|t| t.rows_contiguous()), || "rows must be contiguous".into())?;
        rule(dt.ne == [heads, tokens, 1, 1] && dt.is_contiguous(), || {
            "dt must be [heads, tokens], contiguous".into()
        })?;
        rule(a.ne == [1, heads, 1, 1] && a.is_contiguous(), || "a must be [1, heads], contiguous".into())?;
        rule(state.ne == [n, d, heads, slots] && state.is_contiguous(), || {
            "state must be [n, d, heads, slots], contiguous".into()
        })?;
        Ok(Output::new(DType::F32, [d * heads, tokens + n * slots, 1, 1]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (x, dt, a, b, c, state) = (&src[0], &src[1], &src[2], &src[3], &src[4], &src[5]);
        let ([d, heads, tokens, _], [n, groups, ..]) = (x.ne, b.ne);
        let width = d * heads;
        for t in 0..tokens {
            (0..width).for_each(|i| out.set([i, t, 0, 0], 0.0));
        }
        for slot in 0..state.ne[3] {
            let run = Tokens::read(&src[6], slot, tokens);
            let keep = run.count == 0 || run.position > 0;
            for h in 0..heads {
                let group = h / (heads / groups);
                for j in 0..d {
                    let mut s = state.row([j, h, slot])?;
                    if !keep {
                        s.fill(0.0);
                    }
                    let mut kept = s.clone();
                    for t in run.first..run.first + run.count {
                        let (to, from) = (b.row([group, t, 0])?, c.row([group, t, 0])?);
                        let step = Activation::Softplus.apply(dt.at([h, t, 0, 0]));
                        let decay = (step * a.at([0, h, 0, 0])).exp();
                        let input = step * x.at([j, h, t, 0]);
                        s.iter_mut().zip(&to).for_each(|(s, b)| *s = *s * decay + b * input);
                        let sum: f64 = s.iter().zip(&from).map(|(s, c)| s * c).sum();
                        out.set([h * d + j, t, 0, 0], sum);
                        if t + 1 == run.first + run.kept {
                            kept.clone_from(&s);
                        }
                    }
                    for (i, value) in kept.into_iter().enumerate() {
                        let at = i + n * (j + d * h);
                        out.set([at % width, tokens + n * slot + at / width, 0, 0], value);
                    }
                }
            }
        }
        Ok(())
    }
}
