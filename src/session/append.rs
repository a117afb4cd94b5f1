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
    /// [`Session::tokens`], and can continue with the others ([`Session::continue_with`]) or with different
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
    /// all sequences are as they were before the call. (With recurrent state, tokens after the last checkpoint
    /// of a sequence of the call are computed again then, see [`Session::truncate`].)
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
        let want = self.checked_want(want)?;
        self.check(items)?;
        self.compute_items(items, want, all, progress)
    }

    /// Begins the results of a call, and limits the number of wanted logits to those that there are.
    pub(super) fn checked_want(&mut self, want: Want) -> Result<Want> {
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
        Ok(want)
    }

    /// Computes items that are checked, of which some may have no tokens.
    pub(super) fn compute_items(
        &mut self,
        items: &[Item<'_>],
        want: Want,
        all: bool,
        progress: PrefillProgress<'_>,
    ) -> Result<bool> {
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        let held = |item: &Item<'_>| [self.cells.length(item.sequence), self.cells.computed(item.sequence)];
        before.extend(items.iter().map(held));
        for item in items {
            self.cells.extend(item.sequence, item.tokens);
        }
        let outcome = self.compute_batches(items, want, all, progress);
        // After a call that ended early, a batch may be in flight.
        let waited = self.wait_in_flight();
        let outcome = outcome.and_then(|done| waited.map(|()| done));
        if !matches!(outcome, Ok(true)) {
            let model = self.model.clone();
            self.results.begin(want, model.hparams());
            for (item, &before) in items.iter().zip(&before) {
                self.give_up(item.sequence, before, outcome.is_err());
            }
        }
        self.before = before;
        outcome
    }

    /// Removes what a call that ended early did not compute; everything that it appended if it failed.
    pub(super) fn give_up(&mut self, sequence: usize, [length, computed]: [usize; 2], failed: bool) {
        if !failed {
            let now = self.cells.computed(sequence);
            self.cells.truncate(sequence, now.max(length));
            return;
        }
        self.inputs.followed.forget(sequence);
        self.cells.truncate(sequence, length);
        self.checkpoints.truncate(sequence, computed);
        self.cells.unplace(sequence, computed);
        // Recurrent state is lost. If it cannot be restored either, the sequence starts from its beginning, and the
        // error that is returned is the first one.
        if self.recurrent() && self.roll_back(sequence, computed).is_err() {
            self.cells.unplace(sequence, 0);
        }
    }

    fn compute_batches(
        &mut self,
        items: &[Item<'_>],
        want: Want,
        all: bool,
        progress: PrefillProgress<'_>,
    ) -> Result<bool> {
        let count: usize = items.iter().map(|item| item.tokens.len()).sum();
        for item in items {
            self.keep_before_prompt(item.sequence, item.tokens.len(), want)?;
        }
        loop {
            let done: usize = items.iter().map(|item| item.tokens.len() - self.open(item)).sum();
            // Everything is computed at the end, so the returned value is ignored there.
            let owed = items.iter().any(|item| self.cells.owed(item.sequence) > 0);
            if progress(done, count).is_break() && owed {
                return Ok(false);
            }
            if !owed {
                return Ok(true);
            }
            self.placed_before.clear();
            let computed = items.iter().map(|item| self.cells.computed(item.sequence));
            self.placed_before.extend(computed);
            self.place_batch(items, all);
            self.run(want).inspect_err(|error| self.demote(error))?;
            for (i, item) in items.iter().enumerate() {
                let before = self.placed_before.get(i).copied().unwrap_or(0);
                self.keep_if_due(item.sequence, before, want)?;
            }
        }
    }

    /// Returns how many tokens of an item are not computed.
    fn open(&self, item: &Item<'_>) -> usize {
        self.cells.owed(item.sequence).min(item.tokens.len())
    }

    /// Makes a batch of the first owed tokens of some items, whose tokens the sequences hold: assigns cells to
    /// them, and records those whose rows are wanted. Batches end where a checkpoint is due.
    pub(super) fn place_batch(&mut self, items: &[Item<'_>], all: bool) {
        self.placed.clear();
        self.outputs.clear();
        for item in items {
            let (sequence, begin) = (item.sequence, self.placed.len());
            let owed = self.cells.owed(sequence);
            let earlier = owed - self.open(item);
            let most = self.checkpoints.distance(sequence, self.cells.computed(sequence));
            let count = owed.min(self.batch - begin).min(most);
            self.cells.place(sequence, count, &mut self.placed);
            let end = begin + count;
            if all {
                self.outputs.extend((begin + earlier).min(end)..end);
            } else if count == owed && !item.tokens.is_empty() && count > 0 {
                self.outputs.push(end - 1);
            }
            // Rows are in the order of the items.
            if count < owed {
                break;
            }
        }
    }
}

/// Checks that logits are wanted: after hidden states a sequence cannot continue.
pub(super) fn not_hidden(want: Want) -> Result<()> {
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
