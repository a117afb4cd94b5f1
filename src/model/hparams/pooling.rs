//! Pooling: combining the token vectors of a text into one.

use super::values::named;
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};
use serde::Serialize;
use std::str::FromStr;

/// Method that combines the token vectors of a text into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Pooling {
    /// Mean of all vectors.
    Mean,
    /// First vector, of the token that represents the text (`cls`).
    First,
    /// Last vector, whose token has seen all others.
    Last,
}

impl Pooling {
    /// Reads the pooling of the file, if it gives one.
    pub(super) fn read(gguf: &GgufFile, key: &str) -> Result<Option<Pooling>> {
        Ok(match gguf.metadata().opt_usize(key)? {
            // 4 is for models that rank: they have their own output layer.
            None | Some(0) => None,
            Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::First),
            Some(3) => Some(Pooling::Last),
            Some(other) => {
                return Err(Error::model(named(key), other, "0 (none), 1 (mean), 2 (first) or 3 (last)"));
            }
        })
    }
}

impl FromStr for Pooling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Pooling> {
        match text {
            "mean" => Ok(Pooling::Mean),
            "first" | "cls" => Ok(Pooling::First),
            "last" => Ok(Pooling::Last),
            other => Err(Error::argument("pooling", format!("'{other}'"), "mean, first or last")),
        }
    }
}
