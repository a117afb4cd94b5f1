//! ROPE: rotary position embedding.
//!
//! Sources: Su et al., "RoFormer" (2021); Peng et al., "YaRN" (2023) for the extrapolation ramp, in ggml's
//! form. GGUF files contain the per-frequency factors for llama-3 and longrope scaling.

use super::{Computed, Operation, Output, operands, rule, typed};
use crate::dtype::DType;
use crate::exact::{Operand, OperandMut, list};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// Pairing of the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RopeMode {
    /// Neighbours: `2 i` and `2 i + 1`.
    Normal,
    /// Halves: `i` and `i + n_dims / 2`.
    Neox,
}

/// Rotates pairs of each row by angles that grow with the position.
///
/// * `x`: F32 `[d, n_head, n_tokens, batch]`, rows contiguous
/// * `positions`: I32 `[n_tokens]`
/// * `factors` (may be absent): F32 `[>= n_dims / 2]`, contiguous, divisors of the frequencies
///
/// Result: F32 with the extents of `x`. The first `n_dims` elements of a row are rotated, the others copied.
/// The angle of pair `i` is `p * f`, `f = freq_base ^ (-2 i / n_dims) / factor`, or with YaRN (`ext_factor`
/// not 0) the mixture `f * freq_scale * (1 - r) + f * r` with the ramp `r` of the pair; without it
/// `f * freq_scale`. Sine and cosine are multiplied by `attn_factor` (with YaRN also by
/// `1 + 0.1 ln(1 / freq_scale)`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Pairing.
    pub mode: RopeMode,
    /// Number of rotated elements; even.
    pub n_dims: usize,
    /// Context length of the training, used by YaRN.
    pub n_ctx_orig: usize,
    /// Base of the frequencies.
    #[serde(with = "super::lossless")]
    pub freq_base: f32,
    /// Factor of the positions (linear scaling); 1 for none.
    #[serde(with = "super::lossless")]
    pub freq_scale: f32,
    /// Mixture factor of YaRN; 0 disables it.
    #[serde(with = "super::lossless")]
    pub ext_factor: f32,
    /// Factor of sine and cosine.
    #[serde(with = "super::lossless")]
    pub attn_factor: f32,
    /// YaRN: number of rotations above which pairs are not interpolated.
    #[serde(with = "super::lossless")]
    pub beta_fast: f32,
    /// YaRN: number of rotations below which pairs are fully interpolated.
    #[serde(with = "super::lossless")]
    pub beta_slow: f32,
    /// YaRN: true if the bounds of the ramp are rounded to whole pairs.
    #[serde(default = "yes")]
    pub truncate: bool,
}

/// Default of graphs written before the field existed.
fn yes() -> bool {
    true
}

impl Rope {
    /// Creates a rotation without scaling.
    pub fn plain(mode: RopeMode, n_dims: usize, freq_base: f32) -> Rope {
        Rope {
            mode,
            n_dims,
            n_ctx_orig: 0,
            freq_base,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
        }
    }

    /// Returns YaRN's ramp: 1 for pairs that rotate often enough within the training context to remain
    /// unchanged, 0 for pairs that rotate so rarely that their positions are interpolated.
    fn ramp(&self, i: usize) -> f64 {
        let (base, half) = (f64::from(self.freq_base), self.n_dims as f64 / 2.0);
        // Pair `i` rotates n_ctx_orig * base^(-i / half) / 2 pi times; solved for the pair.
        let pair = |turns: f32| half * (self.n_ctx_orig as f64 / (f64::from(turns) * TAU)).log(base);
        let (mut first, mut last) = (pair(self.beta_fast), pair(self.beta_slow));
        if self.truncate {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(self.n_dims as f64 - 1.0));
        1.0 - ((i as f64 - first) / (last - first).max(0.001)).clamp(0.0, 1.0)
    }

    /// Returns the angle per position of pair `i`, before the per-frequency factor.
    fn frequency(&self, i: usize) -> f64 {
        let kept = f64::from(self.freq_base).powf(-2.0 * i as f64 / self.n_dims as f64);
        let interpolated = kept * f64::from(self.freq_scale);
        if self.ext_factor == 0.0 {
            return interpolated;
        }
        let r = self.ramp(i) * f64::from(self.ext_factor);
        interpolated * (1.0 - r) + kept * r
    }

    /// Returns the factor of sine and cosine; with YaRN its attention temperature, `0.1 ln(s) + 1` for a
    /// context `s` times as long.
    fn magnitude(&self) -> f64 {
        let longer = 1.0 / f64::from(self.freq_scale);
        let temperature = if self.ext_factor == 0.0 { 1.0 } else { 0.1 * longer.ln() + 1.0 };
        f64::from(self.attn_factor) * temperature
    }

    /// Returns the two elements of pair `i`.
    fn pair(&self, i: usize) -> (usize, usize) {
        match self.mode {
            RopeMode::Normal => (2 * i, 2 * i + 1),
            RopeMode::Neox => (i, i + self.n_dims / 2),
        }
    }
}

