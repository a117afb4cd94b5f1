//! SentencePiece's byte pair encoding: of all neighbours that form a token, the pair with the highest score
//! is joined first.

use super::vocabulary::{Vocabulary, byte_name, escape};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};

/// Data for encoding in addition to the vocabulary.
#[derive(Debug)]
pub(super) struct Spm {
    /// Pairs of characters that are adjacent in some token. No token can span any other pair, so a text is
    /// cut there and its parts are encoded one after the other: the result is the same, and time stays
    /// linear.
    neighbours: HashSet<(u32, u32)>,
    /// Tokens of single bytes.
    bytes: Box<[Option<u32>; 256]>,
}

/// One character or several joined ones: bytes of the text, in a list linked by index. It is empty once
/// joined to another.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    len: usize,
    prev: usize,
    next: usize,
}

/// Two neighbours that form a token.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Candidate {
    /// Orders by score, and equal scores from right to left, so that the leftmost is the greatest.
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// Returns the number of bytes of the character that starts with this byte; 1 if no character starts with it.
fn character_len(first: u8) -> usize {
    match first {
        0xF0..=0xFF => 4,
        0xE0..=0xEF => 3,
        0xC0..=0xDF => 2,
        _ => 1,
    }
}

/// Returns the characters of a text, valid or not, as ranges.
pub(super) fn characters(text: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut start = 0;
    std::iter::from_fn(move || {
        let len = character_len(*text.get(start)?).min(text.len() - start);
        start += len;
        Some((start - len, len))
    })
}

/// Returns the bytes of a character as an integer.
fn number(text: &[u8], (start, len): (usize, usize)) -> u32 {
    text[start..start + len].iter().fold(0, |n, &b| n << 8 | u32::from(b))
}

/// Returns the pairs of adjacent characters.
fn pairs(text: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let numbers = || characters(text).map(|c| number(text, c));
    numbers().zip(numbers().skip(1))
}

impl Spm {
    /// Creates the encoder from the tokens.
    pub(super) fn new(vocabulary: &Vocabulary) -> Spm {
        let mut bytes = Box::new([None; 256]);
        for (byte, slot) in (0..=255u8).zip(bytes.iter_mut()) {
            // `<0xNN>`, otherwise the token whose text is that byte.
            let named = vocabulary.find(byte_name(byte).as_bytes());
            *slot = named.or_else(|| vocabulary.find(&[byte]));
        }
        Spm { neighbours: vocabulary.iter().flat_map(|(_, text, _)| pairs(text)).collect(), bytes }
    }

    /// Appends the tokens of a text without special tokens; `prefix` puts a space before it.
    pub(super) fn encode(
        &self,
        v: &Vocabulary,
        text: &[u8],
        prefix: bool,
        unknown: Option<u32>,
        out: &mut Vec<u32>,
    ) {
        let mut escaped = Vec::with_capacity(text.len() + text.len() / 2 + 3);
        if prefix {
            escape(b" ", &mut escaped);
        }
        escape(text, &mut escaped);
        let mut segment = Segment {
            spm: self,
            vocabulary: v,
            text: &escaped,
            symbols: Vec::new(),
            queue: BinaryHeap::new(),
        };
        let mut last = None;
        for range in characters(&escaped) {
            let c = number(&escaped, range);
            if last.is_some_and(|l| !self.neighbours.contains(&(l, c))) {
                segment.encode(unknown, out);
            }
            segment.push(range);
            last = Some(c);
        }
        segment.encode(unknown, out);
    }
}

/// Segment of a text, between two offsets that no token spans.
struct Segment<'a> {
    spm: &'a Spm,
    vocabulary: &'a Vocabulary,
    text: &'a [u8],
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
}

impl Segment<'_> {
    /// Adds a character.
    fn push(&mut self, (start, len): (usize, usize)) {
        let index = self.symbols.len();
        self.symbols.push(Symbol { start, len, prev: index.wrapping_sub(1), next: index + 1 });
    }

    /// Appends the tokens of the segment and clears it.
    fn encode(&mut self, unknown: Option<u32>, out: &mut Vec<u32>) {
        self.queue.clear();
        for right in 1..self.symbols.len() {
            self.propose(right - 1, right);
        }
        while let Some(c) = self.queue.pop() {
            let (left, right) = (self.symbols[c.left], self.symbols[c.right]);
            // Joined to others meanwhile.
            if left.len == 0 || right.len == 0 || left.len + right.len != c.len {
                continue;
            }
            self.symbols[c.left] = Symbol { len: c.len, next: right.next, ..left };
            self.symbols[c.right].len = 0;
            if let Some(after) = self.symbols.get_mut(right.next) {
                after.prev = c.left;
            }
            self.propose(left.prev, c.left);
            self.propose(c.left, right.next);
        }
        for symbol in self.symbols.iter().filter(|s| s.len > 0) {
            let text = self.bytes(symbol.start, symbol.len);
            match self.vocabulary.find(text) {
                Some(token) => out.push(token),
                None => out.extend(text.iter().filter_map(|&b| self.spm.bytes[usize::from(b)].or(unknown))),
            }
        }
        self.symbols.clear();
    }

    fn bytes(&self, start: usize, len: usize) -> &[u8] {
        self.text.get(start..start + len).unwrap_or_default()
    }

    /// Queues two neighbours if they form a token.
    fn propose(&mut self, left: usize, right: usize) {
        let (Some(l), Some(r)) = (self.symbols.get(left), self.symbols.get(right)) else {
            return;
        };
        let len = l.len + r.len;
        if let Some(token) = self.vocabulary.find(self.bytes(l.start, len)) {
            self.queue.push(Candidate { score: self.vocabulary.score(token), left, right, len });
        }
    }
}
