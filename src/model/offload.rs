//! Part of a model that goes to the device.

use ggml_core::{Error, Result};
use std::str::FromStr;

/// Part of a model that goes to the device; the rest is computed on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Offload {
    /// Whole model.
    #[default]
    All,
    /// Nothing.
    None,
    /// Number of units, counted from the end: 1 is the output, 2 the output and the last layer. With all
    /// layers the embedding is included.
    Layers(usize),
    /// As many units as fit into the free memory.
    Auto,
}

impl Offload {
    /// Returns the units of a model with `layers` layers; `None` for [`Offload::Auto`].
    pub(super) fn units(self, layers: usize) -> Option<usize> {
        match self {
            Offload::All => Some(layers + 1),
            Offload::None => Some(0),
            Offload::Layers(n) => Some(n.min(layers + 1)),
            Offload::Auto => None,
        }
    }
}

impl FromStr for Offload {
    type Err = Error;

    /// Parses "auto", "all" or -1 for everything, "none" or 0 for nothing, or a number of units.
    fn from_str(text: &str) -> Result<Offload> {
        match text {
            "auto" => Ok(Offload::Auto),
            "-1" | "all" => Ok(Offload::All),
            "0" | "none" => Ok(Offload::None),
            _ => text.parse().map(Offload::Layers).map_err(|_| {
                let expected = "a number of units, -1 for all of them, or auto for as many as fit";
                Error::argument("offload", format!("'{text}'"), expected)
            }),
        }
    }
}

impl std::fmt::Display for Offload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Offload::All => f.write_str("-1"),
            Offload::None => f.write_str("0"),
            Offload::Layers(n) => write!(f, "{n}"),
            Offload::Auto => f.write_str("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_units() {
        for (text, offload, units) in [
            ("-1", Offload::All, Some(5)),
            ("0", Offload::None, Some(0)),
            ("1", Offload::Layers(1), Some(1)),
            ("4", Offload::Layers(4), Some(4)),
            ("99", Offload::Layers(99), Some(5)),
            ("auto", Offload::Auto, None),
        ] {
            assert_eq!(text.parse::<Offload>().unwrap(), offload);
            assert_eq!((offload.to_string().as_str(), offload.units(4)), (text, units));
        }
        for wrong in ["", "-2", "1.5", "many"] {
            assert!(matches!(wrong.parse::<Offload>(), Err(Error::InvalidArgument { .. })), "{wrong}");
        }
    }
}
