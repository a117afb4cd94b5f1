//! WordPiece: words are cut from left to right into the longest tokens that match. Source: Schuster and
//! Nakajima, "Japanese and Korean voice search" (2012); as llama.cpp implements it for BERT's vocabularies.
//!
//! In a GGUF file a token at the beginning of a word starts with U+2581, and tokens that continue a word have
//! no mark. A character with a canonical decomposition is replaced by its first character, and marks are
//! removed, so letters lose their accents.

use super::patterns::Patterns;
use super::vocabulary::{SPACE_MARK, Vocabulary, key_error};
use ggml_core::Result;
use ggml_core::gguf::Metadata;
use regex_automata::PatternID;
use regex_automata::meta::Regex;
use unicode_normalization::char::decompose_canonical;

/// Key of lowercasing; on unless a file specifies otherwise.
const LOWERCASE: &str = "tokenizer.ggml.normalizer.lowercase";

/// Classes of characters: white space, which ends words; characters that are removed, including all marks;
/// and characters that are words by themselves: punctuation, ASCII's symbols and the ideographs of Chinese
/// (with the gap at U+2B820 that the common implementations have).
const CLASSES: [&str; 3] = [
    r"\s",
    r"[\p{M}\p{Cc}\p{Cf}\p{Co}\x{FFFD}]",
    concat!(
        r"\p{P}|[$+<=>^`|~]|[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}",
        r"\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
    ),
];
const SPACES: PatternID = PatternID::new_unchecked(0);
const LEFT_OUT: PatternID = PatternID::new_unchecked(1);

/// Maximum characters of a word, as in BERT's own implementation; a longer one is unknown as a whole.
const MAX_CHARS: usize = 100;

/// Data for encoding in addition to the vocabulary.
#[derive(Debug)]
pub(super) struct WordPiece {
    classes: Regex,
    lowercase: bool,
    /// The texts of all tokens; a pattern is the token's ID.
    pieces: Patterns,
}

impl WordPiece {
    /// Reads the metadata keys.
    pub(super) fn read(m: &Metadata, v: &Vocabulary) -> Result<WordPiece> {
        let classes =
            Regex::new_many(&CLASSES).map_err(|e| key_error(LOWERCASE, e, "classes of characters"))?;
        let texts = (0..).map_while(|id| v.text(id));
        let pieces = Patterns::new(texts);
        Ok(WordPiece { classes, lowercase: m.opt_bool(LOWERCASE)?.unwrap_or(true), pieces })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &[u8], unknown: Option<u32>, out: &mut Vec<u32>) {
        let text = String::from_utf8_lossy(text);
        let text: String = text.chars().map(|c| self.plain(c)).collect();
        let mut word = String::from(SPACE_MARK);
        let mut last = 0;
        for found in self.classes.find_iter(&text) {
            word.push_str(&text[last..found.start()]);
            last = found.end();
            match found.pattern() {
                LEFT_OUT => {}
                SPACES => self.encode_word(&mut word, unknown, out),
                _ => {
                    self.encode_word(&mut word, unknown, out);
                    word.push_str(&text[found.range()]);
                    self.encode_word(&mut word, unknown, out);
                }
            }
        }
        word.push_str(&text[last..]);
        self.encode_word(&mut word, unknown, out);
    }

    /// Appends the tokens of a word, which begins with U+2581, or one unknown token if tokens do not cover the
    /// word or it is too long. Clears the word.
    fn encode_word(&self, word: &mut String, unknown: Option<u32>, out: &mut Vec<u32>) {
        let before = out.len();
        let chars = word.chars().count().saturating_sub(1);
        if chars > MAX_CHARS {
            out.extend(unknown);
        } else if chars > 0 {
            let mut longest = vec![None; word.len()];
            self.pieces.longest_at(word.as_bytes()).for_each(|(at, token)| longest[at] = Some(token));
            let mut at = 0;
            while let Some(found) = longest.get(at) {
                let Some(token) = *found else {
                    out.truncate(before);
                    out.extend(unknown);
                    break;
                };
                out.push(token);
                at += self.pieces.bytes(token);
            }
        }
        word.truncate(SPACE_MARK.len());
    }

