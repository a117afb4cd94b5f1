//! Serialisation of values that JSON has no form for: paths that are no text, types with a text form,
//! infinities and NaN.

use serde::{Deserialize, Deserializer, Serialize};
use std::ffi::OsString;
use std::path::Path;

/// Deserialises a value that may be infinite; infinity is written as null.
pub(crate) fn null_is_infinite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// Deserialises values that may be NaN; NaN is written as null.
pub(crate) fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let values = Vec::<Option<f32>>::deserialize(from)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f32::NAN)).collect())
}

/// A path in JSON: text, or the system's own units if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum JsonPath {
    Text(String),
    Units(OsString),
}

impl Default for JsonPath {
    fn default() -> JsonPath {
        JsonPath::Text(String::new())
    }
}

impl<P: Into<OsString>> From<P> for JsonPath {
    fn from(path: P) -> JsonPath {
        path.into().into_string().map_or_else(JsonPath::Units, JsonPath::Text)
    }
}

impl AsRef<Path> for JsonPath {
    fn as_ref(&self) -> &Path {
        match self {
            JsonPath::Text(text) => text.as_ref(),
            JsonPath::Units(units) => units.as_ref(),
        }
    }
}

/// Serialisation of a path, for `#[serde(with)]`.
pub(crate) mod path {
    use super::JsonPath;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::path::{Path, PathBuf};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        JsonPath::from(path).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(JsonPath::deserialize(from)?.as_ref().into())
    }
}

/// Serialisation of an optional path, for `#[serde(with)]`.
pub(crate) mod some_path {
    use super::JsonPath;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::path::PathBuf;

    pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_ref().map(JsonPath::from).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<JsonPath>::deserialize(from)?.map(|path| path.as_ref().into()))
    }
}

/// Serialisation of a type by its text form, for `#[serde(with)]`.
pub(crate) mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Serialisation of a list of types with a text form, for `#[serde(with)]`.
pub(crate) mod texts {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub(crate) fn serialize<T: Display, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(T::to_string))
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}
