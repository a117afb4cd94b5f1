//! Errors of chat templates.

use super::budget::Spent;
use ggml_core::Error;
use ggml_core::escape::escaped;

/// Error of a chat template, with the line of the template if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The model file has no template, or none of the requested name.
    #[error("no chat template{}: {}", quoted(.name), escaped(.what))]
    Missing {
        /// Requested name, if any.
        name: Option<String>,
        /// Templates that the file has instead.
        what: String,
    },
    /// The template is not valid.
    #[error("chat template, line {line}: {}", escaped(.what))]
    Syntax {
        /// Line of the template, from 1 (0: unknown).
        line: usize,
        /// Description of the error.
        what: String,
    },
    /// The template refused the conversation: it called `raise_exception`.
    #[error("chat template, line {line}: {}", escaped(.text))]
    Raised {
        /// Line of the call.
        line: usize,
        /// Text that the template gave.
        text: String,
    },
    /// The template used a variable or an attribute that does not exist.
    #[error("chat template, line {line}: {}", escaped(.what))]
    Undefined {
        /// Line of the use.
        line: usize,
        /// Undefined name.
        what: String,
    },
    /// Any other error while rendering: an operator on unsuitable values, an unknown method, ...
    #[error("chat template, line {line}: {}", escaped(.what))]
    Render {
        /// Line of the template.
        line: usize,
        /// Description of the error.
        what: String,
    },
    /// The template did not finish within [`MAX_STEPS`](super::MAX_STEPS).
    #[error("chat template, line {line}: more than {} steps", super::MAX_STEPS)]
    TooLong {
        /// Line that was reached.
        line: usize,
    },
    /// The template made more text and values than [`MAX_MEMORY`](super::MAX_MEMORY).
    #[error("chat template, line {line}: {}", Spent::Memory)]
    TooLarge {
        /// Line that was reached.
        line: usize,
    },
    /// The template compared or searched more text and values than [`MAX_WORK`](super::MAX_WORK).
    #[error("chat template, line {line}: {}", Spent::Work)]
    TooMuchWork {
        /// Line that was reached.
        line: usize,
    },
    /// The template did not finish before its deadline.
    #[error("chat template, line {line}: {}", Spent::Time)]
    TimedOut {
        /// Line that was reached.
        line: usize,
    },
    /// The caller cancelled the template.
    #[error("chat template, line {line}: {}", Spent::Cancelled)]
    Cancelled {
        /// Line that was reached.
        line: usize,
    },
    /// Messages or variables that do not form a conversation.
    #[error("conversation: {}", escaped(.what))]
    Input {
        /// Description of the error.
        what: String,
    },
}

fn quoted(name: &Option<String>) -> String {
    name.as_ref().map(|n| format!(" '{}'", escaped(n))).unwrap_or_default()
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
    /// Returns the line of the template, if the error has one.
    pub fn line(&self) -> Option<usize> {
        match *self {
            ChatError::Syntax { line, .. }
            | ChatError::Raised { line, .. }
            | ChatError::Undefined { line, .. }
            | ChatError::Render { line, .. }
            | ChatError::TooLong { line }
            | ChatError::TooMuchWork { line }
            | ChatError::TimedOut { line }
            | ChatError::Cancelled { line }
            | ChatError::TooLarge { line } => (line > 0).then_some(line),
            _ => None,
        }
    }

    fn stopped(why: Spent, line: usize) -> ChatError {
        match why {
            Spent::Memory => ChatError::TooLarge { line },
            Spent::Work => ChatError::TooMuchWork { line },
            Spent::Time => ChatError::TimedOut { line },
            Spent::Cancelled => ChatError::Cancelled { line },
        }
    }

    /// Converts an error of the budget before the engine runs.
    pub(super) fn at(error: &minijinja::Error, line: usize) -> ChatError {
        let why = std::error::Error::source(error).and_then(|e| e.downcast_ref::<Spent>());
        ChatError::stopped(why.copied().unwrap_or(Spent::Memory), line)
    }

    /// Converts an error of the engine.
    pub(super) fn from_engine(error: &minijinja::Error) -> ChatError {
        use minijinja::ErrorKind::{BadEscape, InvalidDelimiter, OutOfFuel, SyntaxError, UndefinedError};
        // The innermost error is the cause; an error in a macro is wrapped by the error of the call.
        let (mut cause, mut text, mut spent) = (error, None, None);
        let mut next = std::error::Error::source(error);
        while let Some(e) = next {
            if let Some(Exception(raised)) = e.downcast_ref() {
                text = Some(raised.clone());
            } else if let Some(e) = e.downcast_ref::<minijinja::Error>() {
                cause = e;
            }
            spent = spent.or(e.downcast_ref::<Spent>().copied());
            next = e.source();
        }
        let line = cause.line().or(error.line()).unwrap_or(0);
        if let Some(text) = text {
            return ChatError::Raised { line, text };
        }
        if let Some(spent) = spent {
            return ChatError::stopped(spent, line);
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
