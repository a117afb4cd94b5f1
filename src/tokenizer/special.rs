//! Special tokens (begin, end, turns), and finding them in a text.

use super::patterns::{Pattern, Patterns};
use super::vocabulary::{TokenKind, Vocabulary, key_error};
use ggml_core::Result;
use ggml_core::gguf::Metadata;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;

/// Texts of tokens that end a text or a turn; files do not mark these tokens. The list is llama.cpp's.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Tokens that end a turn of a chat, if the file names none.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<end_of_utterance>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
];

/// Tokens for filling in the middle. They are control tokens regardless of their kind in the file. The last
/// three groups (padding, repository, file) also end a text.
const FILL_IN: &[(&[&str], bool)] = &[
    (
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        false,
    ),
    (
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        false,
    ),
    (
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        false,
    ),
    (&["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    (&["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"], true),
    (&["<|file_sep|>"], true),
];

/// Parts of a reply in the harmony format, which are always text.
const HARMONY: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Special tokens that a file names by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begin of a text.
    pub bos: Option<u32>,
    /// End of a text.
    pub eos: Option<u32>,
    /// End of a turn of a chat.
    pub eot: Option<u32>,
    /// End of a message that a tool answers.
    pub eom: Option<u32>,
    /// Token for text that the vocabulary cannot represent.
    pub unknown: Option<u32>,
    /// Separator of two texts.
    pub separator: Option<u32>,
    /// Padding of a batch.
    pub padding: Option<u32>,
    /// Placeholder for a token to be predicted.
    pub mask: Option<u32>,
}

impl SpecialTokens {
    /// Reads the keys. The defaults of `sentence_piece` vocabularies are 1, 2 and 0 for begin, end and
    /// unknown.
    pub(super) fn read(m: &Metadata, v: &Vocabulary, sentence_piece: bool) -> Result<SpecialTokens> {
        let id = |name: &str, default: u32| {
            let key = format!("tokenizer.ggml.{name}_token_id");
            let exists = |id: &u32| (*id as usize) < v.len();
            match m.opt_i64(&key)? {
                None => Ok(Some(default).filter(|id| sentence_piece && exists(id))),
                // Files write -1, also as an unsigned integer, for an absent token.
                Some(-1 | 0xFFFF_FFFF) => Ok(None),
                Some(n) => match u32::try_from(n).ok().filter(exists) {
                    Some(id) => Ok(Some(id)),
                    None => Err(key_error(&key, n, format!("one of the {} tokens, or -1", v.len()))),
                },
            }
        };
        let no = u32::MAX;
        Ok(SpecialTokens {
            bos: id("bos", 1)?,
            eos: id("eos", 2)?,
            eot: id("eot", no)?,
            eom: id("eom", no)?,
            unknown: id("unknown", 0)?,
            separator: id("seperator", no)?,
            padding: id("padding", no)?,
            mask: id("mask", no)?,
        })
    }

    /// Sets the tokens that WordPiece puts around a text, and the unknown one, from their usual texts if no
    /// key gives them.
    pub(super) fn frame_words(&mut self, v: &Vocabulary) {
        self.bos = self.bos.or_else(|| v.find(b"[CLS]"));
        self.eos = self.eos.or(self.separator).or_else(|| v.find(b"[SEP]"));
        self.unknown = self.unknown.or_else(|| v.find(b"[UNK]"));
    }
}

/// Corrects the kinds of tokens that are recognised by their texts, and returns the tokens that end a text or
/// a turn, as llama.cpp does. If a model has several tokens of a group, the first in the list is used.
pub(super) fn classify(v: &mut Vocabulary, special: &mut SpecialTokens) -> BTreeSet<u32> {
    let find = |v: &Vocabulary, texts: &[&str]| texts.iter().find_map(|t| v.find(t.as_bytes()));
    let mut ends: BTreeSet<u32> = ENDS.iter().filter_map(|t| v.find(t.as_bytes())).collect();
    let mut control = ends.clone();
    special.eot = special.eot.or_else(|| find(v, END_OF_TURN));
    special.eom = special.eom.or_else(|| find(v, &["<|eom_id|>"]));
    for (texts, ends_text) in FILL_IN {
        let token = find(v, texts);
        control.extend(token);
        ends.extend(token.filter(|_| *ends_text));
    }
    for id in control {
        v.set_kind(id, TokenKind::Control);
    }
    for id in HARMONY.iter().filter_map(|t| v.find(t.as_bytes())).collect::<Vec<_>>() {
        v.set_kind(id, TokenKind::UserDefined);
    }
    ends.extend([special.eos, special.eot, special.eom].into_iter().flatten());
    let has = |text: &str| v.find(text.as_bytes()).filter(|id| ends.contains(id));
    let call = has("<|call|>").or_else(|| has("<|calls|>"));
    let harmony = call.and(has("<|return|>").or_else(|| has("<|flush|>"))).and(has("<|end|>"));
    let tools = has("<|tool_response>").and(has("</s>"));
    // In the harmony format the end of a message is not the end of the reply.
    if let Some(end) = harmony {
        ends.remove(&end);
        v.set_kind(end, TokenKind::UserDefined);
    }
    if let Some(end) = tools {
        ends.remove(&end);
        v.set_kind(end, TokenKind::Normal);
    }
    ends
}

/// Returns the tokens of the list of end tokens that Ollama's files have (`convert/convert_gptoss.go` and others). Those
/// beyond the vocabulary are left out.
pub(super) fn further_ends(m: &Metadata, v: &Vocabulary) -> Result<Vec<u32>> {
    let ids = m.opt_array_i64("tokenizer.ggml.eos_token_ids")?.unwrap_or_default();
    let known = |id: &u32| (*id as usize) < v.len();
    Ok(ids.into_iter().filter_map(|id| u32::try_from(id).ok()).filter(known).collect())
}

/// Part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    /// Text to be encoded.
    Text(Range<usize>),
    /// Special token.
    Token(u32),
}

