//! File that stores the choice.

use super::Choice;
use crate::json;
use ggml_core::files::{read_cached, write_cached};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Maximum bytes of the file.
const LARGEST: u64 = 1 << 20;

/// Contents of the file that stores the choice.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredChoice {
    /// Everything that the choice depends on, see [`marks`](super::marks::marks).
    pub(super) marks: Vec<(String, String)>,
    pub(super) choice: Choice,
    /// Time at which backends that failed are tried again, in seconds since 1970; `None` if none failed.
    #[serde(default)]
    pub(super) retry_at: Option<u64>,
}

impl StoredChoice {
    /// Reads a file; `None` if it is missing or broken.
    pub(super) fn read(file: &Path) -> Option<StoredChoice> {
        json::read(read_cached(file, LARGEST).ok()?).ok()
    }

    /// Writes the file, if possible. If the choice cannot be stored, it is measured again next time.
    pub(super) fn write(&self, file: &Path) {
        let _ = serde_json::to_vec_pretty(self).map(|text| write_cached(file, &text));
    }
}
