//! Steps that begin before the one before them has been read.
//!
//! Greedy text is a chain: the best token of a step is the token of the next. Where the device chooses the best, it can go on
//! by itself: the graph of a step reads its token from memory in which the step before wrote it. So while one step runs,
//! the one after it is begun already, and the device never waits for the host. That is a guess at what the application
//! will do. If it does something else, the guess has written a cell that nobody has seen and that is written again before
//! anybody looks at it; only its time is lost.
//!
//! Two programs take turns, because each has inputs of its own.

use super::cells::Token;
use super::prepared::{Compute, Prepared};
use super::{Session, Want};
use crate::model::BatchShape;
use ggml_core::backend::{Buffer, Timing, Usage};
use ggml_core::{Error, Result};

/// A step that has begun.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Its program.
    which: usize,
    /// What it computes.
    token: Token,
    /// How often cells had changed then.
    changes: u64,
}

/// Programs of steps that take turns.
pub(super) struct Ahead {
    // Programs refer to buffers, so they go first.
    pair: Option<[Prepared; 2]>,
    compute: [Compute; 2],
    /// The token of the next step.
    next: Option<Buffer>,
    flight: Option<Flight>,
    /// Whether the session is one for which there is all this.
    wanted: bool,
    /// Room for the token that is guessed at.
    guess: Vec<Token>,
}

impl Ahead {
    /// Nothing yet. `wanted`: as [`SessionOptions::ahead`](super::SessionOptions::ahead) says.
    pub(super) fn new(wanted: bool) -> Ahead {
        let compute = [Compute::default(), Compute::default()];
        Ahead { pair: None, compute, next: None, flight: None, wanted, guess: Vec::new() }
    }

    fn pair(&mut self) -> Result<&mut [Prepared; 2]> {
        self.pair.as_mut().ok_or_else(|| Error::argument("step", "no programs", "two that take turns"))
    }

    /// Waits for a step that has begun, before somebody else writes where it may write.
    pub(super) fn settle(&mut self) -> Result<()> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let ended = self.pair()?[flight.which].parts().1.finish();
        if ended.is_err() {
            self.pair = None;
        }
        ended.map(|_| ())
    }
}

impl Session {
    /// Whether the batch whose cells are taken is a step of greedy text that the device can go on with by itself.
    fn goes_on(&self, want: Want) -> bool {
        let single = self.placed.len() == 1 && self.outputs.len() == 1 && self.sequences() == 1;
        self.ahead.wanted && single && want == Want::Best(1)
    }

    /// Prepares both programs of steps of a shape. Says whether there are such.
    pub(super) fn prepare_ahead(&mut self, shape: &BatchShape) -> Result<bool> {
        if !self.ahead.wanted
            || *shape != (BatchShape { tokens: 1, sequences: 1, want: Want::Best(1), ..*shape })
        {
            return Ok(false);
        }
        if self.ahead.pair.as_ref().is_some_and(|pair| pair[0].graph().shape == *shape) {
            return Ok(true);
        }
        self.ahead.settle()?;
        self.ahead.pair = None;
        // Recurrent state cannot take a wrong guess back.
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
            // A part of the model is elsewhere.
            _ => self.ahead.wanted = false,
        }
        Ok(self.ahead.wanted)
    }

    /// Runs the step whose cell is taken, if it is one that goes on by itself, and begins the next. Its results are those of
    /// the program whose number it returns.
    pub(super) fn run_ahead(&mut self, want: Want) -> Result<Option<(usize, Timing)>> {
        if !self.goes_on(want) {
            return Ok(None);
        }
        let shape = self.shape(1, 1, want);
        if !self.prepare_ahead(&shape)? {
            return Ok(None);
        }
        self.settle()?;
        let ran = self.step_and_next(self.placed[0], &shape);
        if ran.is_err() {
            (self.ahead.pair, self.ahead.flight) = (None, None);
        }
        ran.map(Some)
    }

    fn step_and_next(&mut self, token: Token, shape: &BatchShape) -> Result<(usize, Timing)> {
        let as_guessed = |f: &Flight| f.token == token && f.changes + 1 == self.cells.changes();
        let which = match self.ahead.flight.filter(as_guessed) {
            Some(flight) => flight.which,
            None => {
                self.ahead.settle()?;
                self.begin(0, token, true)?;
                0
            }
        };
        self.ahead.flight = None;
        let guessed = self.begin_next(1 - which, token, shape)?;
        let timing = self.ahead.pair()?[which].parts().1.finish()?;
        self.ahead.flight = guessed;
        Ok((which, timing))
    }

    /// Begins the step after that of `token`, whatever its token will be, where it has the same shape.
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

    /// Begins a step; `known`: its token is that of the caller, not that of the device.
    fn begin(&mut self, which: usize, token: Token, known: bool) -> Result<()> {
        let (graph, program) = self
            .ahead
            .pair
            .as_mut()
            .map(|pair| pair[which].parts())
            .ok_or_else(|| Error::argument("step", "no programs", "two that take turns"))?;
        let chained = graph.inputs.tokens;
        let mut write =
            |id, bytes: &[u8]| if known || id != chained { program.write(id, bytes) } else { Ok(()) };
        self.inputs.put(graph, &[token], &[0], &self.cells, &mut write)?;
        program.begin()
    }

    /// Reads the results of a step that has ended; its best token is that of the step that has begun.
    pub(super) fn read_ahead(&mut self, which: usize) -> Result<()> {
        let pair = self.ahead.pair.as_mut();
        let (graph, program) = pair
            .map(|pair| pair[which].parts())
            .ok_or_else(|| Error::argument("step", "no programs", "two that take turns"))?;
        self.results.read(graph, &self.outputs, &mut |id, out| program.read(id, out))?;
        let best = self.rows().get(0).map(|row| row.greedy());
        if let (Some(flight), Some(best)) = (&mut self.ahead.flight, best) {
            flight.token.id = best;
        }
        Ok(())
    }
}
