//! Drafts: tokens that are likely to follow, from a smaller model or from the predictor of the model itself.

use crate::Session;
use crate::session::{Item, Want};
use ggml_core::{Error, Result};
use std::time::Duration;

/// Source of drafts.
pub(super) enum Drafter<'a> {
    /// Session of a smaller model.
    Model(ModelDrafter<'a>),
    /// Layer of the model that predicts further tokens.
    Predictor,
}

impl Drafter<'_> {
    /// Returns up to `count` tokens that are likely to follow `text`: the tokens of the session, and one more.
    pub(super) fn draft(&mut self, session: &mut Session, text: &[u32], count: usize) -> Result<Vec<u32>> {
        match self {
            Drafter::Model(model) => Ok(model.draft(text, count)?.to_vec()),
            Drafter::Predictor => text.last().map_or(Ok(Vec::new()), |&token| session.draft(token, count)),
        }
    }

    /// Returns the time that sessions other than the model's own have spent preparing programs.
    pub(super) fn prepare_time(&self) -> Duration {
        match self {
            Drafter::Model(model) => model.session.prepare_time(),
            Drafter::Predictor => Duration::ZERO,
        }
    }
}

/// Smaller model that drafts tokens for a larger one.
pub(super) struct ModelDrafter<'a> {
    session: &'a mut Session,
    /// Size of the larger model's vocabulary.
    vocabulary: usize,
    drafts: Vec<u32>,
}

impl<'a> ModelDrafter<'a> {
    /// Creates the drafter for text of the model of `of`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the models have different vocabularies.
    pub(super) fn new(session: &'a mut Session, of: &Session) -> Result<ModelDrafter<'a>> {
        let tokens = |session: &Session| {
            session.model().file().gguf().metadata().value("tokenizer.ggml.tokens").cloned()
        };
        let sizes = [&*session, of].map(|session| session.model().hparams().vocabulary);
        if let (Some(own), Some(other)) = (tokens(session), tokens(of)) {
            if own != other {
                let found = "of another vocabulary than the model's";
                return Err(Error::argument("draft model", found, "the same tokens in the same order"));
            }
        } else if sizes[0] != sizes[1] {
            let found = format!("of a vocabulary of {}", sizes[0]);
            return Err(Error::argument("draft model", found, format!("one of {}, the model's", sizes[1])));
        }
        Ok(ModelDrafter { session, vocabulary: sizes[1], drafts: Vec::new() })
    }

    /// Returns up to `count` tokens that are likely to follow `text`.
    fn draft(&mut self, text: &[u32], count: usize) -> Result<&[u32]> {
        self.drafts.clear();
        let room = self.session.context().saturating_sub(text.len());
        let count = count.min(room);
        if count == 0 {
            return Ok(&self.drafts);
        }
        let kept = self.session.keep_common(0, text)?;
        let mut best = self.append(&text[kept..])?;
        // The next text goes on from here, or from one of the drafts.
        self.session.keep_checkpoint(0)?;
        loop {
            // Models may have different numbers of rows for which there is no token.
            if best as usize >= self.vocabulary {
                break;
            }
            self.drafts.push(best);
            if self.drafts.len() == count {
                break;
            }
            best = self.append(&[best])?;
        }
        Ok(&self.drafts)
    }

    fn append(&mut self, tokens: &[u32]) -> Result<u32> {
        let rows = self.session.append(&[Item { sequence: 0, tokens }], Want::Best(1))?;
        rows.get(0).ok_or_else(|| Error::argument("logits", "none", "those after a token"))?.greedy()
    }
}
