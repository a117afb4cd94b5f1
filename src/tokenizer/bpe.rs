//! Byte pair encoding: of bytes in their own alphabet, or of characters, with byte tokens for characters that
//! are no token.

use super::alphabet::{self, readable};
use super::pre::PreTokenizer;
use super::spm::characters;
use super::vocabulary::{Vocabulary, byte_name, escape, key_error};
use ggml_core::Result;
use ggml_core::gguf::Metadata;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Key of the merges.
const MERGES: &str = "tokenizer.ggml.merges";
/// No token: a byte that the vocabulary lacks, or a symbol that was merged into another.
const NONE: u32 = u32::MAX;

/// Merge: its rank (smaller ranks first) and the token that it makes.
#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: u32,
    token: u32,
}

/// Merges by the pair of tokens that they join.
#[derive(Debug)]
pub(super) struct Bpe {
    pub(super) pre: PreTokenizer,
    /// True if merging starts from characters, false if from bytes.
    characters: bool,
    bytes: Box<[u32; 256]>,
    merges: HashMap<(u32, u32), Merge>,
}

/// Part of a word, in a list linked by index.
#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    prev: usize,
    next: usize,
}

/// Possible merge. Ordered by rank, then from left to right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: usize,
    right: usize,
    pair: (u32, u32),
    token: u32,
}

/// Memory that is reused from word to word.
#[derive(Default)]
struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
    text: Vec<u8>,
}

impl Bpe {
    /// Reads merges and pre-tokenizer. Vocabularies of `characters` have U+2581 for spaces, and a token for
    /// each byte as in SentencePiece.
    pub(super) fn read(m: &Metadata, vocabulary: &Vocabulary, characters: bool) -> Result<Bpe> {
        let pre = if characters { PreTokenizer::of_lines()? } else { PreTokenizer::read(m)? };
        let mut bytes = Box::new([NONE; 256]);
        let mut text = Vec::new();
        for (byte, slot) in (0..=255u8).zip(bytes.iter_mut()) {
            text.clear();
            if characters {
                text.extend(byte_name(byte).bytes());
            } else {
                alphabet::encode(&[byte], &mut text);
            }
            *slot = vocabulary.find(&text).unwrap_or(NONE);
        }
        let texts = m.array_bytes(MERGES)?;
        let mut merges = HashMap::with_capacity(texts.len());
        for (text, rank) in texts.into_iter().zip(0u32..) {
            let (pair, token) = parse_merge(vocabulary, text).map_err(|wrong| {
                let text = String::from_utf8_lossy(text);
                key_error(
                    MERGES,
                    format!("element {rank}, '{text}': {wrong}"),
                    "two tokens whose concatenation is a token",
                )
            })?;
            // Of equal merges the first has the rank.
            merges.entry(pair).or_insert(Merge { rank, token });
        }
        Ok(Bpe { pre, characters, bytes, merges })
    }

    /// Appends the tokens of a text without special tokens. Bytes that the vocabulary lacks become `unknown`,
    /// or are dropped if there is no unknown token.
    pub(super) fn encode(&self, v: &Vocabulary, text: &[u8], unknown: Option<u32>, out: &mut Vec<u32>) {
        let mut scratch = Scratch::default();
        if self.characters {
            return self.encode_characters(v, text, unknown, &mut scratch, out);
        }
        let text = readable(text);
        for word in self.pre.split(&text.seen) {
            let Some(word) = text.bytes.get(word) else { continue };
            match self.whole(v, word, &mut scratch.text) {
                Some(token) => out.push(token),
                None => {
                    self.begin(word.iter().map(|&byte| self.bytes[usize::from(byte)]), &mut scratch);
                    self.merge(unknown, &mut scratch, out);
                }
            }
        }
    }

    /// Encodes a text if merging starts from characters; characters that are no token become bytes.
    fn encode_characters(
        &self,
        v: &Vocabulary,
        text: &[u8],
        unknown: Option<u32>,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let mut escaped = Vec::with_capacity(text.len());
        escape(text, &mut escaped);
        let text = readable(&escaped);
        for word in self.pre.split(&text.seen) {
            let Some(word) = text.bytes.get(word) else { continue };
            let tokens = characters(word).flat_map(|(start, len)| {
                let character = &word[start..start + len];
                let whole = v.find(character);
                let bytes = if whole.is_some() { &[][..] } else { character };
                whole.into_iter().chain(bytes.iter().map(|&byte| self.bytes[usize::from(byte)]))
            });
            self.begin(tokens, scratch);
            self.merge(unknown, scratch, out);
        }
    }

    /// Returns the token that is the whole word, if the pre-tokenizer requires it.
    fn whole(&self, v: &Vocabulary, word: &[u8], text: &mut Vec<u8>) -> Option<u32> {
        if !self.pre.whole_words {
            return None;
        }
        text.clear();
        alphabet::encode(word, text);
        v.find(text)
    }

    /// Sets the tokens from which the merging of a word starts.
    fn begin(&self, tokens: impl Iterator<Item = u32>, scratch: &mut Scratch) {
        let symbol = |(i, token): (usize, u32)| Symbol { token, prev: i.wrapping_sub(1), next: i + 1 };
        scratch.symbols.clear();
        scratch.symbols.extend(tokens.enumerate().map(symbol));
    }

    fn merge(&self, unknown: Option<u32>, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { symbols, queue, .. } = scratch;
        queue.clear();
        for right in 1..symbols.len() {
            self.propose(symbols, right - 1, right, queue);
        }
        while let Some(Reverse(c)) = queue.pop() {
            // Merged meanwhile: the pair no longer exists.
            if (symbols[c.left].token, symbols[c.right].token) != c.pair {
                continue;
            }
            let Symbol { prev, .. } = symbols[c.left];
            let Symbol { next, .. } = symbols[c.right];
            symbols[c.left] = Symbol { token: c.token, prev, next };
            symbols[c.right].token = NONE;
            if let Some(after) = symbols.get_mut(next) {
                after.prev = c.left;
            }
            self.propose(symbols, prev, c.left, queue);
            self.propose(symbols, c.left, next, queue);
        }
        let mut at = 0;
        while let Some(symbol) = symbols.get(at) {
            if symbol.token != NONE {
                out.push(symbol.token);
            } else {
                out.extend(unknown);
            }
            at = symbol.next;
        }
    }

    fn propose(
        &self,
        symbols: &[Symbol],
        left: usize,
        right: usize,
        queue: &mut BinaryHeap<Reverse<Candidate>>,
    ) {
        let (Some(l), Some(r)) = (symbols.get(left), symbols.get(right)) else { return };
        let pair = (l.token, r.token);
        if let Some(&Merge { rank, token }) = self.merges.get(&pair) {
            queue.push(Reverse(Candidate { rank, left, right, pair, token }));
        }
    }
}

/// Parses the pair of a merge and looks up the token that it makes.
fn parse_merge(v: &Vocabulary, text: &[u8]) -> Result<((u32, u32), u32), String> {
    // The first part may begin with a space in vocabularies that do not use the byte alphabet.
    let space = text.iter().skip(1).position(|&b| b == b' ').ok_or("it has no space")? + 1;
    let (left, right) = (&text[..space], &text[space + 1..]);
    let token = |text: &[u8]| {
        v.find(text).ok_or_else(|| format!("'{}' is not a token", String::from_utf8_lossy(text)))
    };
    Ok(((token(left)?, token(right)?), token(&[left, right].concat())?))
}