impl Operation for Rope {
    fn name(&self) -> &'static str {
        "ROPE"
    }

    fn output(&self, src: &[&Shape]) -> Result<Output, String> {
        operands(src, 2, 3)?;
        let (x, positions) = (src[0], src[1]);
        typed(x, &[DType::F32], "x")?;
        typed(positions, &[DType::I32], "positions")?;
        rule(x.rows_contiguous(), || "rows must be contiguous".into())?;
        rule(self.n_dims.is_multiple_of(2) && self.n_dims <= x.ne[0] && self.n_dims > 0, || {
            format!("n_dims = {} must be even, positive and no more than the row", self.n_dims)
        })?;
        let wanted = [x.ne[2], 1, 1, 1];
        rule(positions.ne == wanted && positions.is_contiguous(), || {
            "one position for each token is needed".into()
        })?;
        rule(self.freq_base > 0.0 && self.freq_scale > 0.0, || {
            "freq_base and freq_scale must be positive".into()
        })?;
        rule(self.ext_factor == 0.0 || self.n_ctx_orig > 0, || "YaRN needs n_ctx_orig".into())?;
        if let Some(factors) = src.get(2) {
            typed(factors, &[DType::F32], "factors")?;
            let row = factors.ne == [factors.ne[0], 1, 1, 1] && factors.is_contiguous();
            rule(row && factors.ne[0] >= self.n_dims / 2, || {
                format!("factors must be a row of at least n_dims / 2 = {}, contiguous", self.n_dims / 2)
            })?;
        }
        Ok(Output::new(DType::F32, x.ne))
    }

    fn reference(&self, src: &[Operand<'_>], out: &mut OperandMut<'_>) -> Computed {
        let (x, positions) = (&src[0], &src[1]);
        let factors = src.get(2).map(|f| f.row([0, 0, 0])).transpose()?;
        let [d, heads, tokens, batch] = out.ne;
        let magnitude = self.magnitude();
        for t in 0..tokens {
            let position = positions.at([t, 0, 0, 0]);
            let turns = list((0..self.n_dims / 2).map(|i| {
                let angle = position * self.frequency(i) / factors.as_ref().map_or(1.0, |f| f[i]);
                (angle.cos() * magnitude, angle.sin() * magnitude)
            }))?;
            for b in 0..batch {
                for h in 0..heads {
                    let row = x.row([h, t, b])?;
                    for (i, &(cos, sin)) in turns.iter().enumerate() {
                        let (p, q) = self.pair(i);
                        out.set([p, h, t, b], row[p] * cos - row[q] * sin);
                        out.set([q, h, t, b], row[p] * sin + row[q] * cos);
                    }
                    for (i, &value) in row.iter().enumerate().take(d).skip(self.n_dims) {
                        out.set([i, h, t, b], value);
                    }
                }
            }
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::Graph;
    use crate::tensor::Source;

    use super::*;

    #[test]
    fn factors_are_a_row() {
        let rope = |n_dims: usize, ne: [usize; 4]| {
            let mut g = Graph::new();
            let x = g.leaf("x", DType::F32, [64, 2, 3, 1], Source::Input)?;
            let positions = g.leaf("positions", DType::I32, [3, 1, 1, 1], Source::Input)?;
            let factors = g.leaf("factors", DType::F32, ne, Source::Input)?;
            g.rope(Rope::plain(RopeMode::Neox, n_dims, 1e4), x, positions, Some(factors))
        };
        for ne in [[32, 1, 1, 1], [100, 1, 1, 1]] {
            rope(64, ne).unwrap();
        }
        // All but the last have 32 elements or more.
        for ne in [[16, 2, 1, 1], [8, 2, 2, 1], [1, 32, 1, 1], [32, 2, 1, 1], [32, 1, 1, 2], [31, 1, 1, 1]] {
            let error = rope(64, ne).unwrap_err();
            assert!(error.to_string().contains("a row of at least n_dims / 2 = 32"), "{ne:?}: {error}");
        }
        rope(62, [31, 1, 1, 1]).unwrap();
    }

    /// Peng et al.: with base 10000, 64 dimensions and a context of 4096, pair 10.47 rotates 32 times and
    /// pair 22.52 once.
    #[test]
    fn the_ramp_of_yarn() {
        let plain = Rope::plain(RopeMode::Neox, 64, 1e4);
        let yarn = Rope { n_ctx_orig: 4096, freq_scale: 0.25, ext_factor: 1.0, ..plain };
        let ratio = |i| yarn.frequency(i) / plain.frequency(i);
        for (i, want) in [(0, 1.0), (10, 1.0), (23, 0.25), (31, 0.25), (16, 0.25 + 0.75 * 7.0 / 13.0)] {
            assert!((ratio(i) - want).abs() < 1e-12, "pair {i}: {}", ratio(i));
        }
        let exact = Rope { truncate: false, ..yarn };
        let r = (22.513_5 - 16.0) / (22.513_5 - 10.472_3);
        assert!((exact.frequency(16) / plain.frequency(16) - (0.25 + 0.75 * r)).abs() < 1e-4);
        assert!((yarn.magnitude() - 1.138_629_436).abs() < 1e-9);
    }
}
