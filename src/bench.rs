//! Speed of a model on a backend: tokens per second of prompts (pp) and of generation (tg), repeated.
//!
//! A measurement is the wall time of the calls an application makes for greedy decoding: building the inputs,
//! running, choosing the token, reading it back. Prompts are random tokens from a seed: the speed does not
//! depend on them.
//!
//! Uncounted runs come first: one that prepares the programs, and more for [`BenchOptions::warm_up`]. An idle GPU
//! raises its clocks only while it works. (An H100 under Vulkan takes about half a second: its first runs of one
//! token took 7 times as long as later ones.)

mod drafts;
mod parallel;
mod profile;

pub use drafts::{DraftMeasurement, bench_drafts};
pub use parallel::bench_parallel;
pub use profile::{Breakdown, StepTotal, copy_bandwidth};

use crate::session::{Item, Profile, Want};
use crate::statistics::Summary;
use crate::{Model, Session, SessionOptions};
use ggml_core::rng::Rng;
use ggml_core::setters;
use ggml_core::{Error, Result};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Time of a first run beyond which nothing is warmed up: a backend that slow has no clocks to wait for.
pub const SLOW: Duration = Duration::from_secs(5);

/// Options of a measurement.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BenchOptions {
    /// Tokens of the prompt; 0 skips the prompt measurement.
    pub prompt_tokens: usize,
    /// Tokens generated after one token; 0 skips the generation measurement.
    pub predict: usize,
    /// Tokens in the cache before each measurement.
    pub depth: usize,
    /// Number of counted runs of each measurement.
    pub repeat: usize,
    /// Minimum time of uncounted runs after the first one, before each measurement. There are none if the first
    /// run takes more than [`SLOW`].
    pub warm_up: Duration,
    /// Seed of the prompt.
    pub seed: u64,
    /// Options of the session; its context is enlarged to what the measurement needs.
    pub session: SessionOptions,
}

setters!(BenchOptions {
    with_prompt_tokens => prompt_tokens: usize,
    with_predict => predict: usize,
    with_depth => depth: usize,
    with_repeat => repeat: usize,
    with_warm_up => warm_up: Duration,
    with_seed => seed: u64,
    with_session => session: SessionOptions,
});

impl Default for BenchOptions {
    fn default() -> Self {
        let session = SessionOptions::default();
        let warm_up = Duration::from_secs(1);
        BenchOptions { prompt_tokens: 512, predict: 128, depth: 0, repeat: 5, warm_up, seed: 1, session }
    }
}

/// Tokens per second of several runs of the same work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// "pp512", "tg128"; "tg128@4096" if 4096 tokens were in the cache before.
    pub name: String,
    /// Tokens per run.
    pub tokens: usize,
    /// Tokens per second of each run.
    pub samples: Vec<f64>,
    /// Mean of the samples.
    pub mean: f64,
    /// Standard deviation of the samples (n - 1 in the denominator); 0 for one run.
    pub sd: f64,
}

impl Measurement {
    /// Builds a measurement from the seconds of runs of `tokens` tokens each.
    pub fn new(name: String, tokens: usize, seconds: &[f64]) -> Measurement {
        let samples: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s.max(1e-9)).collect();
        let Summary { mean, sd, .. } = Summary::of(&samples).unwrap_or_default();
        Measurement { name, tokens, samples, mean, sd }
    }
}

