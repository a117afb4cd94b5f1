//! What can go wrong with a chat template.

use super::budget::Spent;
use ggml_core::Error;

/// An error of a chat template, with the line of the template where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The model file has no template, or none of the name that was asked for.
    #[error("no chat template{}: {what}", quoted(.name))]
    Missing {
        /// The name, where one was asked for.
        name: Option<String>,
        /// What there is instead.
        what: String,
    },
    /// The template is not valid.
    #[error("chat template, line {line}: {what}")]
    Syntax {
        /// Line of the template, from 1 (0: not known).
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The template refused the conversation: it called `raise_exception`.
    #[error("chat template, line {line}: {text}")]
    Raised {
        /// Line of the call.
        line: usize,
        /// The template's own words.
        text: String,
    },
    /// The template used a variable or an attribute that is not there.
    #[error("chat template, line {line}: {what}")]
    Undefined {
        /// Line of the use.
        line: usize,
        /// What was undefined.
        what: String,
    },
    /// Anything else that failed while rendering: an operator on values that it is not for, an unknown method, ...
    #[error("chat template, line {line}: {what}")]
    Render {
        /// Line of the template.
        line: usize,
        /// What failed.
        what: String,
    },
    /// The template did not come to an end within [`MAX_STEPS`](super::MAX_STEPS).
    #[error("chat template, line {line}: more than {} steps", super::MAX_STEPS)]
    TooLong {
        /// Line that was reached.
        line: usize,
    },
    /// The template made more text and values than [`MAX_MEMORY`](super::MAX_MEMORY).
    #[error("chat template, line {line}: {}", super::budget::Spent)]
    TooLarge {
        /// Line that was reached.
        line: usize,
    },
    /// Messages or variables that are no conversation.
    #[error("conversation: {what}")]
    Input {
        /// What is wrong.
        what: String,
    },
}

fn quoted(name: &Option<String>) -> String {
    name.as_ref().map(|n| format!(" '{n}'")).unwrap_or_default()
}

/// Carries the text of `raise_exception` through the engine's own error.
#[derive(Debug)]
pub(super) struct Exception(pub(super) String);

impl std::fmt::Display for Exception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Exception {}

impl ChatError {
    /// Line of the template, where the error has one.
    pub fn line(&self) -> Option<usize> {
        match *self {
            ChatError::Syntax { line, .. }
            | ChatError::Raised { line, .. }
            | ChatError::Undefined { line, .. }
            | ChatError::Render { line, .. }
            | ChatError::TooLong { line }
            | ChatError::TooLarge { line } => (line > 0).then_some(line),
            _ => None,
        }
    }

    /// From an error of the engine.
    pub(super) fn from_engine(error: &minijinja::Error) -> ChatError {
        use minijinja::ErrorKind::{BadEscape, InvalidDelimiter, OutOfFuel, SyntaxError, UndefinedError};
        // The innermost error is the cause; an error in a macro is wrapped by that of the call.
        let (mut cause, mut text, mut spent) = (error, None, false);
        let mut next = std::error::Error::source(error);
        while let Some(e) = next {
            if let Some(Exception(raised)) = e.downcast_ref() {
                text = Some(raised.clone());
            } else if let Some(e) = e.downcast_ref::<minijinja::Error>() {
                cause = e;
            }
            spent |= e.is::<Spent>();
            next = e.source();
        }
        let line = cause.line().or(error.line()).unwrap_or(0);
        if let Some(text) = text {
            return ChatError::Raised { line, text };
        }
        if spent {
            return ChatError::TooLarge { line };
        }
        let what = match cause.detail() {
            Some(detail) => format!("{}: {detail}", cause.kind()),
            None => cause.kind().to_string(),
        };
        match cause.kind() {
            SyntaxError | BadEscape | InvalidDelimiter => ChatError::Syntax { line, what },
            UndefinedError => ChatError::Undefined { line, what },
            OutOfFuel => ChatError::TooLong { line },
            _ => ChatError::Render { line, what },
        }
    }
}

impl From<ChatError> for Error {
    fn from(error: ChatError) -> Error {
        match error {
            ChatError::Missing { .. } | ChatError::Syntax { .. } => Error::model("chat template", error, ""),
            _ => Error::argument("chat", error, ""),
        }
    }
}
