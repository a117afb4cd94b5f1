//! Reading and checking of single metadata values.

use super::Hparams;
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};

/// Largest value of any extent; a larger one means a broken file.
const MAX_EXTENT: usize = 1 << 28;

/// Formats a metadata key for error messages.
pub(in crate::model) fn named(key: &str) -> String {
    format!("metadata key '{key}'")
}

/// Reads a factor; returns `default` if it is absent or 0.
pub(in crate::model) fn factor(gguf: &GgufFile, key: &str, default: f32) -> Result<f32> {
    match gguf.metadata().opt_f32(key)? {
        None | Some(0.0) => Ok(default),
        Some(value) => positive(key, value),
    }
}

/// Checks an extent: 1 to [`MAX_EXTENT`].
pub(in crate::model) fn checked(key: &str, value: usize) -> Result<usize> {
    match value {
        1..=MAX_EXTENT => Ok(value),
        _ => Err(Error::model(named(key), value, format!("1 to {MAX_EXTENT}"))),
    }
}

/// Checks that a value is finite and above 0.
pub(in crate::model) fn positive(key: &str, value: f32) -> Result<f32> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(Error::model(named(key), value, "a finite number above 0"))
    }
}

/// Reads an integer for all layers, or an array with one for each layer, which may be 0.
pub(super) fn per_layer(gguf: &GgufFile, key: &str, layers: usize) -> Result<Option<Vec<usize>>> {
    let m = gguf.metadata();
    if m.value(key).is_none_or(|v| v.as_array().is_none()) {
        return m.opt_usize(key)?.map(|n| Ok(vec![checked(key, n)?; layers])).transpose();
    }
    let mut all = m.array_usize(key)?;
    if all.len() < layers {
        return Err(too_few(key, all.len(), layers));
    }
    all.truncate(layers);
    match all.iter().find(|&&n| n > MAX_EXTENT) {
        Some(n) => Err(Error::model(named(key), n, format!("0 to {MAX_EXTENT}"))),
        None => Ok(Some(all)),
    }
}

/// Reads an array of booleans, one for each layer; `None` if the file has none under this key.
pub(super) fn flags(gguf: &GgufFile, h: &Hparams, key: &str) -> Result<Option<Vec<bool>>> {
    let m = gguf.metadata();
    if m.value(key).is_none_or(|v| v.as_array().is_none()) {
        return Ok(None);
    }
    let mut all = m.array_bool(key)?;
    if all.len() < h.layers {
        return Err(too_few(key, all.len(), h.layers));
    }
    all.truncate(h.layers);
    Ok(Some(all))
}

/// Returns the error for an array with fewer entries than layers.
fn too_few(key: &str, entries: usize, layers: usize) -> Error {
    Error::model(named(key), format!("{entries} entries"), format!("one for each of {layers} layers"))
}
