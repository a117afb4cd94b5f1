//! Going back and sharing: sequences that are cut, that continue another conversation, or that begin as others do.

use super::append::{Item, always_continue};
use super::{Session, Want};
use ggml_core::{Error, Result};

/// Least number of tokens more than a sequence itself holds of a prompt, for which it takes them from another one.
const WORTH_SHARING: usize = 16;

impl Session {
    /// Makes sequence 0 hold exactly these tokens, computes only those that it does not hold yet, and returns
    /// the logits after the last one. This continues a conversation whose tokens are given from the beginning
    /// each time, for every architecture.
    ///
    /// # Errors
    /// Errors of [`Session::batch`]. After an error of the backend, the sequence is as
    /// [`Session::keep_common`] left it.
    pub fn continue_with(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_tokens(0, 0, tokens)?;
        let kept = self.keep_common(0, tokens)?;
        self.prefill(&tokens[kept..])
    }

    /// Truncates a sequence to its common prefix with `tokens` and returns the length of what it holds then.
    /// The tokens after it still have to be computed. The last token is never part of the prefix, because its
    /// logits have to be computed. If another sequence has a longer prefix in common with `tokens`, this one
    /// shares it, see [`Session::share_prefix`].
    ///
    /// A model with recurrent state goes back to the last checkpoint within the prefix, see
    /// [`Session::truncate`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence; errors of the backend while it restores a
    /// checkpoint, see [`Session::truncate`] and [`Session::share_prefix`].
    pub fn keep_common(&mut self, sequence: usize, tokens: &[u32]) -> Result<usize> {
        self.check_sequence(sequence)?;
        let own = self.in_common(sequence, tokens);
        let others = (0..self.sequences()).filter(|&other| other != sequence);
        let best = others.map(|other| (self.in_common(other, tokens), other)).max_by_key(|&(kept, _)| kept);
        match best.filter(|&(kept, _)| kept >= own + WORTH_SHARING) {
            Some((kept, other)) => self.share_prefix(other, sequence, kept)?,
            None => self.truncate(sequence, own)?,
        }
        // What is owed is computed with the rest of the tokens.
        let kept = self.cells.computed(sequence);
        self.cells.truncate(sequence, kept);
        self.checkpoints.want_near_end(sequence, kept, tokens.len());
        Ok(kept)
    }

    /// Returns how many of these tokens a sequence holds from the beginning on, without the last one, and without those
    /// that would have to be computed again.
    pub(crate) fn in_common(&self, sequence: usize, tokens: &[u32]) -> usize {
        let held = self.cells.tokens(sequence);
        let common = held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.held_of(sequence, common.min(tokens.len().saturating_sub(1)))
    }

    /// Returns how many of the first `length` positions of a sequence are held when it is cut there.
    fn held_of(&self, sequence: usize, length: usize) -> usize {
        let computed = self.cells.computed(sequence);
        if self.recurrent() && computed > length {
            return self.checkpoints.before(sequence, length);
        }
        computed.min(length)
    }

    /// Removes the positions of a sequence from `position` on, so that it can continue differently from
    /// there.
    ///
    /// It costs nothing, except with recurrent state, which cannot be cut: the session restores its last checkpoint
    /// at or before `position`, and the tokens from there to `position` are computed again, in the batch of the
    /// next tokens that are appended or by [`Session::catch_up`]. They are fewer than
    /// [`SessionOptions::checkpoint_every`] tokens, unless [`SessionOptions::checkpoint_memory`] is too small for
    /// the length of the text: the distances then grow with the distance from its end. Without that option, they take
    /// about as long as a batch of a prompt, or 32 times as long as making a checkpoint if that is longer.
    ///
    /// [`SessionOptions::checkpoint_every`]: super::SessionOptions::checkpoint_every
    /// [`SessionOptions::checkpoint_memory`]: super::SessionOptions::checkpoint_memory
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence or position; errors of the backend while it
    /// restores a checkpoint: the sequence then holds its tokens, but all of them are computed again.
    pub fn truncate(&mut self, sequence: usize, position: usize) -> Result<()> {
        let length = self.position_of(sequence)?;
        if position > length {
            let expected = format!("at most {length}, which sequence {sequence} holds");
            return Err(Error::argument("position", position, expected));
        }
        let goes_back = self.recurrent() && self.cells.computed(sequence) > position;
        self.cells.truncate(sequence, position);
        self.checkpoints.truncate(sequence, position);
        if goes_back && position > 0 { self.roll_back(sequence, position) } else { Ok(()) }
    }

    /// Makes sequence `to` hold the first `length` tokens of sequence `from` instead of what it holds. Both use the
    /// same rows of the cache until one of them is truncated, so a prefix that many sequences begin with is computed
    /// once, and attention reads it once for all sequences of a batch. Recurrent state is copied: the present one if
    /// `length` is all that `from` holds, otherwise that of the last checkpoint before, as [`Session::truncate`] does.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no such sequences or positions, or both are the same; errors of the
    /// backend while it copies recurrent state, after which `to` is empty.
    pub fn share_prefix(&mut self, from: usize, to: usize, length: usize) -> Result<()> {
        let held = self.position_of(from)?;
        self.check_sequence(to)?;
        if from == to {
            return Err(Error::argument("sequence", to, format!("another one than {from}")));
        }
        if length > held {
            let expected = format!("at most {held}, which sequence {from} holds");
            return Err(Error::argument("length", length, expected));
        }
        self.truncate(to, 0)?;
        let computed = self.held_of(from, length);
        if self.recurrent() {
            self.copy_slots(from, to, computed)?;
            self.checkpoints.share(from, to, computed);
        }
        self.inputs.followed.forget(to);
        self.cells.share(from, to, length, computed);
        Ok(())
    }

    /// Computes the tokens of a sequence that [`Session::truncate`] left to be computed again, and returns how many
    /// they were. The next call that appends tokens does this too; an application that knows of idle time calls it
    /// before.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence; errors of the backend.
    pub fn catch_up(&mut self, sequence: usize) -> Result<usize> {
        self.check_sequence(sequence)?;
        let owed = self.cells.owed(sequence);
        if owed > 0 {
            self.compute_items(
                &[Item { sequence, tokens: &[] }],
                Want::Best(1),
                false,
                &mut always_continue,
            )?;
        }
        Ok(owed)
    }
}
