//! Drafts of a smaller model: the text is the same as without them, whatever is drafted.

use crate::common;

use common::{backend, backends, model, tiny};
use diptych::generate::{Finish, GenerateOptions, Generation, Summary};
use diptych::ggml::metrics::distance;
use diptych::session::{Row, Want};
use diptych::synthesize::Shape;
use diptych::{DType, Error, Model, Precision, SamplerOptions, Session, SessionOptions, Tokenizer};

fn shape(architecture: &str) -> Shape {
    let mut shape = Shape { vocabulary: 300, ..tiny(architecture, DType::F16) };
    if let Some(recurrent) = &mut shape.recurrent {
        recurrent.layers = vec![true, false];
    }
    shape
}

fn session(model: &Model) -> Session {
    let options = SessionOptions::default()
        .with_context(220)
        .with_batch(32)
        .with_checkpoint_every(16)
        .with_precision(Precision::Exact);
    model.session(&options).expect("a session")
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 5) % 300).collect()
}

fn greedy(predict: usize) -> GenerateOptions {
    GenerateOptions::default().with_predict(predict).with_ignore_end(true).with_draft(4)
}

/// Generates after a prompt; returns the tokens, the text and the summary.
fn text(
    session: &mut Session,
    draft: Option<&mut Session>,
    options: &GenerateOptions,
) -> (Vec<u32>, String, Summary) {
    let tokenizer = Tokenizer::from_gguf(session.model().file().gguf()).expect("a tokenizer");
    let generation = Generation::continue_with(session, &tokenizer, &prompt(20), options).expect("a prompt");
    let mut generation = match draft {
        Some(draft) => generation.draft_with(draft).expect("the same vocabulary"),
        None => generation,
    };
    let (mut tokens, mut text) = (Vec::new(), String::new());
    while let Some(piece) = generation.next() {
        let piece = piece.expect("a piece");
        tokens.extend(piece.token);
        text += &piece.text;
        // The reason for the end comes with the last token.
        let summary = generation.summary();
        assert!(summary.finish.is_none() || tokens.len() == summary.tokens);
    }
    let summary = generation.summary().clone();
    (tokens, text, summary)
}

/// The drafts are those of the model itself, nearly all accepted, and of another model, hardly any accepted.
#[test]
fn the_text_is_the_same_as_without_drafts() {
    let cpu = backend("cpu").expect("the CPU");
    let other = model(&Shape { layers: 1, ..shape("llama") }, &cpu);
    for (name, backend) in backends() {
        // Emulated cards are slow.
        let all = if name == "cpu" { &["qwen3", "granitehybrid", "qwen35"][..] } else { &["qwen35"] };
        let count = if name == "cpu" { 60 } else { 24 };
        for &architecture in all {
            let model = model(&shape(architecture), &backend);
            let sampled = SamplerOptions::default().with_temperature(0.7).with_top_k(5).with_seed(3);
            for options in [greedy(count), greedy(count).with_sampler(sampled)] {
                let (tokens, wanted, _) = text(&mut session(&model), None, &options);
                assert_eq!(tokens.len(), count);
                let mut target = session(&model);
                let (got, written, summary) = text(&mut target, Some(&mut session(&model)), &options);
                assert_eq!((got, written), (tokens.clone(), wanted.clone()), "{name}, {architecture}");
                assert!(summary.drafts > 10, "{name}, {architecture}: {summary}");
                if options.sampler.temperature == 0.0 {
                    assert!(summary.accepted_drafts * 10 >= summary.drafts * 9, "{name}: {summary}");
                }
                // The session holds the text but its last token, and goes on.
                assert_eq!(target.tokens(0).expect("a sequence")[20..], tokens[..count - 1]);
                let (got, written, summary) = text(&mut target, Some(&mut session(&other)), &options);
                assert_eq!((got, written), (tokens, wanted), "{name}, {architecture}");
                assert!(summary.drafts > 0 && summary.accepted_drafts * 4 < summary.drafts, "{summary}");
            }
        }
    }
}

