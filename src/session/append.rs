//! Appending tokens to sequences: prompts, continued conversations, batches.

use super::Session;
use super::results::Rows;
use crate::model::Want;
use ggml_core::{Error, Result};
use std::ops::ControlFlow;

/// Tokens for a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Index of the sequence.
    pub sequence: usize,
    /// Tokens to append to it; at least one.
    pub tokens: &'a [u32],
}

/// Callback before each batch of a prompt and after the last one. It gets the number of tokens that are
/// computed, or in flight while the next batch is prepared, and the total. It returns whether to continue;
/// after a break, the call waits for the batch in flight.
pub type PrefillProgress<'a> = &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>;

impl Session {
    /// Appends tokens to sequence 0 and returns the logits after the last one (`vocabulary` values).
    ///
    /// # Errors
    /// Errors of [`Session::batch`].
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(self.append(&[Item { sequence: 0, tokens }], Want::Logits)?.values().to_vec())
    }

    /// Appends tokens like [`Session::prefill`], for an application that shows progress or may stop.
    /// `progress` is called between batches of [`SessionOptions::batch`](super::SessionOptions::batch) tokens.
    /// Returns `None` if it stopped the call. The sequence then holds the tokens computed until then, see
    /// [`Session::tokens`], and can continue with the others ([`Session::advance_to`]) or with different
    /// ones.
    ///
    /// # Errors
    /// Errors of [`Session::batch`].
    pub fn prefill_with(
        &mut self,
        tokens: &[u32],
        progress: PrefillProgress<'_>,
    ) -> Result<Option<Vec<f32>>> {
        let rows = self.append_with(&[Item { sequence: 0, tokens }], Want::Logits, progress)?;
        Ok(rows.map(|rows| rows.values().to_vec()))
    }

    /// Appends tokens to sequence 0 and returns the logits after each of them, row after row.
    ///
    /// # Errors
    /// Errors of [`Session::batch`].
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.compute(&[Item { sequence: 0, tokens }], Want::Logits, true, &mut always_continue)?;
        Ok(self.rows().values().to_vec())
    }

    /// Appends one token to sequence 0 and returns the logits after it.
    ///
    /// # Errors
    /// Errors of [`Session::batch`].
    pub fn decode(&mut self, token: u32) -> Result<Vec<f32>> {
        self.prefill(&[token])
    }

    /// Makes sequence 0 hold exactly these tokens, computes only those that it does not hold yet, and returns
    /// the logits after the last one. This continues a conversation whose tokens are given from the beginning
    /// each time.
    ///
    /// # Errors
    /// Errors of [`Session::batch`]. After an error of the backend, the sequence is as
    /// [`Session::keep_common`] left it.
    pub fn advance_to(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_tokens(0, 0, tokens)?;
        let kept = self.keep_common(0, tokens)?;
        self.prefill(&tokens[kept..])
    }

    /// Truncates a sequence to its common prefix with `tokens` and returns the length of the prefix. The
    /// tokens after it still have to be computed. The last token is never part of the prefix, because its
    /// logits have to be computed. A model with recurrent state starts from the beginning unless the prefix
    /// is all that the sequence holds.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence.
    pub fn keep_common(&mut self, sequence: usize, tokens: &[u32]) -> Result<usize> {
        let held = self.tokens(sequence)?;
        let common = held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        let kept = if common < held.len() && self.recurrent() { 0 } else { common };
        self.truncate(sequence, kept)?;
        Ok(kept)
    }

    /// Appends tokens to several sequences together and returns, for each item, the logits after its last
    /// token.
    ///
    /// The tokens of all items are one batch, or several if they are more than
    /// [`SessionOptions::batch`](super::SessionOptions::batch). The results of a sequence do not depend on
    /// the others.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a sequence that does not exist, is given twice or has too few free
    /// positions, for no tokens and for a token outside the vocabulary; errors of the backend. After an error
    /// all sequences are as they were before the call. (With recurrent state, an error of the backend leaves
    /// the sequences of the call empty.)
    pub fn batch(&mut self, items: &[Item<'_>]) -> Result<Vec<Vec<f32>>> {
        let vocabulary = self.model.hparams().vocabulary;
        let rows = self.append(items, Want::Logits)?;
        Ok(rows.values().chunks_exact(vocabulary).map(<[f32]>::to_vec).collect())
    }

    /// Appends tokens like [`Session::batch`] and returns the wanted result after the last token of each
    /// item, in memory of the session. It makes no copy, and once a similar step has run, it allocates
    /// nothing. For [`Want::Best`] only the best logits are read from the device; a number above the
    /// vocabulary gives all of them.
    ///
    /// # Errors
    /// Errors of [`Session::batch`]; [`Error::InvalidArgument`] if 0 best logits are wanted.
    pub fn append(&mut self, items: &[Item<'_>], want: Want) -> Result<Rows<'_>> {
        not_hidden(want)?;
        self.compute(items, want, false, &mut always_continue)?;
        Ok(self.rows())
    }

    /// Appends tokens like [`Session::append`], with `progress` as in [`Session::prefill_with`]; `None` if it
    /// stopped the call.
    ///
    /// # Errors
    /// Errors of [`Session::append`].
    pub fn append_with(
        &mut self,
        items: &[Item<'_>],
        want: Want,
        progress: PrefillProgress<'_>,
    ) -> Result<Option<Rows<'_>>> {
        not_hidden(want)?;
        let done = self.compute(items, want, false, progress)?;
        Ok(done.then(|| self.rows()))
    }

    /// Returns the rows of the last call; none if it was stopped or returned an error.
    pub fn rows(&self) -> Rows<'_> {
        Rows(&self.results)
    }

    /// Returns the number of tokens of one batch.
    pub(crate) fn batch_tokens(&self) -> usize {
        self.batch
    }

    /// Checks the items of a call.
    pub(crate) fn check(&self, items: &[Item<'_>]) -> Result<()> {
        for (i, &Item { sequence, tokens }) in items.iter().enumerate() {
            let begin = self.position_of(sequence)?;
            if items[..i].iter().any(|other| other.sequence == sequence) {
                let found = format!("{sequence} twice in one batch");
                return Err(Error::argument("sequence", found, "each sequence at most once"));
            }
            self.check_tokens(sequence, begin, tokens)?;
        }
        Ok(())
    }

    /// Checks that a sequence has room for tokens from position `begin` on, that the model has these positions,
    /// and that the vocabulary contains the tokens.
    pub(crate) fn check_tokens(&self, sequence: usize, begin: usize, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::argument("tokens", "none", "at least one"));
        }
        let vocabulary = self.model.hparams().vocabulary;
        if let Some(bad) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
            return Err(Error::argument(
                "token id",
                bad,
                format!("below {vocabulary}, the size of the vocabulary"),
            ));
        }
        let end = begin.saturating_add(tokens.len());
        let (most, limit) = match self.model.hparams().positions {
            Some(rows) if rows < self.context => (rows, "the rows of the model's table of positions"),
            _ => (self.context, "the context"),
        };
        if end > most {
            let found = format!("{end} positions in sequence {sequence}");
            return Err(Error::argument("tokens", found, format!("at most {most}, {limit}")));
        }
        Ok(())
    }

    /// Appends the tokens of all items. The results are then the rows after the last token of each item, or
    /// after each token if `all` is set. Returns false if `progress` stopped it.
    pub(super) fn compute(
        &mut self,
        items: &[Item<'_>],
        want: Want,
        all: bool,
        progress: PrefillProgress<'_>,
    ) -> Result<bool> {
        let model = self.model.clone();
        let h = model.hparams();
        let want = match want {
            Want::Best(_) => Want::Best(want.width(h)),
            Want::Logits | Want::Hidden(_) => want,
        };
        self.results.begin(want, h);
        if !(h.output || matches!(want, Want::Hidden(_))) {
            let found = format!("logits of {}", h.architecture);
            return Err(Error::argument(
                "wanted result",
                found,
                "hidden states: the model has no output layer",
            ));
        }
        self.check(items)?;
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        before.extend(items.iter().map(|item| self.cells.length(item.sequence)));
        let outcome = self.compute_checked(items, want, all, progress);
        // After a call that ended early, a batch may be in flight.
        let waited = self.wait_in_flight();
        let outcome = outcome.and_then(|done| waited.map(|()| done));
        if !matches!(outcome, Ok(true)) {
            self.results.begin(want, h);
        }
        if outcome.is_err() {
            for (item, &before) in items.iter().zip(&before) {
                self.cells.truncate(item.sequence, if self.recurrent() { 0 } else { before });
            }
        }
        self.before = before;
        outcome
    }

    fn compute_checked(
        &mut self,
        items: &[Item<'_>],
        want: Want,
        all: bool,
        progress: PrefillProgress<'_>,
    ) -> Result<bool> {
        let count: usize = items.iter().map(|item| item.tokens.len()).sum();
        let mut done = 0;
        while done < count {
            if progress(done, count).is_break() {
                return Ok(false);
            }
            let end = count.min(done + self.batch);
            self.assign_cells(items, done, end, all);
            self.run(want).inspect_err(|error| self.demote(error))?;
            done = end;
        }
        // Everything is computed, so the returned value is ignored.
        let _ = progress(done, count);
        Ok(true)
    }

    /// Makes a batch of the tokens `begin` to `end`, counted over all items: assigns cells to them, and
    /// records the tokens whose rows are wanted.
    pub(super) fn assign_cells(&mut self, items: &[Item<'_>], begin: usize, end: usize, all: bool) {
        self.placed.clear();
        self.outputs.clear();
        let mut first = 0;
        for Item { sequence, tokens } in items {
            let inside = |n: usize| n.saturating_sub(first).min(tokens.len());
            let part = inside(begin)..inside(end);
            let last = !part.is_empty() && part.end == tokens.len();
            self.cells.append(*sequence, &tokens[part], &mut self.placed);
            let noted = self.outputs.last().map_or(0, |last| last + 1);
            match self.placed.len() {
                now if all => self.outputs.extend(noted..now),
                now if last => self.outputs.push(now - 1),
                _ => {}
            }
            first += tokens.len();
        }
    }
}

/// Checks that logits are wanted: after hidden states a sequence cannot continue.
fn not_hidden(want: Want) -> Result<()> {
    match want {
        Want::Hidden(_) => Err(Error::argument(
            "wanted result",
            format!("{want:?}"),
            "all logits or the best ones; Session::hidden gives hidden states",
        )),
        Want::Logits | Want::Best(_) => Ok(()),
    }
}

/// Always continues.
pub(super) fn always_continue(_: usize, _: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
