//! A child's work on a model: load it, run the prompt, generate, score a text, examine its nodes.

use super::doubt;
use super::invariance;
use super::loaded::{load, prompt_graph, rows as rows_of, session_options, step_graph, wanted};
use super::nodes::{self, NodeFile, Nodes};
use super::options::PerNode;
use super::report::{OpTime, TextScore};
use crate::backends::BackendName;
use crate::isolate::protocol::{Done, Message, ModelTask, TextTask, Work};
use crate::model::{Model, Want};
use crate::npy;
use crate::perplexity::{Score, scored};
use crate::session::{Session, debug_program, greedy};
use ggml_core::Result;
use ggml_core::backend::Backend;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Number of passes in which a decode step is measured step by step.
const PASSES: usize = 3;

/// Runs the work. A stepwise run returns no results: it only announces the nodes.
pub(super) fn run(
    work: &Work,
    task: &ModelTask,
    backend: Arc<dyn Backend>,
    send: &mut dyn FnMut(Message),
) -> Result<Done> {
    let start = Instant::now();
    let model = load(work, task, backend, send)?;
    let load_s = start.elapsed().as_secs_f64();
    if work.stepwise {
        let mut graphs = vec![prompt_graph(model.file(), task)?];
        if task.predict > 1 {
            graphs.push(step_graph(model.file(), task, 0)?);
        }
        for (graph, inputs) in &graphs {
            let program = debug_program(&model, graph, work.precision, true)?;
            Nodes::new(&graph.graph, program, inputs)?.locate(send)?;
        }
        return Ok(Done::default());
    }
    if !task.nodes.doubtful.is_empty() {
        doubt::estimate_model(&model, work, task, send)?;
        return Ok(Done::default());
    }
    let (mut done, logits, mut session) = generate(&model, work, task, send)?;
    let width = wanted(model.hparams()).width(model.hparams());
    npy::write(task.logits.as_ref(), logits.len() / width, width, &logits)?;
    let what = format!("prompt of {} tokens in {:.3} s", task.tokens.len(), done.prompt_s);
    send(Message::Progress { what });
    done.invalid_from = invalid_from(&model, work, task, (&logits, &done.token_ids), width, send);
    let last = done.token_ids.last().copied();
    // An emulated card has no times that are worth comparing.
    let emulated = work.backend.parse().is_ok_and(|name: BackendName| name.is_emulated());
    if let Some(token) = last.filter(|_| task.predict > 1 && work.epoch == 0 && !emulated) {
        send(Message::Step { what: "profile of a decode step".into() });
        match times(&mut session, token) {
            Ok(times) => done.times = times,
            // Nothing else depends on the times, and an error that matters is reported again by a later call.
            Err(error) => send(Message::Warning {
                what: format!("the times of operations could not be measured: {error}"),
            }),
        }
    }
    if let Some(text) = &task.text {
        done.score = Some(score(&mut session, text, &logits, send)?);
    }
    drop(session);
    if model.file().has_predictor() {
        done.drafts = drafts(&model, work, task, &done.token_ids, send)?;
    }
    for _ in 1..work.repeat {
        let (repeated, other, mut session) = generate(&model, work, task, send)?;
        done.unstable += differences(&logits, &other) + ids_differ(&done.token_ids, &repeated.token_ids);
        // The first chunk is the prompt.
        let chunks = task.text.iter().flat_map(|text| text.chunks.iter().zip(&text.logits).skip(1));
        for (chunk, path) in chunks {
            let (_, _, first) = npy::read(path.as_ref())?;
            done.unstable += differences(&first, &scored_logits(&mut session, chunk)?);
        }
    }
    if work.invariance || work.same_bits {
        let prompt = &logits[..task.tokens.len() * width];
        done.variants = invariance::variants(&model, work, task, prompt, send)?;
    }
    if task.nodes.mode != PerNode::Off {
        send(Message::Progress { what: "node by node".into() });
        examine_nodes(&model, work, task, done.token_ids.first(), send)?;
    }
    done.load_s = load_s;
    done.stats = model.backend().stats();
    Ok(done)
}

