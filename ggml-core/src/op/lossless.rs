//! Serialisation of F32 parameters in graph files, for `#[serde(with = "super::lossless")]`. JSON has neither
//! infinities nor NaN, but a graph that failed because of one must be written too: non-finite values are
//! written as text, others as numbers.

use serde::{Deserialize, Deserializer, Serializer};

/// Serialised form of a parameter.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f32),
    Text(String),
}

/// Writes a parameter.
pub(super) fn serialize<S: Serializer>(x: &f32, to: S) -> Result<S::Ok, S::Error> {
    match *x {
        x if x.is_finite() => to.serialize_f32(x),
        x if x.is_nan() => to.serialize_str("NaN"),
        x => to.serialize_str(if x > 0.0 { "inf" } else { "-inf" }),
    }
}

/// Reads a parameter.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
    match Written::deserialize(from)? {
        Written::Number(x) => Ok(x),
        Written::Text(text) => match text.as_str() {
            "NaN" => Ok(f32::NAN),
            "inf" => Ok(f32::INFINITY),
            "-inf" => Ok(f32::NEG_INFINITY),
            _ => Err(serde::de::Error::custom(format!("'{text}' is not a number, NaN, inf or -inf"))),
        },
    }
}
