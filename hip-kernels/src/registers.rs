//! PTX with relative register numbers: each register (`%rd12`) is encoded as its distance from the previous
//! one of its class. This compresses to half the size: an operand is mostly a recent result, and distances
//! repeat where numbers do not.
//!
//! A distance is a byte that does not occur in ASCII text. Registers farther away are left as digits.

// The build script uses one half of this module, the library the other.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Byte for the distance 0, in the middle of the bytes for -64 to 63.
const NONE: u8 = 0xc0;

/// Writes PTX with relative register numbers.
pub(crate) fn relative(text: &[u8], to: &mut impl Write) -> io::Result<()> {
    if !text.is_ascii() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "PTX is ASCII text"));
    }
    rewrite(text, to, |last, rest, to| {
        let Some((number, digits)) = number(rest) else { return Ok(0) };
        let distance = i64::from(number) - i64::from(*last);
        *last = number;
        match i8::try_from(distance) {
            Ok(near @ -64..=63) => to.write_all(&[NONE.wrapping_add_signed(near)])?,
            _ => to.write_all(digits)?,
        }
        Ok(digits.len())
    })
}

/// Restores the PTX that was passed to [`relative`].
pub(crate) fn absolute(text: &[u8], to: &mut impl Write) -> io::Result<()> {
    rewrite(text, to, |last, rest, to| {
        if let Some((number, digits)) = number(rest) {
            *last = number;
            to.write_all(digits)?;
            return Ok(digits.len());
        }
        let Some(distance) = rest.first().filter(|byte| !byte.is_ascii()) else { return Ok(0) };
        *last = last.wrapping_add_signed(i32::from(*distance) - i32::from(NONE));
        write!(to, "{last}")?;
        Ok(1)
    })
}

/// Copies text. After each register class it calls `register` with the last number of that class and the rest
/// of the text: `register` writes the replacement and returns the number of bytes of the text that it
/// replaces.
fn rewrite<W: Write>(
    text: &[u8],
    to: &mut W,
    register: impl Fn(&mut u32, &[u8], &mut W) -> io::Result<usize>,
) -> io::Result<()> {
    let (mut last, mut rest) = (BTreeMap::new(), text);
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        let letters = rest[at + 1..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
        let (copied, after) = rest.split_at(at + 1 + letters);
        to.write_all(copied)?;
        rest = &after[register(last.entry(&copied[at..]).or_default(), after, to)?..];
    }
    to.write_all(rest)
}

/// Returns the number at the beginning of the text, and its digits, if they have no leading zeros.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = &text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()];
    let printed = digits == b"0" || !digits.starts_with(b"0");
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, digits)).filter(|_| printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut packed = Vec::new();
        relative(text.as_bytes(), &mut packed).unwrap();
        packed
    }

    #[test]
    fn every_text_comes_back() {
        for text in [
            "",
            "%",
            "100%\0\0",
            "mul.wide.u32 \t%rd9, %r27, %r34;\n@%p1 bra $L__BB0_13;\n.reg .b64 %rd<87>; mov.u32 %r1, %tid.x;",
            "%r64 %r0 %r63 %r64 %r128 %r127 %r63 %r4294967295 %r0 %r4294967296 %r1",
            "%r007 %r00 %r7 %r-3 %r %r8%r9%%r10 %R5 %r_6",
        ] {
            let mut back = Vec::new();
            absolute(&packed(text), &mut back).unwrap();
            assert_eq!(std::str::from_utf8(&back), Ok(text));
        }
        assert!(relative("%r\u{e9}".as_bytes(), &mut Vec::new()).is_err());
    }

    #[test]
    fn distances_repeat() {
        let of = |n: u32| packed(&format!("%r{n} add %rd7, %r{}, %r{}, %r5000", n + 1, n - 2));
        assert_eq!(of(1000)[b"%r1000".len()..], of(1010)[b"%r1010".len()..]);
        assert!(of(1000).ends_with(b", %r\xc1, %r\xbd, %r5000"));
    }

    /// Damaged input gives an error or other text, never a panic.
    #[test]
    fn any_bytes_are_read() {
        let all: Vec<u8> = (0..=255).flat_map(|byte| [b'%', b'r', byte, byte]).collect();
        absolute(&all, &mut Vec::new()).unwrap();
        assert!(absolute(&all, &mut [0; 9].as_mut_slice()).is_err());
    }
}
