//! Perplexity of a model on a text: how probable the text's tokens are to the model, as one number that can be
//! compared between backends, precisions, weight types and programs.
//!
//! The method is that of llama.cpp's `llama-perplexity`. The text is encoded as a whole and cut into chunks of
//! equal length; what remains at its end is not used. If the model has a begin token, each chunk begins with it
//! in place of its first token. Each chunk is computed on its own. Only tokens of its second half are scored, so
//! that each has at least half a chunk before it. The perplexity is the exponential of the mean negative
//! log-likelihood of the scored tokens.
//!
//! ```no_run
//! use diptych::perplexity::{PerplexityOptions, chunks, perplexity};
//! use diptych::{Model, Result, SessionOptions};
//! use std::ops::ControlFlow;
//!
//! fn of(model: &Model, text: &[u8]) -> Result<f64> {
//!     let chunks = chunks(model.file(), text, &PerplexityOptions::default())?;
//!     let mut session = model.session(&SessionOptions::default().with_context(chunks[0].len()))?;
//!     let score = perplexity(&mut session, &chunks, &mut |_| ControlFlow::Continue(()))?;
//!     Ok(score.perplexity())
//! }
//! ```

use crate::model::ModelFile;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::{Error, Result, Session};
use ggml_core::metrics::log_sum_exp;
use ggml_core::setters;
use std::ops::{ControlFlow, Range};

/// The smallest length of a chunk: its second half has a token with logits before it.
const SHORTEST: usize = 3;

/// Options for cutting a text into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerplexityOptions {
    /// Tokens of a chunk.
    pub chunk: usize,
    /// The most chunks to use, from the beginning of the text; `None`: all.
    pub chunks: Option<usize>,
}

setters!(PerplexityOptions {
    with_chunk => chunk: usize,
    with_chunks => chunks: impl Into<Option<usize>>,
});

impl Default for PerplexityOptions {
    fn default() -> Self {
        PerplexityOptions { chunk: 512, chunks: None }
    }
}

/// Sums over the scored tokens of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Number of chunks.
    pub chunks: usize,
    /// Number of scored tokens.
    pub tokens: usize,
    /// Sum of the negative log-likelihoods, in nats.
    sum: f64,
    /// Sum of their squares.
    squares: f64,
}

impl Score {
    /// Adds a chunk: its tokens, and the logits after each token of [`scored`], row after row.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the number of logits does not fit, and for a token outside the vocabulary.
    pub fn add(&mut self, chunk: &[u32], logits: &[f32], vocabulary: usize) -> Result<()> {
        let range = scored(chunk.len());
        if vocabulary == 0 || range.len().checked_mul(vocabulary) != Some(logits.len()) {
            let expected = format!("{} rows of {vocabulary}", range.len());
            return Err(Error::argument("logits", format!("{} of them", logits.len()), expected));
        }
        if let Some(bad) = chunk.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(Error::argument("token id", bad, format!("below {vocabulary}")));
        }
        for (row, at) in logits.chunks_exact(vocabulary).zip(range) {
            let nll = log_sum_exp(row) - f64::from(row[chunk[at + 1] as usize]);
            (self.sum, self.squares, self.tokens) =
                (self.sum + nll, self.squares + nll * nll, self.tokens + 1);
        }
        self.chunks += 1;
        Ok(())
    }

    /// Returns the mean negative log-likelihood of a token, in nats; NaN if there are no tokens.
    pub fn nll(&self) -> f64 {
        self.sum / self.tokens as f64
    }

    /// Returns the perplexity; NaN if there are no tokens or the logits were no distribution, infinite if a
    /// token of the text was impossible.
    pub fn perplexity(&self) -> f64 {
        self.nll().exp()
    }

    /// Returns the standard error of the perplexity; 0 for one token.
    pub fn error(&self) -> f64 {
        let mean = self.nll();
        let variance = self.squares / self.tokens as f64 - mean * mean;
        if self.tokens < 2 || variance <= 0.0 {
            return 0.0;
        }
        self.perplexity() * (variance / (self.tokens - 1) as f64).sqrt()
    }
}

/// Returns the indices of the tokens in a chunk whose logits score the next token: those of its second half but
/// the last.
pub fn scored(chunk: usize) -> Range<usize> {
    chunk / 2..chunk.saturating_sub(1)
}

/// Encodes a text for a model and cuts it into chunks. A line feed at its end is left out, and special tokens
/// that are written in it are ordinary text. A text is bytes, see [`Tokenizer::encode_bytes`].
///
/// # Errors
/// [`Error::InvalidArgument`] for a model without an output layer, for a chunk that is shorter than three tokens
/// or longer than the model's context, for no chunks, and for a text that is shorter than a chunk; errors of
/// [`Tokenizer::from_gguf`].
pub fn chunks(file: &ModelFile, text: &[u8], options: &PerplexityOptions) -> Result<Vec<Vec<u32>>> {
    let hparams = file.hparams();
    if !hparams.output {
        let found = format!("of {}, which has no output layer", hparams.architecture);
        return Err(Error::argument("perplexity", found, "a model that predicts tokens"));
    }
    if options.chunk > hparams.context {
        let expected = format!("at most {}, the model's context", hparams.context);
        return Err(Error::argument("chunk", format!("{} tokens", options.chunk), expected));
    }
    let tokenizer = Tokenizer::from_gguf(file.gguf())?;
    let encoding = EncodeOptions { add_special: true, parse_special: false };
    let tokens = tokenizer.encode_bytes(text.strip_suffix(b"\n").unwrap_or(text), &encoding);
    cut(&tokens, tokenizer.special().bos.filter(|_| tokenizer.add_bos()), options)
}

