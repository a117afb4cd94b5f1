//! Tokens that are appended to sequences: prompts, conversations that go on, batches.

use super::Session;
use super::results::Rows;
use crate::model::Want;
use ggml_core::{Error, Result};
use std::ops::ControlFlow;

/// Tokens for a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Number of the sequence.
    pub sequence: usize,
    /// Tokens that are appended to it; at least one.
    pub tokens: &'a [u32],
}

/// Called before each batch of a prompt and after the last one, with the tokens that are computed, or are under way while the
/// next batch is put together, and with all of them. What it returns says whether to go on; after "no" what is under way is
/// waited for.
pub type Watch<'a> = &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>;

impl Session {
    /// Appends tokens to sequence 0; the logits after the last one (`vocabulary` values).
    ///
    /// # Errors
    /// Those of [`Session::batch`].
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(self.append(&[Item { sequence: 0, tokens }], Want::Logits)?.values().to_vec())
    }

    /// The same for an application that shows how far it is, or wants to stop: `watch` is called between batches of
    /// [`SessionOptions::batch`](super::SessionOptions::batch) tokens. `None` if it said stop: the sequence then holds the
    /// tokens that were computed until then, see [`Session::tokens`], and can go on with the others
    /// ([`Session::advance_to`]) or with something else.
    ///
    /// # Errors
    /// Those of [`Session::batch`].
    pub fn prefill_with(&mut self, tokens: &[u32], watch: Watch<'_>) -> Result<Option<Vec<f32>>> {
        let rows = self.append_with(&[Item { sequence: 0, tokens }], Want::Logits, watch)?;
        Ok(rows.map(|rows| rows.values().to_vec()))
    }

    /// Appends tokens to sequence 0; the logits after each of them, row after row.
    ///
    /// # Errors
    /// Those of [`Session::batch`].
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.compute(&[Item { sequence: 0, tokens }], Want::Logits, true, &mut go_on)?;
        Ok(self.rows().values().to_vec())
    }

    /// Appends one token to sequence 0; the logits after it.
    ///
    /// # Errors
    /// Those of [`Session::batch`].
    pub fn decode(&mut self, token: u32) -> Result<Vec<f32>> {
        self.prefill(&[token])
    }

    /// Makes sequence 0 hold these tokens, and computes only those that it does not hold already; the logits after the
    /// last one. So a conversation goes on: its tokens from the beginning are given each time.
    ///
    /// # Errors
    /// Those of [`Session::batch`]. For what the backend reports, the sequence is left as [`Session::keep_common`] made
    /// it.
    pub fn advance_to(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_tokens(0, 0, tokens)?;
        let kept = self.keep_common(0, tokens)?;
        self.prefill(&tokens[kept..])
    }

    /// Takes a sequence back to the beginning that it has in common with `tokens`; how many tokens that leaves. Those from
    /// there on are what is still to be computed: the last one always, because logits come of computing. A model with
    /// recurrent state begins anew unless all that the sequence holds is kept.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no such sequence.
    pub fn keep_common(&mut self, sequence: usize, tokens: &[u32]) -> Result<usize> {
        let held = self.tokens(sequence)?;
        let common = held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        let kept = if common < held.len() && self.recurrent() { 0 } else { common };
        self.truncate(sequence, kept)?;
        Ok(kept)
    }

    /// Appends tokens to several sequences at once; for each item the logits after its last token.
    ///
    /// The tokens of all items make one batch, or several where they are more than [`SessionOptions::batch`](super::SessionOptions::batch). What a
    /// sequence gets does not depend on the others.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a sequence that does not exist, comes twice or has no room for its tokens, for no
    /// tokens and for a token outside the vocabulary; what the backend reports. After an error all sequences are as they
    /// were before the call. (With recurrent state, an error of the backend leaves the sequences of the call empty.)
    pub fn batch(&mut self, items: &[Item<'_>]) -> Result<Vec<Vec<f32>>> {
        let vocabulary = self.model.hparams().vocabulary;
        let rows = self.append(items, Want::Logits)?;
        Ok(rows.values().chunks_exact(vocabulary).map(<[f32]>::to_vec).collect())
    }

    /// The same, with what is wanted of the logits after the last token of each item, in memory of the session: no copy is
    /// made, and once a step like it was done, nothing is allocated. Of [`Want::Best`] only the best are read from the
    /// device; more than there are tokens are all of them.
    ///
    /// # Errors
    /// Those of [`Session::batch`]; [`Error::InvalidArgument`] where the best 0 are wanted.
    pub fn append(&mut self, items: &[Item<'_>], want: Want) -> Result<Rows<'_>> {
        not_hidden(want)?;
        self.compute(items, want, false, &mut go_on)?;
        Ok(self.rows())
    }

    /// The same with a `watch` as in [`Session::prefill_with`]; `None` if it said stop.
    ///
    /// # Errors
    /// Those of [`Session::append`].
    pub fn append_with(
        &mut self,
        items: &[Item<'_>],
        want: Want,
        watch: Watch<'_>,
    ) -> Result<Option<Rows<'_>>> {
        not_hidden(want)?;
        let done = self.compute(items, want, false, watch)?;
        Ok(done.then(|| self.rows()))
    }

    /// What the last call gave; none if it was stopped or ended with an error.
    pub fn rows(&self) -> Rows<'_> {
        Rows(&self.results)
    }

    /// Tokens of one batch.
    pub(crate) fn batch_tokens(&self) -> usize {
        self.batch
    }

    /// That a call with these items makes sense.
    pub(crate) fn check(&self, items: &[Item<'_>]) -> Result<()> {
        for (i, &Item { sequence, tokens }) in items.iter().enumerate() {
            let begin = self.position_of(sequence)?;
            if items[..i].iter().any(|other| other.sequence == sequence) {
                let found = format!("{sequence} comes twice in a batch");
                return Err(Error::argument("sequence", found, "each once"));
            }
            self.check_tokens(sequence, begin, tokens)?;
        }
        Ok(())
    }

    /// That a sequence has room for tokens from position `begin` on, and that they are tokens.
    pub(crate) fn check_tokens(&self, sequence: usize, begin: usize, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::argument("tokens", "none", "at least one"));
        }
        let vocabulary = self.model.hparams().vocabulary;
        if let Some(bad) = tokens.iter().find(|&&t| t as usize >= vocabulary) {
            return Err(Error::argument("token id", bad, format!("one of the vocabulary's {vocabulary}")));
        }
        let end = begin.saturating_add(tokens.len());
        if end > self.context {
            let found = format!("{end} positions in sequence {sequence}");
            return Err(Error::argument("tokens", found, format!("at most {}, the context", self.context)));
        }
        Ok(())
    }

    /// Appends the tokens of all items; the rows after the last token of each, or after `all`, are then the results.
    /// Whether `watch` let it go on to the end.
    pub(super) fn compute(
        &mut self,
        items: &[Item<'_>],
        want: Want,
        all: bool,
        watch: Watch<'_>,
    ) -> Result<bool> {
        let model = self.model.clone();
        let h = model.hparams();
        let want = match want {
            Want::Best(_) => Want::Best(h.width(want)),
            Want::Logits | Want::Hidden(_) => want,
        };
        self.results.begin(want, h);
        if !(h.output || matches!(want, Want::Hidden(_))) {
            let found = format!("logits of {}", h.architecture);
            return Err(Error::argument("what is wanted", found, "vectors: there is no output layer"));
        }
        self.check(items)?;
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        before.extend(items.iter().map(|item| self.cells.length(item.sequence)));
        let outcome = self.compute_checked(items, want, all, watch);
        // Of a call that ended early a batch may be under way.
        let settled = self.settle();
        let outcome = outcome.and_then(|done| settled.map(|()| done));
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
        watch: Watch<'_>,
    ) -> Result<bool> {
        let count: usize = items.iter().map(|item| item.tokens.len()).sum();
        let mut done = 0;
        while done < count {
            if watch(done, count).is_break() {
                return Ok(false);
            }
            let end = count.min(done + self.batch);
            self.place(items, done, end, all);
            self.run(want)?;
            done = end;
        }
        // All is done, whatever the answer is.
        let _ = watch(done, count);
        Ok(true)
    }

    /// Makes a batch of the tokens from number `begin` to `end` of all items: takes cells for them, and notes whose rows are
    /// wanted.
    pub(super) fn place(&mut self, items: &[Item<'_>], begin: usize, end: usize, all: bool) {
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

/// That rows of logits are wanted: after hidden states a sequence cannot go on.
fn not_hidden(want: Want) -> Result<()> {
    match want {
        Want::Hidden(_) => Err(Error::argument(
            "want",
            format!("{want:?}"),
            "logits or the best; Session::hidden gives these",
        )),
        Want::Logits | Want::Best(_) => Ok(()),
    }
}

/// Lets every call go on.
pub(super) fn go_on(_: usize, _: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
