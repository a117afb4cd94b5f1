//! Parallel generations, for an application with several users.

use super::writer::Writer;
use super::{Cancel, GenerateOptions, Piece, Summary};
use crate::session::{Item, Row, Want};
use crate::tokenizer::Tokenizer;
use crate::{Result, Session};
use ggml_core::Error;
use std::time::{Duration, Instant};

/// Generations that share a session: each has one of its sequences. A step computes the next token of all of
/// them in one batch, with as many tokens of new prompts as fit. Generations begin and end independently, and
/// the output of one does not depend on the others.
///
/// ```no_run
/// use diptych::generate::{GenerateOptions, Generations};
/// use diptych::{Result, Session, Tokenizer};
///
/// fn answer(session: &mut Session, tokenizer: &Tokenizer, mut prompts: Vec<Vec<u32>>) -> Result<()> {
///     let mut generations = Generations::new(session, tokenizer);
///     while !prompts.is_empty() || generations.running() > 0 {
///         while let (Some(sequence), Some(prompt)) = (generations.free(), prompts.pop()) {
///             generations.reset(sequence)?;
///             generations.start(sequence, &prompt, &GenerateOptions::default())?;
///         }
///         for (sequence, piece) in generations.step()? {
///             println!("{sequence}: {}", piece?.text);
///         }
///     }
///     Ok(())
/// }
/// ```
pub struct Generations<'a> {
    session: &'a mut Session,
    pub(super) tokenizer: &'a Tokenizer,
    /// Generation of each sequence.
    all: Vec<Option<Running<'a>>>,
}

struct Running<'a> {
    writer: Writer<'a>,
    /// Tokens that the sequence does not hold yet: the rest of the prompt, or the token chosen last.
    next: Vec<u32>,
    /// True if the prompt has been computed.
    begun: bool,
}

impl Running<'_> {
    /// Records that `tokens` tokens of `next` were computed in the time `took`, and returns the pieces that
    /// follow from their row.
    fn accept(
        &mut self,
        tokens: usize,
        took: Duration,
        row: Option<Row<'_>>,
        room: bool,
    ) -> Vec<Result<Piece>> {
        self.next.drain(..tokens);
        let summary = &mut self.writer.summary;
        if self.begun {
            summary.time += took;
        } else {
            summary.prompt_time += took;
            summary.computed_tokens += tokens;
        }
        if !self.next.is_empty() {
            return Vec::new();
        }
        self.begun = true;
        match self.writer.choose(row, room) {
            Err(error) => vec![Err(error)],
            Ok(piece) => {
                self.next.extend(piece.as_ref().and_then(|piece| piece.token));
                let rest = if self.writer.due() { self.writer.end() } else { None };
                piece.into_iter().chain(rest).map(Ok).collect()
            }
        }
    }
}

/// Tokens of one generation in a batch.
struct BatchEntry<'s, 'a> {
    sequence: usize,
    one: &'s mut Running<'a>,
    /// Number of tokens of its `next`, from the first on.
    tokens: usize,
}

impl BatchEntry<'_, '_> {
    fn item(&self) -> Item<'_> {
        Item { sequence: self.sequence, tokens: &self.one.next[..self.tokens] }
    }
}

/// Divides a batch: one token for each generation that writes text, then the prompts in order of the
/// sequences. At least one prompt continues in any case.
fn divide_batch<'s, 'a>(running: Vec<(usize, &'s mut Running<'a>)>, batch: usize) -> Vec<BatchEntry<'s, 'a>> {
    let writing = running.iter().filter(|(_, one)| one.begun).count();
    let mut room = batch.saturating_sub(writing).max(1);
    let entry = |(sequence, one): (usize, &'s mut Running<'a>)| {
        let tokens = if one.begun { one.next.len() } else { one.next.len().min(room) };
        if !one.begun {
            room -= tokens;
        }
        BatchEntry { sequence, one, tokens }
    };
    running.into_iter().map(entry).filter(|entry| entry.tokens > 0).collect()
}

