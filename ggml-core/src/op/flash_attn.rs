//! FLASH_ATTN_EXT: attention without the matrix of scores in memory.
//!
//! Source of the method: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al.,
//! "FlashAttention" (2022).

use super::soft_max::{alibi_slope, soft_max};
use super::{Computed, Operation, Output, operands, rule, typed};
use crate::catalogue::{Case, Fill};
use crate::dtype::DType;
use crate::reference::{Operand, OperandMut, list};
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Types that a cache of keys and values may have.
pub const CACHE_TYPES: &[DType] = &[DType::F32, DType::F16, DType::Q8_0, DType::Q4_0];

/// Attention.
///
/// * `q`: F32 `[d, n_tokens, n_head, batch]`
/// * `k`: F32, F16, Q8_0 or Q4_0 `[d, n_kv, n_head_kv, batch]`, `n_head_kv` divides `n_head`
/// * `v`: type of `k`, `[dv, n_kv, n_head_kv, batch]`
/// * `mask` (may be absent): F16 or F32 `[n_kv, >= n_tokens, m2, m3]`, `m2` divides `n_head`, `m3` divides `batch`
/// * `sinks` (may be absent, needs a mask): F32 `[n_head]`, contiguous: a score that every row of a head has besides those of
///   its positions, and whose weight goes nowhere (Xiao et al., "Efficient streaming language models with attention
///   sinks", 2023)
///
/// Result: F32 `[dv, n_head, n_tokens, batch]`, for each head `soft_max(cap(scale * q k^T) + slope * mask) v`, where
/// `cap(x) = logit_softcap * tanh(x / logit_softcap)` if `logit_softcap` is not 0. Sinks are neither scaled nor capped. A row
/// whose scores are all minus infinity gives zeros.
///
/// A position whose mask is minus infinity is hidden from a row: what `k` and `v` hold there is not looked at, whatever it
/// is. Cells of other sequences are hidden in this way, and one that overflowed its type to infinity harms no other
/// sequence. A NaN in the mask, in a sink, in `q` or in `k` of a position that a row sees makes the whole row NaN, one in `v` its
/// element.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlashAttnExt {
    /// Factor of the scores, usually `1 / sqrt(d)`.
    #[serde(with = "super::lossless")]
    pub scale: f32,
    /// ALiBi: 0 for none.
    #[serde(with = "super::lossless")]
    pub max_bias: f32,
    /// Bound of the scores: 0 for none.
    #[serde(with = "super::lossless")]
    pub logit_softcap: f32,
}

impl Operation for FlashAttnExt {
    fn name(&self) -> &'static str {
        "FLASH_ATTN_EXT"
    }

    fn output(&self, src: &[&Tensor]) -> Result<Output, String> {
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

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (q, k, v, mask) = (&src[0], &src[1], &src[2], src.get(3));
        let ([d, n_tokens, n_head, batch], dv) = (q.ne, v.ne[0]);
        let per_kv = n_head / k.ne[2];
        let cap = f64::from(self.logit_softcap);
        for b in 0..batch {
            for h in 0..n_head {
                let slope = alibi_slope(self.max_bias, h, n_head);
                let head = |x: &Operand<'_>| {
                    let (d, x, h) = (x.ne[0], *x, h / per_kv);
                    list((0..x.ne[1]).flat_map(move |j| (0..d).map(move |i| x.at([i, j, h, b]))))
                };
                let (keys, values) = (head(k)?, head(v)?);
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
                    // The sink's weight comes last and meets no value.
                    let weights = soft_max(list(scores.chain(sink))?);
                    let nan = weights.iter().any(|w| w.is_nan());
                    for i in 0..dv {
                        let sum = weights.iter().zip(&seen).map(|(w, &j)| w * values[j * dv + i]).sum();
                        out.set([i, h, t, b], if nan { f64::NAN } else { sum });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Extents of a case.
struct Extents {
    d: usize,
    dv: usize,
    tokens: usize,
    kv: usize,
    heads: usize,
    heads_kv: usize,
    batch: usize,
}

fn case(s: Extents, kv_type: DType, mask: Option<DType>, max_bias: f32, logit_softcap: f32) -> Case {
    let Extents { d, dv, tokens, kv, heads, heads_kv, batch } = s;
    let name = format!(
        "FLASH_ATTN_EXT(d={d}, dv={dv}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, batch={batch}, kv={kv_type}, \
         mask={}, max_bias={max_bias}, softcap={logit_softcap})",
        mask.map_or("none", |m| m.name())
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, heads, tokens, batch], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [d, heads_kv, kv, batch], Fill::Uniform(-1.0, 1.0))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [dv, heads_kv, kv, batch], Fill::Uniform(-1.0, 1.0))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let mask = match mask {
            Some(dtype) => Some(c.leaf(g, "mask", dtype, [kv, tokens, 1, 1], Fill::Causal)?),
            None => None,
        };
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias, logit_softcap };
        g.flash_attn_ext(op, q, k, v, mask)
    })
}

