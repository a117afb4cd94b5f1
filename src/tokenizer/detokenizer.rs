//! From tokens to text.

use super::{DecodeOptions, Tokenizer};

/// Turns tokens into text one after the other, for output while a model generates.
///
/// A token may end within a character. The detokenizer keeps such bytes until the character is whole, so what it gives
/// out is always text. Bytes that cannot become a character are given out as U+FFFD.
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
    /// The space before a text has to be taken away from the next token.
    strip: bool,
    pending: Vec<u8>,
}

impl<'a> Detokenizer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, options: &DecodeOptions) -> Detokenizer<'a> {
        let strip = tokenizer.add_space_prefix() && !options.continues;
        Detokenizer { tokenizer, special: options.special, strip, pending: Vec::new() }
    }

    /// The text that becomes whole with a token; empty where a character is still incomplete.
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

    /// What is left: U+FFFD if the tokens ended within a character.
    pub fn finish(self) -> String {
        let mut out = String::new();
        push_lossy(&self.pending, &mut out);
        out
    }

    /// Appends the bytes of a token. A token that the vocabulary does not have is U+FFFD.
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

/// How many bytes there are before a character that is incomplete at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let rest = last.map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(rest) {
        Err(error) if error.error_len().is_none() => bytes.len() - rest.len(),
        _ => bytes.len(),
    }
}

/// Appends bytes as text; what is no character becomes U+FFFD.
fn push_lossy(bytes: &[u8], out: &mut String) {
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Takes away the spaces that stand before punctuation and contractions, as the tokenizers of some older models ask
/// for: before `? ! . ,`, on both sides of a lone apostrophe, before `'s 'm 're 've`.
pub(super) fn clean_spaces(text: &[u8]) -> Vec<u8> {
    let text = drop_spaces(text, |next| matches!(next, [b'?' | b'!' | b'.' | b',', ..]).then_some(0));
    let text = drop_spaces(&text, |next| matches!(next, [b'\'', b' ', ..]).then_some(1));
    drop_spaces(&text, |next| {
        matches!(next, [b'\'', b's' | b'm', ..] | [b'\'', b'r' | b'v', b'e', ..]).then_some(0)
    })
}

/// Drops each space for which the rule, asked about what follows, gives a number, and that many bytes after the one
/// that follows the space.
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
