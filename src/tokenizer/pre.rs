//! Pre-tokenizers: how a text is cut into words before byte pairs are merged.
//!
//! A pre-tokenizer is a list of patterns. Each cuts the pieces that the one before it left: into its matches and what
//! lies between them. The patterns are those of llama.cpp, which sees letters, marks, numbers, punctuation, symbols
//! and white space but no upper and lower case beyond ASCII, and for which `~` is no symbol.
//!
//! The engine has no look-ahead and needs linear time. The one look-ahead that the patterns use, `\s+(?!\S)|\s+`, is a
//! pattern of its own with a rule: of white space before a word, the last character is left to the word.

use super::vocabulary::key_error;
use ggml_core::Result;
use regex_automata::meta::Regex;
use std::ops::Range;

/// Key of the pre-tokenizer's name.
const PRE: &str = "tokenizer.ggml.pre";

/// One pattern of a pre-tokenizer.
struct Stage {
    pattern: &'static str,
    /// White space is matched last, by the rule above.
    spaces: bool,
}

/// What a name in `tokenizer.ggml.pre` means.
struct Kind {
    names: &'static [&'static str],
    stages: &'static [Stage],
    /// A word that is a token is not taken apart.
    whole_words: bool,
    /// A text begins with the begin token unless the file says otherwise.
    add_bos: bool,
    /// Decoding takes spaces before punctuation away.
    clean_spaces: bool,
}

const fn stage(pattern: &'static str) -> Stage {
    Stage { pattern, spaces: false }
}

const fn with_spaces(pattern: &'static str) -> Stage {
    Stage { pattern, spaces: true }
}

macro_rules! contractions {
    () => {
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}

/// The patterns that descend from GPT-4's: contractions, words with one character before them, numbers of some digits,
/// other characters with line ends after them, line ends.
macro_rules! gpt4 {
    ($word:literal, $number:literal, $other:literal) => {
        concat!(contractions!(), "|", $word, "|", $number, "|", $other, r"|\s*[\r\n]+")
    };
}

/// Words that change from upper to lower case are two; other scripts have no case here.
macro_rules! cased {
    ($letters:literal, $suffix:expr, $rest:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[", $letters, r"&&[^a-z]]*[", $letters, r"&&[^A-Z]]+", $suffix,
            r"|[^\r\n\p{L}\p{N}]?[", $letters, r"&&[^a-z]]+[", $letters, r"&&[^A-Z]]*", $suffix,
            "|", $rest, r"|\s*[\r\n]+"
        )
    };
}

const GPT2: Stage = with_spaces(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+");
const LLAMA3: Stage =
    with_spaces(gpt4!(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*"));
const QWEN2: Stage = with_spaces(gpt4!(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*"));
const QWEN35: Stage = with_spaces(gpt4!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
));
const DEEPSEEK3: &[Stage] = &[
    stage(r"\p{N}{1,3}"),
    stage("[一-龥぀-ゟ゠-ヿ]+"),
    with_spaces(concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}[\p{S}--[~]]]?[\p{L}\p{M}]+"##,
        r"| ?[\p{P}[\p{S}--[~]]]+[\r\n]*|\s*[\r\n]+"
    )),
];
const DEFAULT: &[Stage] =
    &[stage(r"[\p{P}$+<=>^~|]+"), GPT2, stage(r"\p{N}+"), stage("[0-9][0-9][0-9]")];