/// The same with sinks: among the scores, far below them, and above them.
fn case_with_sinks(s: Extents, kv_type: DType) -> Case {
    let Extents { d, tokens, kv, heads, heads_kv, .. } = s;
    let name = format!(
        "FLASH_ATTN_EXT(sinks: d={d}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, kv={kv_type})"
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, heads, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [d, heads_kv, kv, 1], Fill::Uniform(-1.0, 1.0))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [d, heads_kv, kv, 1], Fill::Uniform(-1.0, 1.0))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let mask = c.leaf(g, "mask", DType::F32, [kv, tokens, 1, 1], Fill::Causal)?;
        let sinks = Fill::Values(vec![0.5, -40.0, 30.0, f32::NEG_INFINITY]);
        let sinks = c.leaf(g, "sinks", DType::F32, [heads, 1, 1, 1], sinks)?;
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        g.flash_attn_sinks(op, [q, k, v], mask, sinks)
    })
}

/// What the mask hides: cells that no token sees, and cells of other sequences, which one token sees. Their keys and values
/// are infinities and NaNs. A token of the middle sees nothing.
fn case_with_hidden_cells(s: Extents, kv_type: DType, sinks: bool) -> Case {
    let Extents { d, dv, tokens, kv, heads, heads_kv, .. } = s;
    let name = format!(
        "FLASH_ATTN_EXT(hidden cells, sinks={sinks}: d={d}, dv={dv}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, \
         kv={kv_type})"
    );
    // A cell, what its key and its value hold (nothing special for 0), and the token that sees it.
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let cells = [
        (3, inf, nan, None),
        (7, 0.0, nan, Some(1)),
        (11, nan, 0.0, Some(2)),
        (kv - 2, nan, -inf, None),
        (kv - 1, -inf, inf, None),
    ];
    let contents = |row: usize, value: fn(f32, f32) -> f32| {
        let special = cells.into_iter().map(move |(cell, k, v, _)| {
            let first = cell * row * heads_kv;
            (first..first + row * heads_kv, value(k, v))
        });
        Fill::Uniform(-1.0, 1.0).but(special.filter(|(_, value)| *value != 0.0))
    };
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, heads, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [d, heads_kv, kv, 1], contents(d, |k, _| k))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [dv, heads_kv, kv, 1], contents(dv, |_, v| v))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let of_token = |t: usize| {
            cells.into_iter().map(move |(cell, _, _, seen_by)| {
                let value = if seen_by == Some(t) { 0.0 } else { f32::NEG_INFINITY };
                (t * kv + cell..t * kv + cell + 1, value)
            })
        };
        let blind = (tokens > 3).then_some((3 * kv..4 * kv, f32::NEG_INFINITY));
        let mask = Fill::Causal.but((0..tokens).flat_map(of_token).chain(blind));
        let mask = c.leaf(g, "mask", DType::F16, [kv, tokens, 1, 1], mask)?;
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        if !sinks {
            return g.flash_attn_ext(op, q, k, v, Some(mask));
        }
        let sinks = c.leaf(g, "sinks", DType::F32, [heads, 1, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        g.flash_attn_sinks(op, [q, k, v], mask, sinks)
    })
}

/// Latent attention: one head of keys, whose first 512 elements are the values, for 16 of queries. Sinks need a mask.
fn case_latent([tokens, kv]: [usize; 2], kv_type: DType, mask: bool, sinks: bool) -> Case {
    let name = format!(
        "FLASH_ATTN_EXT(latent: d=576, dv=512, tokens={tokens}, kv={kv}, heads=16/1, kv={kv_type}, mask={mask}, \
         sinks={sinks})"
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [576, 16, tokens, 1], Fill::Uniform(-1.0, 1.0))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [576, kv, 1, 1], Fill::Uniform(-1.0, 1.0))?;
        let v = g.view(k, [512, kv, 1, 1], g.tensor(k).nb, 0)?;
        let op = FlashAttnExt { scale: 1.0 / 192f32.sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        if !mask {
            return g.flash_attn_ext(op, q, k, v, None);
        }
        let mask = c.leaf(g, "mask", DType::F16, [kv, tokens, 1, 1], Fill::Causal)?;
        if !sinks {
            return g.flash_attn_ext(op, q, k, v, Some(mask));
        }
        let sinks = c.leaf(g, "sinks", DType::F32, [16, 1, 1, 1], Fill::Uniform(-1.0, 3.0))?;
        g.flash_attn_sinks(op, [q, k, v], mask, sinks)
    })
}

