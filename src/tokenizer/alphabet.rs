//! GPT-2's alphabet, in which every byte is a printable character, and conversion of text that is not UTF-8.

use std::borrow::Cow;

/// Exclusive upper bound of the characters that represent bytes.
const END: usize = 0x144;

/// True if a byte is a printable Latin-1 character, which represents itself.
const fn printable(byte: usize) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Character of every byte: itself if printable, otherwise U+0100, U+0101 and so on.
const CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let (mut byte, mut other) = (0, 0x100);
    while byte < 256 {
        let number = if printable(byte) { byte } else { other };
        if !printable(byte) {
            other += 1;
        }
        if let Some(c) = char::from_u32(number as u32) {
            chars[byte] = c;
        }
        byte += 1;
    }
    chars
};

/// Byte of every character below [`END`].
const BYTES: [Option<u8>; END] = {
    let mut bytes = [None; END];
    let mut byte = 0;
    while byte < 256 {
        bytes[CHARS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    bytes
};

/// Appends bytes, encoded in the alphabet.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut buffer = [0u8; 4];
    for &byte in bytes {
        out.extend_from_slice(CHARS[usize::from(byte)].encode_utf8(&mut buffer).as_bytes());
    }
}

/// Encodes bytes in the alphabet.
pub(crate) fn byte_text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| CHARS[usize::from(byte)]).collect()
}

/// Decodes a text in the alphabet to bytes. Characters outside the alphabet are left unchanged.
pub(super) fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match BYTES.get(c as usize).copied().flatten() {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(c.encode_utf8(&mut [0u8; 4]).as_bytes()),
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

/// Text for the pre-tokenizer, and the bytes that become tokens. Both have the same length.
pub(super) struct Readable<'a> {
    /// Text for the pre-tokenizer.
    pub(super) seen: Cow<'a, str>,
    /// Bytes for the tokens.
    pub(super) bytes: Cow<'a, [u8]>,
}

/// Makes text of any bytes, as llama.cpp does: each byte that belongs to no character becomes U+FFFD.
/// Surrogates retain their bytes; the pre-tokenizer gets U+F8FF, a character without properties, in their
/// place.
pub(super) fn readable(text: &[u8]) -> Readable<'_> {
    let mut seen = String::new();
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        let valid = match std::str::from_utf8(rest) {
            Ok(all) if seen.is_empty() => return Readable { seen: all.into(), bytes: rest.into() },
            Ok(all) => all,
            Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        seen.push_str(valid);
        bytes.extend_from_slice(valid.as_bytes());
        rest = &rest[valid.len()..];
        rest = match rest {
            [] => return Readable { seen: seen.into(), bytes: bytes.into() },
            [0xED, 0xA0..=0xBF, 0x80..=0xBF, after @ ..] => {
                seen.push('\u{F8FF}');
                bytes.extend_from_slice(&rest[..3]);
                after
            }
            [_, after @ ..] => {
                seen.push(char::REPLACEMENT_CHARACTER);
                bytes.extend_from_slice("\u{FFFD}".as_bytes());
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let all: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        encode(&all, &mut text);
        assert_eq!(decode(&text), all);
        let text = String::from_utf8(text).unwrap();
        assert!(text.chars().all(|c| !c.is_whitespace() && !c.is_control()));
        assert!(text.contains("\u{120}!\"") && text.starts_with('\u{100}'), "the space is U+0120: {text}");
    }

    #[test]
    fn bytes_that_are_no_text_become_replacement_characters() {
        let same = |bytes: &[u8], seen: &str, kept: &[u8]| {
            let readable = readable(bytes);
            assert_eq!((&*readable.seen, &*readable.bytes), (seen, kept));
            assert_eq!(readable.seen.len(), readable.bytes.len());
        };
        same("aé€😀".as_bytes(), "aé€😀", "aé€😀".as_bytes());
        same(b"a\xFF\xFEb", "a\u{FFFD}\u{FFFD}b", "a\u{FFFD}\u{FFFD}b".as_bytes());
        same(b"\xE2\x82", "\u{FFFD}\u{FFFD}", "\u{FFFD}\u{FFFD}".as_bytes());
        same(b"x\xED\xA0\x80y\xED", "x\u{F8FF}y\u{FFFD}", b"x\xED\xA0\x80y\xEF\xBF\xBD");
    }
}