    fn plain(&self, c: char) -> char {
        let mut first = None;
        decompose_canonical(c, |part| {
            first.get_or_insert(part);
        });
        let c = first.unwrap_or(c);
        if self.lowercase { c.to_lowercase().next().unwrap_or(c) } else { c }
    }
}

#[cfg(test)]
mod tests {
    use super::SPACE_MARK;
    use crate::tokenizer::{EncodeOptions, Tokenizer};
    use ggml_core::gguf::{Array, Metadata};

    fn tokenizer(lowercase: bool) -> Tokenizer {
        let words = [
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "\u{2581}un",
            "want",
            "able",
            "ed",
            "\u{2581}e",
            "\u{2581},",
            "\u{2581}\u{4ECA}",
            "\u{2581}~",
            "\u{2581}E",
            "\u{2581}x",
        ];
        let mut m = Metadata::new();
        m.insert("tokenizer.ggml.model", "bert");
        m.insert("tokenizer.ggml.tokens", Array::texts(words));
        let kinds: Vec<i32> = (0..words.len()).map(|i| if i < 3 { 3 } else { 1 }).collect();
        m.insert("tokenizer.ggml.token_type", Array::from(&kinds[..]));
        m.insert("tokenizer.ggml.normalizer.lowercase", lowercase);
        Tokenizer::from_metadata(&m).unwrap()
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces() {
        let t = tokenizer(true);
        let plain = |text: &str| t.encode(text, &EncodeOptions::PLAIN);
        assert_eq!(plain("UNwanted, unable"), [3, 4, 6, 8, 3, 5]);
        // A word with a part that no token matches is unknown as a whole.
        assert_eq!(plain("unwantedq x"), [0, 12]);
        // Accents are removed, precomposed or not.
        assert_eq!(plain("\u{C9} \u{E9} e\u{301}"), [7, 7, 7]);
        // Invisible characters are removed and do not end a word; ideographs and signs are words by
        // themselves.
        assert_eq!(plain("un\u{AD}able\u{4ECA}x~"), [3, 5, 9, 12, 10]);
        assert!(plain(" \n").is_empty());
    }

    /// The time to cut a word does not depend on the length of the tokens, and a word of more than 100
    /// characters is unknown, even if it is a token.
    #[test]
    fn long_tokens_and_words() {
        let tokens = |n: usize| (1..=n).map(|n| format!("{SPACE_MARK}{}", "a".repeat(n)));
        // About a second per word if every length is looked up at every offset.
        let long: Vec<String> = ["[UNK]".into(), "a".into()].into_iter().chain(tokens(100)).collect();
        let long: Vec<String> =
            long.into_iter().chain([format!("{SPACE_MARK}{}", "a".repeat(8000))]).collect();
        let mut m = Metadata::new();
        m.insert("tokenizer.ggml.model", "bert");
        m.insert("tokenizer.ggml.tokens", Array::texts(long.iter().map(String::as_str)));
        m.insert("tokenizer.ggml.unknown_token_id", 0u32);
        let t = Tokenizer::from_metadata(&m).unwrap();
        let plain = |text: &str| t.encode(text, &EncodeOptions::PLAIN);
        assert_eq!(plain(&"a".repeat(100)), [101]);
        assert_eq!(plain(&"a".repeat(101)), [0]);
        assert_eq!(plain(&"\u{E9}".repeat(100)), [0], "no token");
        let start = std::time::Instant::now();
        assert_eq!(plain(&format!("{} ", "a".repeat(8000)).repeat(50)), [0; 50]);
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    }

    #[test]
    fn texts_are_framed_and_case_may_count() {
        let t = tokenizer(false);
        assert_eq!(t.encode("E e", &EncodeOptions::default()), [1, 11, 7, 2]);
        assert_eq!(t.encode("[SEP] e", &EncodeOptions::default()), [1, 2, 7, 2]);
        assert_eq!(t.decode(&[1, 3, 5, 7, 2]), "unable e");
    }
}
