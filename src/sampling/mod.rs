//! Sampling: choosing the next token from logits.
//!
//! A [`Sampler`] applies, in this order, the steps that its options enable:
//!
//! 1. **penalties** on the tokens of the window (repetition, then frequency and presence), on logits;
//! 2. **top-k**: the k largest logits remain;
//! 3. **typical**: the tokens whose surprise is nearest to the entropy remain, up to a sum of probability;
//! 4. **top-p**: the most probable tokens remain, up to a sum of probability;
//! 5. **min-p**: tokens remain that have at least a given share of the probability of the most probable one;
//! 6. **temperature** divides the remaining logits;
//! 7. one token is drawn with the probabilities of the remaining tokens.
//!
//! Each step computes its probabilities from the tokens that the previous step left. With temperature 0 the
//! token with the largest logit after the penalties is chosen: none of the steps 2 to 7 could remove it.
//!
//! ```
//! use diptych::sampling::{Sampler, SamplerOptions};
//!
//! # fn main() -> diptych::Result<()> {
//! let options = SamplerOptions::default().with_temperature(0.8).with_top_k(40).with_top_p(0.95).with_seed(7);
//! let mut sampler = Sampler::new(options)?;
//! let token = sampler.sample(&[0.5, 2.0, -1.0])?;
//! sampler.accept(token);
//! # Ok(())
//! # }
//! ```

mod candidates;
mod penalties;
mod random;

use crate::session::{Row, Want, can_choose, greedy};
use candidates::Candidates;
use ggml_core::setters;
use ggml_core::{Error, Result};
use penalties::Recent;
use random::Random;

/// Options of a [`Sampler`]. The default is greedy; each filter is off until it is given a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplerOptions {
    /// Divisor of the logits: below 1 sharper, above 1 flatter. 0 is greedy: the largest logit, the first of
    /// equals.
    pub temperature: f32,
    /// Number of most probable tokens that remain; of equals the first. 0: all.
    pub top_k: usize,
    /// Probability of the smallest set of most probable tokens that remains, at least. 1: all.
    pub top_p: f32,
    /// Minimum share of the probability of the most probable token that a token needs to remain. 0: all.
    pub min_p: f32,
    /// Probability of the smallest set of most typical tokens that remains, at least. The most typical tokens
    /// are those whose surprise, -ln p, is nearest to its mean, the entropy (locally typical sampling,
    /// Meister et al. 2022). 1: all.
    pub typical_p: f32,
    /// Divisor of positive logits, and factor of negative ones, of tokens in the window (Keskar et al. 2019).
    /// 1: off.
    pub repetition_penalty: f32,
    /// Value subtracted from the logit of a token for each occurrence in the window. 0: off.
    pub frequency_penalty: f32,
    /// Value subtracted once from the logit of a token that is in the window. 0: off.
    pub presence_penalty: f32,
    /// Number of last accepted tokens that the penalties apply to. 0: no penalties; `usize::MAX`: all.
    pub penalty_window: usize,
    /// Seed: samplers with the same options choose the same tokens for the same logits.
    pub seed: u64,
}

setters!(SamplerOptions {
    with_temperature => temperature: f32,
    with_top_k => top_k: usize,
    with_top_p => top_p: f32,
    with_min_p => min_p: f32,
    with_typical_p => typical_p: f32,
    with_repetition_penalty => repetition_penalty: f32,
    with_frequency_penalty => frequency_penalty: f32,
    with_presence_penalty => presence_penalty: f32,
    with_penalty_window => penalty_window: usize,
    with_seed => seed: u64,
});

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
            seed: 0,
        }
    }
}

/// Largest number of best logits for which selecting them on the device is worthwhile.
const MOST_BEST: usize = 64;

impl SamplerOptions {
    /// True if tokens of the window are penalised.
    fn penalises(&self) -> bool {
        let on =
            self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0;
        on && self.penalty_window > 0
    }

    fn check(&self) -> Result<()> {
        let rules = [
            ("temperature", self.temperature, self.temperature >= 0.0, "a finite number of at least 0"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1"),
            (
                "typical_p",
                self.typical_p,
                self.typical_p > 0.0 && self.typical_p <= 1.0,
                "above 0 and at most 1",
            ),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "above 0"),
            ("frequency_penalty", self.frequency_penalty, true, "a finite number"),
            ("presence_penalty", self.presence_penalty, true, "a finite number"),
        ];
        for (name, value, holds, rule) in rules {
            if !holds || !value.is_finite() {
                return Err(Error::argument(name, value, rule));
            }
        }
        Ok(())
    }
}

