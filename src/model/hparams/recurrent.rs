//! Extents of layers with a recurrent state.

use super::Hparams;
use super::values::{checked, flags};
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};
use serde::Serialize;

/// Largest number of taps of the convolution: models have four.
pub(in crate::model) const MAX_TAPS: usize = 64;

/// Extents of the recurrent layers of a model. Keys decide where in the state a value is written; Mamba-2
/// calls them B and their heads groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recurrent {
    /// Taps of the convolution.
    pub taps: usize,
    /// Elements of a key.
    pub key_length: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Elements of a value.
    pub value_length: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// True if the value heads of one key head are adjacent, and one weight gives both the steps and the
    /// write factors, grouped by key head. Otherwise value head `h` belongs to key head `h mod key_heads`.
    pub grouped: bool,
    /// True for each recurrent layer; the others have attention.
    pub layers: Vec<bool>,
}

impl Recurrent {
    /// Reads and checks the extents; `layers` is true for each layer with a state.
    pub(in crate::model) fn read(gguf: &GgufFile, h: &Hparams, layers: Vec<bool>) -> Result<Recurrent> {
        let m = gguf.metadata();
        let extent = |name: &str| checked(&h.key(name), m.usize(&h.key(name))?);
        let (key_heads, value_heads) = (extent("ssm.group_count")?, extent("ssm.time_step_rank")?);
        let (taps, inner) = (extent("ssm.conv_kernel")?, extent("ssm.inner_size")?);
        let possible = value_heads % key_heads == 0 && inner % value_heads == 0;
        if !possible || !(2..=MAX_TAPS).contains(&taps) {
            let found =
                format!("{key_heads} key heads, {value_heads} value heads, {inner} channels and {taps} taps");
            let expected = format!(
                "value heads divisible by key heads, channels divisible by value heads, 2 to {MAX_TAPS} taps"
            );
            return Err(Error::model("recurrent layers", found, expected));
        }
        Ok(Recurrent {
            taps,
            key_length: extent("ssm.state_size")?,
            key_heads,
            value_length: inner / value_heads,
            value_heads,
            grouped: false,
            layers,
        })
    }

    /// Returns the number of elements of the values of all heads.
    pub(crate) fn inner(&self) -> usize {
        self.value_length * self.value_heads
    }

    /// Returns the number of channels of the convolution: queries, keys and values.
    pub(crate) fn channels(&self) -> usize {
        2 * self.key_length * self.key_heads + self.inner()
    }
}

/// Returns which layers of a delta net are recurrent: a list in the file, or all but every n-th.
pub(in crate::model) fn delta_net_layers(gguf: &GgufFile, h: &Hparams) -> Result<Vec<bool>> {
    if let Some(listed) = flags(gguf, h, &h.key("attention.recurrent_layers"))? {
        return Ok(listed);
    }
    let key = h.key("full_attention_interval");
    let interval = checked(&key, gguf.metadata().opt_usize(&key)?.unwrap_or(4))?;
    Ok((1..=h.layers).map(|n| n % interval != 0).collect())
}
