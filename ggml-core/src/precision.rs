//! Allowed rounding of a program.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Allowed rounding of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// No activation is rounded below F32; weights as stored; F32 accumulation.
    Exact,
    /// Products may round activations to F16 or 8 bits and use matrix units.
    #[default]
    Fast,
}

impl Precision {
    /// Returns the name as on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Exact => "exact",
            Precision::Fast => "fast",
        }
    }

    /// Returns the precision with a name.
    pub fn from_name(name: &str) -> Option<Precision> {
        [Precision::Exact, Precision::Fast].into_iter().find(|p| p.name() == name)
    }
}

impl std::str::FromStr for Precision {
    type Err = Error;

    /// Parses a name as [`Precision::from_name`] does.
    fn from_str(text: &str) -> Result<Precision> {
        Precision::from_name(text)
            .ok_or_else(|| Error::argument("precision", format!("'{text}'"), "exact or fast"))
    }
}
