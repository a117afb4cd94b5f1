//! Drafts of the predictor, the layer of the file that predicts further tokens.

use super::cells::Token;
use super::programs::DRAFT_KV_STEP;
use super::{KV_STEP, Session, Want};
use crate::model::{BatchShape, Predictor};
use ggml_core::{Error, Result};

/// Number of last tokens of a text by which it is decided which tokens are worth drafting.
const RECENT: usize = 512;

/// Returns the number of first tokens of the vocabulary that are worth drafting in a text: a power of two that leaves out
/// one of 32 of its recent tokens at most (two of a short text), if that is less than half of the vocabulary. Vocabularies
/// of byte pairs begin with the frequent tokens (Zhao et al., "FR-Spec", 2025, draft among 32,768 of 128,256 tokens).
fn among(text: &[u32], vocabulary: usize) -> usize {
    let recent = &text[text.len().saturating_sub(RECENT)..];
    let sizes = (15..).map(|power| 1usize << power).take_while(|size| size * 2 < vocabulary);
    let left_out = |size: usize| recent.iter().filter(|&&token| token as usize >= size).count();
    sizes.into_iter().find(|&size| left_out(size) * 32 <= recent.len().max(64)).unwrap_or(vocabulary)
}

impl Session {
    /// Returns true if the session can draft with the file's predictor, see
    /// [`SessionOptions::predictor`](super::SessionOptions::predictor).
    pub fn has_predictor(&self) -> bool {
        self.predicts
    }

    /// Drafts up to `count` tokens that may follow `token`, the next one of sequence 0, with the file's predictor. The
    /// sequence stays as it is. There are no drafts directly after a saved sequence was restored, or after one was cut:
    /// the hidden state to continue from is known after the next batch.
    ///
    /// That is also so after a generation without drafts.
    ///
    /// The device computes all drafts without the host between them. Each costs a layer and a part of the output layer: in
    /// a large vocabulary only the first tokens are drafted, as many as the text has needed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the session has no predictor, and for a token outside the vocabulary; errors of the
    /// backend.
    pub fn draft(&mut self, token: u32, count: usize) -> Result<Vec<u32>> {
        if !self.predicts {
            return Err(Error::argument("drafts", "no predictor in use", "a file and a session with one"));
        }
        // Who asks for drafts gets them from the next batch on.
        self.follow_with_predictor(true);
        let length = self.cells.length(0);
        let count = count.min(Predictor::MOST).min(self.context.saturating_sub(length));
        if count == 0 {
            return Ok(Vec::new());
        }
        self.check_tokens(0, length, &[token])?;
        self.wait_in_flight()?;
        let (computed, before) = (self.cells.computed(0), self.cells.changes());
        // Cells that the next batch takes: it overwrites what the drafts write there.
        let mut placed = Vec::new();
        self.cells.append(0, &vec![token; count], &mut placed);
        let at = &placed[length - computed..];
        let known = at.first().is_some_and(|first| self.inputs.followed.before(first.at).is_some());
        let drafts = if known { self.drafts_at(token, at) } else { Ok(Vec::new()) };
        self.cells.truncate(0, length);
        self.cells.unplace(0, computed);
        self.ahead.keep_flight(before, self.cells.changes());
        drafts
    }

    /// Lets batches compute what the predictor needs, or not, which takes less time. After batches that it has not followed,
    /// the predictor sees only what comes later.
    pub(crate) fn follow_with_predictor(&mut self, follow: bool) {
        self.inputs.unfollowed = !follow;
    }

    fn drafts_at(&mut self, token: u32, at: &[Token]) -> Result<Vec<u32>> {
        let among = among(self.cells.tokens(0), self.model.hparams().vocabulary);
        let predictor = Predictor::Drafts { count: at.len(), among };
        let shape = self.shape(1, 1, Want::Best(1));
        let step = if self.pads { DRAFT_KV_STEP } else { KV_STEP };
        let kv = self.cells.end().next_multiple_of(step).min(shape.cells());
        let shape = BatchShape { predictor, kv, ..shape };
        let index = self.program_of(&shape)?;
        let (graph, program) = self.programs[index].graph_and_program();
        let mut write = |id, bytes: &[u8]| program.write(id, bytes);
        self.inputs.write_drafts(graph, token, at, &self.cells, &mut write)?;
        self.compute_time += program.run()?.host;
        let vocabulary = self.model.hparams().vocabulary;
        let mut drafts = Vec::new();
        for &id in &graph.drafts {
            let mut bytes = [0; size_of::<u32>()];
            program.read(id, &mut bytes)?;
            let draft = u32::from_le_bytes(bytes);
            // Logits that are no numbers have no best one.
            if draft as usize >= vocabulary {
                break;
            }
            drafts.push(draft);
        }
        Ok(drafts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_tokens_are_drafted() {
        let text = |rare: u32, of: u32| -> Vec<u32> {
            (0..600).map(|i| if i % of == 0 { rare } else { i }).collect()
        };
        assert_eq!(among(&text(0, 2), 1000), 1000);
        assert_eq!(among(&text(200_000, 2), 248_320), 248_320);
        assert_eq!(among(&text(100_000, 20), 300_000), 131_072);
        assert_eq!(among(&text(200_000, 50), 248_320), 32_768);
        assert_eq!((among(&[], 248_320), among(&[], 65_536)), (32_768, 65_536));
        assert_eq!((among(&[90_000; 2], 300_000), among(&[90_000; 3], 300_000)), (32_768, 131_072));
        // Tokens of long ago do not count.
        let changed = [vec![150_000; 500], vec![7; 600]].concat();
        assert_eq!(among(&changed, 151_936), 32_768);
    }
}
