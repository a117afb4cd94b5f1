//! Reader of untrusted bytes. Every read checks the number of bytes left first.

use super::kind::Kind;
use crate::error::{Error, Result};
use crate::mapped::MappedBytes;

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

    /// Returns a handle on the bytes from `start` to this position.
    pub(super) fn window_from(&self, start: usize) -> Result<MappedBytes> {
        self.window.slice(start..self.position)
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
