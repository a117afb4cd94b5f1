//! Summary of a generation, and the reason for its end.

use std::fmt;
use std::time::Duration;

/// Reason for the end of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn or the text with this token.
    End(u32),
    /// The maximum number of tokens was reached.
    Limit,
    /// This stop text was found.
    Stop(String),
    /// The session's context is full.
    ContextFull,
    /// [`Cancel::cancel`](super::Cancel::cancel) was called.
    Cancelled,
    /// The iterator returned an error.
    Failed,
}

impl fmt::Display for Finish {
    /// Writes the reason as it follows "ended by".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finish::End(token) => write!(f, "token {token}, which ends the text"),
            Finish::Limit => f.write_str("the limit of tokens"),
            Finish::Stop(text) => write!(f, "the stop text {text:?}"),
            Finish::ContextFull => f.write_str("a full context"),
            Finish::Cancelled => f.write_str("the caller"),
            Finish::Failed => f.write_str("an error"),
        }
    }
}

/// Summary of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Reason for the end; `None` while the generation continues.
    pub finish: Option<Finish>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that the session already held.
    pub held_tokens: usize,
    /// Prompt tokens that were computed.
    pub computed_tokens: usize,
    /// Time spent computing the prompt.
    pub prompt_time: Duration,
    /// Number of generated tokens, including the one that ended the text.
    pub tokens: usize,
    /// Time spent generating them, without the caller's own time.
    pub time: Duration,
    /// Number of steps that verified drafts or could have, see [`Generation::draft_with`](super::Generation::draft_with).
    pub steps: usize,
    /// Number of tokens that were drafted.
    pub drafts: usize,
    /// Number of drafts that became part of the text.
    pub accepted_drafts: usize,
}

impl fmt::Display for Summary {
    /// Writes for example "prompt 40 tokens (31 held already), 120.5 t/s; 7 tokens, 20.1 t/s; ended by the
    /// limit of tokens".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speed = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        write!(f, "prompt {} tokens", self.prompt_tokens)?;
        if self.held_tokens > 0 {
            write!(f, " ({} held already)", self.held_tokens)?;
        }
        let (prompt, text) = (speed(self.computed_tokens, self.prompt_time), speed(self.tokens, self.time));
        write!(f, ", {prompt:.1} t/s; {} tokens, {text:.1} t/s", self.tokens)?;
        if self.drafts > 0 {
            let share = 100.0 * self.accepted_drafts as f64 / self.drafts as f64;
            let of_a_step = (self.steps + self.accepted_drafts) as f64 / self.steps.max(1) as f64;
            write!(
                f,
                "; {} of {} drafts accepted ({share:.0} %), {of_a_step:.2} tokens a step",
                self.accepted_drafts, self.drafts
            )?;
        }
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
        let drafted = Summary { steps: 20, drafts: 40, accepted_drafts: 30, ..running.clone() };
        assert!(drafted.to_string().ends_with("; 30 of 40 drafts accepted (75 %), 2.50 tokens a step"));
        assert!(ended(Finish::Stop("\n".into())).ends_with("ended by the stop text \"\\n\""));
        assert!(ended(Finish::End(2)).ends_with("ended by token 2, which ends the text"));
    }
}
