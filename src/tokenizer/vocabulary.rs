//! Vocabulary: the tokens of a GGUF file.

use super::alphabet;
use ggml_core::gguf::Metadata;
use ggml_core::{Error, Result};
use std::collections::HashMap;

/// Key of the texts of the tokens.
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
/// Key of the scores of the tokens.
pub(super) const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";

/// Kind of a token (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Number 0: no kind. Represents no bytes.
    Undefined,
    /// Part of ordinary text.
    Normal,
    /// Represents text that the vocabulary cannot represent.
    Unknown,
    /// Controls the model (begin, end, turns); part of a text only if special tokens are parsed.
    Control,
    /// Found as a whole in every text, before anything else.
    UserDefined,
    /// Reserved. Represents no bytes.
    Unused,
    /// One byte, written `<0xNN>`.
    Byte,
}

impl TokenKind {
    /// True if tokens of this kind are no parts of ordinary text.
    fn is_no_text(self) -> bool {
        use TokenKind::{Control, Undefined, Unused, UserDefined};
        matches!(self, Control | Undefined | Unused | UserDefined)
    }

    fn from_gguf(number: i32) -> Option<TokenKind> {
        Some(match number {
            0 => TokenKind::Undefined,
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => return None,
        })
    }
}

/// Encoding of the texts of normal tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Every byte is a printable character: GPT-2's alphabet.
    ByteAlphabet,
    /// Plain text, with U+2581 for a space.
    SentencePiece,
}

/// U+2581, which represents a space in SentencePiece vocabularies.
pub(super) const SPACE_MARK: &str = "\u{2581}";

/// Texts, kinds and scores of all tokens, and an index from text to token.
#[derive(Debug)]
pub(super) struct Vocabulary {
    texts: Vec<Box<[u8]>>,
    kinds: Vec<TokenKind>,
    scores: Vec<f32>,
    pieces: Vec<Box<[u8]>>,
    ids: HashMap<Box<[u8]>, u32>,
    longest: usize,
}

/// Returns the error for a metadata key, with the value found and the expected one.
pub(super) fn key_error(key: &str, found: impl ToString, expected: impl Into<String>) -> Error {
    Error::model(format!("metadata key {key:?}"), found, expected)
}

impl Vocabulary {
    /// Reads tokens, kinds and scores. Of more than `most` tokens, the last ones are left out if they are no
    /// ordinary text, as placeholders of images are. Call [`Vocabulary::decode_pieces`] after the last
    /// [`Vocabulary::set_kind`]; until then there are no pieces.
    pub(super) fn read(m: &Metadata, most: usize) -> Result<Vocabulary> {
        let texts = m.array_bytes(TOKENS)?;
        if texts.is_empty() || u32::try_from(texts.len()).is_err() {
            return Err(key_error(
                TOKENS,
                format!("{} tokens", texts.len()),
                format!("1 to {} tokens", u32::MAX),
            ));
        }
        let count = texts.len();
        let same_length = |key: &str, len: usize| match len == count {
            true => Ok(()),
            false => {
                Err(key_error(key, format!("{len} elements"), format!("one for each of {count} tokens")))
            }
        };
        let mut scores = m.opt_array_f32(SCORES)?.unwrap_or_else(|| vec![0.0; count]);
        same_length(SCORES, scores.len())?;
        if let Some(i) = scores.iter().position(|s| s.is_nan()) {
            return Err(key_error(SCORES, format!("element {i} is NaN"), "a number"));
        }
        let mut kinds: Vec<TokenKind> = match m.opt_array_i32(TYPES)? {
            None => vec![TokenKind::Normal; count],
            Some(numbers) => numbers.iter().enumerate().map(|(i, n)| kind(i, *n)).collect::<Result<_>>()?,
        };
        same_length(TYPES, kinds.len())?;
        let mut texts: Vec<Box<[u8]>> = texts.iter().enumerate().map(|(i, t)| named(i, t)).collect();
        if most > 0 && kinds.iter().skip(most).all(|kind| kind.is_no_text()) {
            texts.truncate(most);
            kinds.truncate(most);
            scores.truncate(most);
        }
        let longest = texts.iter().map(|t| t.len()).max().unwrap_or(0);
        let mut ids = HashMap::with_capacity(count);
        for (text, id) in texts.iter().zip(0u32..) {
            ids.entry(text.clone()).or_insert(id);
        }
        Ok(Vocabulary { texts, kinds, scores, pieces: Vec::new(), ids, longest })
    }

    /// Computes the piece of every token: the bytes that it represents.
    pub(super) fn decode_pieces(&mut self, spelling: Spelling) {
        let pieces = self.texts.iter().zip(&self.kinds).map(|(text, kind)| piece(text, *kind, spelling));
        self.pieces = pieces.collect();
    }

    /// Returns the number of tokens.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the token of a text, the first of several with the same text.
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        if text.len() > self.longest { None } else { self.ids.get(text).copied() }
    }

    /// Returns the text of a token as in the file; `[EMPTY_n]` for an empty one of token n.
    pub(super) fn text(&self, id: u32) -> Option<&[u8]> {
        self.texts.get(id as usize).map(|t| &**t)
    }

    /// Returns the bytes that a token represents.
    pub(super) fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id as usize).map(|t| &**t)
    }

    /// Returns the kind of a token.
    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Changes the kind of a token. Its piece stays as it is. An unknown id is ignored.
    pub(super) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(slot) = self.kinds.get_mut(id as usize) {
            *slot = kind;
        }
    }

    /// Returns the score of a token; 0 if the file has none.
    pub(super) fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    /// Iterates over the tokens by id, with their texts and kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u8], TokenKind)> {
        self.texts.iter().zip(&self.kinds).zip(0u32..).map(|((text, kind), id)| (id, &**text, *kind))
    }
}

fn kind(index: usize, number: i32) -> Result<TokenKind> {
    let wrong = || key_error(TYPES, format!("element {index} is {number}"), "a kind of token");
    TokenKind::from_gguf(number).ok_or_else(wrong)
}

/// Returns the text, or `[EMPTY_index]` for an empty one, as llama.cpp does.
fn named(index: usize, text: &[u8]) -> Box<[u8]> {
    if text.is_empty() { format!("[EMPTY_{index}]").into_bytes().into() } else { text.into() }
}

fn piece(text: &[u8], kind: TokenKind, spelling: Spelling) -> Box<[u8]> {
    match (kind, spelling) {
        (TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined, _) => text.into(),
        (TokenKind::Undefined | TokenKind::Unused, _) => Box::default(),
        (TokenKind::Byte, _) => parse_byte(text).map_or_else(|| text.into(), |byte| [byte].into()),
        (TokenKind::Normal, Spelling::ByteAlphabet) => alphabet::decode(text).into(),
        (TokenKind::Normal, Spelling::SentencePiece) => unescape(text).into(),
    }
}

/// Parses the byte of a text `<0xNN>`.
fn parse_byte(text: &[u8]) -> Option<u8> {
    let hex = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = (hex.len() == 2 && hex.iter().all(u8::is_ascii_hexdigit)).then_some(hex)?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Replaces U+2581 by a space.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = match rest.strip_prefix(SPACE_MARK.as_bytes()) {
            Some(after) => {
                out.push(b' ');
                after
            }
            None => {
                out.push(first);
                tail
            }
        };
    }
    out
}

/// Returns SentencePiece's spelling of the token of a byte.
pub(super) fn byte_name(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// Appends `text` to `out`, with U+2581 for each space.
pub(super) fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b' ' => out.extend_from_slice(SPACE_MARK.as_bytes()),
            _ => out.push(byte),
        }
    }
}
