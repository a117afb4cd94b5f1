//! Vectors of texts: hidden states of a model, pooled; models without an output layer give nothing else.

use super::append::go_on;
use super::{Item, Session};
use crate::model::{Pooling, Want};
use ggml_core::{Error, Result, setters};

/// How texts become vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// How the vectors of a text's tokens become one; `None`: as the file says.
    pub pooling: Option<Pooling>,
    /// Whether vectors get the length 1.
    pub normalised: bool,
    /// The layer behind which the vectors are taken, 0 for the embedding of tokens; `None`: the last one, with the norm in
    /// front of the output layer.
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
    /// A vector for each text, given as its tokens. The session's sequences are used for it, as many texts at once as there
    /// are sequences and as fit into a batch, and are empty afterwards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where neither file nor options say how to pool, for a layer that does not exist, a text
    /// without tokens, with one outside the vocabulary, with more than the context or, where all tokens of a text see each
    /// other, than a batch; what the backend reports.
    pub fn embed<T: AsRef<[u32]>>(&mut self, texts: &[T], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        let missing = || Error::argument("pooling", "none in the file", "mean, first or last as an option");
        let pooling = options.pooling.or(self.model.hparams().pooling).ok_or_else(missing)?;
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

    /// What the stream is after each token of a text behind a layer (see [`EmbedOptions::layer`]), row after row. The
    /// session's sequences are empty afterwards.
    ///
    /// # Errors
    /// Those of [`Session::embed`].
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
        let expected = format!("at most {}, a batch: its tokens all see each other", self.batch);
        Err(Error::argument("tokens of a text", text.len(), expected))
    }

    /// How many of some texts are computed at once: one at least.
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
        let outcome = self.compute(items, want, all, &mut go_on);
        let rows = outcome.map(|_| self.rows().values().to_vec());
        // Layers behind the wanted one have no state of these tokens.
        self.reset();
        self.results.begin(Want::Logits, self.model.hparams());
        rows
    }
}

/// One vector of a text's rows.
fn pooled<'a>(rows: impl Iterator<Item = &'a [f32]>, pooling: Pooling, normalised: bool) -> Vec<f32> {
    let (mut sum, mut count) = (Vec::new(), 0usize);
    for row in rows.take(if pooling == Pooling::Mean { usize::MAX } else { 1 }) {
        sum.resize(row.len(), 0.0f64);
        sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        count += 1;
    }
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    let divisor = if normalised { length } else { count as f64 };
    // A vector of zeros has no direction.
    let factor = if divisor > 0.0 { 1.0 / divisor } else { 1.0 };
    sum.iter().map(|x| (x * factor) as f32).collect()
}
