//! Interface of an architecture, and the decoder that most of them are.

use super::batch::Predictor;
use super::branch::Branch;
use super::builder::{Builder, Layer};
use super::hparams::Hparams;
use ggml_core::gguf::GgufFile;
use ggml_core::op::{Activation, Glu, RopeMode};
use ggml_core::{Result, TensorId};

/// Architecture: the computation of a family of models.
pub(super) trait Architecture: Sync {
    /// Returns the name in `general.architecture`.
    fn name(&self) -> &'static str;

    /// Returns the pairing of elements in ROPE.
    fn rope_mode(&self) -> RopeMode;

    /// Reads the hyperparameters that only some architectures have.
    fn read(&self, _gguf: &GgufFile, _hparams: &mut Hparams) -> Result<()> {
        Ok(())
    }

    /// Returns other names of the architecture in files. The keys of such a file begin with its name.
    fn other_names(&self) -> &'static [&'static str] {
        &[]
    }

    /// Builds q, k and v of a layer as `[d, heads, tokens]`, positions included, from its normed input.
    fn project(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<[TensorId; 3]> {
        let heads = b.qkv(x, layer)?;
        b.rope_heads(heads, layer)
    }

    /// Builds the part of a layer before the feed-forward network from its normed input: attention.
    fn mixer(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        b.attention_block(self, x, layer).map(Branch::One)
    }

    /// True if the layer of its files that predicts further tokens can be computed, see [`super::predictor`].
    fn predicts(&self) -> bool {
        false
    }

    /// Stores what later tokens see of a layer's attention, without computing its result: keys and values, from the
    /// layer's normed input. Needed for a predictor only.
    fn remember(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<()> {
        b.remember_heads(x, layer)
    }

    /// Returns the names of the norms in front of the mixer and the feed-forward network.
    fn norms_before(&self) -> [Option<&'static str>; 2] {
        [Some("attn_norm"), Some("ffn_norm")]
    }

    /// True if each layer has a mixer and then a feed-forward network; otherwise some layers have a
    /// feed-forward network as their mixer.
    fn mixes_and_feeds(&self) -> bool {
        true
    }

    /// Builds the feed-forward network of a layer: SwiGLU, or a mixture of SwiGLU experts if the layer has
    /// experts.
    fn feed_forward(&self, b: &mut Builder<'_>, x: TensorId, layer: &Layer) -> Result<Branch> {
        match b.routed(layer) {
            Some(experts) => b.mixture(x, experts, Glu::new(Activation::Silu), layer),
            None => b.gated(x, Activation::Silu, layer).map(Branch::One),
        }
    }

    /// Builds the last operations of a layer on the stream.
    fn finish_layer(&self, _b: &mut Builder<'_>, x: TensorId, _layer: &Layer) -> Result<TensorId> {
        Ok(x)
    }

    /// Returns the names of the norms after attention and feed-forward network.
    fn norms_after(&self) -> [Option<&'static str>; 2] {
        [None, None]
    }

    /// Builds the stream that the first layer starts from.
    fn embed(&self, b: &mut Builder<'_>) -> Result<TensorId> {
        b.embedding()
    }

    /// Returns the name of the norm in front of the output layer.
    fn output_norm(&self) -> &'static str {
        "output_norm"
    }

    /// Adds the whole model to a graph, or its predictor if the graph drafts.
    fn build(&self, b: &mut Builder<'_>) -> Result<()> {
        match b.shape.predictor {
            Predictor::Drafts { count, among } => b.drafts(self, count, among),
            Predictor::Unused | Predictor::Follows => b.decoder(self),
        }
    }
}

impl Builder<'_> {
    /// Builds attention as the architecture projects it, then its output layer.
    pub(super) fn attention_block<A: Architecture + ?Sized>(
        &mut self,
        architecture: &A,
        x: TensorId,
        layer: &Layer,
    ) -> Result<TensorId> {
        let heads = architecture.project(self, x, layer)?;
        let attended = self.attention(heads, layer)?;
        // Ollama's files of gpt-oss have another name (`gptoss/model.go`).
        let stored = self.stored_name(layer, ["attn_output.weight", "attn_out.weight"]);
        let stored = stored.strip_suffix(".weight").unwrap_or(&stored);
        self.linear(attended, stored, self.hparams.embedding)
    }

    /// Builds a decoder: for each layer attention, then feed-forward, each on a normed copy of the residual
    /// stream. After the last layer that writes state has written it, only the wanted rows are computed.
    pub(super) fn decoder<A: Architecture + ?Sized>(&mut self, architecture: &A) -> Result<()> {
        let mut x = architecture.embed(self)?;
        for (index, &attention) in self.hparams.attention.iter().enumerate().take(self.depth()) {
            self.begin_unit();
            x = self.layer(architecture, x, &Layer { index, attention })?;
        }
        let hidden = self.output(x, architecture.output_norm())?;
        if self.shape.predictor == Predictor::Follows { self.follow(architecture, hidden) } else { Ok(()) }
    }

    /// Builds a layer of a decoder on the residual stream `x`.
    pub(super) fn layer<A: Architecture + ?Sized>(
        &mut self,
        architecture: &A,
        x: TensorId,
        layer: &Layer,
    ) -> Result<TensorId> {
        let [before_mixer, before_feed_forward] = architecture.norms_before();
        let [after_mixer, after_feed_forward] = architecture.norms_after();
        let normed = self.normed(x, layer, before_mixer)?;
        let out = architecture.mixer(self, normed, layer)?;
        let mut x = self.needed(x, layer, "needed")?;
        x = self.residual(x, out, layer, after_mixer, "attn_residual")?;
        if architecture.mixes_and_feeds() {
            let normed = self.normed(x, layer, before_feed_forward)?;
            let out = architecture.feed_forward(self, normed, layer)?;
            x = self.residual(x, out, layer, after_feed_forward, "residual")?;
        }
        architecture.finish_layer(self, x, layer)
    }

    /// Applies the layer's norm of this name to `x`, or returns `x` if there is none. Ollama's files of gpt-oss name the
    /// norm in front of the feed-forward network after its place (`gptoss/model.go`), not after attention.
    pub(super) fn normed(&mut self, x: TensorId, layer: &Layer, norm: Option<&str>) -> Result<TensorId> {
        let has = |name: &str| self.gguf.tensor(&layer.name(&format!("{name}.weight"))).is_some();
        let norm = norm.map(|norm| match norm {
            "post_attention_norm" if !has(norm) && has("ffn_norm") => "ffn_norm",
            norm => norm,
        });
        norm.map_or(Ok(x), |norm| self.norm(x, &layer.name(norm)))
    }
}
