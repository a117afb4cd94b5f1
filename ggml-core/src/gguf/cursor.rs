//! Reader of untrusted bytes. Every read checks the number of bytes left first.

use super::array::Array;
use super::value::{Kind, Value};
use crate::error::{Error, Result};
use crate::mapped::MappedBytes;

/// Maximum nesting depth of arrays. (Files in use have no nested arrays; each level needs stack.)
pub(super) const MAX_ARRAY_DEPTH: usize = 8;

pub(super) struct Cursor<'a> {
    window: &'a MappedBytes,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(window: &'a MappedBytes) -> Cursor<'a> {
        Cursor { window, bytes: window, position: 0 }
    }

    /// Returns the number of bytes read so far, at most the total.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// Reads the next `n` bytes; `what` names them in the error if fewer are left.
    pub(super) fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8]> {
        let end = usize::try_from(n).ok().and_then(|n| self.position.checked_add(n));
        match end.and_then(|end| Some((end, self.bytes.get(self.position..end)?))) {
            Some((end, taken)) => {
                self.position = end;
                Ok(taken)
            }
            None => {
                Err(self.error(what, format!("{n} bytes"), format!("at most the {} bytes left", self.left())))
            }
        }
    }

    /// Reads the next `N` bytes by value.
    pub(super) fn fixed<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let taken = self.take(N as u64, what)?;
        taken.try_into().map_err(|_| self.error(what, format!("{} bytes", taken.len()), format!("{N} bytes")))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        self.fixed(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        self.fixed(what).map(u64::from_le_bytes)
    }

    /// Reads a count of items of at least `least` bytes each. It is an error if the bytes left cannot hold
    /// that many.
    pub(super) fn count(&mut self, least: usize, what: &str) -> Result<usize> {
        let count = self.u64(what)?;
        let most = self.left() / least.max(1);
        match usize::try_from(count) {
            Ok(n) if n <= most => Ok(n),
            _ => {
                let expected = format!("at most {most}, as many as the {} bytes left can hold", self.left());
                Err(self.error(what, count, expected))
            }
        }
    }

    /// Reads the bytes of a string after its length.
    pub(super) fn text(&mut self, what: &str) -> Result<&'a [u8]> {
        let n = self.u64("text length")?;
        self.take(n, what)
    }

    pub(super) fn kind(&mut self, what: &str) -> Result<Kind> {
        let number = self.u32(what)?;
        Kind::from_gguf(number).ok_or_else(|| self.error(what, number, "0 to 12"))
    }

    /// Reads a value of a kind that was already read.
    pub(super) fn value(&mut self, kind: Kind) -> Result<Value> {
        let what = kind.name();
        Ok(match kind {
            Kind::U8 => Value::U8(u8::from_le_bytes(self.fixed(what)?)),
            Kind::I8 => Value::I8(i8::from_le_bytes(self.fixed(what)?)),
            Kind::U16 => Value::U16(u16::from_le_bytes(self.fixed(what)?)),
            Kind::I16 => Value::I16(i16::from_le_bytes(self.fixed(what)?)),
            Kind::U32 => Value::U32(u32::from_le_bytes(self.fixed(what)?)),
            Kind::I32 => Value::I32(i32::from_le_bytes(self.fixed(what)?)),
            Kind::F32 => Value::F32(f32::from_le_bytes(self.fixed(what)?)),
            Kind::Bool => Value::Bool(self.truth()?),
            Kind::Str => {
                let length = self.text(what)?.len();
                Value::Str(self.window.slice(self.position - length..self.position)?)
            }
            Kind::Array => Value::Array(self.array(1)?),
            Kind::U64 => Value::U64(u64::from_le_bytes(self.fixed(what)?)),
            Kind::I64 => Value::I64(i64::from_le_bytes(self.fixed(what)?)),
            Kind::F64 => Value::F64(f64::from_le_bytes(self.fixed(what)?)),
        })
    }

    fn truth(&mut self) -> Result<bool> {
        match self.fixed("bool")? {
            [0u8] => Ok(false),
            [1] => Ok(true),
            [other] => Err(self.error("bool", other, "0 or 1")),
        }
    }

    /// Reads an array: element kind, count, elements. Each element is checked; none is copied.
    pub(super) fn array(&mut self, depth: usize) -> Result<Array> {
        if depth > MAX_ARRAY_DEPTH {
            return Err(self.error(
                "array",
                format!("level {depth}"),
                format!("at most {MAX_ARRAY_DEPTH} levels"),
            ));
        }
        let kind = self.kind("array element kind")?;
        let len = self.count(kind.least_size(), "array length")?;
        let start = self.position;
        match kind {
            Kind::Str => {
                for _ in 0..len {
                    self.text("text in array")?;
                }
            }
            Kind::Array => {
                for _ in 0..len {
                    self.array(depth + 1)?;
                }
            }
            Kind::Bool => {
                let bytes = self.take(len as u64, "array of bool")?;
                if let Some(other) = bytes.iter().find(|b| **b > 1) {
                    return Err(self.error("bool in array", other, "0 or 1"));
                }
            }
            fixed => {
                let size = len as u64 * fixed.least_size() as u64;
                self.take(size, "array")?;
            }
        }
        Ok(Array::checked(kind, len, self.window.slice(start..self.position)?))
    }

    /// Builds an error for the item at this position.
    pub(super) fn error(&self, what: &str, found: impl ToString, expected: impl Into<String>) -> Error {
        Error::model(format!("{what} at byte {}", self.position), found, expected)
    }
}

/// Prefixes an error with the part of the file in which it happened.
pub(super) fn within(error: Error, place: impl FnOnce() -> String) -> Error {
    match error {
        Error::InvalidModel { path, what, found, expected } => {
            Error::InvalidModel { path, what: format!("{}: {what}", place()), found, expected }
        }
        other => other,
    }
}

/// Converts an error in a file to an error in an argument, for bytes given by the caller.
pub(super) fn as_argument(error: Error) -> Error {
    match error {
        Error::InvalidModel { what, found, expected, .. } => Error::InvalidArgument { what, found, expected },
        other => other,
    }
}
