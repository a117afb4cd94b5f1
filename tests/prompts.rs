//! Prompts: computed in batches, between which an application sees the progress and can stop; conversations
//! that continue from the state of a session.

use crate::common;

use common::{backend, model, tiny};
use diptych::generate::{Cancel, Finish, GenerateOptions, Generation, Generations};
use diptych::ggml::metrics::distance;
use diptych::synthesize::Shape;
use diptych::{DType, Error, Model, Precision, Session, SessionOptions, Tokenizer};
use std::ops::ControlFlow;

/// Returns a model with attention only, and one that also has a recurrent layer.
fn models() -> Vec<(&'static str, Model)> {
    let backend = backend("cpu").expect("the CPU");
    let mut qwen35 = tiny("qwen35", DType::F16);
    qwen35.recurrent.as_mut().expect("recurrent layers").layers = vec![true, false];
    let shapes = [("llama", tiny("llama", DType::F16)), ("qwen35", qwen35)];
    // A vocabulary large enough for a tokenizer.
    let shape = |shape: Shape| Shape { vocabulary: 300, ..shape };
    shapes.into_iter().map(|(name, s)| (name, model(&shape(s), &backend))).collect()
}

/// Returns a session with batches of four tokens.
fn session(model: &Model) -> Session {
    let options = SessionOptions::default()
        .with_context(64)
        .with_batch(4)
        .with_checkpoint_every(4)
        .with_precision(Precision::Exact);
    model.session(&options).expect("a session")
}

fn tokenizer(model: &Model) -> Tokenizer {
    Tokenizer::from_gguf(model.file().gguf()).expect("a tokenizer")
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 5) % 203).collect()
}

fn close(got: &[f32], wanted: &[f32], what: &str) {
    let nmse = distance(got, wanted).nmse;
    assert!(got.len() == wanted.len() && nmse < 1e-10, "{what}: {nmse:.1e}");
}

