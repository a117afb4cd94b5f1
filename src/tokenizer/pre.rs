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

use super::vocabulary::key_error;
use ggml_core::Result;
use ggml_core::gguf::Metadata;
use regex_automata::meta::Regex;
use regex_automata::{Input, PatternID};
use std::ops::Range;

/// Key of the pre-tokenizer's name.
const PRE: &str = "tokenizer.ggml.pre";

/// Pattern of white space, the second of its stage.
const SPACES: PatternID = PatternID::new_unchecked(1);

/// Pattern of a pre-tokenizer.
struct Stage {
    pattern: &'static str,
    /// True if white space is matched last, by the rule above.
    spaces: bool,
}

/// Meaning of a name in `tokenizer.ggml.pre`.
struct Scheme {
    names: &'static [&'static str],
    stages: &'static [Stage],
    /// True if a word that is a token is not split.
    whole_words: bool,
    /// True if a text begins with the begin token unless the file specifies otherwise.
    add_bos: bool,
    /// True if decoding removes spaces before punctuation.
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

/// Builds the patterns derived from GPT-4's: contractions, words with one character before them, numbers of
/// limited length, other characters with the line ends after them, line ends.
macro_rules! gpt4 {
    ($word:literal, $number:literal, $other:literal) => {
        concat!(contractions!(), "|", $word, "|", $number, "|", $other, r"|\s*[\r\n]+")
    };
}

/// Builds patterns in which words that change from lower to upper case are split; other scripts have no case
/// here.
macro_rules! cased {
    ($letters:literal, $suffix:expr, $rest:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[",
            $letters,
            r"&&[^a-z]]*[",
            $letters,
            r"&&[^A-Z]]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[",
            $letters,
            r"&&[^a-z]]+[",
            $letters,
            r"&&[^A-Z]]*",
            $suffix,
            "|",
            $rest,
            r"|\s*[\r\n]+"
        )
    };
}

/// Letters of DeepSeek LLM: letters with case, as of an older Unicode version.
macro_rules! deepseek_letters {
    () => {
        concat!(
        r"\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}",
        r"\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}",
        r"\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}",
        r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}",
        r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}",
        r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}",
        r"\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}",
        r"\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}",
        r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}",
        r"\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}",
        r"\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}",
        r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}",
        r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}",
        r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}",
        r"\x{1E900}-\x{1E943}"
        )
    };
}

