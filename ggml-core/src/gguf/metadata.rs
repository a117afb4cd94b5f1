//! Key-value pairs of a file, and typed access to them.

use super::array::Array;
use super::value::Value;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Key-value pairs in the order of the file.
///
/// The typed getters return an [`Error::InvalidModel`] with the key, the expected kind and the value found.
/// The `opt_` getters return `None` for a missing key and the same error for a wrong value. Integers are
/// accepted from any integer kind if the value fits, floating-point values from both floating-point kinds.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    positions: HashMap<String, usize>,
    /// The file, for error messages.
    path: Option<PathBuf>,
}

/// Type that a getter can return: the conversion from a value and the name in errors.
trait FromValue<'a>: Sized {
    const EXPECTED: &'static str;
    fn from_value(value: &'a Value) -> Option<Self>;
}

impl Metadata {
    /// Returns metadata without pairs.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Iterates over the pairs in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// True if the key has a value.
    pub fn contains(&self, key: &str) -> bool {
        self.positions.contains_key(key)
    }

    /// Returns the value of a key, of any kind.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.positions.get(key).and_then(|p| self.entries.get(*p)).map(|(_, value)| value)
    }

    /// Sets a value. An existing value of the key is replaced at its position and returned.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        if let Some((_, old)) = self.positions.get(&key).and_then(|p| self.entries.get_mut(*p)) {
            return Some(std::mem::replace(old, value));
        }
        self.positions.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    /// Returns a string.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the key is missing or its value is no UTF-8 string.
    pub fn str(&self, key: &str) -> Result<&str> {
        self.required(key)
    }

    /// Returns a string, or `None` if the key is missing.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the value is no UTF-8 string.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>> {
        self.optional(key)
    }

    /// Returns the bytes of a string, UTF-8 or not.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the key is missing or its value is no string.
    pub fn bytes(&self, key: &str) -> Result<&[u8]> {
        self.required(key)
    }

    /// Returns the bytes of a string, UTF-8 or not, or `None` if the key is missing.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the value is no string.
    pub fn opt_bytes(&self, key: &str) -> Result<Option<&[u8]>> {
        self.optional(key)
    }

    /// Returns an array of any element kind.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the key is missing or its value is no array.
    pub fn array(&self, key: &str) -> Result<&Array> {
        self.required(key)
    }

    /// Returns an array of any element kind, or `None` if the key is missing.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the value is no array.
    pub fn opt_array(&self, key: &str) -> Result<Option<&Array>> {
        self.optional(key)
    }

    /// Returns the strings of an array.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the key is missing, its value is no array of strings or an element is not
    /// UTF-8.
    pub fn array_str(&self, key: &str) -> Result<Vec<&str>> {
        let texts = self.array_bytes(key)?.into_iter().enumerate();
        texts
            .map(|(i, text)| std::str::from_utf8(text).map_err(|e| self.element_error(key, i, e, "UTF-8")))
            .collect()
    }

    /// Returns the strings of an array, or `None` if the key is missing.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the value is no array of strings or an element is not UTF-8.
    pub fn opt_array_str(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.if_present(key, |m| m.array_str(key))
    }

    /// Returns the bytes of the strings of an array, UTF-8 or not.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the key is missing or its value is no array of strings.
    pub fn array_bytes(&self, key: &str) -> Result<Vec<&[u8]>> {
        let array = self.array(key)?;
        let wrong = || self.key_error(key, array.describe(), "array of str");
        array.as_texts().map(Iterator::collect).ok_or_else(wrong)
    }

    /// Returns the bytes of the strings of an array, UTF-8 or not, or `None` if the key is missing.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] if the value is no array of strings.
    pub fn opt_array_bytes(&self, key: &str) -> Result<Option<Vec<&[u8]>>> {
        self.if_present(key, |m| m.array_bytes(key))
    }

    pub(super) fn set_path(&mut self, path: &Path) {
        self.path = Some(path.into());
    }

    fn if_present<'a, T>(&'a self, key: &str, get: impl Fn(&'a Self) -> Result<T>) -> Result<Option<T>> {
        if self.contains(key) { get(self).map(Some) } else { Ok(None) }
    }

    fn optional<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        T::from_value(value).map(Some).ok_or_else(|| self.key_error(key, value.describe(), T::EXPECTED))
    }

    fn required<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        self.optional(key)?.ok_or_else(|| self.key_error(key, "missing", T::EXPECTED))
    }

    /// Returns the elements of an array of integers, floats or booleans.
    fn elements<T: for<'a> FromValue<'a>>(&self, key: &str) -> Result<Vec<T>> {
        let wrong = |i, v: &Value| self.element_error(key, i, v.describe(), T::EXPECTED);
        let values = self.array(key)?.values().enumerate();
        values.map(|(i, v)| T::from_value(&v).ok_or_else(|| wrong(i, &v))).collect()
    }

    fn element_error(&self, key: &str, index: usize, found: impl ToString, expected: &str) -> Error {
        self.error(format!("metadata key {key:?}, element {index}"), found, expected)
    }

    fn key_error(&self, key: &str, found: impl ToString, expected: &str) -> Error {
        self.error(format!("metadata key {key:?}"), found, expected)
    }

    fn error(&self, what: String, found: impl ToString, expected: &str) -> Error {
        let error = Error::model(what, found, expected);
        match &self.path {
            Some(path) => error.with_path(path),
            None => error,
        }
    }
}

