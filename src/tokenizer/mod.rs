//! Tokenizers from the metadata of a GGUF file.
//!
//! Three families: byte-level byte pair encoding (`tokenizer.ggml.model` is `gpt2`) with its pre-tokenizers
//! (`tokenizer.ggml.pre`), SentencePiece with scores (`llama`: Llama 1 and 2, Mistral, Gemma and others), and WordPiece
//! (`bert`).
//! Tokens are those that llama.cpp gives for the same file.
//!
//! ```no_run
//! use diptych::ggml::gguf::GgufFile;
//! use diptych::tokenizer::{EncodeOptions, Tokenizer};
//!
//! # fn main() -> diptych::Result<()> {
//! let tokenizer = Tokenizer::from_gguf(&GgufFile::open("model.gguf")?)?;
//! let ids = tokenizer.encode("Hello world", &EncodeOptions::default());
//! assert_eq!(tokenizer.decode(&ids), "Hello world");
//! # Ok(())
//! # }
//! ```
//!
//! Where the tokenizers of the original models differ from llama.cpp, this one goes with llama.cpp:
//!
//! * text is not normalised (Qwen's own tokenizer makes NFC of it);
//! * added tokens that the file calls control tokens are text unless special tokens are parsed;
//! * SentencePiece with a space before the text puts one after every special token too;
//! * pre-tokenizers know upper and lower case of ASCII only.
//!
//! It differs from llama.cpp in three places: a broken file is an error (a merge that names no token, a special token
//! outside of the vocabulary); a byte that a byte-level vocabulary lacks becomes the unknown token, if there is one; and
//! where [`DecodeOptions::special`] is off, the space before a text is taken away behind a begin token too.

pub(crate) use alphabet::byte_text;
use ggml_core::gguf::{GgufFile, Metadata};
use ggml_core::{Result, gguf};
use std::collections::BTreeSet;

mod alphabet;
mod bpe;
mod detokenizer;
mod patterns;
mod pre;
mod special;
mod spm;
mod vocabulary;
mod wordpiece;

pub use detokenizer::Detokenizer;
pub use special::SpecialTokens;
pub use vocabulary::TokenKind;

use bpe::Bpe;
use special::{Finder, Fragment};
use spm::Spm;
use vocabulary::{Spelling, TOKENS, Vocabulary, key_error};
use wordpiece::WordPiece;

/// Key of the kind of tokenizer.
const MODEL: &str = "tokenizer.ggml.model";

/// How a text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Put the begin token before and the end token after the text, as far as the file asks for them.
    pub add_special: bool,
    /// Special tokens that are written in the text (`<|im_start|>`) become these tokens. Off, they are text like any
    /// other; use that for text from users. User-defined tokens are always found.
    pub parse_special: bool,
}

impl Default for EncodeOptions {
    /// Begin and end token as the file asks for, special tokens parsed.
    fn default() -> EncodeOptions {
        EncodeOptions { add_special: true, parse_special: true }
    }
}

impl EncodeOptions {
    /// Text only: nothing added, nothing parsed.
    pub const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
}

/// How tokens become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Write control tokens (begin, end, turns) as they are spelled; else they are left out.
    pub special: bool,
    /// The tokens go on where others ended, so no space before the text is taken away and none inside is cleaned.
    pub continues: bool,
}

/// The algorithm.
#[derive(Debug)]
enum Algorithm {
    Bpe(Bpe),
    Spm(Spm),
    WordPiece(WordPiece),
}

/// Turns text into tokens and tokens into text. It is not changed by use and can be shared between threads.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    algorithm: Algorithm,
    special: SpecialTokens,
    ends: BTreeSet<u32>,
    finder: Finder,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
}

