//! Saved sessions: a sequence that was computed, as bytes.
//!
//! The bytes are `DIPTYCHS`, the version and the length of the header (u32, little-endian), the header (JSON), then for
//! each state tensor the rows of the sequence's positions in their order, or its block of recurrent state if it has
//! positions. Nothing of it depends on the cells that held the positions, nor on other sequences. A header tells of the
//! model what decides whether its state can be used: a number made of the names, types and extents of its tensors and of
//! its hyperparameters.

use super::Session;
use crate::model::{Model, RopeScaling, StateKind};
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"DIPTYCHS";
const VERSION: u32 = 2;

/// What a state tensor has of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// How the tensor is divided.
    pub(super) kind: StateKind,
    /// Bytes of a position, or of the whole block of a sequence.
    pub(super) bytes: usize,
}

impl Part {
    /// Bytes of a sequence of `position` positions.
    fn length(&self, position: usize) -> usize {
        self.bytes
            * match self.kind {
                StateKind::Rows => position,
                StateKind::Slots => position.min(1),
            }
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    model: u64,
    cache: String,
    /// Positions that are saved.
    position: usize,
    /// Positions that a sequence had room for, where its state depends on it.
    context: Option<usize>,
    /// The state tensors.
    parts: Vec<Part>,
}

impl Session {
    /// Sequence 0 so far, see [`Session::save_sequence`].
    ///
    /// # Errors
    /// What the backend reports while it reads the cache.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.save_sequence(0)
    }

    /// Replaces sequence 0 by a saved one, see [`Session::restore_sequence`].
    ///
    /// # Errors
    /// Those of [`Session::restore_sequence`].
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.restore_sequence(0, bytes)
    }

    /// A sequence so far, so that [`Session::restore_sequence`] can go on with it: in this session or another one of the
    /// model, in another process or on another backend, under any number.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no such sequence; what the backend reports while it reads the cache.
    pub fn save_sequence(&self, sequence: usize) -> Result<Vec<u8>> {
        let header = self.header(self.position_of(sequence)?);
        let text =
            serde_json::to_vec(&header).map_err(|e| Error::argument_said("saved session", e.to_string()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(&text);
        let cells = self.cells.of(sequence);
        for (tensor, part) in self.parts.iter().enumerate() {
            let begin = bytes.len();
            bytes.resize(begin + part.length(header.position), 0);
            let out = &mut bytes[begin..];
            match part.kind {
                _ if out.is_empty() => {}
                StateKind::Rows => self.gather(tensor, part.bytes, &cells, out)?,
                StateKind::Slots => self.state.download(tensor, sequence * part.bytes, out)?,
            }
        }
        Ok(bytes)
    }

    /// Replaces a sequence by a saved one. Backends differ in the last bits of what they compute, so the logits that
    /// follow are the same bits only on the backend that saved.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no such sequence, and for bytes of another model, another type of cache,
    /// more positions than a sequence has room for here, or no saved session at all; the session is then as it was. What
    /// the backend reports while it writes the cache; the sequence is then empty, the others are as they were.
    pub fn restore_sequence(&mut self, sequence: usize, bytes: &[u8]) -> Result<()> {
        self.check_sequence(sequence)?;
        let (position, data) = self.checked(bytes)?;
        self.cells.truncate(sequence, 0);
        let cells = self.cells.append(sequence, position);
        let written = self.scatter(sequence, &cells, data);
        if written.is_err() {
            self.cells.truncate(sequence, 0);
        }
        written
    }

    /// The number of positions and the data of a saved sequence that fits this session.
    fn checked<'a>(&self, bytes: &'a [u8]) -> Result<(usize, &'a [u8])> {
        let wrong = |why: &str| Error::argument_said("saved session", why);
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("is none"))?;
        let (version, rest) = number(rest).ok_or_else(|| wrong("is cut off"))?;
        if version != VERSION {
            return Err(wrong(&format!("has version {version}, not {VERSION}")));
        }
        let (length, rest) = number(rest).ok_or_else(|| wrong("is cut off"))?;
        let (text, data) = rest.split_at_checked(length as usize).ok_or_else(|| wrong("is cut off"))?;
        let saved: Header = serde_json::from_slice(text).map_err(|e| wrong(&e.to_string()))?;
        let mine = self.header(saved.position);
        if saved.model != mine.model {
            return Err(wrong("is of another model"));
        }
        if saved.cache != mine.cache {
            return Err(wrong(&format!("has a cache of {}, not {}", saved.cache, mine.cache)));
        }
        if saved.position > self.context {
            let why = format!("has {} positions, there is room for {}", saved.position, self.context);
            return Err(wrong(&why));
        }
        if saved != mine {
            return Err(wrong(
                "was made with room for another number of positions, on which this model depends",
            ));
        }
        let length = |part: &Part| part.length(saved.position);
        if data.len() != self.parts.iter().map(length).sum::<usize>() {
            return Err(wrong("is cut off, or has something behind its end"));
        }
        Ok((saved.position, data))
    }

    /// The header of a number of positions.
    fn header(&self, position: usize) -> Header {
        let depends = matches!(self.model.hparams().scaling, RopeScaling::LongRope { .. });
        Header {
            model: identity(&self.model),
            cache: self.cache.to_string(),
            position,
            context: depends.then_some(self.context),
            parts: self.parts.clone(),
        }
    }

    /// Reads rows of a tensor: in one piece from the first cell to the last, with what lies between, because many small
    /// transfers take longer.
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
        for (tensor, part) in self.parts.iter().enumerate() {
            let (mut own, rest) = data.split_at(part.length(cells.len()));
            data = rest;
            match part.kind {
                _ if own.is_empty() => {}
                StateKind::Rows => {
                    for run in cells.chunk_by(|a, b| a + 1 == *b) {
                        let (rows, rest) = own.split_at(run.len() * part.bytes);
                        self.state.upload(tensor, run[0] * part.bytes, rows)?;
                        own = rest;
                    }
                }
                StateKind::Slots => self.state.upload(tensor, sequence * part.bytes, own)?,
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*first), rest))
}

/// FNV-1a (Fowler, Noll, Vo) over what the state depends on. Weights are not part of it.
fn identity(model: &Model) -> u64 {
    let mut text = format!("{:?}", model.hparams());
    for tensor in model.file().gguf().tensors() {
        text += &format!("{tensor:?};");
    }
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
