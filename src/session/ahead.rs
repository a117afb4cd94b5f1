//! Speculative decode steps: a step starts before the result of the previous one has been read.
//!
//! Greedy text is a chain: the best token of a step is the token of the next. If the device selects the best
//! token, it can continue without the host: the graph of a step reads its token from memory in which the
//! previous step wrote it. So the next step is already started while the current one runs, and the device
//! never waits for the host. The next step is speculative: the application may continue with another token or
//! stop. The speculative step has then written a cell that is written again before it is read; only its time
//! is lost.
//!
//! Two programs alternate: while one runs, the inputs of the other are written.

use super::cells::Token;
use super::memory::Compute;
use super::prepared::Prepared;
use super::results::Row;
use super::{Session, Want};
use crate::model::BatchShape;
use ggml_core::backend::{Buffer, Timing, Usage};
use ggml_core::{Error, Result};

/// Decode step in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Index of its program.
    which: usize,
    /// Its input. The id is 0 until the result of the previous step has been read.
    token: Token,
    /// [`Cells::changes`](super::cells::Cells::changes) after it was started. It is useful only if the next
    /// change appends its token.
    changes: u64,
}

/// Programs of decode steps that alternate.
pub(super) struct Ahead {
    // Dropped first, because programs refer to the buffers.
    pair: Option<[Prepared; 2]>,
    /// Memory for intermediates of each program.
    compute: [Compute; 2],
    /// Device memory of the next step's token.
    next: Option<Buffer>,
    flight: Option<Flight>,
    /// True if the options allow speculative steps and nothing found so far prevents them.
    wanted: bool,
    /// Reusable memory for the speculative token.
    guess: Vec<Token>,
}

impl Ahead {
    /// Creates the state without programs. `wanted` is
    /// [`SessionOptions::ahead`](super::SessionOptions::ahead).
    pub(super) fn new(wanted: bool) -> Ahead {
        let compute = [Compute::default(), Compute::default()];
        Ahead { pair: None, compute, next: None, flight: None, wanted, guess: Vec::new() }
    }

    /// Returns the two programs; an error if they are not prepared.
    fn pair(&mut self) -> Result<&mut [Prepared; 2]> {
        self.pair
            .as_mut()
            .ok_or_else(|| Error::argument("speculative step", "no programs", "two prepared programs"))
    }

    /// Keeps the step in flight useful, if it was so at the change `before` and the cells have the same
    /// contents again at the change `after`.
    pub(super) fn keep_flight(&mut self, before: u64, after: u64) {
        if let Some(flight) = self.flight.as_mut().filter(|flight| flight.changes == before) {
            flight.changes = after;
        }
    }

    /// Waits for the step in flight, if there is one. Its result is dropped. Needed before its programs are
    /// replaced or restarted, and before the host writes the cache.
    pub(super) fn wait_in_flight(&mut self) -> Result<()> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let ended = self.pair()?[flight.which].graph_and_program().1.finish();
        if ended.is_err() {
            self.pair = None;
        }
        ended.map(|_| ())
    }
}

impl Session {
    /// Returns true if the batch whose cells are assigned is a greedy decode step of a session with one
    /// sequence: the device can continue from it without the host.
    fn can_chain(&self, want: Want) -> bool {
        let single = self.placed.len() == 1 && self.outputs.len() == 1 && self.sequences() == 1;
        self.ahead.wanted && single && want == Want::Best(1)
    }

    /// Prepares both programs for decode steps of a shape. Returns false if it is not the shape of a greedy
    /// decode step of one sequence, or if the session cannot run speculative steps.
    pub(super) fn prepare_ahead(&mut self, shape: &BatchShape) -> Result<bool> {
        if !self.ahead.wanted
            || *shape != (BatchShape { tokens: 1, sequences: 1, want: Want::Best(1), ..*shape })
        {
            return Ok(false);
        }
        if self.ahead.pair.as_ref().is_some_and(|pair| pair[0].graph().shape == *shape) {
            return Ok(true);
        }
        self.ahead.wait_in_flight()?;
        self.ahead.pair = None;
        // Recurrent state cannot be rolled back after a wrong speculation.
        if !self.model.backend().begins() || self.recurrent() {
            self.ahead.wanted = false;
            return Ok(false);
        }
        let next = match &self.ahead.next {
            Some(next) => next.clone(),
            None => self.model.backend().allocate(size_of::<u32>(), Usage::State)?,
        };
        self.ahead.next = Some(next.clone());
        let [one, two] = &mut self.ahead.compute;
        let prepare = |compute: &mut Compute| {
            Prepared::chained(&self.model, shape, &self.state, compute, &next, self.precision)
        };
        match (prepare(one)?, prepare(two)?) {
            (Some(one), Some(two)) => self.ahead.pair = Some([one, two]),
            // A part of the model is on another device.
            _ => self.ahead.wanted = false,
        }
        Ok(self.ahead.wanted)
    }

