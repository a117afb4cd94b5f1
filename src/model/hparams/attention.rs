//! Attention of each layer: heads, positions, attention windows, and the growth of queries.

use super::rope::{RopeScaling, read_rope};
use super::values::{checked, flags, named, per_layer};
use super::{Hparams, ollama};
use ggml_core::gguf::GgufFile;
use ggml_core::op::{CacheMask, Rope, RopeMode};
use ggml_core::{Error, Result};
use serde::Serialize;
use std::ops::Range;

/// Attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; 0 if the layer does not attend.
    pub heads_kv: usize,
    /// Elements of a key.
    pub key_length: usize,
    /// Elements of a value.
    pub value_length: usize,
    /// ROPE; `None` for attention without positions.
    pub rope: Option<Rope>,
    /// True if the file's divisors of frequencies, if any, apply to this layer.
    pub factors: bool,
    /// True if the layer has the attention window.
    pub windowed: bool,
    /// Layer whose keys and values it reads; itself for most layers.
    pub cache: usize,
}

/// Positions that a token sees in layers with an attention window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Maximum number of positions that a token sees.
    pub size: usize,
    /// True if these are the positions of its chunk of `size`; otherwise its own and the `size - 1` before
    /// it.
    pub chunked: bool,
}

impl Window {
    /// Returns a window of the nearest `size` positions.
    pub fn nearest(size: usize) -> Window {
        Window { size, chunked: false }
    }

    /// True if the window of a token at position `row` contains position `column`. Causality is not checked.
    pub fn reaches(&self, row: usize, column: usize) -> bool {
        self.reach(row).contains(&column)
    }

    /// Returns the positions in the window of a token at position `row`. Later positions are not excluded.
    pub fn reach(&self, row: usize) -> Range<usize> {
        if self.chunked {
            let first = row - row % self.size;
            first..first.saturating_add(self.size)
        } else {
            (row + 1).saturating_sub(self.size)..usize::MAX
        }
    }

    /// Returns the mask parameters of layers with a window, or without one.
    pub(crate) fn mask(window: Option<Window>, causal: bool) -> CacheMask {
        let chunked = window.is_some_and(|window| window.chunked);
        CacheMask { causal, window: window.map(|window| window.size), chunked }
    }
}

/// Factor of a query that grows with its position `p`: `1 + scale ln(1 + floor((p + shift) / length))`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Temperature {
    /// Growth of the factor.
    pub scale: f32,
    /// Positions in one step of the growth; the first step has none.
    pub length: usize,
    /// Offset added to the position.
    pub shift: usize,
}

impl Temperature {
    /// Returns the factor at a position.
    pub fn factor(&self, position: usize) -> f32 {
        let lengths = (position.saturating_add(self.shift) / self.length) as f64;
        (1.0 + f64::from(self.scale) * lengths.ln_1p()) as f32
    }
}

impl Attention {
    /// Reads the attention of `layers` layers of the same width, which differ at most in the number of heads.
    pub(super) fn read(
        gguf: &GgufFile,
        architecture: &str,
        mode: RopeMode,
        [layers, embedding]: [usize; 2],
        scaling: RopeScaling,
    ) -> Result<Vec<Attention>> {
        let m = gguf.metadata();
        let key = |name: &str| format!("{architecture}.{name}");
        let keys = ["attention.head_count", "attention.head_count_kv"].map(key);
        let heads = per_layer(gguf, &keys[0], layers)?
            .ok_or_else(|| Error::model(named(&keys[0]), "", "a number of heads"))?;
        let heads_kv = per_layer(gguf, &keys[1], layers)?.unwrap_or_else(|| heads.clone());
        // Layers without attention may have no queries either.
        let most = checked(&keys[0], heads.iter().copied().max().unwrap_or(0))?;
        for (&heads, &kv) in heads.iter().zip(&heads_kv) {
            if kv > 0 && (heads == 0 || heads % kv != 0) {
                let expected = format!("a number that divides the {heads} query heads");
                return Err(Error::model(named(&keys[1]), kv, expected));
            }
        }
        let optional = |name: &str, default: usize| match m.opt_usize(&key(name))? {
            Some(value) => checked(&key(name), value),
            None => Ok(default),
        };
        let given = m.opt_usize(&key("attention.key_length"))?.or(ollama::key_length(architecture));
        let key_length = match given {
            Some(n) => checked(&key("attention.key_length"), n)?,
            None if embedding % most == 0 => checked("head width", embedding / most)?,
            None => {
                let expected = format!("a number that divides the width {embedding}");
                return Err(Error::model(named(&keys[0]), most, expected));
            }
        };
        let value_length = optional("attention.value_length", key_length)?;
        let rotated = optional("rope.dimension_count", key_length)?;
        let rope = Some(read_rope(gguf, architecture, mode, rotated, scaling)?);
        let of = |(cache, (heads, heads_kv))| Attention {
            heads,
            heads_kv,
            key_length,
            value_length,
            rope,
            factors: true,
            windowed: false,
            cache,
        };
        Ok(heads.into_iter().zip(heads_kv).enumerate().map(of).collect())
    }
}

/// Returns which layers have the attention window: a list in the file, or all but every n-th, where the file
/// may give n.
pub(in crate::model) fn window_layers(gguf: &GgufFile, h: &Hparams, period: usize) -> Result<Vec<bool>> {
    let key = h.key("attention.sliding_window_pattern");
    if let Some(listed) = flags(gguf, h, &key)? {
        return Ok(listed);
    }
    let period = checked(&key, gguf.metadata().opt_usize(&key)?.unwrap_or(period))?;
    Ok((1..=h.layers).map(|n| n % period != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_chunks_reach_so_far() {
        let seen =
            |window: Window, row: usize| (0..=row).filter(|&c| window.reaches(row, c)).collect::<Vec<_>>();
        assert_eq!(seen(Window::nearest(3), 7), [5, 6, 7]);
        let chunks = Window { size: 3, chunked: true };
        assert_eq!([seen(chunks, 5), seen(chunks, 6), seen(chunks, 7)], [vec![3, 4, 5], vec![6], vec![6, 7]]);
    }

    #[test]
    fn queries_grow_in_steps() {
        let growth = Temperature { scale: 0.5, length: 4, shift: 1 };
        assert_eq!([growth.factor(0), growth.factor(2)], [1.0; 2]);
        let second = 1.0 + 0.5 * 2f32.ln();
        assert_eq!([growth.factor(3), growth.factor(6)], [second; 2]);
        assert_eq!(growth.factor(7), 1.0 + 0.5 * 3f32.ln());
    }
}
