//! Conversion of logits to text: the part of a generation that needs no session.

use super::{Cancel, Finish, GenerateOptions, Piece, Summary};
use crate::Sampler;
use crate::session::{Row, Want};
use crate::tokenizer::{Detokenizer, Tokenizer};
use ggml_core::{Error, Result};

/// Chooses tokens, converts them to text and detects the end.
pub(super) struct Writer<'a> {
    pub(super) cancel: Cancel,
    pub(super) summary: Summary,
    tokenizer: &'a Tokenizer,
    detokenizer: Option<Detokenizer<'a>>,
    sampler: Sampler,
    pending: PendingText,
    limit: usize,
    ignore_end: bool,
    done: bool,
}

impl<'a> Writer<'a> {
    /// Creates a writer for the text after a prompt.
    pub(super) fn new(
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Writer<'a>> {
        if options.stop.iter().any(String::is_empty) {
            return Err(Error::argument("stop text", "an empty text", "one or more characters"));
        }
        let mut sampler = Sampler::new(options.sampler.clone())?;
        prompt.iter().for_each(|&token| sampler.accept(token));
        let summary = Summary { prompt_tokens: prompt.len(), ..Summary::default() };
        Ok(Writer {
            cancel: options.cancel.clone().unwrap_or_default(),
            summary,
            tokenizer,
            detokenizer: Some(tokenizer.detokenizer()),
            sampler,
            pending: PendingText { text: String::new(), stop: options.stop.clone() },
            limit: options.predict.unwrap_or(usize::MAX),
            ignore_end: options.ignore_end,
            done: false,
        })
    }

    /// True if all pieces have been returned.
    pub(super) fn done(&self) -> bool {
        self.done
    }

    /// Returns true if no further token follows; [`Writer::end`] then returns the text that was held back.
    pub(super) fn due(&mut self) -> bool {
        if self.summary.finish.is_none() && self.cancel.is_set() {
            self.summary.finish = Some(Finish::Cancelled);
        } else if self.summary.finish.is_none() && self.limit == 0 {
            self.summary.finish = Some(Finish::Limit);
        }
        self.summary.finish.is_some()
    }

    /// Ends the generation and returns the text that was held back, if there is any.
    pub(super) fn end(&mut self) -> Option<Piece> {
        self.done = true;
        let stopped = matches!(self.summary.finish, Some(Finish::Stop(_)));
        let rest = self.detokenizer.take().map(Detokenizer::finish).unwrap_or_default();
        let text = std::mem::take(&mut self.pending.text) + &rest;
        (!stopped && !text.is_empty()).then_some(Piece { token: None, text })
    }

    /// Continues the text that a full context has cut off.
    pub(super) fn go_on(&mut self) -> Result<()> {
        if self.done || self.summary.finish != Some(Finish::ContextFull) {
            let found = if self.done { "that has ended" } else { "that goes on" };
            return Err(Error::argument("text", found, "one that a full context has just cut off"));
        }
        self.summary.finish = None;
        Ok(())
    }

    /// Ends the generation after an error.
    pub(super) fn fail(&mut self) {
        self.summary.finish = Some(Finish::Failed);
        self.done = true;
    }

    /// Returns the number of tokens that may still be chosen.
    pub(super) fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.summary.tokens)
    }

    /// Returns which logits the sampler needs.
    pub(super) fn want(&self) -> Want {
        self.sampler.want()
    }

    /// Chooses the next token from the logits and returns it with its text; `None` for a token that ends the
    /// text. `room` is true if the context has a position for it.
    pub(super) fn choose(&mut self, row: Option<Row<'_>>, room: bool) -> Result<Option<Piece>> {
        let missing = || Error::argument("logits", "none", "those after a token");
        let token = row.ok_or_else(missing).and_then(|row| self.sampler.sample_row(row));
        let token = token.inspect_err(|_| self.fail())?;
        self.sampler.accept(token);
        self.summary.tokens += 1;
        if self.tokenizer.is_end(token) && !self.ignore_end {
            self.summary.finish = Some(Finish::End(token));
            return Ok(None);
        }
        let new = self.detokenizer.as_mut().map(|d| d.push(token)).unwrap_or_default();
        let (text, stop) = self.pending.push(&new);
        if let Some(stop) = stop {
            self.summary.finish = Some(Finish::Stop(stop));
        } else if self.summary.tokens >= self.limit {
            self.summary.finish = Some(Finish::Limit);
        } else if !room {
            self.summary.finish = Some(Finish::ContextFull);
        }
        Ok(Some(Piece { token: Some(token), text }))
    }
}

/// Text that may be the beginning of a stop text.
struct PendingText {
    text: String,
    stop: Vec<String>,
}

impl PendingText {
    /// Adds text; returns the text that can be shown, and the stop text that was found.
    fn push(&mut self, new: &str) -> (String, Option<String>) {
        self.text += new;
        let found =
            self.stop.iter().filter_map(|s| Some((self.text.find(s.as_str())?, s))).min_by_key(|f| f.0);
        if let Some((at, stop)) = found {
            let stop = stop.clone();
            self.text.truncate(at);
            return (std::mem::take(&mut self.text), Some(stop));
        }
        // The longest suffix that is a prefix of a stop text.
        let begins = |at: &usize| self.stop.iter().any(|s| s.starts_with(&self.text[*at..]));
        let begin = self.text.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.text.len());
        let rest = self.text.split_off(begin);
        (std::mem::replace(&mut self.text, rest), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stop: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>, String) {
        let mut pending =
            PendingText { text: String::new(), stop: stop.iter().map(|s| s.to_string()).collect() };
        let mut shown = Vec::new();
        for piece in pieces {
            let (text, found) = pending.push(piece);
            shown.push(text);
            if found.is_some() {
                return (shown, found, pending.text);
            }
        }
        (shown, None, pending.text)
    }

    #[test]
    fn stop_texts_are_held_back_and_cut() {
        let owned = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        assert_eq!(
            run(&["END"], &["a", "bE", "N", "D!"]),
            (owned(&["a", "b", "", ""]), Some("END".into()), "".into())
        );
        assert_eq!(run(&["END"], &["bE", "Nx"]), (owned(&["b", "ENx"]), None, "".into()));
        assert_eq!(run(&["END"], &["xEN"]), (owned(&["x"]), None, "EN".into()));
        // The first match in the text counts, whatever the order of the list.
        assert_eq!(run(&["yz", "x"], &["axyz"]), (owned(&["a"]), Some("x".into()), "".into()));
        assert_eq!(run(&["äö"], &["ä", "ä", "ö"]), (owned(&["", "ä", ""]), Some("äö".into()), "".into()));
        assert_eq!(run(&[], &["a", "b"]), (owned(&["a", "b"]), None, "".into()));
    }
}
