//! GATED_DELTA_NET: linear attention with a gated state that is updated by the delta rule.
//!
//! Source: Yang, Kautz and Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule" (2024). As
//! in ggml, the new state follows the result. Unlike in ggml, sequences of a batch may have different
//! lengths, and the state of a head is `[key, value]` with the key's elements next to each other.

use super::ssm_conv::Tokens;
use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Maximum length of a key.
pub const MAX_KEY: usize = 256;

/// Gated delta rule. For each value head `h`, with the key head `h mod heads_k`, and each token of a sequence
/// in order:
///
/// ```text
/// S     = exp(g) S S    += k (beta (v - S^T k))^T out   = scale S^T q
/// ```
///
/// * `q`, `k`: F32 `[d_k, heads_k, tokens]`, rows contiguous, `d_k` at most [`MAX_KEY`]
/// * `v`: F32 `[d_v, heads_v, tokens]`, rows contiguous, `heads_k` divides `heads_v`
/// * `g`, `beta`: F32 `[heads_v, tokens]`, contiguous; `g` is at most 0
/// * `state`: F32 `[d_k, d_v, heads_v, slots]`, contiguous
/// * `runs`: I32 `[3, slots]` or `[4, slots]`: see [`Tokens`]
///
/// Result: F32 `[d_v * heads_v, tokens + d_k * slots]`: a row for each token (zeros for tokens of no run),
/// then the new state, slot by slot, each with the layout of `state`: the one after [`Tokens::kept`] tokens. A run that begins at position 0 starts
/// with a state of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatedDeltaNet {
    /// Factor of the result, usually `1 / sqrt(d_k)`.
    #[serde(with = "super::lossless")]
    pub scale: f32,
}

impl Operation for GatedDeltaNet {
    fn name(&self) -> &'static str {
        "GATED_DELTA_NET"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 7, 7)?;
        let (q, k, v, g, beta, state) = (src[0], src[1], src[2], src[3], src[4], src[5]);
        for (t, role) in [(q, "q"), (k, "k"), (v, "v"), (g, "g"), (beta, "beta"), (state, "state")] {
            typed(t, &[DType::F32], role)?;
        }
        let slots = Tokens::slots(src[6])?;
        let ([d_k, heads_k, tokens, _], [d_v, heads_v, ..]) = (q.ne, v.ne);
        rule(q.ne == k.ne && q.ne[3] == 1, || "q and k must be [d_k, heads_k, tokens]".into())?;
        rule(v.ne[2] == tokens && v.ne[3] == 1, || "v must be [d_v, heads_v, tokens]".into())?;
        rule(d_k <= MAX_KEY, || format!("keys have {d_k} elements, at most {MAX_KEY} are possible"))?;
        rule(heads_k > 0 && heads_v % heads_k == 0, || "the heads of k must divide those of v".into())?;
        rule([q, k, v].iter().all(|t| t.rows_contiguous()), || "rows must be contiguous".into())?;
        for t in [g, beta] {
            let right = t.ne == [heads_v, tokens, 1, 1] && t.is_contiguous();
            rule(right, || "g and beta must be [heads_v, tokens], contiguous".into())?;
        }
        rule(state.ne == [d_k, d_v, heads_v, slots] && state.is_contiguous(), || {
            "state must be [d_k, d_v, heads_v, slots], contiguous".into()
        })?;
        Ok(Output::new(DType::F32, [d_v * heads_v, tokens + d_k * slots, 1, 1]))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (q, k, v, g, beta, state) = (&src[0], &src[1], &src[2], &src[3], &src[4], &src[5]);
        let ([d_k, heads_k, tokens, _], [d_v, heads_v, ..]) = (q.ne, v.ne);
        for t in 0..tokens {
            (0..d_v * heads_v).for_each(|i| out.set([i, t, 0, 0], 0.0));
        }
        for slot in 0..state.ne[3] {
            let run = Tokens::read(&src[6], slot, tokens);
            let keep = run.count == 0 || run.position > 0;
            for h in 0..heads_v {
                for j in 0..d_v {
                    let mut s = state.row([j, h, slot])?;
                    if !keep {
                        s.fill(0.0);
                    }
                    let mut kept = s.clone();
                    for t in run.first..run.first + run.count {
                        let (key, query) = (k.row([h % heads_k, t, 0])?, q.row([h % heads_k, t, 0])?);
                        let decay = g.at([h, t, 0, 0]).exp();
                        s.iter_mut().for_each(|x| *x *= decay);
                        let known: f64 = s.iter().zip(&key).map(|(x, k)| x * k).sum();
                        let delta = beta.at([h, t, 0, 0]) * (v.at([j, h, t, 0]) - known);
                        s.iter_mut().zip(&key).for_each(|(x, k)| *x += k * delta);
                        let sum: f64 = s.iter().zip(&query).map(|(x, q)| x * q).sum();
                        out.set([h * d_v + j, t, 0, 0], sum * f64::from(self.scale));
                        if t + 1 == run.first + run.kept {
                            kept.clone_from(&s);
                        }
                    }
                    for (i, x) in kept.into_iter().enumerate() {
                        let at = i + d_k * (j + d_v * h);
                        out.set([at % (d_v * heads_v), tokens + d_k * slot + at / (d_v * heads_v), 0, 0], x);
                    }
                }
            }
        }
        Ok(())
    }
}