/// True if both have the same pairs in the same order; the file does not matter.
impl PartialEq for Metadata {
    fn eq(&self, other: &Metadata) -> bool {
        self.entries == other.entries
    }
}

macro_rules! getters {
    ($($t:ty, $one:ident, $opt:ident, $array:ident, $opt_array:ident;)*) => {
        impl Metadata {
            $(
                #[doc = concat!("A value as `", stringify!($t), "`.")]
                ///
                /// # Errors
                /// [`Error::InvalidModel`] if the key is missing, or its value is of another kind or does not
                /// fit.
                pub fn $one(&self, key: &str) -> Result<$t> {
                    self.required(key)
                }

                #[doc = concat!("A value as `", stringify!($t), "`, or `None` if the key is missing.")]
                ///
                /// # Errors
                /// [`Error::InvalidModel`] if the value is of another kind or does not fit.
                pub fn $opt(&self, key: &str) -> Result<Option<$t>> {
                    self.optional(key)
                }

                #[doc = concat!("The elements of an array as `", stringify!($t), "`.")]
                ///
                /// # Errors
                /// [`Error::InvalidModel`] if the key is missing, its value is no array, or an element is of
                /// another kind or does not fit.
                pub fn $array(&self, key: &str) -> Result<Vec<$t>> {
                    self.elements(key)
                }

                #[doc = concat!("The elements of an array as `", stringify!($t), "`, or `None` if the key is missing.")]
                ///
                /// # Errors
                /// [`Error::InvalidModel`] if the value is no array, or an element is of another kind or does
                /// not fit.
                pub fn $opt_array(&self, key: &str) -> Result<Option<Vec<$t>>> {
                    self.if_present(key, |m| m.elements(key))
                }
            )*
        }
    };
}
getters! {
    u8, u8, opt_u8, array_u8, opt_array_u8;
    u16, u16, opt_u16, array_u16, opt_array_u16;
    u32, u32, opt_u32, array_u32, opt_array_u32;
    u64, u64, opt_u64, array_u64, opt_array_u64;
    usize, usize, opt_usize, array_usize, opt_array_usize;
    i32, i32, opt_i32, array_i32, opt_array_i32;
    i64, i64, opt_i64, array_i64, opt_array_i64;
    f32, f32, opt_f32, array_f32, opt_array_f32;
    f64, f64, opt_f64, array_f64, opt_array_f64;
    bool, bool, opt_bool, array_bool, opt_array_bool;
}