impl Tokenizer {
    /// Reads the tokenizer of a model file. If the file has a token embedding, it must have a row for each token.
    ///
    /// # Errors
    /// [`Error::InvalidModel`](ggml_core::Error::InvalidModel), with the key, if one is missing, of the wrong kind or
    /// length, or names a tokenizer, pre-tokenizer or token that is not known.
    pub fn from_gguf(file: &GgufFile) -> Result<Tokenizer> {
        let tokenizer = Tokenizer::from_metadata(file.metadata())?;
        check_embedding(file.tensor("token_embd.weight"), tokenizer.len())?;
        Ok(tokenizer)
    }

    /// Reads a tokenizer from metadata.
    ///
    /// # Errors
    /// As [`Tokenizer::from_gguf`].
    pub fn from_metadata(m: &Metadata) -> Result<Tokenizer> {
        let model = m.str(MODEL)?;
        let (sentence_piece, characters, words) = (model == "llama", model == "gemma4", model == "bert");
        if !(sentence_piece || characters || words || model == "gpt2") {
            return Err(key_error(MODEL, format!("tokenizer '{model}'"), "gpt2, llama, gemma4 or bert"));
        }
        let mut vocabulary = Vocabulary::read(m)?;
        let mut special = SpecialTokens::read(m, &vocabulary, sentence_piece)?;
        if words {
            special.frame_words(&vocabulary);
        }
        let algorithm = if words {
            Algorithm::WordPiece(WordPiece::read(m)?)
        } else if sentence_piece {
            m.array(vocabulary::SCORES)?; // in this family scores are not optional
            Algorithm::Spm(Spm::new(&vocabulary))
        } else {
            Algorithm::Bpe(Bpe::read(m, &vocabulary, characters)?)
        };
        let ends = special::classify(&mut vocabulary, &mut special);
        let of_pieces = sentence_piece || characters || words;
        vocabulary.spell(if of_pieces { Spelling::LowerOneEighth } else { Spelling::ByteAlphabet });
        let default_bos = match &algorithm {
            Algorithm::Spm(_) => true,
            Algorithm::Bpe(bpe) => bpe.pre.add_bos,
            Algorithm::WordPiece(_) => true,
        };
        let finder = Finder::new(&vocabulary, strip_after(m, &vocabulary)?);
        Ok(Tokenizer {
            add_bos: adds(m, "bos", special.bos, default_bos)?,
            add_eos: adds(m, "eos", special.eos, words)?,
            add_space_prefix: m
                .opt_bool("tokenizer.ggml.add_space_prefix")?
                .unwrap_or(sentence_piece || words),
            vocabulary,
            algorithm,
            special,
            ends,
            finder,
        })
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str, options: &EncodeOptions) -> Vec<u32> {
        self.encode_bytes(text.as_bytes(), options)
    }

    /// The tokens of a text that may be no UTF-8. Byte-level vocabularies then have U+FFFD for each byte that belongs to
    /// no character, SentencePiece has the byte.
    pub fn encode_bytes(&self, text: &[u8], options: &EncodeOptions) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special && self.add_bos {
            out.extend(self.special.bos);
        }
        let mut after_special = true;
        for fragment in self.finder.split(text, options.parse_special) {
            match fragment {
                Fragment::Token(token) => out.push(token),
                Fragment::Text(ref range) => {
                    let text = text.get(range.clone()).unwrap_or_default();
                    self.encode_fragment(text, after_special, &mut out);
                }
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if options.add_special && self.add_eos {
            out.extend(self.special.eos);
        }
        out
    }

    fn encode_fragment(&self, text: &[u8], after_special: bool, out: &mut Vec<u32>) {
        let (v, unknown) = (&self.vocabulary, self.special.unknown);
        match &self.algorithm {
            Algorithm::Bpe(bpe) => bpe.encode(v, text, unknown, out),
            Algorithm::WordPiece(words) => words.encode(v, text, unknown, out),
            Algorithm::Spm(spm) => spm.encode(v, text, self.add_space_prefix && after_special, unknown, out),
        }
    }

    /// The text of tokens, without control tokens. Bytes that are no text become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(ids, &DecodeOptions::default())).into_owned()
    }