/// The progress reported for 18 tokens in batches of four, and the state after a stop.
#[test]
fn a_prompt_stops_between_batches_and_goes_on() {
    for (name, model) in models() {
        let (prompt, mut session) = (prompt(18), session(&model));
        let whole = session.prefill(&prompt).expect("a prompt");
        session.reset();
        let mut seen = Vec::new();
        let mut until = |stop: usize, session: &mut Session| {
            seen.clear();
            let watch = &mut |done: usize, all: usize| {
                seen.push((done, all));
                if done >= stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            (session.prefill_with(&prompt, watch).expect("no error"), seen.clone())
        };
        assert_eq!(until(0, &mut session), (None, vec![(0, 18)]), "{name}");
        assert_eq!(session.position(), 0, "{name}: nothing is computed");
        assert_eq!(until(5, &mut session), (None, vec![(0, 18), (4, 18), (8, 18)]), "{name}");
        assert_eq!(session.tokens(0).expect("one sequence"), &prompt[..8], "{name}");
        close(&session.continue_with(&prompt).expect("the rest"), &whole, name);
        session.reset();
        // At the end nothing is left to stop.
        let (logits, seen) = until(18, &mut session);
        assert_eq!(seen, [(0, 18), (4, 18), (8, 18), (12, 18), (16, 18), (18, 18)], "{name}");
        close(&logits.expect("all of it"), &whole, name);
    }
}

/// Only the differing tokens are computed; with recurrent state those after the last checkpoint, which there is every
/// four positions.
#[test]
fn a_conversation_goes_on_from_what_is_there() {
    for (name, model) in models() {
        let (mut session, mut fresh) = (session(&model), session(&model));
        let first = prompt(10);
        session.continue_with(&first).expect("a prompt");
        session.decode(7).expect("a token");
        let longer = [&first[..], &[7, 8, 9]].concat();
        assert_eq!(session.tokens(0).expect("one sequence"), &longer[..11], "{name}");
        let mut check = |session: &mut Session, tokens: &[u32], kept: usize| {
            assert_eq!(session.keep_common(0, tokens).expect("one sequence"), kept, "{name}");
            assert_eq!(session.tokens(0).expect("one sequence"), &tokens[..kept], "{name}");
            fresh.reset();
            let wanted = fresh.prefill(tokens).expect("a prompt");
            close(&session.continue_with(tokens).expect("a prompt"), &wanted, name);
            assert_eq!(session.tokens(0).expect("one sequence"), tokens, "{name}");
        };
        let back = |kept: usize| if name == "qwen35" { kept / 4 * 4 } else { kept };
        check(&mut session, &longer, 11);
        // The same again: recomputing the last token gives its logits again.
        check(&mut session, &longer, back(12));
        let other = [&longer[..5], &[100, 101]].concat();
        check(&mut session, &other, back(5));
        check(&mut session, &other[..3], back(2));
        check(&mut session, &[55], 0);
        // A rejected call changes nothing.
        for wrong in [&[][..], &[55, 300], &[1; 65]] {
            assert!(matches!(session.continue_with(wrong), Err(Error::InvalidArgument { .. })), "{name}");
            assert_eq!(session.tokens(0).expect("one sequence"), [55], "{name}");
        }
        assert!(session.tokens(1).is_err() && session.keep_common(1, &[1]).is_err(), "{name}");
    }
}

/// The handle exists before the prompt, and the prompt ends with the running batch.
#[test]
fn a_generation_is_cancelled_within_its_prompt() {
    for (name, model) in models() {
        let (tokenizer, prompt, mut session) = (tokenizer(&model), prompt(18), session(&model));
        let cancel = Cancel::default();
        let options = GenerateOptions::default().with_predict(3).with_cancel(cancel.clone());
        let mut generation =
            Generation::start(&mut session, &tokenizer, &prompt, &options).expect("a prompt");
        let mut seen = Vec::new();
        let mut progress = |done: usize, all: usize| {
            seen.push((done, all));
            if done == 4 {
                cancel.cancel();
            }
        };
        generation.prompt(&mut progress).expect("no error");
        assert!(generation.next().is_none(), "{name}: no token comes");
        let summary = generation.summary();
        assert_eq!((&summary.finish, summary.computed_tokens), (&Some(Finish::Cancelled), 4), "{name}");
        assert_eq!(seen, [(0, 18), (4, 18)], "{name}: no batch more");
        assert_eq!(session.tokens(0).expect("one sequence"), &prompt[..4], "{name}");
        // Cancelled before it began; then the prompt continues from its position.
        let mut generation =
            Generation::continue_with(&mut session, &tokenizer, &prompt, &options).expect("a prompt");
        assert!(generation.next().is_none() && generation.summary().computed_tokens == 0, "{name}");
        let options = GenerateOptions::default().with_predict(3).with_ignore_end(true);
        let mut generation =
            Generation::continue_with(&mut session, &tokenizer, &prompt, &options).expect("a prompt");
        assert_eq!(
            generation.by_ref().filter(|piece| piece.as_ref().is_ok_and(|p| p.token.is_some())).count(),
            3
        );
        let summary = generation.summary();
        assert_eq!(
            (summary.held_tokens, summary.computed_tokens, summary.prompt_tokens),
            (4, 14, 18),
            "{name}"
        );
    }
}

/// A second turn reuses the state of the first, and gives the same tokens as a session that computes
/// everything.
#[test]
fn turns_of_a_chat_need_no_log() {
    for (name, model) in models() {
        let (tokenizer, mut session, mut fresh) = (tokenizer(&model), session(&model), session(&model));
        let options = GenerateOptions::default().with_predict(5).with_ignore_end(true);
        let answer = |session: &mut Session, prompt: &[u32]| {
            let mut generation =
                Generation::continue_with(session, &tokenizer, prompt, &options).expect("a prompt");
            let tokens: Vec<u32> =
                generation.by_ref().filter_map(|piece| piece.expect("no error").token).collect();
            (tokens, generation.summary().held_tokens)
        };
        let mut conversation = prompt(9);
        conversation.extend(answer(&mut session, &conversation).0);
        conversation.extend([11, 12, 13]);
        // The last token of the answer was chosen but not computed.
        let (tokens, held) = answer(&mut session, &conversation);
        assert_eq!(held, 9 + 4, "{name}");
        assert_eq!(tokens, answer(&mut fresh, &conversation).0, "{name}");
    }
}

/// In parallel: a long prompt takes several steps, during which the others continue, and can be cancelled
/// between them.
#[test]
fn a_long_prompt_does_not_hold_up_the_others() {
    for (name, model) in models() {
        let tokenizer = tokenizer(&model);
        let options = SessionOptions::default().with_context(64).with_batch(4).with_sequences(3);
        let mut session = model.session(&options).expect("a session");
        let mut generations = Generations::new(&mut session, &tokenizer);
        let options = GenerateOptions::default().with_ignore_end(true);
        let tokens = |pieces: Vec<(usize, Result<diptych::generate::Piece, Error>)>| -> Vec<usize> {
            let token = |(sequence, piece): (usize, Result<diptych::generate::Piece, Error>)| {
                piece.expect("no error").token.map(|_| sequence)
            };
            pieces.into_iter().filter_map(token).collect()
        };
        generations.start(0, &[5], &options).expect("a prompt");
        assert_eq!(tokens(generations.step().expect("a step")), [0], "{name}");
        generations.start(1, &prompt(6), &options).expect("a prompt");
        let cancel = generations.start(2, &prompt(18), &options).expect("a prompt");
        let held = |g: &Generations<'_>| [0, 1, 2].map(|i| g.session().position_of(i).expect("three"));
        for (who, positions) in [(vec![0], [2, 3, 0]), (vec![0, 1], [3, 6, 0]), (vec![0, 1], [4, 7, 2])] {
            assert_eq!(tokens(generations.step().expect("a step")), who, "{name}");
            assert_eq!(held(&generations), positions, "{name}");
        }
        cancel.cancel();
        assert_eq!(tokens(generations.step().expect("a step")), [0, 1], "{name}");
        assert_eq!(held(&generations), [5, 8, 2], "{name}");
        assert_eq!(generations.summary(2).expect("it ran").finish, Some(Finish::Cancelled), "{name}");
        // It continues from its position.
        generations.continue_with(2, &prompt(5), &options).expect("a prompt");
        assert_eq!(generations.summary(2).expect("it runs").held_tokens, 2, "{name}");
        generations.step().expect("a step");
        assert_eq!(tokens(generations.step().expect("a step")), [0, 1, 2], "{name}");
    }
}
