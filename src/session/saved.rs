//! Saved sessions: the state of a computed sequence as bytes.
//!
//! The bytes are `DIPTYCHS`, the version and the length of the header (u32, little-endian), the header
//! (JSON), the tokens of the sequence (u32), then for each state tensor the rows of the sequence's computed
//! positions in their order, or its block of recurrent state if it has such positions. They depend neither on the cells that
//! held the positions nor on other sequences. The header identifies the model for which the state is valid by
//! a hash of its hyperparameters and tensors, see [`ModelFile::identity`](crate::model::ModelFile::identity).

use super::Session;
use super::layout::StateLayout;
use crate::json;
use crate::model::{RopeScaling, StateKind};
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"DIPTYCHS";
const VERSION: u32 = 4;

/// Subject of error messages.
const SAVED: &str = "saved session";

/// Bytes of a token.
const TOKEN: usize = size_of::<u32>();

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    model: u64,
    cache: String,
    /// Number of saved positions.
    position: usize,
    /// Number of computed positions; the tokens after them have no state yet.
    computed: usize,
    /// Maximum number of positions of a sequence, if its state depends on it.
    context: Option<usize>,
    /// Layouts of the state tensors.
    parts: Vec<StateLayout>,
}

impl Session {
    /// Saves sequence 0, see [`Session::save_sequence`].
    ///
    /// # Errors
    /// Errors of the backend while it reads the cache.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.save_sequence(0)
    }

    /// Replaces sequence 0 by a saved one, see [`Session::restore_sequence`].
    ///
    /// # Errors
    /// Errors of [`Session::restore_sequence`].
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.restore_sequence(0, bytes)
    }

    /// Saves a sequence, so that [`Session::restore_sequence`] can continue it: in this session or another
    /// one of the model, in another process or on another backend, as any sequence.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence; errors of the backend while it reads the
    /// cache.
    pub fn save_sequence(&self, sequence: usize) -> Result<Vec<u8>> {
        let header = self.header(self.position_of(sequence)?, self.cells.computed(sequence))?;
        let text = serde_json::to_vec(&header).map_err(|e| Error::argument(SAVED, e, ""))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(&text);
        bytes.extend(self.cells.tokens(sequence).iter().flat_map(|token| token.to_le_bytes()));
        let cells = self.cells.of(sequence);
        for (tensor, layout) in self.layouts.iter().enumerate() {
            let begin = bytes.len();
            bytes.resize(begin + layout.length(header.computed), 0);
            let out = &mut bytes[begin..];
            match layout.kind {
                _ if out.is_empty() => {}
                StateKind::Rows => self.gather(tensor, layout.bytes, &cells, out)?,
                StateKind::Slots => self.state.download(tensor, sequence * layout.bytes, out)?,
                StateKind::Hidden => {}
            }
        }
        Ok(bytes)
    }

    /// Replaces a sequence by a saved one. Backends differ in the last bits of their results, so the
    /// following logits have the same bits only on the backend that saved.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such sequence, and for bytes of another model, another type
    /// of cache, more positions than a sequence may have here, or bytes that are no saved session; the
    /// session is then unchanged. Errors of the backend while it writes the cache; the sequence is then
    /// empty, the others are unchanged.
    pub fn restore_sequence(&mut self, sequence: usize, bytes: &[u8]) -> Result<()> {
        self.check_sequence(sequence)?;
        let (tokens, computed, data) = self.checked(bytes)?;
        self.ahead.wait_in_flight()?;
        self.truncate(sequence, 0)?;
        self.inputs.followed.forget(sequence);
        self.cells.extend(sequence, &tokens);
        self.cells.place(sequence, computed, &mut Vec::new());
        let written = self.scatter(sequence, &self.cells.of(sequence), data);
        if written.is_err() {
            self.cells.truncate(sequence, 0);
        }
        written
    }

    /// Returns the tokens of a saved sequence, the number of those that are computed, and their state, after checking
    /// that it fits this session.
    fn checked<'a>(&self, bytes: &'a [u8]) -> Result<(Vec<u32>, usize, &'a [u8])> {
        let wrong = |found: String, expected: String| Err(Error::argument(SAVED, found, expected));
        let truncated = || Error::argument(SAVED, "truncated, or followed by other bytes", "");
        let foreign = || Error::argument(SAVED, "not a saved session", "");
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(foreign)?;
        let (version, rest) = number(rest).ok_or_else(truncated)?;
        if version != VERSION {
            return wrong(format!("version {version}"), VERSION.to_string());
        }
        let (length, rest) = number(rest).ok_or_else(truncated)?;
        let (text, rest) = rest.split_at_checked(length as usize).ok_or_else(truncated)?;
        let saved: Header = json::read(text).map_err(|e| Error::argument(SAVED, e, "a header"))?;
        let mine = self.header(saved.position, saved.computed)?;
        if saved.model != mine.model {
            return wrong("state of another model".into(), "the state of this model".into());
        }
        if saved.cache != mine.cache {
            return wrong(format!("a cache of {}", saved.cache), format!("a cache of {}", mine.cache));
        }
        if saved.position > self.context {
            return wrong(
                format!("{} positions", saved.position),
                format!("at most {}, the context", self.context),
            );
        }
        if saved.computed > saved.position {
            return wrong(
                format!("{} computed positions", saved.computed),
                format!("at most {}, those that there are", saved.position),
            );
        }
        if saved.parts != mine.parts {
            let with = |parts: &[StateLayout]| match parts.iter().any(|p| p.kind == StateKind::Hidden) {
                true => "with a predictor",
                false => "without a predictor",
            };
            let (found, expected) = (with(&saved.parts), with(&mine.parts));
            if found != expected {
                return wrong(format!("state of a session {found}"), format!("one {expected}"));
            }
            return wrong("state in other parts than here".into(), "a file that this version saved".into());
        }
        if saved != mine {
            let context = |header: &Header| format!("a context of {} positions", header.context.unwrap_or(0));
            return wrong(
                context(&saved),
                format!("{}, which affects the state of this model", context(&mine)),
            );
        }
        let (tokens, data) = rest.split_at_checked(saved.position * TOKEN).ok_or_else(truncated)?;
        let tokens: Vec<u32> = tokens.as_chunks().0.iter().map(|&token| u32::from_le_bytes(token)).collect();
        let vocabulary = self.model.hparams().vocabulary;
        if let Some(bad) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            return wrong(
                format!("token id {bad}"),
                format!("below {vocabulary}, the size of the vocabulary"),
            );
        }
        let length = |layout: &StateLayout| layout.length(saved.computed);
        if data.len() != self.layouts.iter().map(length).sum::<usize>() {
            return Err(truncated());
        }
        Ok((tokens, saved.computed, data))
    }

    /// Returns the header for `position` positions, of which `computed` have state.
    fn header(&self, position: usize, computed: usize) -> Result<Header> {
        let depends = matches!(self.model.hparams().scaling, RopeScaling::LongRope { .. });
        Ok(Header {
            model: self.model.file().identity()?,
            cache: self.cache.to_string(),
            position,
            computed,
            context: depends.then_some(self.context),
            parts: self.layouts.clone(),
        })
    }

    /// Reads rows of a tensor: in one transfer from the first cell to the last, including the cells between,
    /// because many small transfers take longer.
    fn gather(&self, tensor: usize, bytes: usize, cells: &[usize], out: &mut [u8]) -> Result<()> {
        if cells.is_sorted_by(|a, b| a + 1 == *b) {
            return self.state.download(tensor, cells[0] * bytes, out);
        }
        let (first, last) = cells.iter().fold((usize::MAX, 0), |(a, b), &cell| (a.min(cell), b.max(cell)));
        let mut span = vec![0; (last + 1 - first) * bytes];
        self.state.download(tensor, first * bytes, &mut span)?;
        for (row, cell) in out.chunks_exact_mut(bytes).zip(cells) {
            row.copy_from_slice(&span[(cell - first) * bytes..][..bytes]);
        }
        Ok(())
    }

    /// Writes the data of a saved sequence whose positions are in `cells`.
    fn scatter(&self, sequence: usize, cells: &[usize], mut data: &[u8]) -> Result<()> {
        for (tensor, layout) in self.layouts.iter().enumerate() {
            let (mut own, rest) = data.split_at(layout.length(cells.len()));
            data = rest;
            match layout.kind {
                _ if own.is_empty() => {}
                StateKind::Rows => {
                    for run in cells.chunk_by(|a, b| a + 1 == *b) {
                        let (rows, rest) = own.split_at(run.len() * layout.bytes);
                        self.state.upload(tensor, run[0] * layout.bytes, rows)?;
                        own = rest;
                    }
                }
                StateKind::Slots => self.state.upload(tensor, sequence * layout.bytes, own)?,
                StateKind::Hidden => {}
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*first), rest))
}
