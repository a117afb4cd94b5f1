//! Chat templates: conversion of messages to the text format that a model was trained on.
//!
//! A model file contains its template, a program in the language of Jinja2 that was written for Python. The
//! engine here is configured as the training libraries configure theirs: the same trimming of blocks,
//! Python's methods of strings, lists and dictionaries, `tojson` as `json.dumps` writes it,
//! `raise_exception`, `strftime_now`, loop controls, `{% generation %}`; values are written as Python writes
//! them.
//!
//! ```
//! use diptych::chat::{ChatInput, ChatTemplate, Message};
//!
//! # fn main() -> Result<(), diptych::chat::ChatError> {
//! let template = ChatTemplate::new(
//!     "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}\
//!      {% if add_generation_prompt %}<assistant>{% endif %}",
//! )?
//! .with_token("bos_token", "<s>");
//! let input = ChatInput::new([Message::system("Be brief."), Message::user(" Hello ")]);
//! assert_eq!(template.render(&input)?, "<s><system>Be brief.<user>Hello<assistant>");
//! # Ok(())
//! # }
//! ```
//!
//! The text of a template usually begins with the model's first token already (`bos_token`), but not always:
//! [`Tokenizer::encode_chat`](crate::tokenizer::Tokenizer::encode_chat) adds it where it is missing.
//!
//! A template comes from a file that may be malicious. Its steps ([`MAX_STEPS`]), the values and the text
//! that it makes ([`MAX_MEMORY`]), what it compares and searches ([`MAX_WORK`]), its time ([`MAX_TIME`], or
//! [`ChatInput::with_deadline`]) and its recursion are bounded, and [`ChatInput::with_cancel`] ends it. It runs on
//! its own thread, whose stack is large enough for any nesting that the steps can build.
//!
//! One difference from Jinja2 is intended: a loop over `none` is an empty loop, not an error, so that
//! templates written for tools can be used without any.

mod args;
mod budget;
mod compile;
mod conversation;
mod engine;
mod error;
mod guard;
mod input;
mod methods;
mod source;
mod text;

pub use budget::{MAX_MEMORY, MAX_TIME, MAX_WORK};
pub use conversation::Conversation;
pub use engine::MAX_STEPS;
pub use error::ChatError;
pub use input::{ChatInput, FunctionCall, Message, ToolCall};

use ggml_core::gguf::Metadata;
use minijinja::{Environment, Value};

/// Special tokens by their names in templates and the keys of their ids in a GGUF file.
const TOKENS: &[(&str, &str)] = &[
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("cls_token", "tokenizer.ggml.cls_token_id"),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];

/// Key of the main template; named templates have their name after a dot.
const KEY: &str = "tokenizer.chat_template";

/// Compiled chat template with the special tokens of its model. Clones are cheap.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    engine: Environment<'static>,
    source: String,
    /// Source as passed to the engine.
    prepared: String,
    tokens: Vec<(String, String)>,
}

impl ChatTemplate {
    /// Compiles a template. It has no special tokens; see [`with_token`](ChatTemplate::with_token).
    ///
    /// # Errors
    /// [`ChatError::Syntax`], [`ChatError::TooLarge`].
    pub fn new(source: impl Into<String>) -> Result<ChatTemplate, ChatError> {
        let source = source.into();
        let prepared = source::prepare(&source);
        engine::check(&prepared)?;
        Ok(ChatTemplate { engine: engine::environment(), source, prepared, tokens: Vec::new() })
    }

    /// Reads the template of a model file and the file's special tokens: the main template, or a named one
    /// (`tool_use`).
    ///
    /// # Errors
    /// [`ChatError::Missing`], [`ChatError::Syntax`].
    pub fn from_gguf(metadata: &Metadata, name: Option<&str>) -> Result<ChatTemplate, ChatError> {
        let key = name.map_or_else(|| KEY.to_string(), |n| format!("{KEY}.{n}"));
        let missing = |what: String| ChatError::Missing { name: name.map(str::to_string), what };
        let Some(source) = metadata.opt_str(&key).map_err(|e| missing(e.to_string()))? else {
            let names = ChatTemplate::names(metadata).join(", ");
            let named = if names.is_empty() { "none".to_string() } else { names };
            return Err(missing(format!("the file has no {key}; its named templates: {named}")));
        };
        Ok(ChatTemplate::new(source)?.with_tokens_of(metadata))
    }

    /// Sets the special tokens of a model file, for a template from another source.
    pub fn with_tokens_of(mut self, metadata: &Metadata) -> ChatTemplate {
        let texts = metadata.opt_array("tokenizer.ggml.tokens").ok().flatten();
        for (token, key) in TOKENS {
            let id = metadata.value(key).and_then(|v| v.as_integer()).and_then(|i| usize::try_from(i).ok());
            let text = id.zip(texts).and_then(|(id, texts)| texts.as_texts()?.nth(id));
            if let Some(text) = text {
                self = self.with_token(token, String::from_utf8_lossy(text));
            }
        }
        self
    }

    /// Returns the names of the named templates of a model file.
    pub fn names(metadata: &Metadata) -> Vec<String> {
        let prefix = format!("{KEY}.");
        metadata.iter().filter_map(|(key, _)| key.strip_prefix(&prefix)).map(str::to_string).collect()
    }

    /// Sets the text of a special token (`bos_token`, `eos_token`), replacing an earlier one.
    pub fn with_token(mut self, name: &str, text: impl Into<String>) -> ChatTemplate {
        self.tokens.retain(|(n, _)| n != name);
        self.tokens.push((name.to_string(), text.into()));
        self
    }

    /// Returns the template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders the text of a conversation.
    ///
    /// # Errors
    /// [`ChatError::Raised`] if the template refuses the conversation, [`ChatError::Undefined`] if it needs a
    /// variable that does not exist, [`ChatError::Render`]; [`ChatError::TooLong`], [`ChatError::TooLarge`],
    /// [`ChatError::TooMuchWork`], [`ChatError::TimedOut`] or [`ChatError::Cancelled`] if a limit stops it.
    pub fn render(&self, input: &ChatInput) -> Result<String, ChatError> {
        let tokens = self.tokens.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        let clock = ("strftime_now".to_string(), engine::clock(input.now));
        let variables = tokens.chain([clock]).chain(input.variables());
        engine::render(&self.engine, &self.prepared, Value::from_pairs(variables), &input.limit())
    }
}