/// A NaN in the query of head 1, in a key of head 2 and in an element of a value of head 3; with more tokens than one also in
/// the mask, and as all that a token sees. Head 0 of the other tokens is clean.
fn case_with_nan(tokens: usize, kv: usize, kv_type: DType) -> Case {
    let name = format!("FLASH_ATTN_EXT(NaN: d=64, tokens={tokens}, kv={kv}, heads=4/4, kv={kv_type})");
    let last = tokens - 1;
    let one = |[i, h, row]: [usize; 3]| {
        let at = i + 64 * (h + 4 * row);
        Fill::Uniform(-1.0, 1.0).but([(at..at + 1, f32::NAN)])
    };
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [64, 4, tokens, 1], one([40, 1, last]))?;
        let q = g.permute(q, [0, 2, 1, 3])?;
        let k = c.leaf(g, "k", kv_type, [64, 4, kv, 1], one([63, 2, kv - 3]))?;
        let k = g.permute(k, [0, 2, 1, 3])?;
        let v = c.leaf(g, "v", kv_type, [64, 4, kv, 1], one([9, 3, 20]))?;
        let v = g.permute(v, [0, 2, 1, 3])?;
        let in_mask = [
            (2 * kv + 4..2 * kv + 5, f32::NAN),
            (5 * kv..5 * kv + 30, f32::NEG_INFINITY),
            (5 * kv + 30..5 * kv + 31, f32::NAN),
            (5 * kv + 31..6 * kv, f32::NEG_INFINITY),
        ];
        let mask = Fill::Causal.but(in_mask.into_iter().filter(|_| tokens > 5));
        let mask = c.leaf(g, "mask", DType::F32, [kv, tokens, 1, 1], mask)?;
        let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
        g.flash_attn_ext(op, q, k, v, Some(mask))
    })
}

/// Tokens at the end of the cache that see so many positions up to their own.
fn case_with_window(s: Extents, kv_type: DType, mask_type: DType, window: usize) -> Case {
    let Extents { d, tokens, kv, heads, heads_kv, .. } = s;
    let name = format!(
        "FLASH_ATTN_EXT(window={window}: d={d}, tokens={tokens}, kv={kv}, heads={heads}/{heads_kv}, kv={kv_type}, \
         mask={mask_type})"
    );
    Case::new(name, |g, c| {
        let q = c.leaf(g, "q", DType::F32, [d, tokens, heads, 1], Fill::Uniform(-1.0, 1.0))?;
        // What no token sees is no number.
        let first = kv - tokens + 1 - window;
        let cells = Fill::Uniform(-1.0, 1.0).but([(0..first * d, f32::NAN)]);
        let k = c.leaf(g, "k", kv_type, [d, kv, heads_kv, 1], cells.clone())?;
        let v = c.leaf(g, "v", kv_type, [d, kv, heads_kv, 1], cells)?;
        let hidden = (0..tokens).flat_map(|t| {
            let (row, own) = (t * kv, kv - tokens + t);
            [(row..row + own + 1 - window, f32::NEG_INFINITY), (row + own + 1..row + kv, f32::NEG_INFINITY)]
        });
        let mask = c.leaf(
            g,
            "mask",
            mask_type,
            [kv, tokens, 1, 1],
            Fill::Values(vec![0.0; kv * tokens]).but(hidden),
        )?;
        let op = FlashAttnExt { scale: 1.0 / (d as f32).sqrt(), max_bias: 0.0, logit_softcap: 0.0 };
        g.flash_attn_ext(op, q, k, v, Some(mask))
    })
}