/// Search for special tokens in texts.
#[derive(Debug)]
pub(super) struct Finder {
    /// All special tokens.
    parsed: Set,
    /// Special tokens that are found even if special tokens are not parsed.
    always: Set,
    /// Texts of the control tokens.
    control: Patterns,
}

/// Set of special tokens, in order of descending length of their texts.
#[derive(Debug)]
struct Set {
    patterns: Patterns,
    /// Token of each pattern, and true if the white space after it belongs to it.
    tokens: Vec<(u32, bool)>,
}

impl Finder {
    /// Creates the search; `strip_after` is true for tokens after which white space is dropped.
    pub(super) fn new(v: &Vocabulary, strip_after: impl Fn(u32) -> bool) -> Finder {
        use TokenKind::{Control, Unknown, UserDefined};
        let set = |kinds: &[TokenKind]| {
            let mut found: Vec<(u32, &[u8], TokenKind)> =
                v.iter().filter(|(_, _, kind)| kinds.contains(kind)).collect();
            found.sort_by_key(|(_, text, _)| Reverse(text.len()));
            let patterns = Patterns::new(found.iter().map(|(_, text, _)| *text));
            Set { patterns, tokens: found.iter().map(|(id, _, _)| (*id, strip_after(*id))).collect() }
        };
        let control = v.iter().filter(|(_, _, kind)| matches!(kind, Control | Unknown));
        Finder {
            parsed: set(&[Control, Unknown, UserDefined]),
            always: set(&[UserDefined]),
            control: Patterns::new(control.map(|(_, text, _)| text)),
        }
    }

    /// Returns every offset at which the text of a control token begins, in ascending order.
    pub(super) fn control_at(&self, text: &[u8]) -> Vec<usize> {
        let mut all: Vec<usize> = self.control.longest_at(text).map(|(at, _)| at).collect();
        all.reverse();
        all
    }

    /// Cuts a text at special tokens. All occurrences of a longer token are found before those of a shorter
    /// one.
    pub(super) fn split(&self, text: &[u8], parse_special: bool) -> Vec<Fragment> {
        let accepted = if parse_special { &self.parsed } else { &self.always }.accept(text);
        let mut fragments = Vec::with_capacity(2 * accepted.len() + 1);
        let mut done = 0;
        for (start, (end, token)) in accepted {
            if start > done {
                fragments.push(Fragment::Text(done..start));
            }
            fragments.push(Fragment::Token(token));
            done = end;
        }
        if done < text.len() {
            fragments.push(Fragment::Text(done..text.len()));
        }
        fragments
    }
}

/// Accepted tokens by their start: the end, including white space that belongs to them, and the token.
type Accepted = BTreeMap<usize, (usize, u32)>;

impl Set {
    /// Accepts tokens in the order of their rank (the longest first), equal ones from left to right.
    ///
    /// Each offset has one candidate in the queue: the longest token that begins there. If it overlaps an
    /// accepted token, the longest token that does not overlap is queued for the offset. The accepted token
    /// is at least as long and begins before the end of the candidate, so the remaining length more than
    /// halves each time. So an offset is queued a logarithmic number of times.
    fn accept(&self, text: &[u8]) -> Accepted {
        let mut accepted = Accepted::new();
        let mut waiting: BinaryHeap<Reverse<(Pattern, usize)>> =
            self.patterns.longest_at(text).map(|(at, pattern)| Reverse((pattern, at))).collect();
        while let Some(Reverse((pattern, at))) = waiting.pop() {
            let before = accepted.range(..=at).next_back();
            if before.is_some_and(|(_, (end, _))| *end > at) {
                continue;
            }
            let room = accepted.range(at..).next().map_or(text.len(), |(next, _)| *next) - at;
            let end = at + self.patterns.bytes(pattern);
            if end - at > room {
                waiting.extend(self.patterns.within(pattern, room).map(|shorter| Reverse((shorter, at))));
                continue;
            }
            let (token, strip_after) = self.tokens[pattern as usize];
            accepted.insert(at, (if strip_after { skip_space(text, end, &accepted) } else { end }, token));
        }
        accepted
    }
}

/// Returns the end of the white space at `start`, at most the start of the next accepted token.
fn skip_space(text: &[u8], start: usize, accepted: &Accepted) -> usize {
    let limit = accepted.range(start..).next().map_or(text.len(), |(next, _)| *next);
    let space = |b: &u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C);
    start + text.get(start..limit).map_or(0, |t| t.iter().take_while(|b| space(b)).count())
}
