//! Generations side by side: what an application does that answers several users.

use super::writer::Writer;
use super::{Cancel, GenerateOptions, Piece, Summary};
use crate::session::Item;
use crate::tokenizer::Tokenizer;
use crate::{Result, Session};
use ggml_core::Error;
use std::time::Instant;

/// Generations that share a session: each has one of its sequences, and a step computes the next token of all of them in
/// one batch, the prompts of new ones included. They begin and end independently of each other, and what one of them
/// gives does not depend on the others.
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
    tokenizer: &'a Tokenizer,
    /// By sequence.
    all: Vec<Option<Running<'a>>>,
}

struct Running<'a> {
    writer: Writer<'a>,
    /// Tokens that the sequence lacks: the prompt, or the token that was chosen last.
    next: Vec<u32>,
    /// Whether the prompt has been computed.
    begun: bool,
}

impl Running<'_> {
    /// Takes the logits that followed `next`; what comes of them.
    fn take(&mut self, logits: &[f32], room: bool) -> Vec<Result<Piece>> {
        self.begun = true;
        self.next.clear();
        match self.writer.choose(logits, room) {
            Err(error) => vec![Err(error)],
            Ok(piece) => {
                self.next.extend(piece.as_ref().and_then(|piece| piece.token));
                let rest = if self.writer.due() { self.writer.end() } else { None };
                piece.into_iter().chain(rest).map(Ok).collect()
            }
        }
    }
}

impl<'a> Generations<'a> {
    /// None yet. The session's sequences keep what they hold: a generation goes on behind it.
    pub fn new(session: &'a mut Session, tokenizer: &'a Tokenizer) -> Generations<'a> {
        let all = (0..session.sequences()).map(|_| None).collect();
        Generations { session, tokenizer, all }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        self.session
    }

    /// Makes a sequence without a running generation empty, so that the next one there begins anew.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no such sequence, or its generation runs.
    pub fn reset(&mut self, sequence: usize) -> Result<()> {
        self.check_free(sequence)?;
        self.session.reset_sequence(sequence)
    }

    /// Begins a generation on a sequence where none runs; its prompt is computed in the next step, behind what the
    /// sequence holds. Tokens of the prompt count for the sampler's penalties. What is returned ends the generation.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the sequence does not exist, has a running generation or has no room for the
    /// prompt, for a prompt that is empty or has tokens outside the vocabulary, and for options that make no sense.
    pub fn start(&mut self, sequence: usize, prompt: &[u32], options: &GenerateOptions) -> Result<Cancel> {
        self.check_free(sequence)?;
        self.session.check(&[Item { sequence, tokens: prompt }])?;
        let writer = Writer::new(self.tokenizer, prompt, options)?;
        let cancel = writer.cancel.clone();
        self.all[sequence] = Some(Running { writer, next: prompt.to_vec(), begun: false });
        Ok(cancel)
    }

    /// A sequence where no generation runs.
    pub fn free(&self) -> Option<usize> {
        (0..self.all.len()).find(|&sequence| !self.runs(sequence))
    }

    /// How many generations run.
    pub fn running(&self) -> usize {
        (0..self.all.len()).filter(|&sequence| self.runs(sequence)).count()
    }

    /// What the last generation of a sequence has done so far. The times are those of steps, which the generations share.
    pub fn summary(&self, sequence: usize) -> Option<&Summary> {
        self.all.get(sequence)?.as_ref().map(|one| &one.writer.summary)
    }

    /// Computes the next token of all generations that run; their sequences and pieces. A piece is an error where the
    /// token of its sequence could not be chosen, which ends this generation only.
    ///
    /// # Errors
    /// What the backend reports; it ends all of them, and text that others were to get in this step is lost.
    pub fn step(&mut self) -> Result<Vec<(usize, Result<Piece>)>> {
        let start = Instant::now();
        let mut pieces = Vec::new();
        let mut work: Vec<(usize, &mut Running<'_>)> = Vec::new();
        for (sequence, one) in self.all.iter_mut().enumerate() {
            let Some(one) = one.as_mut().filter(|one| !one.writer.done()) else { continue };
            if one.writer.due() {
                pieces.extend(one.writer.end().map(|piece| (sequence, Ok(piece))));
            } else {
                work.push((sequence, one));
            }
        }
        let items: Vec<Item<'_>> =
            work.iter().map(|(sequence, one)| Item { sequence: *sequence, tokens: &one.next }).collect();
        let logits = match self.session.batch(&items) {
            Ok(logits) => logits,
            Err(error) => {
                work.iter_mut().for_each(|(_, one)| one.writer.fail());
                return Err(error);
            }
        };
        let took = start.elapsed();
        for ((sequence, one), logits) in work.iter_mut().zip(&logits) {
            let prompt = !one.begun;
            let room = self.session.position_of(*sequence)? < self.session.context();
            let start = Instant::now();
            pieces.extend(one.take(logits, room).into_iter().map(|piece| (*sequence, piece)));
            let summary = &mut one.writer.summary;
            *(if prompt { &mut summary.prompt_time } else { &mut summary.time }) += took;
            summary.time += start.elapsed();
        }
        Ok(pieces)
    }

    fn runs(&self, sequence: usize) -> bool {
        self.all.get(sequence).and_then(Option::as_ref).is_some_and(|one| !one.writer.done())
    }

    fn check_free(&self, sequence: usize) -> Result<()> {
        self.session.position_of(sequence)?;
        if self.runs(sequence) {
            return Err(Error::argument_said("sequence", format!("the generation of {sequence} runs")));
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
