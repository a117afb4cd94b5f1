//! Drafts: tokens that are likely to follow, all verified in one batch.

use super::append::{Item, not_hidden};
use super::results::Rows;
use super::{Session, Want};
use ggml_core::{Error, Result};

/// Callback that gets the rows after the last token that is certain and after each draft, and returns the number of
/// drafts, from the first on, that the sequence keeps.
pub type Verdict<'a> = &'a mut dyn FnMut(Rows<'_>) -> Result<usize>;

impl Session {
    /// Returns the number of drafts that may follow the next token of sequence 0.
    pub(crate) fn room_for_drafts(&self) -> usize {
        let room = self.context.saturating_sub(self.cells.length(0) + 1);
        room.min(self.batch.saturating_sub(self.cells.owed(0) + 1))
    }

    /// Appends tokens to a sequence, and after them drafts of the tokens that may follow, in one batch. It costs little
    /// more than a batch of one token, because the weights are read once. `verdict` compares the drafts with what
    /// follows from the rows; the sequence then holds the tokens and the drafts that it keeps.
    ///
    /// Recurrent state counts no draft: those that are kept are computed once more in the next batch.
    ///
    /// # Errors
    /// Errors of [`Session::append`]; [`Error::InvalidArgument`] if the batch is longer than
    /// [`SessionOptions::batch`](super::SessionOptions::batch), and if more drafts are to be kept than there are; errors
    /// of `verdict`. After an error the sequence is as it was before, unless only a checkpoint could not be read.
    pub fn verify(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        drafts: &[u32],
        want: Want,
        verdict: Verdict<'_>,
    ) -> Result<()> {
        not_hidden(want)?;
        let all = [tokens, drafts].concat();
        let items = [Item { sequence, tokens: &all }];
        self.check(&items)?;
        let want = self.checked_want(want)?;
        if tokens.is_empty() {
            return Err(Error::argument("tokens", "none before the drafts", "at least one"));
        }
        let (length, computed) = (self.cells.length(sequence), self.cells.computed(sequence));
        let count = self.cells.owed(sequence) + all.len();
        if count > self.batch {
            let found = format!("{count} with the drafts");
            return Err(Error::argument("tokens", found, format!("at most {}, the batch", self.batch)));
        }
        self.wait_in_flight()?;
        self.cells.extend(sequence, &all);
        self.placed.clear();
        self.cells.place(sequence, count, &mut self.placed);
        self.outputs.clear();
        self.outputs.extend(count - drafts.len() - 1..count);
        self.inputs.drafts = drafts.len();
        let ran = self.run(want).inspect_err(|error| self.demote(error));
        self.inputs.drafts = 0;
        let kept = ran.and_then(|()| verdict(self.rows())).and_then(|kept| match kept <= drafts.len() {
            true => Ok(kept),
            false => Err(Error::argument("kept drafts", kept, format!("at most {}", drafts.len()))),
        });
        let certain = length + tokens.len();
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                self.results.begin(want, self.model.clone().hparams());
                self.give_up(sequence, [length, computed], true);
                return Err(error);
            }
        };
        self.cells.truncate(sequence, certain + kept);
        if self.recurrent() {
            // The state is the one before the drafts.
            self.cells.unplace(sequence, certain);
            self.keep_if_due(sequence, computed, want)?;
        }
        Ok(())
    }
}