/// Test cases: prefill and decode shapes, grouped heads, odd extents, both cache types, masks, ALiBi, soft-caps, sinks, NaN,
/// and anything in cells that the mask hides.
pub fn cases() -> Vec<Case> {
    let extents =
        |d, dv, tokens, kv, heads, heads_kv, batch| Extents { d, dv, tokens, kv, heads, heads_kv, batch };
    let (f32, f16) = (DType::F32, DType::F16);
    vec![
        case(extents(64, 64, 1, 1, 1, 1, 1), f32, None, 0.0, 0.0),
        case(extents(64, 64, 1, 256, 4, 2, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 1, 300, 8, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 17, 17, 4, 4, 1), f32, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 35, 96, 6, 2, 2), f16, Some(f32), 0.0, 0.0),
        case(extents(128, 128, 5, 70, 4, 1, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(128, 128, 1, 33, 2, 2, 2), f32, None, 0.0, 0.0),
        case(extents(32, 32, 9, 40, 4, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(80, 80, 3, 31, 2, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(96, 64, 2, 50, 2, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(256, 256, 2, 20, 2, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 4, 64, 6, 6, 1), f32, Some(f32), 8.0, 0.0),
        case(extents(64, 64, 4, 64, 2, 2, 1), f32, Some(f32), 0.0, 5.0),
        case(extents(40, 24, 3, 7, 1, 1, 1), f32, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 1, 300, 4, 2, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case(extents(64, 64, 19, 45, 4, 1, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case(extents(128, 128, 1, 40, 2, 1, 1), DType::Q4_0, Some(f32), 0.0, 0.0),
        case(extents(96, 96, 5, 70, 2, 2, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 1, 1100, 8, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(128, 64, 3, 600, 6, 2, 2), f16, Some(f32), 8.0, 5.0),
        case(extents(64, 64, 2, 700, 3, 1, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        // Latent attention: one head of keys for all, rows longer than elsewhere.
        case(extents(576, 512, 1, 300, 4, 1, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(576, 512, 3, 40, 2, 1, 1), f32, Some(f32), 0.0, 0.0),
        case_with_sinks(extents(64, 64, 2, 1030, 4, 1, 1), DType::Q8_0),
        case_with_sinks(extents(64, 64, 1, 300, 4, 1, 1), f32),
        case_with_sinks(extents(64, 64, 21, 64, 8, 2, 1), f16),
        case_with_sinks(extents(40, 40, 3, 33, 4, 4, 1), f32),
        case_with_sinks(extents(64, 64, 3, 70, 4, 2, 1), DType::Q8_0),
        case_with_hidden_cells(extents(64, 64, 1, 300, 8, 2, 1), f16, true),
        case_with_hidden_cells(extents(64, 64, 1, 300, 4, 2, 1), f32, false),
        case_with_hidden_cells(extents(64, 64, 3, 70, 4, 2, 1), DType::Q8_0, false),
        case_with_hidden_cells(extents(20, 12, 3, 33, 2, 1, 1), f16, false),
        case_with_hidden_cells(extents(64, 64, 19, 96, 4, 2, 1), f16, false),
        case_with_hidden_cells(extents(64, 64, 19, 45, 4, 1, 1), f32, true),
        case_with_nan(1, 300, f16),
        case_with_nan(19, 96, f32),
        // Long rows.
        case_latent([1, 1], f16, false, false),
        case_latent([1, 9], f16, true, false),
        case_latent([1, 257], f16, false, false),
        case_latent([1, 1000], f16, true, true),
        case_latent([3, 9], f32, true, true),
        case_latent([3, 257], f16, true, false),
        case_latent([3, 1000], f16, false, false),
        case_latent([1, 257], DType::Q8_0, true, false),
        case_latent([1, 70], DType::Q4_0, true, false),
        case_latent([3, 300], DType::Q4_0, true, true),
        // The same of many tokens, which may go to matrix units: rows of several work-groups, several pieces of the positions.
        case_latent([21, 90], f16, true, true),
        case_latent([9, 1100], f16, false, false),
        case(extents(576, 512, 7, 1090, 5, 1, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(552, 504, 43, 61, 6, 2, 2), f16, None, 0.0, 0.0),
        case_with_hidden_cells(extents(576, 512, 35, 75, 4, 1, 1), f16, false),
        case_with_window(extents(512, 512, 33, 300, 4, 1, 1), f16, f32, 70),
        case(extents(512, 512, 1, 257, 8, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(512, 512, 3, 1000, 4, 2, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(552, 504, 5, 40, 3, 1, 2), f32, None, 0.0, 0.0),
        case(extents(328, 72, 2, 300, 6, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(64, 320, 19, 45, 2, 1, 1), f32, Some(f16), 0.0, 0.0),
        case(extents(584, 512, 1, 257, 16, 1, 1), f16, Some(f16), 0.0, 0.0),
        case_with_hidden_cells(extents(576, 512, 5, 300, 3, 1, 1), f16, true),
        case_with_hidden_cells(extents(512, 512, 5, 40, 4, 2, 1), f32, false),
        // The same of blocks.
        case(extents(512, 512, 1, 257, 8, 2, 1), DType::Q8_0, Some(f16), 0.0, 0.0),
        case(extents(512, 512, 3, 300, 4, 2, 1), DType::Q4_0, Some(f32), 8.0, 5.0),
        case(extents(544, 480, 5, 40, 3, 1, 2), DType::Q8_0, None, 0.0, 0.0),
        case(extents(352, 96, 2, 300, 6, 2, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        case_with_hidden_cells(extents(576, 512, 5, 300, 3, 1, 1), DType::Q8_0, true),
        case_with_hidden_cells(extents(512, 512, 5, 40, 4, 2, 1), DType::Q4_0, false),
        // Many tokens and keys in F16, which may go to matrix units: rows of all lengths, what is added to scores, no mask.
        case(extents(128, 128, 70, 200, 4, 2, 1), f16, Some(f32), 8.0, 5.0),
        case(extents(96, 64, 40, 130, 2, 1, 2), f16, None, 0.0, 0.0),
        case(extents(40, 24, 9, 44, 2, 1, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(64, 64, 20, 61, 2, 2, 1), f16, Some(f32), 0.0, 0.0),
        case(extents(256, 200, 21, 70, 4, 2, 1), f16, Some(f16), 0.0, 0.0),
        case(extents(192, 128, 70, 90, 4, 2, 1), f16, Some(f16), 0.0, 5.0),
        case(extents(256, 256, 37, 70, 4, 2, 1), DType::Q8_0, Some(f16), 0.0, 0.0),
        case(extents(128, 96, 40, 70, 2, 1, 1), DType::Q4_0, None, 0.0, 0.0),
        case_latent([21, 90], DType::Q8_0, true, false),
        case_latent([40, 61], DType::Q4_0, false, false),
        case_with_hidden_cells(extents(128, 128, 35, 75, 4, 1, 1), f16, false),
        case_with_hidden_cells(extents(256, 256, 35, 75, 4, 1, 1), DType::Q8_0, false),
        case_with_nan(19, 96, f16),
        case_with_window(extents(64, 64, 70, 700, 4, 1, 1), f16, f32, 150),
        // Rows of the mask at multiples of 16 bytes: steps of which nothing is hidden, all, something, and one position from one
        // token.
        case_with_window(extents(128, 128, 70, 704, 8, 2, 1), f16, f16, 449),
        case_with_window(extents(64, 64, 70, 704, 4, 1, 1), f16, f16, 149),
        case_with_hidden_cells(extents(128, 128, 35, 136, 8, 2, 1), f16, true),
        // Positions that are divided, of which some work-groups see nothing.
        case_with_window(extents(64, 40, 21, 1500, 2, 1, 1), f16, f32, 150),
        case_with_window(extents(160, 160, 21, 1500, 2, 1, 1), DType::Q8_0, f32, 400),
        case_with_sinks(extents(64, 64, 21, 1100, 2, 1, 1), f16),
        // The same of blocks: rows that begin with odd ones and even ones.
        case(extents(128, 128, 70, 200, 4, 2, 1), DType::Q8_0, Some(f32), 8.0, 5.0),
        case(extents(32, 96, 33, 133, 6, 3, 1), DType::Q8_0, None, 0.0, 0.0),
        case(extents(96, 64, 40, 130, 2, 1, 2), DType::Q4_0, None, 0.0, 0.0),
        case(extents(32, 32, 20, 84, 3, 3, 1), DType::Q4_0, Some(f16), 8.0, 0.0),
        case(extents(64, 64, 21, 64, 8, 2, 1), DType::Q4_0, Some(f16), 0.0, 5.0),
        case_with_sinks(extents(64, 64, 21, 64, 8, 2, 1), DType::Q8_0),
        case_with_hidden_cells(extents(64, 64, 19, 96, 4, 2, 1), DType::Q8_0, false),
        case_with_hidden_cells(extents(32, 64, 19, 96, 2, 1, 1), DType::Q4_0, true),
        case_with_nan(19, 96, DType::Q8_0),
        case_with_nan(19, 96, DType::Q4_0),
        case(extents(32, 32, 20, 61, 2, 2, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case(extents(256, 192, 21, 70, 4, 2, 1), DType::Q4_0, Some(f16), 0.0, 0.0),
        case(extents(160, 256, 40, 61, 2, 1, 1), DType::Q8_0, Some(f32), 0.0, 0.0),
        case_with_sinks(extents(128, 128, 21, 64, 8, 2, 1), DType::Q4_0),
        case_with_hidden_cells(extents(128, 128, 19, 45, 4, 1, 1), DType::Q4_0, false),
        case_with_window(extents(64, 64, 70, 700, 4, 1, 1), DType::Q4_0, f32, 150),
        Case::new("FLASH_ATTN_EXT(a cache that is mostly empty)", |g, c| {
            let q = c.leaf(g, "q", DType::F32, [64, 1, 4, 1], Fill::Uniform(-1.0, 1.0))?;
            let cells = Fill::Uniform(-1.0, 1.0).but([(64 * 70..64 * 900, f32::NAN)]);
            let k = c.leaf(g, "k", f16, [64, 900, 1, 1], cells.clone())?;
            let v = c.leaf(g, "v", f16, [64, 900, 1, 1], cells)?;
            let mask = Fill::Uniform(-1.0, 0.0).but([(70..900, f32::NEG_INFINITY)]);
            let mask = c.leaf(g, "mask", f16, [900, 1, 1, 1], mask)?;
            let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
            g.flash_attn_ext(op, q, k, v, Some(mask))
        }),
        Case::new("FLASH_ATTN_EXT(heads with masks of their own)", |g, c| {
            let q = c.leaf(g, "q", DType::F32, [64, 1, 4, 1], Fill::Uniform(-1.0, 1.0))?;
            let k = c.leaf(g, "k", DType::F32, [64, 40, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            // Cell 5 holds NaN; only head 2 sees it.
            let v = Fill::Uniform(-1.0, 1.0).but([(5 * 64..6 * 64, f32::NAN)]);
            let v = c.leaf(g, "v", DType::F32, [64, 40, 1, 1], v)?;
            let hidden = [0..6, 45..60, 81..85, 120..140].map(|cells| (cells, f32::NEG_INFINITY));
            let mask = Fill::Uniform(-1.0, 0.0).but(hidden);
            let mask = c.leaf(g, "mask", DType::F32, [40, 1, 4, 1], mask)?;
            let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
            g.flash_attn_ext(op, q, k, v, Some(mask))
        }),
        Case::new("FLASH_ATTN_EXT(a row with everything masked)", |g, c| {
            let q = c.leaf(g, "q", DType::F32, [64, 2, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let k = c.leaf(g, "k", DType::F32, [64, 8, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let v = c.leaf(g, "v", DType::F32, [64, 8, 1, 1], Fill::Uniform(-1.0, 1.0))?;
            let mut rows = vec![f32::NEG_INFINITY; 16];
            rows[8..12].fill(0.0);
            let mask = c.leaf(g, "mask", DType::F32, [8, 2, 1, 1], Fill::Values(rows))?;
            let op = FlashAttnExt { scale: 0.125, max_bias: 0.0, logit_softcap: 0.0 };
            g.flash_attn_ext(op, q, k, v, Some(mask))
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{self, Outcome};
    use crate::plan::Precision;

    /// A token that sees a NaN is all NaN, one that sees nothing is all zeros, and all others are finite.
    #[test]
    fn hidden_cells_are_not_looked_at() {
        let reference = crate::reference::ReferenceBackend::default();
        let cases = [
            (case_with_hidden_cells(EXTENTS, DType::F16, true), 4, vec![1, 2]),
            (case_with_hidden_cells(EXTENTS, DType::F32, false), 4, vec![1, 2]),
            (case_with_nan(6, 40, DType::F16), 1, vec![2, 5]),
        ];
        for (case, clean_heads, nan) in cases {
            let Ok(Outcome::Values(got)) = catalogue::run(&case, &reference, Precision::Exact) else {
                panic!("{}", case.name)
            };
            for (t, token) in got.chunks_exact(64 * 4).enumerate() {
                let clean = &token[..64 * clean_heads];
                let right = match t {
                    _ if nan.contains(&t) => clean.iter().all(|x| x.is_nan()),
                    3 if clean_heads == 4 => clean.iter().all(|x| *x == 0.0),
                    _ => clean.iter().all(|x| x.is_finite() && *x != 0.0),
                };
                assert!(right, "{}, token {t}: {clean:?}", case.name);
            }
        }
    }

    const EXTENTS: Extents = Extents { d: 64, dv: 64, tokens: 5, kv: 40, heads: 4, heads_kv: 2, batch: 1 };
}
