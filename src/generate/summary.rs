//! What a generation did, and why it ended.

use std::fmt;
use std::time::Duration;

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn or the text, with this token.
    End(u32),
    /// As many tokens as were asked for.
    Limit,
    /// This stop text came.
    Stop(String),
    /// The session's context is full.
    ContextFull,
    /// [`Cancel::cancel`](super::Cancel::cancel) was called.
    Cancelled,
    /// The error that the iterator gave.
    Failed,
}

impl fmt::Display for Finish {
    /// As in "ended by ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finish::End(token) => write!(f, "token {token}, an end of the text"),
            Finish::Limit => f.write_str("the limit of tokens"),
            Finish::Stop(text) => write!(f, "the stop text {text:?}"),
            Finish::ContextFull => f.write_str("a full context"),
            Finish::Cancelled => f.write_str("the caller"),
            Finish::Failed => f.write_str("an error"),
        }
    }
}

/// What a generation did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Why it ended; `None` while it goes on.
    pub finish: Option<Finish>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that the session held already.
    pub held_tokens: usize,
    /// Those of them that were computed.
    pub computed_tokens: usize,
    /// Time that computing them took.
    pub prompt_time: Duration,
    /// Tokens that were generated, the one that ended the text included.
    pub tokens: usize,
    /// Time that they took, without the caller's own.
    pub time: Duration,
}

impl fmt::Display for Summary {
    /// "prompt 40 tokens (31 held already), 120.5 t/s; 7 tokens, 20.1 t/s; ended by the limit of tokens".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speed = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        write!(f, "prompt {} tokens", self.prompt_tokens)?;
        if self.held_tokens > 0 {
            write!(f, " ({} held already)", self.held_tokens)?;
        }
        let (prompt, text) = (speed(self.computed_tokens, self.prompt_time), speed(self.tokens, self.time));
        write!(f, ", {prompt:.1} t/s; {} tokens, {text:.1} t/s", self.tokens)?;
        match &self.finish {
            Some(finish) => write!(f, "; ended by {finish}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_a_sentence() {
        let second = Duration::from_secs(1);
        let running =
            Summary { prompt_tokens: 4, computed_tokens: 4, prompt_time: second, ..Summary::default() };
        assert_eq!(running.to_string(), "prompt 4 tokens, 4.0 t/s; 0 tokens, 0.0 t/s");
        let ended = |finish| Summary { finish: Some(finish), held_tokens: 3, ..running.clone() }.to_string();
        assert_eq!(
            ended(Finish::Limit),
            "prompt 4 tokens (3 held already), 4.0 t/s; 0 tokens, 0.0 t/s; ended by the limit of tokens"
        );
        assert!(ended(Finish::Stop("\n".into())).ends_with("ended by the stop text \"\\n\""));
        assert!(ended(Finish::End(2)).ends_with("ended by token 2, an end of the text"));
    }
}
