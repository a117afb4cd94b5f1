//! FLASH_ATTN_EXT: attention without the matrix of scores in memory.
//!
//! Source of the method: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et
//! al., "FlashAttention" (2022).

use super::soft_max::{alibi_slope, soft_max};
use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{NoMemory, Operand, OperandMut, Rounding, list};
use crate::metrics::Bound;
use crate::precision::Precision;
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Types of a cache of keys and values.
pub const CACHE_TYPES: &[DType] = &[DType::F32, DType::F16, DType::Q8_0, DType::Q4_0];

/// Attention.
///
/// * `q`: F32 `[d, n_tokens, n_head, batch]`
/// * `k`: F32, F16, Q8_0 or Q4_0 `[d, n_kv, n_head_kv, batch]`, `n_head_kv` divides `n_head`
/// * `v`: type of `k`, `[dv, n_kv, n_head_kv, batch]`
/// * `mask` (may be absent): F16 or F32 `[n_kv, >= n_tokens, m2, m3]`, `m2` divides `n_head`, `m3` divides
///   `batch`
/// * `sinks` (may be absent, needs a mask): F32 `[n_head]`, contiguous: an additional score in every row of a
///   head. Its weight is part of the soft-max but multiplies no value (Xiao et al., "Efficient streaming
///   language models with attention sinks", 2023)
///
/// Result: F32 `[dv, n_head, n_tokens, batch]`, for each head
/// `soft_max(cap(scale * q k^T) + slope * mask) v`, where `cap(x) = logit_softcap * tanh(x / logit_softcap)`
/// if `logit_softcap` is not 0. Sinks are neither scaled nor capped. A row whose scores are all minus
/// infinity gives zeros.
///
/// A position whose mask is minus infinity is hidden from a row: its elements of `k` and `v` are not read,
/// whatever they are. Cells of other sequences are hidden in this manner, so a cell that overflowed its type
/// to infinity does not affect other sequences. A NaN in the mask, in a sink, in `q`, or in `k` of a position
/// that a row sees makes the whole row NaN; a NaN in `v` makes its element NaN.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlashAttnExt {
    /// Factor of the scores, usually `1 / sqrt(d)`.
    #[serde(with = "super::lossless")]
    pub scale: f32,
    /// Maximum bias of ALiBi; 0 disables it.
    #[serde(with = "super::lossless")]
    pub max_bias: f32,
    /// Soft cap of the scores; 0 disables it.
    #[serde(with = "super::lossless")]
    pub logit_softcap: f32,
}

/// Returns all rows of a head of k or v, one after the other.
fn rows_of_head(x: &Operand<'_>, head: usize, batch: usize) -> Result<Vec<f64>, NoMemory> {
    let mut rows = Vec::new();
    for j in 0..x.ne[1] {
        let row = x.row([j, head, batch])?;
        rows.try_reserve(row.len()).map_err(|_| NoMemory { asked: size_of_val(&row[..]) })?;
        rows.extend(row);
    }
    Ok(rows)
}

