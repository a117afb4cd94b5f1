//! Pre-tokenizers, which cut a text into words before byte pairs are merged.
//!
//! A pre-tokenizer is a list of patterns. Each pattern cuts the pieces that the previous one left into its
//! matches and the text between them. The patterns are those of llama.cpp, which distinguishes letters,
//! marks, numbers, punctuation, symbols and white space, but no upper and lower case beyond ASCII, and which
//! does not count `~` as a symbol.
//!
//! The engine has no look-ahead and needs linear time. The one look-ahead that the patterns use,
//! `\s+(?!\S)|\s+`, is a pattern of its own with a rule: if white space precedes a word, its last character
//! belongs to the word.

mod schemes;

use super::vocabulary::key_error;
use ggml_core::Result;
use ggml_core::gguf::Metadata;
use regex_automata::meta::Regex;
use regex_automata::{Input, PatternID};
use schemes::{SCHEMES, Stage, stage};
use std::ops::Range;

/// Key of the pre-tokenizer's name.
const PRE: &str = "tokenizer.ggml.pre";

/// Architectures of Ollama's files that name another pre-tokenizer than their own, or none: the architecture, its
/// pre-tokenizer, and whether it replaces any name. Source: Ollama, `llama/compat/llama-ollama-compat.cpp`.
const OF_ARCHITECTURES: &[(&str, &str, bool)] =
    &[("gptoss", "gpt-4o", true), ("glm4moelite", "glm4", true), ("mistral3", "tekken", false)];

/// Pattern of white space, the second of its stage.
const SPACES: PatternID = PatternID::new_unchecked(1);

/// Compiled pre-tokenizer.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    stages: Vec<Regex>,
    /// True if a word that is a token is not split.
    pub(super) whole_words: bool,
    /// True if a text begins with the begin token unless the file specifies otherwise.
    pub(super) add_bos: bool,
    /// True if decoding removes spaces before punctuation.
    pub(super) clean_spaces: bool,
}

impl PreTokenizer {
    /// Reads the pre-tokenizer that a file names; without a name it is `default`, as in llama.cpp.
    ///
    /// # Errors
    /// [`Error::InvalidModel`](ggml_core::Error::InvalidModel) for an unknown name.
    pub(super) fn read(m: &Metadata) -> Result<PreTokenizer> {
        let named = m.opt_str(PRE)?.filter(|n| !n.is_empty());
        let architecture = m.opt_str("general.architecture")?.unwrap_or_default();
        let known = OF_ARCHITECTURES.iter().find(|(of, ..)| *of == architecture);
        let own = known.filter(|(_, _, always)| *always || named.is_none_or(|name| name == "default"));
        let name = own.map(|(_, name, _)| *name).or(named).unwrap_or("default");
        let Some(scheme) = SCHEMES.iter().find(|k| k.names.contains(&name)) else {
            let known: Vec<&str> = SCHEMES.iter().flat_map(|k| k.names.iter().copied()).collect();
            return Err(key_error(
                PRE,
                format!("pre-tokenizer '{name}'"),
                format!("one of {}", known.join(", ")),
            ));
        };
        let stages = scheme.stages.iter().map(compile).collect::<Result<_>>()?;
        Ok(PreTokenizer {
            stages,
            whole_words: scheme.whole_words,
            add_bos: scheme.add_bos,
            clean_spaces: scheme.clean_spaces,
        })
    }

    /// Returns the pre-tokenizer for vocabularies of characters: runs of line ends, and the text between
    /// them.
    pub(super) fn of_lines() -> Result<PreTokenizer> {
        let stages = vec![compile(&stage(r"[^\n]+|\n+"))?];
        Ok(PreTokenizer { stages, whole_words: false, add_bos: true, clean_spaces: false })
    }

    /// Cuts a text into words that cover all of it, in order.
    pub(super) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut words: Vec<Range<usize>> = std::iter::once(0..text.len()).collect();
        for stage in &self.stages {
            let mut finer = Vec::with_capacity(words.len());
            for word in words {
                split_piece(stage, &text[word.clone()], word.start, &mut finer);
            }
            words = finer;
        }
        words
    }
}

fn compile(stage: &Stage) -> Result<Regex> {
    let patterns = if stage.spaces { vec![stage.pattern, r"\s+"] } else { vec![stage.pattern] };
    Regex::new_many(&patterns).map_err(|e| key_error(PRE, format!("pattern of the pre-tokenizer: {e}"), ""))
}

