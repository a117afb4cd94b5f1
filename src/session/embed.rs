//! Vectors of texts: pooled hidden states. Models without an output layer give only these.

use super::append::always_continue;
use super::{Item, Session};
use crate::model::{Pooling, Want};
use ggml_core::{Error, Result, setters};

/// Options for turning texts into vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// Pooling of the token vectors of a text; `None`: as in the file, or else the default of the
    /// architecture, see [`Hparams::usual_pooling`](crate::model::Hparams::usual_pooling).
    pub pooling: Option<Pooling>,
    /// True if vectors are scaled to length 1.
    pub normalised: bool,
    /// Layer after which the vectors are read, 0 for the embedding of tokens; `None`: the last layer, after
    /// the norm in front of the output layer.
    pub layer: Option<usize>,
}

setters!(EmbedOptions {
    with_pooling => pooling: impl Into<Option<Pooling>>,
    with_normalised => normalised: bool,
    with_layer => layer: impl Into<Option<usize>>,
});

impl Default for EmbedOptions {
    fn default() -> Self {
        EmbedOptions { pooling: None, normalised: true, layer: None }
    }
}

impl Session {
    /// Computes a vector for each text, given as its tokens. It uses the session's sequences, computes
    /// together as many texts as there are sequences and as fit into a batch, and leaves the sequences empty.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a layer that does not exist, and for a text without tokens, with a token
    /// outside the vocabulary, with more tokens than the context or the model's table of positions or, for
    /// non-causal models, more tokens than a batch; errors of the backend.
    pub fn embed<T: AsRef<[u32]>>(&mut self, texts: &[T], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        let pooling = options.pooling.unwrap_or_else(|| self.model.usual_pooling());
        let want = self.hidden_want(options.layer)?;
        texts.iter().try_for_each(|text| self.check_text(text.as_ref()))?;
        let (mut vectors, mut rest) = (Vec::with_capacity(texts.len()), texts);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.fitting(rest));
            let items: Vec<Item<'_>> = now
                .iter()
                .enumerate()
                .map(|(sequence, text)| Item { sequence, tokens: text.as_ref() })
                .collect();
            let all = self.hidden_rows(&items, want, pooling != Pooling::Last)?;
            let mut rows = all.chunks_exact(self.model.hparams().embedding);
            for item in &items {
                let count = if pooling == Pooling::Last { 1 } else { item.tokens.len() };
                vectors.push(pooled(rows.by_ref().take(count), pooling, options.normalised));
            }
            rest = later;
        }
        Ok(vectors)
    }

    /// Returns the residual stream after a layer (see [`EmbedOptions::layer`]), one row per token. The
    /// session's sequences are empty afterwards.
    ///
    /// # Errors
    /// Errors of [`Session::embed`].
    pub fn hidden(&mut self, text: &[u32], layer: impl Into<Option<usize>>) -> Result<Vec<f32>> {
        let want = self.hidden_want(layer.into())?;
        self.check_text(text)?;
        self.hidden_rows(&[Item { sequence: 0, tokens: text }], want, true)
    }

    fn hidden_want(&self, layer: Option<usize>) -> Result<Want> {
        let layers = self.model.hparams().layers;
        match layer.unwrap_or(layers) {
            layer if layer <= layers => Ok(Want::Hidden(layer)),
            layer => Err(Error::argument("layer", layer, format!("0 to {layers}"))),
        }
    }

    fn check_text(&self, text: &[u32]) -> Result<()> {
        self.check_tokens(0, 0, text)?;
        if self.model.hparams().causal || text.len() <= self.batch {
            return Ok(());
        }
        let expected =
            format!("at most {}, the batch size: all tokens of a text are computed together", self.batch);
        Err(Error::argument("tokens of a text", text.len(), expected))
    }

    /// Returns how many of some texts are computed together, at least one.
    fn fitting<T: AsRef<[u32]>>(&self, texts: &[T]) -> usize {
        let mut tokens = 0;
        let fits = |text: &&T| {
            tokens += text.as_ref().len();
            tokens <= self.batch
        };
        texts.iter().take(self.sequences()).take_while(fits).count().max(1)
    }

    fn hidden_rows(&mut self, items: &[Item<'_>], want: Want, all: bool) -> Result<Vec<f32>> {
        self.reset();
        let outcome = self.compute(items, want, all, &mut always_continue);
        let rows = outcome.map(|_| self.rows().values().to_vec());
        // Layers after the wanted one have no state of these tokens.
        self.reset();
        self.results.begin(Want::Logits, self.model.hparams());
        rows
    }
}

/// Pools the rows of a text into one vector.
fn pooled<'a>(rows: impl Iterator<Item = &'a [f32]>, pooling: Pooling, normalised: bool) -> Vec<f32> {
    let (mut sum, mut count) = (Vec::new(), 0usize);
    for row in rows.take(if pooling == Pooling::Mean { usize::MAX } else { 1 }) {
        sum.resize(row.len(), 0.0f64);
        sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        count += 1;
    }
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    let divisor = if normalised { length } else { count as f64 };
    // A zero vector cannot be scaled to length 1.
    let factor = if divisor > 0.0 { 1.0 / divisor } else { 1.0 };
    sum.iter().map(|x| (x * factor) as f32).collect()
}