impl Operation for FlashAttnExt {
    fn name(&self) -> &'static str {
        "FLASH_ATTN_EXT"
    }

    /// In [`Precision::Fast`] queries and the weights of the soft-max may be rounded to F16: a relative error of about
    /// 3e-4 on average. A row of few positions has that of a single weight, which is twice as large, as in a product
    /// of weights of F16.
    fn bound(&self, _operand: DType, precision: Precision) -> Bound {
        match precision {
            Precision::Exact => Bound::F32,
            Precision::Fast => Bound { row: 5e-7, ..Bound::FAST },
        }
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 3, 5)?;
        let (q, k, v) = (src[0], src[1], src[2]);
        typed(q, &[DType::F32], "q")?;
        typed(k, CACHE_TYPES, "k")?;
        typed(v, &[k.dtype], "v")?;
        rule(k.ne[0] == q.ne[0], || "k and q must have rows of the same length".into())?;
        rule(k.ne[1] == v.ne[1], || "k and v must have as many positions".into())?;
        rule(k.ne[2] == v.ne[2] && k.ne[2] > 0, || "k and v must have as many heads".into())?;
        rule(q.ne[2] % k.ne[2].max(1) == 0, || "the heads of k must divide those of q".into())?;
        rule(k.ne[3] == q.ne[3] && v.ne[3] == q.ne[3], || "q, k and v must have the same batch".into())?;
        rule([q, k, v].iter().all(|t| t.rows_contiguous()), || "rows must be contiguous".into())?;
        if let Some(mask) = src.get(3) {
            typed(mask, &[DType::F32, DType::F16], "mask")?;
            rule(mask.ne[0] == k.ne[1], || "mask needs a column for each position of k".into())?;
            rule(mask.ne[1] >= q.ne[1], || "mask needs a row for each token".into())?;
            rule(mask.ne[2] > 0 && q.ne[2] % mask.ne[2] == 0, || {
                "mask's third extent must divide the heads".into()
            })?;
            rule(mask.ne[3] > 0 && q.ne[3] % mask.ne[3] == 0, || {
                "mask's batch must divide that of q".into()
            })?;
            rule(mask.rows_contiguous(), || "mask rows must be contiguous".into())?;
        } else {
            rule(self.max_bias == 0.0, || "max_bias needs a mask".into())?;
        }
        rule(self.max_bias >= 0.0 && self.max_bias.is_finite(), || {
            format!("max_bias is {}, not a number from 0 on", self.max_bias)
        })?;
        if let Some(sinks) = src.get(4) {
            typed(sinks, &[DType::F32], "sinks")?;
            let right = sinks.ne == [q.ne[2], 1, 1, 1] && sinks.is_contiguous();
            rule(right, || "sinks must be one number for each head, contiguous".into())?;
        }
        Ok(Output::new(DType::F32, [v.ne[0], q.ne[2], q.ne[1], q.ne[3]]))
    }

    fn rounds(&self, _operand: DType, precision: Precision) -> &'static [(usize, Rounding)] {
        match precision {
            Precision::Exact => &[],
            // Matrix units take queries and the weights of the values in F16. Errors of weights and of the values
            // that they multiply have the same effect.
            Precision::Fast => &[(0, Rounding::F16), (2, Rounding::F16)],
        }
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (q, k, v, mask) = (&src[0], &src[1], &src[2], src.get(3));
        let ([d, n_tokens, n_head, batch], dv) = (q.ne, v.ne[0]);
        let per_kv = n_head / k.ne[2];
        let cap = f64::from(self.logit_softcap);
        for b in 0..batch {
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for h in 0..n_head {
                let slope = alibi_slope(self.max_bias, h, n_head);
                if h % per_kv == 0 {
                    (keys, values) = (rows_of_head(k, h / per_kv, b)?, rows_of_head(v, h / per_kv, b)?);
                }
                for t in 0..n_tokens {
                    let query = q.row([t, h, b])?;
                    let bias = mask.map(|m| m.row([t, h % m.ne[2], b % m.ne[3]])).transpose()?;
                    let bias = |j: usize| bias.as_ref().map_or(0.0, |bias| bias[j]);
                    let seen = list((0..k.ne[1]).filter(|&j| bias(j) != f64::NEG_INFINITY))?;
                    let scores = seen.iter().map(|&j| {
                        let dot: f64 = query.iter().zip(&keys[j * d..]).map(|(a, b)| a * b).sum();
                        let mut s = dot * f64::from(self.scale);
                        if cap != 0.0 {
                            s = cap * (s / cap).tanh();
                        }
                        s + slope * bias(j)
                    });
                    let sink = src.get(4).map(|sinks| sinks.at([h, 0, 0, 0]));
                    // The sink's weight is added last and multiplies no value.
                    let weights = soft_max(list(scores.chain(sink))?);
                    let nan = weights.iter().any(|w| w.is_nan());
                    let mut sums = list(std::iter::repeat_n(0.0, dv))?;
                    for (w, &j) in weights.iter().zip(&seen) {
                        sums.iter_mut().zip(&values[j * dv..]).for_each(|(sum, v)| *sum += w * v);
                    }
                    for (i, &sum) in sums.iter().enumerate() {
                        out.set([i, h, t, b], if nan { f64::NAN } else { sum });
                    }
                }
            }
        }
        Ok(())
    }
}