/// Finds the node with which NaN or plus infinity begins, if one of the logits is such a value. The tokens up to that
/// row are computed as one prompt, step by step. An error in this search leaves the results as they are.
fn invalid_from(
    model: &Model,
    work: &Work,
    task: &ModelTask,
    (logits, chosen): (&[f32], &[u32]),
    width: usize,
    send: &mut dyn FnMut(Message),
) -> Option<String> {
    let row = logits.iter().position(|x| x.is_nan() || *x == f32::INFINITY)? / width;
    // A step continues with the given token, if there is one.
    let token = |step: usize| task.given.get(step).or(chosen.get(step)).copied();
    let steps = (row + 1).saturating_sub(task.tokens.len());
    let tokens = task.tokens.iter().copied().chain((0..steps).filter_map(token)).collect();
    send(Message::Step { what: "search for the node with which NaN or infinity begins".into() });
    let search = |send: &mut dyn FnMut(Message)| {
        let (graph, inputs) = prompt_graph(model.file(), &ModelTask { tokens, ..task.clone() })?;
        let program = debug_program(model, &graph, work.precision, true)?;
        Nodes::new(&graph.graph, program, &inputs)?.first_invalid(send)
    };
    match search(send) {
        Ok(found) => found,
        Err(error) => {
            let what = format!("the node with which NaN or infinity begins was not found: {error}");
            send(Message::Warning { what });
            None
        }
    }
}

/// Scores a text and writes the logits of its scored tokens. The logits of the first chunk are known: it is the
/// prompt.
fn score(
    session: &mut Session,
    text: &TextTask,
    prompt: &[f32],
    send: &mut dyn FnMut(Message),
) -> Result<TextScore> {
    let vocabulary = session.model().hparams().vocabulary;
    let mut score = Score::default();
    for (i, (chunk, path)) in text.chunks.iter().zip(&text.logits).enumerate() {
        let computed;
        let logits = match i {
            0 => rows(prompt, scored(chunk.len()), vocabulary),
            _ => {
                send(Message::Step { what: format!("chunk {}", i + 1) });
                computed = scored_logits(session, chunk)?;
                &computed
            }
        };
        score.add(chunk, logits, vocabulary)?;
        npy::write(path.as_ref(), logits.len() / vocabulary, vocabulary, logits)?;
        let (perplexity, error) = (score.perplexity(), score.error());
        let what = format!("perplexity of {} tokens: {perplexity:.4} +- {error:.4}", score.tokens);
        send(Message::Progress { what });
    }
    Ok(TextScore {
        chunks: score.chunks,
        tokens: score.tokens,
        nll: score.nll(),
        perplexity: score.perplexity(),
        error: score.error(),
    })
}

/// Computes the logits of a chunk's scored tokens as those of a prompt are computed.
fn scored_logits(session: &mut Session, chunk: &[u32]) -> Result<Vec<f32>> {
    session.reset();
    let logits = session.logits(chunk)?;
    Ok(rows(&logits, scored(chunk.len()), session.model().hparams().vocabulary).to_vec())
}

/// Drafts a token after each generated one but the last, with the file's predictor.
fn drafts(
    model: &Model,
    work: &Work,
    task: &ModelTask,
    generated: &[u32],
    send: &mut dyn FnMut(Message),
) -> Result<Vec<u32>> {
    let mut session = model.session(&session_options(work, task).with_predictor(true))?;
    let mut drafts = Vec::new();
    let steps = generated.len().saturating_sub(1);
    if steps > 0 {
        session.prefill(&task.tokens)?;
    }
    for (i, &own) in generated[..steps].iter().enumerate() {
        send(Message::Step { what: format!("draft {}", i + 1) });
        let token = task.given.get(i).copied().unwrap_or(own);
        // None is a result to compare, as a token that was not generated.
        drafts.push(session.draft(token, 1)?.first().copied().unwrap_or(u32::MAX));
        session.decode(token)?;
    }
    Ok(drafts)
}

/// Returns some rows of logits; none if there are too few.
fn rows(logits: &[f32], range: Range<usize>, vocabulary: usize) -> &[f32] {
    logits.get(range.start * vocabulary..range.end * vocabulary).unwrap_or_default()
}

