//! Metadata values: scalars, strings and arrays.

use super::array::{self, Array, encode_text};
use super::cursor::Cursor;
use super::kind::Kind;
use crate::error::Result;
use crate::mapped::MappedBytes;
use std::sync::Arc;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// IEEE binary32.
    F32(f32),
    /// Boolean.
    Bool(bool),
    /// Bytes of a string, as in the file; may be invalid UTF-8.
    Str(MappedBytes),
    /// Elements of one kind.
    Array(Array),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// IEEE binary64.
    F64(f64),
}

impl Value {
    /// Returns the kind of this value.
    pub fn kind(&self) -> Kind {
        match self {
            Value::U8(_) => Kind::U8,
            Value::I8(_) => Kind::I8,
            Value::U16(_) => Kind::U16,
            Value::I16(_) => Kind::I16,
            Value::U32(_) => Kind::U32,
            Value::I32(_) => Kind::I32,
            Value::F32(_) => Kind::F32,
            Value::Bool(_) => Kind::Bool,
            Value::Str(_) => Kind::Str,
            Value::Array(_) => Kind::Array,
            Value::U64(_) => Kind::U64,
            Value::I64(_) => Kind::I64,
            Value::F64(_) => Kind::F64,
        }
    }

    /// Returns the integer, if the value is of an integer kind.
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::I8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::U64(v) => Some(v.into()),
            Value::I64(v) => Some(v.into()),
            _ => None,
        }
    }

    /// Returns the float, if the value is of a floating-point kind.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the boolean, if the value is one.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// Returns the bytes of a string, UTF-8 or not.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Str(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the string, if the value is one and is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        self.as_bytes().and_then(|b| std::str::from_utf8(b).ok())
    }

    /// Returns the array, if the value is one.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Appends the encoded value, without its kind.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(v) => out.extend(v.to_le_bytes()),
            Value::I8(v) => out.extend(v.to_le_bytes()),
            Value::U16(v) => out.extend(v.to_le_bytes()),
            Value::I16(v) => out.extend(v.to_le_bytes()),
            Value::U32(v) => out.extend(v.to_le_bytes()),
            Value::I32(v) => out.extend(v.to_le_bytes()),
            Value::F32(v) => out.extend(v.to_le_bytes()),
            Value::Bool(v) => out.push(u8::from(*v)),
            Value::Str(bytes) => encode_text(bytes, out),
            Value::Array(array) => array.encode(out),
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::F64(v) => out.extend(v.to_le_bytes()),
        }
    }

    /// Returns kind and value for an error message; of long strings and arrays only the length.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Str(bytes) if std::str::from_utf8(bytes).is_err() => {
                format!("a str of {} bytes that are not UTF-8", bytes.len())
            }
            Value::Str(bytes) if bytes.len() > 60 => format!("a str of {} bytes", bytes.len()),
            Value::Array(_) => format!("{self}"),
            other => format!("{} {other}", other.kind()),
        }
    }
}

/// Reads a value of a kind that was already read.
pub(super) fn read(cursor: &mut Cursor<'_>, kind: Kind) -> Result<Value> {
    let what = kind.name();
    Ok(match kind {
        Kind::U8 => Value::U8(u8::from_le_bytes(cursor.fixed(what)?)),
        Kind::I8 => Value::I8(i8::from_le_bytes(cursor.fixed(what)?)),
        Kind::U16 => Value::U16(u16::from_le_bytes(cursor.fixed(what)?)),
        Kind::I16 => Value::I16(i16::from_le_bytes(cursor.fixed(what)?)),
        Kind::U32 => Value::U32(u32::from_le_bytes(cursor.fixed(what)?)),
        Kind::I32 => Value::I32(i32::from_le_bytes(cursor.fixed(what)?)),
        Kind::F32 => Value::F32(f32::from_le_bytes(cursor.fixed(what)?)),
        Kind::Bool => Value::Bool(truth(cursor)?),
        Kind::Str => {
            let length = cursor.text(what)?.len();
            Value::Str(cursor.window_from(cursor.position() - length)?)
        }
        Kind::Array => Value::Array(array::read(cursor, 1)?),
        Kind::U64 => Value::U64(u64::from_le_bytes(cursor.fixed(what)?)),
        Kind::I64 => Value::I64(i64::from_le_bytes(cursor.fixed(what)?)),
        Kind::F64 => Value::F64(f64::from_le_bytes(cursor.fixed(what)?)),
    })
}

fn truth(cursor: &mut Cursor<'_>) -> Result<bool> {
    match cursor.fixed("bool")? {
        [0u8] => Ok(false),
        [1] => Ok(true),
        [other] => Err(cursor.error("bool", other, "0 or 1")),
    }
}

impl Array {
    /// Iterates over the elements as values.
    pub fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let mut cursor = Cursor::new(self.encoded());
        (0..self.len()).map_while(move |_| read(&mut cursor, self.kind()).ok())
    }
}

/// Formats scalars as such, strings quoted and escaped, arrays as kind and count ("[str; 32000]").
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::Str(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Value::Array(array) => f.write_str(&array.describe()),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
        }
    }
}

macro_rules! scalar_values {
    ($($t:ty => $kind:ident),*) => {
        $(impl From<$t> for Value {
            fn from(v: $t) -> Value {
                Value::$kind(v)
            }
        })*
    };
}
scalar_values!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    f32 => F32, f64 => F64, bool => Bool, Array => Array);

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::from(text.as_bytes())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::from(text.as_bytes())
    }
}

/// A string of any bytes.
impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::Str(MappedBytes::from(Arc::<[u8]>::from(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_described_briefly() {
        assert_eq!(Value::from(-1i32).describe(), "i32 -1");
        assert_eq!(Value::from("a\u{1b}b").describe(), "str \"a\\u{1b}b\"");
        assert_eq!(Value::from("x".repeat(1000)).describe(), "a str of 1000 bytes");
        assert_eq!(Value::from(&[0xffu8][..]).describe(), "a str of 1 bytes that are not UTF-8");
        assert_eq!(Value::from(Array::from(&[1u32, 2][..])).describe(), "[u32; 2]");
    }

    #[test]
    fn conversions_keep_to_their_kinds() {
        assert_eq!(Value::from(u64::MAX).as_integer(), Some(u64::MAX.into()));
        assert_eq!(Value::from(i64::MIN).as_integer(), Some(i64::MIN.into()));
        assert_eq!(Value::from(1.5f32).as_integer(), None);
        assert_eq!(Value::from(1.5f32).as_float(), Some(1.5));
        assert_eq!(Value::from(1u8).as_bool(), None);
        assert_eq!(Value::from("x").as_str(), Some("x"));
        assert_eq!(Value::from(&[0xffu8][..]).as_str(), None);
        assert_eq!(Value::from(&[0xffu8][..]).as_bytes(), Some(&[0xff][..]));
    }
}
