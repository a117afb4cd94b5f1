//! Saved sessions: the positions that were computed, as bytes.
//!
//! The bytes are `DIPTYCHS`, the version and the length of the header (u32, little-endian), the header (JSON), then the
//! first rows of each state tensor, as many as there are positions. A header tells of the model what decides whether its
//! state can be used: a number made of the names, types and extents of its tensors and of its hyperparameters.

use super::{Session, state_layout};
use crate::model::{BatchShape, Model, RopeScaling};
use ggml_core::{Error, Result};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"DIPTYCHS";
const VERSION: u32 = 1;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    model: u64,
    cache: String,
    /// Positions that are saved.
    position: usize,
    /// Room of the cache that they were computed with, where positions depend on it.
    context: Option<usize>,
    /// Bytes of a position in each state tensor.
    rows: Vec<usize>,
}

impl Session {
    /// The sequence so far, so that [`Session::restore`] can go on with it in another session, process or backend.
    ///
    /// # Errors
    /// What the backend reports while it reads the cache.
    pub fn save(&self) -> Result<Vec<u8>> {
        let (header, offsets) = self.header(self.position)?;
        let text =
            serde_json::to_vec(&header).map_err(|e| Error::argument("saved session", e.to_string()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(&text);
        for (row, offset) in header.rows.iter().zip(offsets) {
            let begin = bytes.len();
            bytes.resize(begin + row * self.position, 0);
            if self.position > 0 {
                self.model.backend().download(&self.state, offset, &mut bytes[begin..])?;
            }
        }
        Ok(bytes)
    }

    /// Replaces the sequence by a saved one. Backends differ in the last bits of what they compute, so the logits that
    /// follow are the same bits only on the backend that saved.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for bytes of another model, another type of cache, more positions than this session
    /// has room for, or no saved session at all; the session is then as it was.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let wrong = |why: &str| Error::argument("saved session", why);
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("is none"))?;
        let (version, rest) = number(rest).ok_or_else(|| wrong("is cut off"))?;
        if version != VERSION {
            return Err(wrong(&format!("has version {version}, not {VERSION}")));
        }
        let (length, rest) = number(rest).ok_or_else(|| wrong("is cut off"))?;
        let text = rest.get(..length as usize).ok_or_else(|| wrong("is cut off"))?;
        let saved: Header = serde_json::from_slice(text).map_err(|e| wrong(&e.to_string()))?;
        if saved.position > self.context {
            let why = format!("has {} positions, there is room for {}", saved.position, self.context);
            return Err(wrong(&why));
        }
        let (mine, offsets) = self.header(saved.position)?;
        if saved.model != mine.model {
            return Err(wrong("is of another model"));
        }
        if saved.cache != mine.cache {
            return Err(wrong(&format!("has a cache of {}, not {}", saved.cache, mine.cache)));
        }
        if saved != mine {
            return Err(wrong(
                "was made with room for another number of positions, on which this model depends",
            ));
        }
        let mut data = &rest[length as usize..];
        if data.len() != saved.rows.iter().sum::<usize>() * saved.position {
            return Err(wrong("is cut off, or has something behind its end"));
        }
        for (row, offset) in saved.rows.iter().zip(offsets) {
            let (part, after) = data.split_at(row * saved.position);
            if !part.is_empty() {
                self.model.backend().upload(&self.state, offset, part)?;
            }
            data = after;
        }
        self.position = saved.position;
        Ok(())
    }

    /// The header of a number of positions, and where the state tensors lie.
    fn header(&self, position: usize) -> Result<(Header, Vec<usize>)> {
        let shape = BatchShape { tokens: 1, kv: 1, context: self.context, outputs: 1, cache: self.cache };
        let graph = self.model.file().graph(&shape)?;
        let (offsets, _) = state_layout(&graph, self.model.backend().device().limits.alignment);
        let rows = graph.state.iter().map(|&id| graph.graph.tensor(id).span_bytes() / self.context).collect();
        let depends = matches!(self.model.hparams().scaling, RopeScaling::LongRope { .. });
        let header = Header {
            model: identity(&self.model),
            cache: self.cache.to_string(),
            position,
            context: depends.then_some(self.context),
            rows,
        };
        Ok((header, offsets))
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