const GPT2: Stage = with_spaces(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+");
const LLAMA3: Stage =
    with_spaces(gpt4!(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*"));
const QWEN2: Stage = with_spaces(gpt4!(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*"));
const QWEN35: Stage =
    with_spaces(gpt4!(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"));
const DIGIT: Stage = stage(r"\p{N}");
const LINE_END: Stage = stage(r"[\r\n]");
const DEEPSEEK_CJK: Stage = stage(r"[\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+");

const DEEPSEEK_LLM: &[Stage] = &[
    LINE_END,
    stage(concat!(r"\s?[", deepseek_letters!(), "]+")),
    stage(r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+"),
    stage(r"\s+$"),
    DEEPSEEK_CJK,
    stage(r"\p{N}+"),
];
const DEEPSEEK_V3: &[Stage] = &[
    stage(r"\p{N}{1,3}"),
    stage(r"[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+"),
    with_spaces(concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
        r"|[^\r\n\p{L}\p{P}[\p{S}--[~]]]?[\p{L}\p{M}]+| ?[\p{P}[\p{S}--[~]]]+[\r\n]*|\s*[\r\n]+"
    )),
];
const DEFAULT: &[Stage] = &[stage(r"[\p{P}$+<=>^~|]+"), GPT2, stage(r"\p{N}+"), stage("[0-9][0-9][0-9]")];
/// Words between spaces and the punctuation of several scripts.
const BLOOM: Stage = stage(r" ?[^(\s|.,!?…。，、।۔،)]+");

/// All schemes by name. Fields that a scheme does not set have their most frequent value.
static SCHEMES: &[Scheme] = &[
    Scheme { names: &["default"], stages: DEFAULT, ..Scheme::PLAIN },
    Scheme {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        stages: &[GPT2],
        ..Scheme::PLAIN
    },
    Scheme { names: &["trillion", "granite-docling"], stages: &[GPT2], ..Scheme::EXACT },
    Scheme {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        stages: &[LLAMA3],
        whole_words: true,
        add_bos: true,
        ..Scheme::PLAIN
    },
    Scheme { names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], stages: &[LLAMA3], ..Scheme::PLAIN },
    Scheme {
        names: &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"],
        stages: &[QWEN2],
        ..Scheme::EXACT
    },
    Scheme { names: &["megrez", "stablelm2"], stages: &[QWEN2], ..Scheme::PLAIN },
    Scheme { names: &["qwen35"], stages: &[QWEN35], ..Scheme::EXACT },
    Scheme { names: &["laguna"], stages: &[stage(r"[^\n]+|[\n]+"), QWEN2], ..Scheme::EXACT },
    Scheme {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        stages: &[with_spaces(cased!(
            r"\p{L}",
            concat!(contractions!(), "?"),
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
        ))],
        ..Scheme::EXACT
    },
    Scheme {
        names: &["granite-embed-multi-97m"],
        stages: &[with_spaces(cased!(
            r"[\p{L}\p{M}]",
            concat!(contractions!(), "?"),
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
        ))],
        whole_words: true,
        ..Scheme::EXACT
    },
    Scheme {
        names: &["tekken"],
        stages: &[with_spaces(cased!(r"\p{L}", "", r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"))],
        whole_words: true,
        add_bos: true,
        ..Scheme::EXACT
    },
    Scheme { names: &["deepseek-llm"], stages: DEEPSEEK_LLM, ..Scheme::EXACT },
    Scheme {
        names: &["deepseek-coder"],
        stages: &[LINE_END, stage(r"\s?\p{L}+"), stage(r"\s?\p{P}+"), DEEPSEEK_CJK, DIGIT],
        ..Scheme::EXACT
    },
    Scheme {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        stages: DEEPSEEK_V3,
        ..Scheme::EXACT
    },
    Scheme {
        names: &["starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        stages: &[DIGIT, GPT2],
        ..Scheme::PLAIN
    },
    Scheme { names: &["smollm", "command-r"], stages: &[DIGIT, GPT2], ..Scheme::EXACT },
    Scheme {
        names: &["falcon"],
        stages: &[stage(r"[\p{P}$+<=>^~|`]+"), GPT2, stage("[0-9][0-9][0-9]")],
        ..Scheme::PLAIN
    },
    Scheme { names: &["bloom", "gpt3-finnish"], stages: &[BLOOM], ..Scheme::PLAIN },
    Scheme { names: &["poro-chat"], stages: &[BLOOM], ..Scheme::EXACT },
    Scheme { names: &["viking"], stages: &[BLOOM, DIGIT], ..Scheme::EXACT },
    Scheme {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        stages: &[with_spaces(concat!(
            r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]"
        ))],
        ..Scheme::EXACT
    },
    Scheme {
        names: &["seed-coder"],
        stages: &[with_spaces(gpt4!(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+"))],
        ..Scheme::EXACT
    },
    Scheme {
        names: &["minicpm5"],
        stages: &[
            stage(r"\p{N}{1,3}"),
            with_spaces(gpt4!(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*")),
        ],
        whole_words: true,
        ..Scheme::PLAIN
    },
];

impl Scheme {
    /// Common settings of most early schemes.
    const PLAIN: Scheme =
        Scheme { names: &[], stages: &[], whole_words: false, add_bos: false, clean_spaces: true };
    /// Settings for exact decoding, which leaves the text unchanged.
    const EXACT: Scheme = Scheme { clean_spaces: false, ..Scheme::PLAIN };
}

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
        let name = m.opt_str(PRE)?.filter(|n| !n.is_empty()).unwrap_or("default");
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
