//! Programs of a session: one for each batch shape, cached, started and waited for.

use super::prepared::Prepared;
use super::{KV_STEP, Session};
use crate::model::{BatchShape, Predictor, Want};
use ggml_core::Result;
use ggml_core::backend::Timing;
use std::time::Instant;

/// Maximum number of cached programs, in addition to one for each sequence.
const MAX_PROGRAMS: usize = 24;

/// Number of cache rows by which programs for drafts grow. Reading rows that are masked takes less time than preparing
/// programs more often.
pub(super) const DRAFT_KV_STEP: usize = 1024;

/// Returns the number of tokens that a program for `tokens` tokens is prepared for; `most` is the size of a
/// batch. Up to 16 it is exact, then it is a multiple of an eighth of the power of two below. So batches of
/// similar lengths share a program, and less than an eighth of its work is padding.
fn rounded(tokens: usize, most: usize) -> usize {
    tokens.next_multiple_of((tokens.next_power_of_two() / 16).max(1)).min(most.max(tokens))
}

impl Session {
    /// Runs the batch whose cells are assigned, and adds the rows of its outputs to the results.
    pub(super) fn run(&mut self, want: Want) -> Result<()> {
        self.run_placed(want)?;
        self.record_followed(want);
        Ok(())
    }

    /// Records that the predictor has followed the batch whose cells are assigned, if it does.
    pub(super) fn record_followed(&mut self, want: Want) {
        if !self.follows(want) {
            return;
        }
        for batch in self.placed.chunk_by(|a, b| a.at.sequence == b.at.sequence) {
            let first = batch[0].at;
            self.inputs.followed.follow(first.sequence, first.position..first.position + batch.len());
        }
    }

    /// True if batches compute what the predictor needs.
    fn follows(&self, want: Want) -> bool {
        self.predicts && !self.inputs.unfollowed && !matches!(want, Want::Hidden(_))
    }

    fn run_placed(&mut self, want: Want) -> Result<()> {
        if let Some((which, timing)) = self.run_ahead(want)? {
            self.compute_time += timing.host;
            return self.read_ahead(which);
        }
        // A graph has at least one output row.
        let index = self.program(self.placed.len(), self.outputs.len().max(1), want)?;
        if self.outputs.is_empty() && self.programs[index].overlaps() {
            return self.begin_program(index);
        }
        self.run_program(index)?;
        if self.outputs.is_empty() {
            return Ok(());
        }
        let (graph, program) = self.programs[index].graph_and_program();
        self.results.read(graph, &self.outputs, &mut |id, out| program.read(id, out))
    }

    /// Runs a prepared program for the batch whose cells are assigned, after the programs in flight.
    pub(super) fn run_program(&mut self, index: usize) -> Result<Timing> {
        if !self.programs[index].overlaps() {
            self.wait_in_flight()?;
        }
        let timing = if self.programs.iter().any(Prepared::is_in_flight) {
            self.begin_program(index)?;
            self.programs[index].finish()?
        } else {
            self.write_batch_inputs(index)?;
            self.programs[index].graph_and_program().1.run()?
        };
        self.compute_time += timing.host;
        Ok(timing)
    }

    /// Starts a prepared program for the batch whose cells are assigned, then waits for the program in
    /// flight. So the device already has the next batch of a prompt while the host prepares the one after it.
    fn begin_program(&mut self, index: usize) -> Result<()> {
        self.write_batch_inputs(index)?;
        self.programs[index].begin()?;
        (0..self.programs.len()).filter(|&other| other != index).try_for_each(|other| self.wait_for(other))
    }

    /// Waits for a program, if it is in flight.
    fn wait_for(&mut self, index: usize) -> Result<()> {
        self.compute_time += self.programs[index].finish()?.host;
        Ok(())
    }

    /// Writes the inputs of a program for the batch whose cells are assigned.
    fn write_batch_inputs(&mut self, index: usize) -> Result<()> {
        let (graph, program) = self.programs[index].graph_and_program();
        let mut write = |id, bytes: &[u8]| program.write(id, bytes);
        self.inputs.write(graph, &self.placed, &self.outputs, &self.cells, &mut write)
    }

    /// Waits for all programs in flight, even if one of them returns an error.
    pub(super) fn wait_in_flight(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for index in 0..self.programs.len() {
            let ended = self.wait_for(index);
            outcome = outcome.and(ended);
        }
        outcome
    }

    /// Returns the shape of a batch whose cells are assigned.
    pub(super) fn shape(&self, tokens: usize, outputs: usize, want: Want) -> BatchShape {
        let (context, sequences, cache) = (self.context, self.sequences(), self.cache);
        let cells = context * sequences;
        // Steps with drafts have many numbers of tokens. Where a step of a few more costs nothing, they share programs.
        let shared = self.inputs.drafts > 0 && self.pads;
        let step = if shared { DRAFT_KV_STEP } else { KV_STEP };
        let kv = self.cells.end().next_multiple_of(step).min(cells);
        let round = |n: usize, most: usize| match shared {
            true => n.next_power_of_two().min(most.max(n)),
            false => rounded(n, most),
        };
        let tokens = round(tokens, self.batch.min(cells));
        let outputs = round(outputs, tokens);
        // Non-causal models attend to the batch only, so kv = tokens.
        let kv = if self.model.hparams().causal { kv } else { tokens };
        let drafts = self.inputs.drafts > 0 && self.recurrent();
        let predictor = if self.follows(want) { Predictor::Follows } else { Predictor::Unused };
        BatchShape { tokens, kv, context, sequences, outputs, cache, want, drafts, predictor }
    }

    /// Returns the index of a prepared program for a batch whose cells are assigned, which is not in flight: a batch of
    /// the same shape as the one in flight gets another program, so that it can begin meanwhile. The most recently
    /// used program is last.
    pub(super) fn program(&mut self, tokens: usize, outputs: usize, want: Want) -> Result<usize> {
        let shape = self.shape(tokens, outputs, want);
        self.program_of(&shape)
    }

    /// Returns the index of a prepared program of a shape, which is not in flight.
    pub(super) fn program_of(&mut self, shape: &BatchShape) -> Result<usize> {
        if let Some(i) = self.programs.iter().position(|p| p.graph().shape == *shape && !p.is_in_flight()) {
            self.programs[i..].rotate_left(1);
            return Ok(self.programs.len() - 1);
        }
        if self.programs.len() == MAX_PROGRAMS + self.sequences() {
            self.programs.remove(0);
        }
        let start = Instant::now();
        let prepared = Prepared::new(&self.model, shape, &self.state, &mut self.compute, self.precision)?;
        self.programs.push(prepared);
        self.prepare_time += start.elapsed();
        tracing::debug!(target: "diptych::session", "prepared {shape:?} in {:?}", start.elapsed());
        Ok(self.programs.len() - 1)
    }
}