/// Appends the matches in a piece of text and the text between them; `offset` is the offset of the piece.
fn split_piece(regex: &Regex, piece: &str, offset: usize, out: &mut Vec<Range<usize>>) {
    let mut done = 0;
    while let Some(found) = regex.search(&Input::new(piece).range(done..)) {
        let mut end = found.end();
        if found.pattern() == SPACES && end < piece.len() {
            // The last character belongs to the next word, unless it is the only one.
            let last = piece[..end].char_indices().next_back().map_or(end, |(i, _)| i);
            end = if last > found.start() { last } else { end };
        }
        if end <= done {
            break; // an empty match: none of the patterns has any
        }
        if found.start() > done {
            out.push(offset + done..offset + found.start());
        }
        out.push(offset + found.start()..offset + end);
        done = end;
    }
    if done < piece.len() {
        out.push(offset + done..offset + piece.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pre(name: &str) -> PreTokenizer {
        let mut m = Metadata::new();
        m.insert(PRE, name);
        PreTokenizer::read(&m).unwrap()
    }

    fn split<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        pre(name).split(text).into_iter().map(|range| &text[range]).collect()
    }

    /// Some files of Ollama name the pre-tokenizer of GPT-2, whatever the model.
    #[test]
    fn an_architecture_may_know_better() {
        for (architecture, named, number) in [
            ("gptoss", Some("gpt-2"), "123"),
            ("gptoss", None, "123"),
            ("glm4moelite", Some("chatglm-bpe"), "123"),
            ("mistral3", Some("default"), "1"),
            ("mistral3", Some("qwen2"), "1"),
            ("mistral3", Some("llama-bpe"), "123"),
            ("llama", Some("gpt-2"), "12345"),
        ] {
            let mut m = Metadata::new();
            m.insert("general.architecture", architecture);
            if let Some(named) = named {
                m.insert(PRE, named);
            }
            let words = PreTokenizer::read(&m).unwrap().split("12345");
            assert_eq!(&"12345"[words[0].clone()], number, "{architecture} {named:?}");
        }
    }

    #[test]
    fn every_scheme_compiles_and_keeps_the_whole_text() {
        let text = "I've 12345 ~~abc  Ünïcödé\r\n\n\t漢字かな한국 e\u{301} नमस्ते x=y+1; \u{a0}\u{85}(o_O) 😀 \u{f8ff}'LL   ";
        let mut names = Vec::new();
        for name in SCHEMES.iter().flat_map(|k| k.names) {
            assert_eq!(split(name, text).concat(), text, "{name}");
            assert!(split(name, text).iter().all(|word| !word.is_empty()), "{name}");
            assert_eq!(split(name, ""), [""; 0], "{name}");
            names.push(name);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "every name once");
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_word() {
        for name in ["gpt-2", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-v3"] {
            assert_eq!(split(name, "a   b"), ["a", "  ", " b"], "{name}");
            assert_eq!(split(name, "a b"), ["a", " b"], "{name}");
            assert_eq!(split(name, "a   "), ["a", "   "], "{name}");
        }
        assert_eq!(
            split("gpt-2", "a\n\nb\u{3000}\u{3000}c"),
            ["a", "\n", "\n", "b", "\u{3000}", "\u{3000}", "c"]
        );
        assert_eq!(
            split("llama-bpe", "a \n\n  b\u{3000}\u{3000}c"),
            ["a", " \n\n", " ", " b", "\u{3000}", "\u{3000}c"]
        );
    }

    #[test]
    fn contractions() {
        assert_eq!(split("gpt-2", "we'll WE'LL"), ["we", "'ll", " WE", "'", "LL"]);
        assert_eq!(split("qwen2", "we'll WE'LL x'y"), ["we", "'ll", " WE", "'LL", " x", "'y"]);
        assert_eq!(split("gpt-4o", "we'll WE'LL"), ["we'll", " WE'LL"]);
        assert_eq!(split("tekken", "we'll"), ["we", "'ll"]);
    }

    #[test]
    fn numbers() {
        assert_eq!(split("gpt-2", "x 12345"), ["x", " 12345"]);
        assert_eq!(split("llama-bpe", "12345"), ["123", "45"]);
        assert_eq!(split("qwen2", "123²"), ["1", "2", "3", "²"]);
        assert_eq!(split("starcoder", "x 12"), ["x", " ", "1", "2"]);
        assert_eq!(split("falcon", "x 1234"), ["x", " ", "123", "4"]);
        assert_eq!(split("default", "a+b 1234"), ["a", "+", "b", " ", "123", "4"]);
        assert_eq!(split("deepseek-llm", "1234"), ["1234"]);
        assert_eq!(split("deepseek-coder", "1234"), ["1", "2", "3", "4"]);
    }

    #[test]
    fn marks_are_letters_of_some_schemes_only() {
        assert_eq!(split("qwen2", "e\u{301}a"), ["e", "\u{301}a"]);
        assert_eq!(split("qwen35", "e\u{301}a"), ["e\u{301}a"]);
        assert_eq!(split("qwen35", "\u{301}."), ["\u{301}", "."]);
    }

    #[test]
    fn case_cuts_words_in_ascii_only() {
        assert_eq!(split("gpt-4o", "camelCaseHTTPServer"), ["camel", "Case", "HTTPServer"]);
        assert_eq!(split("tekken", "ÄÖäÖ"), ["ÄÖäÖ"]);
    }

    #[test]
    fn scripts_and_punctuation_of_deepseek() {
        assert_eq!(split("deepseek-llm", "Abc漢字, d\n\ne"), ["Abc", "漢字", ",", " d", "\n", "\n", "e"]);
        assert_eq!(
            split("deepseek-v3", "漢字かな12345x ~~ab (c)"),
            ["漢字かな", "123", "45", "x", " ", "~", "~ab", " (", "c", ")"]
        );
        assert_eq!(split("deepseek-coder", "a.b 漢"), ["a", ".", "b", " ", "漢"]);
    }

    #[test]
    fn a_name_that_is_not_known_is_named() {
        let mut m = Metadata::new();
        m.insert(PRE, "klingon");
        let text = PreTokenizer::read(&m).unwrap_err().to_string();
        assert!(text.contains(PRE) && text.contains("'klingon'") && text.contains("qwen2"), "{text}");
        // No name selects llama.cpp's default.
        assert!(PreTokenizer::read(&Metadata::new()).unwrap().clean_spaces);
    }
}