macro_rules! from_value {
    ($($t:ty, $expected:expr, $convert:expr;)*) => {
        $(impl<'a> FromValue<'a> for $t {
            const EXPECTED: &'static str = $expected;
            fn from_value(value: &'a Value) -> Option<$t> {
                let convert: fn(&'a Value) -> Option<$t> = $convert;
                convert(value)
            }
        })*
    };
}
from_value! {
    u8, "u8", |v| v.as_integer()?.try_into().ok();
    u16, "u16", |v| v.as_integer()?.try_into().ok();
    u32, "u32", |v| v.as_integer()?.try_into().ok();
    u64, "u64", |v| v.as_integer()?.try_into().ok();
    usize, "a size", |v| v.as_integer()?.try_into().ok();
    i32, "i32", |v| v.as_integer()?.try_into().ok();
    i64, "i64", |v| v.as_integer()?.try_into().ok();
    f32, "f32", |v| v.as_float().map(|f| f as f32);
    f64, "f64", Value::as_float;
    bool, "bool", Value::as_bool;
    &'a str, "str", Value::as_str;
    &'a [u8], "str", Value::as_bytes;
    &'a Array, "an array", Value::as_array;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut m = Metadata::new();
        m.insert("count", 7u64);
        m.insert("less", -7i8);
        m.insert("eps", 1e-5f64);
        m.insert("on", true);
        m.insert("name", "llama");
        m.insert("raw", &[0xffu8, 0][..]);
        m.insert("ids", Array::from(&[1i64, -1, 5][..]));
        m.insert("words", Array::texts([&b"a"[..], b"\xff"]));
        m
    }

    #[test]
    fn integers_are_accepted_where_they_fit() {
        let m = sample();
        assert_eq!((m.u8("count").unwrap(), m.u32("count").unwrap(), m.i64("count").unwrap()), (7, 7, 7));
        assert_eq!((m.i32("less").unwrap(), m.usize("count").unwrap()), (-7, 7));
        assert_eq!(m.f32("eps").unwrap(), 1e-5f32);
        assert_eq!(m.array_i32("ids").unwrap(), [1, -1, 5]);
        assert_eq!(m.opt_u32("none").unwrap(), None);
        assert_eq!(m.opt_array_f32("none").unwrap(), None);
        assert_eq!(m.opt_array_str("none").unwrap(), None);
    }

    #[test]
    fn errors_name_key_expectation_and_finding() {
        let m = sample();
        #[track_caller]
        fn says<T: std::fmt::Debug>(result: Result<T>, fields: [&str; 3]) {
            match result.unwrap_err() {
                Error::InvalidModel { what, found, expected, .. } => {
                    assert_eq!([what, found, expected], fields);
                }
                other => panic!("{other}"),
            }
        }
        says(m.u32("none"), [r#"metadata key "none""#, "missing", "u32"]);
        says(m.u32("less"), [r#"metadata key "less""#, "i8 -7", "u32"]);
        says(m.opt_u32("name"), [r#"metadata key "name""#, r#"str "llama""#, "u32"]);
        says(m.f32("count"), [r#"metadata key "count""#, "u64 7", "f32"]);
        says(m.bool("count"), [r#"metadata key "count""#, "u64 7", "bool"]);
        says(m.str("ids"), [r#"metadata key "ids""#, "[i64; 3]", "str"]);
        says(m.array_u32("ids"), [r#"metadata key "ids", element 1"#, "i64 -1", "u32"]);
        says(m.array_str("ids"), [r#"metadata key "ids""#, "[i64; 3]", "array of str"]);
        let utf8 = "invalid utf-8 sequence of 1 bytes from index 0";
        says(m.array_str("words"), [r#"metadata key "words", element 1"#, utf8, "UTF-8"]);
        says(m.str("raw"), [r#"metadata key "raw""#, "a str of 2 bytes that are not UTF-8", "str"]);
    }

    #[test]
    fn raw_bytes_stay_within_reach() {
        let m = sample();
        assert_eq!(m.bytes("raw").unwrap(), [0xff, 0]);
        assert_eq!(m.array_bytes("words").unwrap(), [&b"a"[..], b"\xff"]);
        assert_eq!(m.opt_str("name").unwrap(), Some("llama"));
    }

    #[test]
    fn a_second_value_replaces_the_first_in_place() {
        let mut m = sample();
        assert_eq!(m.insert("less", 3u8), Some(Value::I8(-7)));
        assert_eq!(m.len(), 8);
        assert_eq!(m.iter().nth(1), Some(("less", &Value::U8(3))));
        assert!(!m.is_empty() && m.contains("on"));
    }
}
