//! Pre-tokenizers by name: their patterns and their other settings.

/// Pattern of a pre-tokenizer.
pub(super) struct Stage {
    pub(super) pattern: &'static str,
    /// True if white space is matched last, by the rule of the parent module.
    pub(super) spaces: bool,
}

/// Meaning of a name in `tokenizer.ggml.pre`.
pub(super) struct Scheme {
    pub(super) names: &'static [&'static str],
    pub(super) stages: &'static [Stage],
    /// True if a word that is a token is not split.
    pub(super) whole_words: bool,
    /// True if a text begins with the begin token unless the file specifies otherwise.
    pub(super) add_bos: bool,
    /// True if decoding removes spaces before punctuation.
    pub(super) clean_spaces: bool,
}

/// Creates a stage without the rule for white space.
pub(super) const fn stage(pattern: &'static str) -> Stage {
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
pub(super) static SCHEMES: &[Scheme] = &[
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