    /// Runs the step whose cell is assigned and starts the next one. Returns the index of the program that
    /// has the results, and its time; `None` if the batch has to run without speculation.
    pub(super) fn run_ahead(&mut self, want: Want) -> Result<Option<(usize, Timing)>> {
        if !self.can_chain(want) {
            return Ok(None);
        }
        let shape = self.shape(1, 1, want);
        if !self.prepare_ahead(&shape)? {
            return Ok(None);
        }
        self.wait_in_flight()?;
        let ran = self.step_and_next(self.placed[0], &shape);
        if ran.is_err() {
            (self.ahead.pair, self.ahead.flight) = (None, None);
        }
        ran.map(Some)
    }

    /// Finishes the step of `token`, which may be in flight already, after starting the step that follows.
    fn step_and_next(&mut self, token: Token, shape: &BatchShape) -> Result<(usize, Timing)> {
        let as_guessed = |f: &Flight| f.token == token && f.changes + 1 == self.cells.changes();
        let which = match self.ahead.flight.filter(as_guessed) {
            Some(flight) => flight.which,
            None => {
                self.ahead.wait_in_flight()?;
                self.begin(0, token, true)?;
                0
            }
        };
        self.ahead.flight = None;
        // The next step continues from the hidden state of this one.
        self.record_followed(shape.want);
        let guessed = self.begin_next(1 - which, token, shape)?;
        let timing = self.ahead.pair()?[which].graph_and_program().1.finish()?;
        self.ahead.flight = guessed;
        Ok((which, timing))
    }

    /// Starts the step after that of `token`, before its own token is known. Starts nothing at the end of the
    /// context, or if that step has another shape.
    fn begin_next(&mut self, which: usize, token: Token, shape: &BatchShape) -> Result<Option<Flight>> {
        let length = token.at.position + 1;
        if length == self.context {
            return Ok(None);
        }
        let mut guess = std::mem::take(&mut self.ahead.guess);
        guess.clear();
        self.cells.append(0, &[0], &mut guess);
        let fits = self.cells.end() <= shape.kv;
        let begun = match guess.first() {
            Some(&next) if fits => self.begin(which, next, false).map(|()| Some(next)),
            _ => Ok(None),
        };
        self.cells.truncate(0, length);
        self.ahead.guess = guess;
        let changes = self.cells.changes();
        Ok(begun?.map(|token| Flight { which, token, changes }))
    }

    /// Starts a step. `known` is true if the host supplies its token, false if the token is on the device.
    fn begin(&mut self, which: usize, token: Token, known: bool) -> Result<()> {
        let (graph, program) = self.ahead.pair()?[which].graph_and_program();
        let chained = graph.inputs.tokens;
        let mut write =
            |id, bytes: &[u8]| if known || id != chained { program.write(id, bytes) } else { Ok(()) };
        self.inputs.write(graph, &[token], &[0], &self.cells, &mut write)?;
        program.begin()
    }

    /// Reads the results of a finished step; its best token is the token of the step in flight.
    pub(super) fn read_ahead(&mut self, which: usize) -> Result<()> {
        let (graph, program) = self.ahead.pair()?[which].graph_and_program();
        self.results.read(graph, &self.outputs, &mut |id, out| program.read(id, out))?;
        // The step in flight has this token even if no logit is a number.
        let best = self.rows().get(0).and_then(|row| match row {
            Row::Best(best) => best.tokens.first().copied(),
            Row::Logits(logits) => super::greedy(logits).ok(),
        });
        if let (Some(flight), Some(best)) = (&mut self.ahead.flight, best) {
            flight.token.id = best;
        }
        Ok(())
    }
}