/// A limit, a stop text and the end of the context end the text where they do without drafts.
#[test]
fn a_text_with_drafts_ends_where_it_ends_without() {
    let cpu = backend("cpu").expect("the CPU");
    let model = model(&shape("qwen35"), &cpu);
    for predict in 5..14 {
        let wanted = text(&mut session(&model), None, &greedy(predict));
        let got = text(&mut session(&model), Some(&mut session(&model)), &greedy(predict));
        assert_eq!((got.0.len(), &got.0, &got.2.finish), (predict, &wanted.0, &Some(Finish::Limit)));
    }
    let whole = text(&mut session(&model), None, &greedy(1000));
    let got = text(&mut session(&model), Some(&mut session(&model)), &greedy(1000));
    assert_eq!(whole.2.finish, Some(Finish::ContextFull));
    assert_eq!((&got.0, &got.1, &got.2.finish), (&whole.0, &whole.1, &whole.2.finish));
    let stop: String = whole.1.chars().skip(30).take(3).collect();
    let options = greedy(1000).with_stop(vec![stop]);
    let wanted = text(&mut session(&model), None, &options);
    let got = text(&mut session(&model), Some(&mut session(&model)), &options);
    assert!(matches!(wanted.2.finish, Some(Finish::Stop(_))));
    assert_eq!((got.1, got.2.finish), (wanted.1, wanted.2.finish));
}

/// The rows are those of one token after the other, and state counts what is kept.
#[test]
fn drafts_are_verified_in_one_batch() {
    for (name, backend) in backends() {
        let all = ["qwen3", "qwen3next", "nemotron_h", "lfm2"];
        for architecture in &all[if name == "cpu" { 0..4 } else { 1..3 }] {
            let model = model(&shape(architecture), &backend);
            let (mut one, mut other) = (session(&model), session(&model));
            let mut tokens = prompt(15);
            one.prefill(&tokens).expect("a prompt");
            for (drafts, kept) in [(3, 1), (2, 2), (4, 0), (1, 1), (0, 0), (4, 4), (3, 3)] {
                let new: Vec<u32> = (0..=drafts).map(|i| (tokens.len() as u32 * 31 + i * 7) % 300).collect();
                let all = [&tokens[..], &new].concat();
                other.reset();
                let wanted = other.logits(&all).expect("rows");
                let wanted = &wanted[tokens.len() * 300..];
                one.verify(0, &new[..1], &new[1..], Want::Logits, &mut |rows| {
                    assert_eq!(rows.len(), new.len());
                    for (i, wanted) in wanted.chunks_exact(300).enumerate() {
                        let Some(Row::Logits(got)) = rows.get(i) else { panic!("{name}: no logits") };
                        let nmse = distance(got, wanted).nmse;
                        assert!(nmse < 1e-10, "{name}, {architecture}, row {i}: {nmse:.1e}");
                    }
                    Ok(kept)
                })
                .expect("drafts");
                tokens.extend(&new[..1 + kept]);
                assert_eq!(one.tokens(0).expect("a sequence"), tokens, "{name}");
            }
            // Refused and failed calls change nothing.
            let refused = one.verify(0, &[1], &[2], Want::Logits, &mut |_| Ok(2));
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
            assert!(one.verify(0, &[], &[2], Want::Logits, &mut |_| Ok(0)).is_err());
            assert!(one.verify(0, &[1], &[2], Want::Hidden(1), &mut |_| Ok(0)).is_err());
            assert!(one.verify(0, &[1], &[2; 40], Want::Logits, &mut |_| Ok(0)).is_err());
            assert_eq!(one.tokens(0).expect("a sequence"), tokens, "{name}");
            other.reset();
            tokens.push(9);
            let (got, wanted) = (one.decode(9).expect("a token"), other.prefill(&tokens).expect("a prompt"));
            assert!(distance(&got, &wanted).nmse < 1e-10, "{name}, {architecture}");
        }
    }
}

#[test]
fn another_vocabulary_is_refused() {
    let cpu = backend("cpu").expect("the CPU");
    let model = |vocabulary| model(&Shape { vocabulary, ..shape("llama") }, &cpu);
    let (one, other) = (model(300), model(310));
    let (mut target, mut draft) = (session(&one), session(&other));
    let tokenizer = Tokenizer::from_gguf(one.file().gguf()).expect("a tokenizer");
    let generation = Generation::start(&mut target, &tokenizer, &prompt(5), &greedy(3)).expect("a prompt");
    let refused = generation.draft_with(&mut draft).map(|_| ());
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
}
