//! JSON.

use serde::de::DeserializeOwned;

/// Reads a value. The text becomes a [`serde_json::Value`] first, so that every type's code for reading is
/// compiled for one source only.
pub(crate) fn read<T: DeserializeOwned>(text: impl AsRef<[u8]>) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::from_slice(text.as_ref())?)
}
