//! Pooling: combining the token vectors of a text into one.

use super::values::named;
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};
use serde::Serialize;
use std::fmt;
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

/// Reads the pooling of the file, if it gives one, and whether the file is for ranking texts.
pub(super) fn read(gguf: &GgufFile, key: &str) -> Result<(Option<Pooling>, bool)> {
    Ok(match gguf.metadata().opt_usize(key)? {
        None | Some(0) => (None, false),
        Some(1) => (Some(Pooling::Mean), false),
        Some(2) => (Some(Pooling::First), false),
        Some(3) => (Some(Pooling::Last), false),
        Some(4) => (None, true),
        Some(other) => {
            let expected = "0 (none), 1 (mean), 2 (first), 3 (last) or 4 (rank)";
            return Err(Error::model(named(key), other, expected));
        }
    })
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pooling::Mean => "mean",
            Pooling::First => "first",
            Pooling::Last => "last",
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
