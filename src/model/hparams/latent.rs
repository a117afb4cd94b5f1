//! Extents of latent attention.

use super::values::{checked, named};
use super::{GLM4MOELITE, Hparams};
use ggml_core::gguf::GgufFile;
use ggml_core::{Error, Result};
use serde::Serialize;

/// Extents of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latent {
    /// Elements of the cached vector without positions.
    pub rank: usize,
    /// Elements of the vector that queries are computed from; 0 if they are computed from the stream.
    pub query_rank: usize,
    /// Elements of a head's query without positions.
    pub plain: usize,
    /// Elements of a head's query, and of the cached vector, with positions.
    pub rotated: usize,
    /// Elements of a head's value.
    pub value_length: usize,
}

impl Latent {
    /// Reads and checks the extents, and makes all layers attend to the cached vectors.
    pub(in crate::model) fn read(gguf: &GgufFile, h: &mut Hparams) -> Result<Latent> {
        let m = gguf.metadata();
        let extent = |name: &str| checked(&h.key(name), m.usize(&h.key(name))?);
        let rank = extent("attention.kv_lora_rank")?;
        // Files of glm4moelite have the lengths of a head under the plain names. Under the others, if at all, they have
        // the lengths of the cached vectors.
        let names = match h.architecture == GLM4MOELITE {
            true => ["attention.key_length", "attention.value_length"],
            false => ["attention.key_length_mla", "attention.value_length_mla"],
        };
        let (key, value_length) = (extent(names[0])?, extent(names[1])?);
        let rotated = extent("rope.dimension_count")?;
        if rotated >= key {
            let expected = format!("more than the {rotated} elements with positions");
            return Err(Error::model(named(&h.key(names[0])), key, expected));
        }
        let query_rank = m.opt_usize(&h.key("attention.q_lora_rank"))?.unwrap_or(0);
        for attention in &mut h.attention {
            attention.heads_kv = 1;
            attention.key_length = rank + rotated;
            attention.value_length = rank;
        }
        h.scales.attention = 1.0 / (key as f32).sqrt();
        Ok(Latent { rank, query_rank, plain: key - rotated, rotated, value_length })
    }
}