/// Returns the seconds of a decode step by operation, the slowest first. Each step of the program is run
/// separately.
fn times(session: &mut Session, token: u32) -> Result<Vec<OpTime>> {
    let mut times: BTreeMap<&str, f64> = BTreeMap::new();
    for step in &session.profile(&[token], Want::Logits, PASSES)?.steps {
        *times.entry(step.kind).or_default() += step.seconds;
    }
    let mut times: Vec<_> =
        times.into_iter().map(|(op, seconds)| OpTime { op: op.into(), seconds }).collect();
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(times)
}

/// Counts the elements with different bits.
pub(super) fn differences(a: &[f32], b: &[f32]) -> usize {
    let pairs = a.iter().zip(b).filter(|(x, y)| x.to_bits() != y.to_bits()).count();
    pairs + a.len().abs_diff(b.len())
}

fn ids_differ(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).filter(|(x, y)| x != y).count()
}

/// Examines the prompt's graph and, if there are decode steps, the graph of the first one, which uses other
/// kernels. The decode step's KV cache is the one left by the prompt's nodes; in an isolated examination by
/// the reference's.
fn examine_nodes(
    model: &Model,
    work: &Work,
    task: &ModelTask,
    first: Option<&u32>,
    send: &mut dyn FnMut(Message),
) -> Result<()> {
    let (prompt, inputs) = prompt_graph(model.file(), task)?;
    let program = |fused| debug_program(model, &prompt, work.precision, fused);
    nodes::examine(&prompt.graph, &task.nodes, work.precision, &inputs, &program, send)?;
    let Some(&token) = task.given.first().or(first).filter(|_| task.predict > 1) else { return Ok(()) };
    let before = NodeFile::open(task.nodes.reference.as_ref().unwrap_or(&task.nodes.out).as_ref())?;
    let (step, mut inputs) = step_graph(model.file(), task, token)?;
    inputs.extend(nodes::state_after(&prompt.graph, &before, &step.graph));
    let program = |fused| debug_program(model, &step, work.precision, fused);
    nodes::examine(&step.graph, &task.nodes.of_step(), work.precision, &inputs, &program, send)
}

/// Computes the prompt with logits (or hidden states) of every token, then a decode step for each generated
/// token but the first. Returns the logits of all, and the session, which has room for one more step.
fn generate(
    model: &Model,
    work: &Work,
    task: &ModelTask,
    send: &mut dyn FnMut(Message),
) -> Result<(Done, Vec<f32>, Session)> {
    let mut session = model.session(&session_options(work, task))?;
    send(Message::Step { what: "prompt".into() });
    let start = Instant::now();
    let mut logits = rows_of(&mut session, &task.tokens)?;
    let prompt_s = start.elapsed().as_secs_f64();

    let vocabulary = model.hparams().vocabulary;
    logits.reserve(task.predict * vocabulary);
    let (mut token_ids, mut margins) = (Vec::new(), Vec::new());
    if task.predict > 1 {
        session.prepare_decode(Want::Logits)?;
    }
    let start = Instant::now();
    for i in 0..task.predict {
        let row = &logits[logits.len() - vocabulary..];
        // A driver that computes only NaN is a result to compare, not the end of the run.
        let token = greedy(row).unwrap_or(0);
        token_ids.push(token);
        margins.push(margin(row));
        if i + 1 < task.predict {
            send(Message::Step { what: format!("decode step {}", i + 1) });
            logits.extend(session.decode(task.given.get(i).copied().unwrap_or(token))?);
        }
    }
    let eval_s = start.elapsed().as_secs_f64();
    Ok((Done { prompt_s, eval_s, token_ids, margins, ..Done::default() }, logits, session))
}

/// Returns the difference between the two largest values.
fn margin(row: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &x in row {
        if x > first {
            (first, second) = (x, first);
        } else if x > second {
            second = x;
        }
    }
    first - second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_compared() {
        assert_eq!(differences(&[1.0, f32::NAN, -0.0], &[1.0, f32::NAN, -0.0]), 0);
        assert_eq!(differences(&[1.0, 2.0, -0.0], &[1.0, 2.0f32.next_up(), 0.0]), 2);
        assert_eq!(differences(&[1.0, 2.0], &[1.0]), 1);
    }
}
