//! Speed of generation for several sequences at once.

use super::{BenchOptions, Measurement, SLOW};
use crate::session::{Item, Session, Want};
use crate::{Model, SessionOptions};
use ggml_core::Result;
use std::time::{Duration, Instant};

/// Measures greedy generation for `sequences` sequences that take their steps together: tokens of all of them per second.
/// They begin with the same [`BenchOptions::depth`] tokens, which they share.
///
/// # Errors
/// Errors of [`bench()`](super::bench()); [`Error::InvalidArgument`](ggml_core::Error::InvalidArgument) for no sequences.
pub fn bench_parallel(
    model: &Model,
    sequences: usize,
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Measurement> {
    let session = SessionOptions { sequences, ..options.session.clone() };
    let options = options.clone().with_prompt_tokens(0).with_session(session);
    let (mut session, tokens) = super::session(model, &options)?;
    let depth = options.depth.max(1);
    session.append(&[Item { sequence: 0, tokens: &tokens[..depth] }], Want::Best(1))?;
    for sequence in 1..sequences {
        session.share_prefix(0, sequence, depth)?;
    }
    for sequence in 0..sequences {
        session.keep_checkpoint(sequence)?;
    }
    let at = if options.depth > 0 { format!("@{}", options.depth) } else { String::new() };
    let name = format!("tg{}{at} x{sequences}", options.predict);
    let mut run = || steps(&mut session, depth, options.predict);
    let start = Instant::now();
    let mut warm = run()?;
    while start.elapsed() < options.warm_up && warm < SLOW {
        warm = run()?;
    }
    let mut seconds = Vec::with_capacity(options.repeat);
    for _ in 0..options.repeat {
        let took = run()?.as_secs_f64();
        seconds.push(took);
        progress(&name, took);
    }
    Ok(Measurement::new(name, options.predict * sequences, &seconds))
}

/// Cuts all sequences to `depth` positions and generates `count` tokens for each; returns the time of that.
fn steps(session: &mut Session, depth: usize, count: usize) -> Result<Duration> {
    for sequence in 0..session.sequences() {
        session.truncate(sequence, depth)?;
        session.catch_up(sequence)?;
    }
    // Different texts, as those of different users are.
    let mut next: Vec<[u32; 1]> = (0..session.sequences() as u32).map(|sequence| [sequence]).collect();
    let start = Instant::now();
    for _ in 0..count {
        let items: Vec<Item<'_>> =
            next.iter().enumerate().map(|(sequence, tokens)| Item { sequence, tokens }).collect();
        let rows = session.append(&items, Want::Best(1))?;
        next = (0..rows.len())
            .filter_map(|i| rows.get(i))
            .map(|row| Ok([row.greedy()?]))
            .collect::<Result<_>>()?;
    }
    Ok(start.elapsed())
}