    /// The bytes that tokens stand for, which need not be UTF-8. A token that the vocabulary does not have is U+FFFD.
    ///
    /// Some vocabularies ask for spaces before punctuation to be taken away; that is done here and not by
    /// [`Tokenizer::detokenizer`].
    pub fn decode_bytes(&self, ids: &[u32], options: &DecodeOptions) -> Vec<u8> {
        let mut detokenizer = Detokenizer::new(self, options);
        let mut out = Vec::with_capacity(4 * ids.len());
        for &id in ids {
            detokenizer.append(id, &mut out);
        }
        match &self.algorithm {
            Algorithm::Bpe(bpe) if bpe.pre.clean_spaces && !options.continues => {
                detokenizer::clean_spaces(&out)
            }
            _ => out,
        }
    }

    /// For the text of tokens that are generated one after the other: they continue a prompt and control tokens are
    /// left out.
    pub fn detokenizer(&self) -> Detokenizer<'_> {
        self.detokenizer_with(&DecodeOptions { special: false, continues: true })
    }

    /// A detokenizer with options.
    pub fn detokenizer_with(&self, options: &DecodeOptions) -> Detokenizer<'_> {
        Detokenizer::new(self, options)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.vocabulary.len()
    }

    /// Never: a vocabulary has a token at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that a token stands for.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.vocabulary.piece(id)
    }

    /// The text of a token as the vocabulary spells it, bytes that are no text as U+FFFD.
    pub fn text(&self, id: u32) -> Option<String> {
        self.vocabulary.text(id).map(|t| String::from_utf8_lossy(t).into_owned())
    }

    /// The token that the vocabulary spells like this.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.vocabulary.find(text.as_bytes())
    }

    /// What a token is.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocabulary.kind(id)
    }

    /// Whether a token is a control token or the unknown token, which are no text.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Control | TokenKind::Unknown))
    }

    /// Tokens with a meaning of their own.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// Whether generation is over with this token: it ends a text, a turn or a message.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// All tokens for which [`Tokenizer::is_end`] holds, in order.
    pub fn ends(&self) -> impl Iterator<Item = u32> + '_ {
        self.ends.iter().copied()
    }

    /// Whether the begin token is put before a text.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether the end token is put after a text.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether a space is put before a text.
    pub fn add_space_prefix(&self) -> bool {
        self.add_space_prefix
    }
}

/// The embedding of a model has a row for each token.
fn check_embedding(embedding: Option<&gguf::TensorInfo>, tokens: usize) -> Result<()> {
    match embedding {
        Some(tensor) if tensor.ne[1] != tokens => {
            let rows = format!("{}, the rows of {}", tensor.ne[1], tensor.name);
            Err(key_error(TOKENS, format!("{tokens} tokens"), rows))
        }
        _ => Ok(()),
    }
}

/// Whether a text gets a begin or end token (`name` is `bos` or `eos`).
fn adds(m: &Metadata, name: &str, id: Option<u32>, default: bool) -> Result<bool> {
    let key = format!("tokenizer.ggml.add_{name}_token");
    match m.opt_bool(&key)? {
        Some(true) if id.is_none() => {
            Err(key_error(&key, "true", format!("tokenizer.ggml.{name}_token_id beside it")))
        }
        Some(add) => Ok(add),
        None => Ok(default && id.is_some()),
    }
}

/// The special tokens of Phi-3 take the white space that follows them along; no key says so, only the model's name.
fn strip_after(m: &Metadata, v: &Vocabulary) -> Result<impl Fn(u32) -> bool> {
    let name = m.opt_bytes("general.name")?.unwrap_or_default().to_ascii_lowercase();
    let phi3 = [&b"phi-3"[..], b"phi3"].iter().any(|n| name.windows(n.len()).any(|w| w == *n));
    let others = ["<unk>", "<s>", "<|endoftext|>"].map(|text| v.find(text.as_bytes()));
    Ok(move |id| phi3 && !others.contains(&Some(id)))
}
