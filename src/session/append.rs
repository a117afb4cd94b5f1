//! Tokens that are appended to sequences: prompts, conversations that go on, batches.

use super::Session;
use super::inputs::{self, Token};
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

/// Called before each batch of a prompt and after the last one, with the tokens that are computed and with all of them.
/// What it returns says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>;

/// A token of a call.
struct Entry {
    item: usize,
    token: u32,
    /// Whether the logits after it are.
    wanted: bool,
}

impl Session {
    /// Appends tokens to sequence 0; the logits after the last one (`vocabulary` values).
    ///
    /// # Errors
    /// Those of [`Session::batch`].
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(self.batch(&[Item { sequence: 0, tokens }])?.concat())
    }

    /// The same for an application that shows how far it is, or wants to stop: `watch` is called between batches of
    /// [`SessionOptions::batch`](super::SessionOptions::batch) tokens. `None` if it said stop: the sequence then holds the
    /// tokens that were computed until then, see [`Session::tokens`], and can go on with the others
    /// ([`Session::advance_to`]) or with something else.
    ///
    /// # Errors
    /// Those of [`Session::batch`].
    pub fn prefill_with(&mut self, tokens: &[u32], watch: Watch<'_>) -> Result<Option<Vec<f32>>> {
        let logits = self.append(&[Item { sequence: 0, tokens }], false, watch)?;
        Ok(logits.map(|rows| rows.concat()))
    }

    /// Appends tokens to sequence 0; the logits after each of them, row after row.
    ///
    /// # Errors
    /// Those of [`Session::batch`].
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(self.append_all(&[Item { sequence: 0, tokens }], true)?.concat())
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
        self.append_all(items, false)
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

    fn append_all(&mut self, items: &[Item<'_>], all: bool) -> Result<Vec<Vec<f32>>> {
        let logits = self.append(items, all, &mut |_, _| ControlFlow::Continue(()))?;
        Ok(logits.unwrap_or_default())
    }

    /// Appends the tokens of all items; for each item the logits after its last token, or after `all`.
    fn append(&mut self, items: &[Item<'_>], all: bool, watch: Watch<'_>) -> Result<Option<Vec<Vec<f32>>>> {
        self.check(items)?;
        let before: Vec<usize> = items.iter().map(|item| self.cells.length(item.sequence)).collect();
        let logits = self.append_checked(items, all, watch);
        if logits.is_err() {
            for (item, before) in items.iter().zip(before) {
                self.cells.truncate(item.sequence, if self.recurrent() { 0 } else { before });
            }
        }
        logits
    }

    fn append_checked(
        &mut self,
        items: &[Item<'_>],
        all: bool,
        watch: Watch<'_>,
    ) -> Result<Option<Vec<Vec<f32>>>> {
        let entries: Vec<Entry> = (items.iter().enumerate())
            .flat_map(|(item, Item { tokens, .. })| {
                let wanted = move |i: usize| all || i + 1 == tokens.len();
                tokens.iter().enumerate().map(move |(i, &token)| Entry { item, token, wanted: wanted(i) })
            })
            .collect();
        let (mut logits, mut done) = (vec![Vec::new(); items.len()], 0);
        for chunk in entries.chunks(self.batch) {
            if watch(done, entries.len()).is_break() {
                return Ok(None);
            }
            let placed = self.place(items, chunk);
            let mut outputs: Vec<usize> = (0..chunk.len()).filter(|&i| chunk[i].wanted).collect();
            if outputs.is_empty() {
                // A graph gives one row at least.
                outputs.push(chunk.len() - 1);
            }
            let rows = self.run(&placed, &outputs)?;
            for (&i, row) in outputs.iter().zip(rows.chunks_exact(self.model.hparams().vocabulary)) {
                if chunk[i].wanted {
                    logits[chunk[i].item].extend_from_slice(row);
                }
            }
            done += chunk.len();
        }
        // All is done, whatever the answer is.
        let _ = watch(done, entries.len());
        Ok(Some(logits))
    }

    /// Takes cells for the tokens of a batch.
    fn place(&mut self, items: &[Item<'_>], batch: &[Entry]) -> Vec<Token> {
        let mut placed = Vec::new();
        for run in batch.chunk_by(|a, b| a.item == b.item) {
            let tokens: Vec<u32> = run.iter().map(|entry| entry.token).collect();
            placed.extend(inputs::place(&mut self.cells, items[run[0].item].sequence, &tokens));
        }
        placed
    }
}
