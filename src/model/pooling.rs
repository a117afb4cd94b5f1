//! How the vectors of a text's tokens become one.

use super::hparams::named;
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};
use serde::Serialize;
use std::str::FromStr;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one, that of the token which stands for the text (`cls`).
    First,
    /// The last one, which has seen all others.
    Last,
}

impl Pooling {
    /// What the file says, if it says something.
    pub(super) fn read(gguf: &GgufFile, key: &str) -> Result<Option<Pooling>> {
        Ok(match gguf.metadata().opt_usize(key)? {
            // 4 is for models that rank: they have an output layer of their own.
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
