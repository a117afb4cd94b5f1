//! Drafts of the predictor, the layer of the file that predicts further tokens.

use super::cells::Token;
use super::{Session, Want};
use crate::model::{BatchShape, Predictor};
use ggml_core::{Error, Result};

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
    /// The device computes all drafts without the host between them. Each costs a layer and the output layer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the session has no predictor, and for a token outside the vocabulary; errors of the
    /// backend.
    pub fn draft(&mut self, token: u32, count: usize) -> Result<Vec<u32>> {
        if !self.predicts {
            return Err(Error::argument("drafts", "no predictor in use", "a file and a session with one"));
        }
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
        let known = at.first().is_some_and(|first| self.inputs.kept.before(first.at).is_some());
        let drafts = if known { self.drafts_at(token, at) } else { Ok(Vec::new()) };
        self.cells.truncate(0, length);
        self.cells.unplace(0, computed);
        self.ahead.keep_flight(before, self.cells.changes());
        drafts
    }

    fn drafts_at(&mut self, token: u32, at: &[Token]) -> Result<Vec<u32>> {
        let predictor = Predictor::Drafts(at.len());
        let shape = BatchShape { predictor, drafts: false, ..self.shape(1, 1, Want::Best(1)) };
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
