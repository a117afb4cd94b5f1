//! Choosing the next token from logits.
//!
//! A [`Sampler`] does, in this order, what its options ask for:
//!
//! 1. **penalties** on the tokens of the window (repetition, then frequency and presence), on logits;
//! 2. **top-k**: the k largest logits stay;
//! 3. **typical**: the tokens whose surprise is nearest to the entropy stay, up to a sum of probability;
//! 4. **top-p**: the most probable tokens stay, up to a sum of probability;
//! 5. **min-p**: tokens stay that are at least so probable as a share of the most probable one;
//! 6. **temperature** divides the logits that are left;
//! 7. one token is drawn with the probabilities of what is left.
//!
//! Each step takes its probabilities from the tokens that the step before left. With temperature 0 the largest logit
//! after the penalties wins: none of the steps 2 to 7 could take that token away.
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

use crate::session::{Row, Want, greedy};
use candidates::Candidates;
use ggml_core::setters;
use ggml_core::{Error, Result};
use penalties::Recent;
use random::Random;

/// What a [`Sampler`] does. The default is greedy; each filter is off until it is given a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplerOptions {
    /// Divides the logits: below 1 sharper, above 1 flatter. 0 is greedy: the largest logit, the first of equals.
    pub temperature: f32,
    /// How many tokens stay, the most probable ones; of equals the first. 0: all.
    pub top_k: usize,
    /// The smallest set of most probable tokens with at least this probability stays. 1: all.
    pub top_p: f32,
    /// Tokens stay that have at least this share of the probability of the most probable one. 0: all.
    pub min_p: f32,
    /// The smallest set of most typical tokens with at least this probability stays: those whose surprise, -ln p, is
    /// nearest to its mean, the entropy (locally typical sampling, Meister et al. 2022). 1: all.
    pub typical_p: f32,
    /// A token of the window has its logit divided by this where it is positive, and multiplied where it is negative
    /// (Keskar et al. 2019). 1: off.
    pub repetition_penalty: f32,
    /// Taken from the logit of a token as often as it is in the window. 0: off.
    pub frequency_penalty: f32,
    /// Taken once from the logit of a token that is in the window. 0: off.
    pub presence_penalty: f32,
    /// How many accepted tokens the penalties look back at. 0: no penalties; `usize::MAX`: all.
    pub penalty_window: usize,
    /// Two samplers with the same options choose the same tokens for the same logits.
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

/// The most logits that are worth choosing before the others are read.
const MOST_BEST: usize = 64;

impl SamplerOptions {
    /// Whether tokens of the window may lose.
    fn penalises(&self) -> bool {
        let on =
            self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0;
        on && self.penalty_window > 0
    }

    fn check(&self) -> Result<()> {
        let rules = [
            ("temperature", self.temperature, self.temperature >= 0.0, "a number from 0 on"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1"),
            (
                "typical_p",
                self.typical_p,
                self.typical_p > 0.0 && self.typical_p <= 1.0,
                "above 0 and at most 1",
            ),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "above 0"),
            ("frequency_penalty", self.frequency_penalty, true, "a number"),
            ("presence_penalty", self.presence_penalty, true, "a number"),
        ];
        for (name, value, holds, rule) in rules {
            if !holds || !value.is_finite() {
                return Err(Error::argument(name, value, rule));
            }
        }
        Ok(())
    }
}

/// Chooses tokens. It remembers what was accepted, for the penalties, and the state of its random numbers.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    window: Recent,
    random: Random,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names an option that is out of its range.
    pub fn new(options: SamplerOptions) -> Result<Sampler> {
        options.check()?;
        let window = Recent::new(options.penalty_window);
        let random = Random::new(options.seed);
        Ok(Sampler { options, window, random, candidates: Candidates::default() })
    }

    /// The options.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// What of the logits is enough to choose as if all of them were there: without penalties the largest one for a
    /// greedy choice, and as many as top-k leaves where those are few.
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

    /// Chooses a token from what a session gives. Nothing is accepted by that: see [`accept`](Sampler::accept).
    ///
    /// # Errors
    /// Those of [`Sampler::sample`]; [`Error::InvalidArgument`] if only the best logits are there and
    /// [`Sampler::want`] asks for all.
    pub fn sample_row(&mut self, row: Row<'_>) -> Result<u32> {
        let best = match row {
            Row::Logits(logits) => return self.sample(logits),
            Row::Best(best) => best,
        };
        if !best.finite {
            return Err(Error::argument("logits", "not all of them are finite", "finite numbers"));
        }
        if self.want() == Want::Logits || best.tokens.is_empty() {
            return Err(Error::argument("logits", format!("the best {}", best.tokens.len()), "all of them"));
        }
        self.candidates.fill_with(best.tokens, best.logits);
        Ok(self.choose())
    }

    /// Chooses a token. Nothing is accepted by that: see [`accept`](Sampler::accept).
    ///
    /// A logit of minus infinity is a token that must not be chosen.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no logits, one is NaN or plus infinity, or all are minus infinity. The
    /// sampler is then as it was before.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        check(logits)?;
        let o = &self.options;
        if o.temperature == 0.0 && !o.penalises() {
            return Ok(greedy(logits));
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

    /// Tells the sampler that a token became part of the text: of the prompt, if it is to count for the penalties, or
    /// of the answer.
    pub fn accept(&mut self, token: u32) {
        self.window.push(token);
    }

    /// Forgets the accepted tokens and starts the random numbers again.
    pub fn reset(&mut self) {
        self.window = Recent::new(self.options.penalty_window);
        self.random = Random::new(self.options.seed);
    }
}

fn check(logits: &[f32]) -> Result<()> {
    if logits.is_empty() || u32::try_from(logits.len()).is_err() {
        return Err(Error::argument("logits", format!("{} of them", logits.len()), "one for each token"));
    }
    // One pass without branches where all is well: NaN and plus infinity fail the comparison.
    if !logits.iter().fold(true, |fine, &x| fine & (x < f32::INFINITY)) {
        let place = logits.iter().position(|x| x.is_nan() || *x == f32::INFINITY).unwrap_or(0);
        return Err(Error::argument(
            format!("logit of token {place}"),
            logits[place],
            "a finite number, or minus infinity",
        ));
    }
    if logits.iter().all(|&x| x == f32::NEG_INFINITY) {
        return Err(Error::argument("logits", "all are minus infinity", "a token that may be chosen"));
    }
    Ok(())
}
