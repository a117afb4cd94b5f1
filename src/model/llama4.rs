//! llama4 (Scout, Maverick; text): three of four layers see a chunk of positions and norm the heads of q and
//! k without weights. The others have no positions in ROPE, but queries that grow with the position. In a
//! mixture, one chosen expert and a shared one compute each token. Source: Meta AI, model cards and
//! configurations of "Llama 4" (2025).

use super::architecture::Architecture;
use super::builder::{Builder, Layer};
use super::hparams::{Experts, Gating, Hparams, Temperature, Window, checked};
use ggml_core::gguf::GgufFile;
use ggml_core::op::RopeMode;
use ggml_core::{Result, TensorId};

pub(super) struct Llama4;

/// Default number of positions of a chunk and of one step in the growth of queries, and default growth; files
/// rarely give them.
const CHUNK: usize = 8192;
const GROWTH: f32 = 0.1;

/// Period of the layers without positions: every fourth layer.
const PERIOD: usize = 4;

/// Number of experts of Maverick, which does not norm heads; files do not record it.
const EXPERTS_OF_MAVERICK: usize = 128;

impl Architecture for Llama4 {
    fn name(&self) -> &'static str {
        "llama4"
    }

    /// Same order of rows as in files of llama.
    fn rope_mode(&self) -> RopeMode {
        RopeMode::Normal
    }

    fn read(&self, gguf: &GgufFile, h: &mut Hparams) -> Result<()> {
        let experts = Experts::read(gguf, h, false)?;
        let shared = if experts.shared > 0 { experts.shared } else { experts.feed_forward };
        h.experts = Some(Experts {
            gating: Gating::Sigmoid,
            normalised: false,
            shared,
            weighs_input: true,
            ..experts
        });
        let key = h.key("attention.temperature_length");
        let length = checked(&key, gguf.metadata().opt_usize(&key)?.unwrap_or(CHUNK))?;
        h.temperature = Some(Temperature { scale: GROWTH, length, shift: 1 });
        let size = h.window_size(gguf)?.unwrap_or(CHUNK);
        let has_positions = |layer: usize| (layer + 1) % PERIOD != 0;
        h.set_window(Window { size, chunked: true }, None, has_positions);
        let without = h.attention.iter_mut().enumerate().filter(|(layer, _)| !has_positions(*layer));
        without.for_each(|(_, attention)| attention.rope = None);
        Ok(())
    }

    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        if layer.attention.rope.is_none() {
            let [q, k, v] = heads;
            return Ok([b.tempered(q, layer)?, k, v]);
        }
        let [q, k, v] = b.rope_heads(heads, layer)?;
        if b.experts()?.count == EXPERTS_OF_MAVERICK {
            return Ok([q, k, v]);
        }
        Ok([b.rms(q, &layer.name("q.rms"))?, b.rms(k, &layer.name("k.rms"))?, v])
    }
}