/// Measures a model. `progress` receives the name and the seconds of each counted run.
///
/// # Errors
/// [`Error::InvalidArgument`] if there is nothing to measure or the model's context is too small; any error
/// of the backend.
pub fn bench(
    model: &Model,
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Vec<Measurement>> {
    let (prompt, predict, depth, repeat) =
        (options.prompt_tokens, options.predict, options.depth, options.repeat);
    let (mut session, tokens) = session(model, options)?;
    let mut all = Vec::new();
    let mut measure = |name: String, count: usize, work: &mut dyn FnMut(&mut Session) -> Result<()>| {
        let mut run = || {
            return_to(&mut session, &tokens[..depth])?;
            let start = Instant::now();
            work(&mut session)?;
            Ok(start.elapsed())
        };
        warm_up(options.warm_up, &mut run)?;
        let mut seconds = Vec::with_capacity(repeat);
        for _ in 0..repeat {
            seconds.push(run()?.as_secs_f64());
            progress(&name, seconds[seconds.len() - 1]);
        }
        all.push(Measurement::new(name, count, &seconds));
        Ok::<(), Error>(())
    };
    let at = if depth > 0 { format!("@{depth}") } else { String::new() };
    if prompt > 0 {
        measure(format!("pp{prompt}{at}"), prompt, &mut |session| {
            step(session, &tokens[..prompt]).map(|_| ())
        })?;
    }
    if predict > 0 {
        measure(format!("tg{predict}{at}"), predict, &mut |session| {
            (0..predict).try_fold(tokens[0], |token, _| step(session, &[token])).map(|_| ())
        })?;
    }
    Ok(all)
}

/// Runs work once, and again until `time` has passed.
fn warm_up(time: Duration, run: &mut dyn FnMut() -> Result<Duration>) -> Result<()> {
    if run()? > SLOW {
        return Ok(());
    }
    let start = Instant::now();
    while start.elapsed() < time {
        run()?;
    }
    Ok(())
}

/// Measures the steps of a prompt batch and of a decode step, each if requested, with `repeat` passes.
///
/// # Errors
/// The errors of [`bench()`].
pub fn profile(model: &Model, options: &BenchOptions) -> Result<Vec<Profile>> {
    let (mut session, tokens) = session(model, options)?;
    let batch = options.prompt_tokens.min(options.session.batch_on(model.backend().as_ref()));
    let mut profiles = Vec::new();
    for (wanted, count) in [(options.prompt_tokens > 0, batch), (options.predict > 0, 1)] {
        if wanted {
            warm_up(options.warm_up, &mut || {
                return_to(&mut session, &tokens[..options.depth])?;
                let start = Instant::now();
                step(&mut session, &tokens[..count])?;
                Ok(start.elapsed())
            })?;
            return_to(&mut session, &tokens[..options.depth])?;
            profiles.push(session.profile(&tokens[..count], Want::Best(1), options.repeat)?);
        }
    }
    Ok(profiles)
}

/// Creates a session with room for the measurement, and the tokens it appends.
fn session(model: &Model, options: &BenchOptions) -> Result<(Session, Vec<u32>)> {
    let (prompt, predict, depth, repeat) =
        (options.prompt_tokens, options.predict, options.depth, options.repeat);
    if repeat == 0 || (prompt, predict) == (0, 0) {
        return Err(Error::argument(
            "bench",
            format!("{repeat} runs of {prompt} and {predict} tokens"),
            "something to measure",
        ));
    }
    // Generation starts after one token.
    let longest = prompt.max(if predict > 0 { predict.saturating_add(1) } else { 0 });
    let context = depth.saturating_add(longest);
    if context > model.hparams().context {
        let expected = format!("at most {}, the model's context", model.hparams().context);
        return Err(Error::argument("bench", format!("{context} positions"), expected));
    }
    let context = options.session.context.unwrap_or(0).max(context);
    let session = model.session(&SessionOptions { context: Some(context), ..options.session.clone() })?;
    let vocabulary = model.hparams().vocabulary;
    let mut rng = Rng::new(options.seed);
    let tokens: Vec<u32> = (0..prompt.max(depth).max(1)).map(|_| rng.below(vocabulary) as u32).collect();
    Ok((session, tokens))
}

/// Makes the session hold exactly these tokens, of which it already holds the first ones, and keeps a checkpoint there,
/// so that coming back costs no computation.
fn return_to(session: &mut Session, tokens: &[u32]) -> Result<()> {
    session.truncate(0, tokens.len().min(session.position()))?;
    let rest = &tokens[session.position()..];
    if !rest.is_empty() {
        step(session, rest)?;
    }
    session.catch_up(0)?;
    session.keep_checkpoint(0)
}

/// Appends tokens and returns the best next token.
fn step(session: &mut Session, tokens: &[u32]) -> Result<u32> {
    let rows = session.append(&[Item { sequence: 0, tokens }], Want::Best(1))?;
    rows.get(0).map_or(Ok(0), |row| row.greedy())
}