/// Chooses tokens. It stores the accepted tokens, for the penalties, and the state of its random number
/// generator.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    window: Recent,
    random: Random,
    candidates: Candidates,
}

impl Sampler {
    /// Creates a sampler.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names an option that is out of its range.
    pub fn new(options: SamplerOptions) -> Result<Sampler> {
        options.check()?;
        let window = Recent::new(options.penalty_window);
        let random = Random::new(options.seed);
        Ok(Sampler { options, window, random, candidates: Candidates::default() })
    }

    /// Returns the options.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// Returns the part of the logits that suffices to choose as if all were given. Without penalties this is
    /// the largest one for a greedy choice, or the `top_k` largest if `top_k` is small.
    pub fn want(&self) -> Want {
        let o = &self.options;
        if o.penalises() {
            Want::Logits
        } else if o.temperature == 0.0 {
            Want::Best(1)
        } else if (1..=MOST_BEST).contains(&o.top_k) {
            Want::Best(o.top_k)
        } else {
            Want::Logits
        }
    }

    /// Chooses a token from a row of a session. It does not accept the token, see
    /// [`accept`](Sampler::accept).
    ///
    /// # Errors
    /// Errors of [`Sampler::sample`]; [`Error::InvalidArgument`] if the row has only the best logits and
    /// [`Sampler::want`] requires all.
    pub fn sample_row(&mut self, row: Row<'_>) -> Result<u32> {
        let best = match row {
            Row::Logits(logits) => return self.sample(logits),
            Row::Best(best) => best,
        };
        if !best.valid {
            let found = "NaN or plus infinity among them, or minus infinity only";
            return Err(Error::argument(
                "logits",
                found,
                "finite numbers, or minus infinity for some tokens",
            ));
        }
        if self.want() == Want::Logits || best.tokens.is_empty() {
            return Err(Error::argument("logits", format!("the best {}", best.tokens.len()), "all of them"));
        }
        self.candidates.fill_with(best.tokens, best.logits);
        Ok(self.choose())
    }

    /// Chooses a token. It does not accept the token, see [`accept`](Sampler::accept).
    ///
    /// A logit of minus infinity marks a token that must not be chosen.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no logits, one is NaN or plus infinity, or all are minus
    /// infinity. The sampler is then unchanged.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        check(logits)?;
        let o = &self.options;
        if o.temperature == 0.0 && !o.penalises() {
            return greedy(logits);
        }
        let c = &mut self.candidates;
        c.fill(logits);
        self.window.penalise(c, o.repetition_penalty, o.frequency_penalty, o.presence_penalty);
        Ok(self.choose())
    }

    /// Chooses among the candidates.
    fn choose(&mut self) -> u32 {
        let (o, c) = (&self.options, &mut self.candidates);
        if o.temperature == 0.0 {
            return c.largest();
        }
        c.top_k(o.top_k);
        c.typical(o.typical_p);
        c.top_p(o.top_p);
        c.min_p(o.min_p);
        c.temperature(o.temperature);
        c.draw(self.random.unit())
    }

    /// Records that a token became part of the text: of the prompt, if it is to count for the penalties, or
    /// of the answer.
    pub fn accept(&mut self, token: u32) {
        self.window.push(token);
    }

    /// Clears the accepted tokens and restarts the random number generator from the seed.
    pub fn reset(&mut self) {
        self.window = Recent::new(self.options.penalty_window);
        self.random = Random::new(self.options.seed);
    }
}

fn check(logits: &[f32]) -> Result<()> {
    if logits.is_empty() || u32::try_from(logits.len()).is_err() {
        return Err(Error::argument("logits", format!("{} of them", logits.len()), "one for each token"));
    }
    if can_choose(logits) {
        return Ok(());
    }
    Err(match logits.iter().position(|x| x.is_nan() || *x == f32::INFINITY) {
        Some(token) => Error::argument(
            format!("logit of token {token}"),
            logits[token],
            "a finite number, or minus infinity",
        ),
        None => Error::argument("logits", "all are minus infinity", "a token that may be chosen"),
    })
}