/// Cuts tokens into chunks that begin with `bos`, if there is one.
fn cut(tokens: &[u32], bos: Option<u32>, options: &PerplexityOptions) -> Result<Vec<Vec<u32>>> {
    if options.chunk < SHORTEST {
        let expected = format!("at least {SHORTEST}");
        return Err(Error::argument("chunk", format!("{} tokens", options.chunk), expected));
    }
    if options.chunks == Some(0) {
        return Err(Error::argument("chunks", 0, "at least one"));
    }
    if tokens.len() < options.chunk {
        let expected = format!("at least {}, a chunk", options.chunk);
        return Err(Error::argument("text", format!("{} tokens", tokens.len()), expected));
    }
    let chunks = tokens.chunks_exact(options.chunk).take(options.chunks.unwrap_or(usize::MAX));
    let begun = |chunk: &[u32]| {
        let mut chunk = chunk.to_vec();
        chunk[0] = bos.unwrap_or(chunk[0]);
        chunk
    };
    Ok(chunks.map(begun).collect())
}

/// Scores chunks of [`chunks`]. All sequences of the session are cleared before each chunk. `progress` is called
/// after each chunk with the score so far, and returns whether to continue.
///
/// # Errors
/// Errors of [`Session::batch`], for example for a chunk that is longer than the session's context.
pub fn perplexity(
    session: &mut Session,
    chunks: &[Vec<u32>],
    progress: &mut dyn FnMut(&Score) -> ControlFlow<()>,
) -> Result<Score> {
    let vocabulary = session.model().hparams().vocabulary;
    let mut score = Score::default();
    for chunk in chunks {
        session.reset();
        let range = scored(chunk.len());
        if range.is_empty() {
            let expected = format!("at least {SHORTEST}");
            return Err(Error::argument("chunk", format!("{} tokens", chunk.len()), expected));
        }
        // Logits of the first half are not needed.
        session.prefill(&chunk[..range.start])?;
        score.add(chunk, &session.logits(&chunk[range])?, vocabulary)?;
        if progress(&score).is_break() {
            break;
        }
    }
    Ok(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(logits: &[f32], vocabulary: usize, chunk: &[u32]) -> Score {
        let mut score = Score::default();
        score.add(chunk, logits, vocabulary).unwrap();
        score
    }

    /// Equal logits make every token as probable as a face of a die.
    #[test]
    fn perplexity_of_a_die_is_its_number_of_faces() {
        let score = scores(&[7.5; 3 * 50], 50, &[1, 2, 3, 4, 49, 0, 6, 7]);
        assert_eq!((score.chunks, score.tokens), (1, 3));
        assert!((score.perplexity() - 50.0).abs() < 1e-12 && score.error() < 1e-5, "{score:?}");
    }

    /// Probabilities 1/4, 1/2 and 1/8 of the right tokens: the mean is ln 4, the standard error of the mean
    /// ln 2 / sqrt(3).
    #[test]
    fn mean_and_error() {
        let ln = |p: f32| p.ln();
        let rows = [[ln(0.25), ln(0.75)], [ln(0.5), ln(0.5)], [ln(0.125), ln(0.875)]];
        let score = scores(rows.as_flattened(), 2, &[1, 1, 1, 1, 1, 0, 0, 0]);
        assert!((score.nll() - 4f64.ln()).abs() < 1e-7 && (score.perplexity() - 4.0).abs() < 1e-6);
        let error = 4.0 * 2f64.ln() * (2.0f64 / 3.0 / 2.0).sqrt();
        assert!((score.error() - error).abs() < 1e-6, "{} {error}", score.error());
        assert_eq!(scores(&[0.0, 0.0], 2, &[0, 1, 1]).error(), 0.0, "one token");
    }

    #[test]
    fn logits_that_are_no_distribution_show() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for row in [[nan, 0.0], [0.0, nan], [inf, 0.0], [-inf, -inf]] {
            assert!(scores(&row, 2, &[0, 0, 0]).perplexity().is_nan(), "{row:?}");
        }
        assert_eq!(scores(&[-inf, 0.0], 2, &[0, 0, 0]).perplexity(), f64::INFINITY);
        let mut score = Score::default();
        assert!(score.perplexity().is_nan());
        for (chunk, logits, vocabulary) in [(3, 3, 2), (3, 0, 0), (5, 2, 2), (2, 2, 2)] {
            let (chunk, logits) = (vec![0u32; chunk], vec![0f32; logits]);
            assert!(score.add(&chunk, &logits, vocabulary).is_err() && score.tokens == 0);
        }
        assert!(score.add(&[0, 0, 2], &[0.0; 2], 2).is_err());
    }

    #[test]
    fn chunks_begin_with_the_begin_token() {
        let options = PerplexityOptions::default().with_chunk(4);
        let tokens: Vec<u32> = (10..20).collect();
        assert_eq!(cut(&tokens, Some(1), &options).unwrap(), [[1, 11, 12, 13], [1, 15, 16, 17]]);
        assert_eq!(cut(&tokens, None, &options).unwrap(), [[10, 11, 12, 13], [14, 15, 16, 17]]);
        let one = options.clone().with_chunks(1);
        assert_eq!(cut(&tokens, None, &one).unwrap(), [[10, 11, 12, 13]]);
        for (options, words) in [
            (options.clone().with_chunk(2), "chunk: 2 tokens; expected at least 3"),
            (options.clone().with_chunks(0), "chunks: 0"),
            (options.with_chunk(11), "text: 10 tokens; expected at least 11, a chunk"),
        ] {
            let error = cut(&tokens, None, &options).unwrap_err();
            assert!(
                matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains(words),
                "{error}"
            );
        }
        assert_eq!((scored(4), scored(5), scored(512), scored(0)), (2..3, 2..4, 256..511, 0..0));
    }
}