impl<'a> Generations<'a> {
    /// Creates the structure without generations. The session's sequences are unchanged: a generation
    /// continues from the tokens of its sequence.
    pub fn new(session: &'a mut Session, tokenizer: &'a Tokenizer) -> Generations<'a> {
        // Generations of several sequences do not draft.
        session.follow_with_predictor(false);
        let all = (0..session.sequences()).map(|_| None).collect();
        Generations { session, tokenizer, all }
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        self.session
    }

    /// Clears a sequence without a running generation, so that the next one there starts from the beginning.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence, or its generation is running.
    pub fn reset(&mut self, sequence: usize) -> Result<()> {
        self.check_free(sequence)?;
        self.session.reset_sequence(sequence)
    }

    /// Starts a generation on a sequence without a running one. Its prompt is computed in the next steps,
    /// after the tokens that the sequence holds. Tokens of the prompt count for the sampler's penalties. The
    /// returned handle ends the generation, also within its prompt; the sequence then holds the computed
    /// part.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the sequence does not exist, has a running generation or has too few
    /// free positions for the prompt, for a prompt that is empty or has tokens outside the vocabulary, and
    /// for invalid options.
    pub fn start(&mut self, sequence: usize, prompt: &[u32], options: &GenerateOptions) -> Result<Cancel> {
        self.check_free(sequence)?;
        self.session.check(&[Item { sequence, tokens: prompt }])?;
        let writer = Writer::new(self.tokenizer, prompt, options)?;
        Ok(self.begin(sequence, writer, prompt))
    }

    /// Starts a generation after a whole conversation. The prompt is the conversation from the beginning;
    /// only tokens that the sequence does not hold yet are computed, see [`Session::keep_common`].
    ///
    /// # Errors
    /// Errors of [`Generations::start`].
    pub fn continue_with(
        &mut self,
        sequence: usize,
        prompt: &[u32],
        options: &GenerateOptions,
    ) -> Result<Cancel> {
        self.check_free(sequence)?;
        self.session.check_tokens(sequence, 0, prompt)?;
        let mut writer = Writer::new(self.tokenizer, prompt, options)?;
        let held = self.session.keep_common(sequence, prompt)?;
        writer.summary.held_tokens = held;
        Ok(self.begin(sequence, writer, &prompt[held..]))
    }

    fn begin(&mut self, sequence: usize, writer: Writer<'a>, tokens: &[u32]) -> Cancel {
        let cancel = writer.cancel.clone();
        self.all[sequence] = Some(Running { writer, next: tokens.to_vec(), begun: false });
        cancel
    }

    /// Returns a sequence without a running generation, if there is one.
    pub fn free(&self) -> Option<usize> {
        (0..self.all.len()).find(|&sequence| !self.is_running(sequence))
    }

    /// Returns the number of running generations.
    pub fn running(&self) -> usize {
        (0..self.all.len()).filter(|&sequence| self.is_running(sequence)).count()
    }

    /// Returns the summary of the last generation of a sequence. Its times are those of whole steps, which
    /// the generations share.
    pub fn summary(&self, sequence: usize) -> Option<&Summary> {
        self.all.get(sequence)?.as_ref().map(|one| &one.writer.summary)
    }

    /// Computes one batch: the next token of all generations that write text, and as many prompt tokens of
    /// the others as fit, those of the first sequences first. Returns sequences and their pieces; none for an
    /// incomplete prompt. A piece is an error if the token of its sequence could not be chosen, which ends
    /// only this generation.
    ///
    /// # Errors
    /// Errors of the backend; they end all generations, and text that others would have returned in this step
    /// is lost.
    pub fn step(&mut self) -> Result<Vec<(usize, Result<Piece>)>> {
        let start = Instant::now();
        let (mut pieces, mut running) = (Vec::new(), Vec::new());
        for (sequence, one) in self.all.iter_mut().enumerate() {
            let Some(one) = one.as_mut().filter(|one| !one.writer.done()) else { continue };
            if one.writer.due() {
                pieces.extend(one.writer.end().map(|piece| (sequence, Ok(piece))));
            } else {
                running.push((sequence, one));
            }
        }
        let mut work = divide_batch(running, self.session.batch_tokens());
        let want = work.iter().map(|entry| entry.one.writer.want()).reduce(Want::or).unwrap_or_default();
        let items: Vec<Item<'_>> = work.iter().map(BatchEntry::item).collect();
        if let Err(error) = self.session.append(&items, want) {
            let running = self.all.iter_mut().flatten().filter(|one| !one.writer.done());
            running.for_each(|one| one.writer.fail());
            return Err(error);
        }
        let took = start.elapsed();
        let session = &*self.session;
        for (index, BatchEntry { sequence, one, tokens }) in work.iter_mut().enumerate() {
            let room = session.position_of(*sequence)? < session.context();
            let row = session.rows().get(index);
            let start = Instant::now();
            pieces.extend(one.accept(*tokens, took, row, room).into_iter().map(|piece| (*sequence, piece)));
            one.writer.summary.time += start.elapsed();
        }
        Ok(pieces)
    }

    pub(super) fn is_running(&self, sequence: usize) -> bool {
        self.all.get(sequence).and_then(Option::as_ref).is_some_and(|one| !one.writer.done())
    }

    fn check_free(&self, sequence: usize) -> Result<()> {
        self.session.position_of(sequence)?;
        if self.is_running(sequence) {
            return Err(Error::argument("sequence", sequence, "a sequence without a running generation"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Generations<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generations")
            .field("session", self.session)
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}
