//! Conversion of tokens to text.

use super::{DecodeOptions, Tokenizer};

/// Converts tokens to text one after the other, for output while a model generates.
///
/// A token may end within a character. The detokenizer holds the bytes back until the character is complete,
/// so its output is always valid text. Bytes that cannot become a character are output as U+FFFD.
///
/// ```no_run
/// # fn demo(tokenizer: &diptych::Tokenizer, ids: &[u32]) {
/// let mut detokenizer = tokenizer.detokenizer();
/// for &id in ids {
///     print!("{}", detokenizer.push(id));
/// }
/// println!("{}", detokenizer.finish());
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    special: bool,
    /// True if the space before a text has to be removed from the next token.
    strip: bool,
    pending: Vec<u8>,
}

impl<'a> Detokenizer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, options: &DecodeOptions) -> Detokenizer<'a> {
        let strip = tokenizer.add_space_prefix() && !options.continues;
        Detokenizer { tokenizer, special: options.special, strip, pending: Vec::new() }
    }

    /// Adds a token and returns the text that it completes; empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> String {
        let mut pending = std::mem::take(&mut self.pending);
        self.append(id, &mut pending);
        let mut out = String::new();
        let whole = whole_characters(&pending);
        let (text, rest) = pending.split_at_checked(whole).unwrap_or((&pending, &[]));
        push_lossy(text, &mut out);
        self.pending = rest.to_vec();
        out
    }

    /// Returns the remaining text: U+FFFD if the tokens ended within a character.
    pub fn finish(self) -> String {
        let mut out = String::new();
        push_lossy(&self.pending, &mut out);
        out
    }

    /// Appends the bytes of a token. A token outside the vocabulary is U+FFFD.
    pub(super) fn append(&mut self, id: u32, out: &mut Vec<u8>) {
        if !self.special && self.tokenizer.is_special(id) {
            return;
        }
        let piece = self.tokenizer.piece(id).unwrap_or("\u{FFFD}".as_bytes());
        let piece =
            if std::mem::take(&mut self.strip) { piece.strip_prefix(b" ").unwrap_or(piece) } else { piece };
        out.extend_from_slice(piece);
    }
}

/// Returns the number of bytes before an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let rest = last.map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(rest) {
        Err(error) if error.error_len().is_none() => bytes.len() - rest.len(),
        _ => bytes.len(),
    }
}

/// Appends bytes as text; invalid bytes become U+FFFD.
fn push_lossy(bytes: &[u8], out: &mut String) {
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Removes spaces before punctuation and contractions, as the tokenizers of some older models require: before
/// `? ! . ,`, on both sides of a separate apostrophe, before `'s 'm 're 've`.
pub(super) fn clean_spaces(text: &[u8]) -> Vec<u8> {
    let text = drop_spaces(text, |next| matches!(next, [b'?' | b'!' | b'.' | b',', ..]).then_some(0));
    let text = drop_spaces(&text, |next| matches!(next, [b'\'', b' ', ..]).then_some(1));
    drop_spaces(&text, |next| {
        matches!(next, [b'\'', b's' | b'm', ..] | [b'\'', b'r' | b'v', b'e', ..]).then_some(0)
    })
}

/// Drops each space for which `rule` returns a count for the text after it. It keeps the byte after the space
/// and drops as many bytes after that byte.
fn drop_spaces(text: &[u8], rule: impl Fn(&[u8]) -> Option<usize>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let dropped = if *first == b' ' { rule(after) } else { None };
        rest = match (dropped, after) {
            (Some(more), [kept, following @ ..]) => {
                out.push(*kept);
                following.get(more..).unwrap_or_default()
            }
            _ => {
                out.push(*first);
                after
            }
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_before_punctuation_go() {
        let clean = |text: &str| String::from_utf8(clean_spaces(text.as_bytes())).unwrap();
        assert_eq!(clean("Well , yes ! No ? a  . b"), "Well, yes! No? a . b");
        assert_eq!(
            clean("it 's I 'm we 're they 've he 'll you 'd can 't"),
            "it's I'm we're they've he 'll you 'd can 't"
        );
        assert_eq!(clean("a ' b '"), "a'b '");
        assert_eq!(
            (clean(""), clean(" "), clean("?"), clean(" ?")),
            ("".into(), " ".into(), "?".into(), "?".into())
        );
    }

    #[test]
    fn the_incomplete_end_is_found() {
        assert_eq!(whole_characters("aé".as_bytes()), 3);
        assert_eq!(whole_characters(b"a\xC3"), 1);
        assert_eq!(whole_characters(b"a\xF0\x9F\x98"), 1);
        assert_eq!(whole_characters(b"a\xF0\x9Fb"), 4);
        assert_eq!(whole_characters(b"\xFF"), 1);
    }
}
