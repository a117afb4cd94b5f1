//! Requests of several users: each gets the text that it gets alone, none waits for ever, nothing grows.

use crate::common;

use common::{backend, model, tiny};
use diptych::generate::{
    Event, Finish, GenerateOptions, Generation, RequestId, RequestLimits, Requests, Summary,
};
use diptych::ggml::rng::Rng;
use diptych::synthesize::Shape;
use diptych::{DType, Error, Model, Precision, SessionOptions, Tokenizer};
use std::collections::HashMap;

const CONTEXT: usize = 64;

fn tiny_model(architecture: &str) -> Model {
    let mut shape = Shape { vocabulary: 300, ..tiny(architecture, DType::F16) };
    if let Some(recurrent) = &mut shape.recurrent {
        recurrent.layers = vec![true, false];
    }
    model(&shape, &backend("cpu").expect("the CPU"))
}

fn options(sequences: usize) -> SessionOptions {
    SessionOptions::default()
        .with_context(CONTEXT)
        .with_sequences(sequences)
        .with_batch(16)
        .with_checkpoint_every(8)
        .with_checkpoint_memory(1 << 20)
        .with_precision(Precision::Exact)
}

fn predict(n: usize) -> GenerateOptions {
    GenerateOptions::default().with_predict(n).with_ignore_end(true)
}

/// A prompt; those of a user begin in the same way.
fn prompt(user: u64, seed: usize, n: usize) -> Vec<u32> {
    let common = (0..12).map(|i| (user as usize * 31 + i * 7) % 300);
    common.chain((0..n).map(|i| (seed * 53 + i * 11) % 300)).map(|token| token as u32).collect()
}

/// Results by request: the tokens, and the summary when it has ended.
type Results = HashMap<RequestId, (Vec<u32>, Option<Summary>)>;

fn note(events: Vec<Event>, results: &mut Results) {
    for event in events {
        match event {
            Event::Piece(id, piece) => results.entry(id).or_default().0.extend(piece.token),
            Event::Ended(id, summary) => {
                let ended = &mut results.entry(id).or_default().1;
                assert!(ended.is_none(), "{id:?} ended twice");
                *ended = Some(summary);
            }
        }
    }
}

#[test]
fn each_request_gets_its_own_text() {
    for architecture in ["qwen3", "qwen35"] {
        let model = tiny_model(architecture);
        let tokenizer = Tokenizer::from_gguf(model.file().gguf()).expect("a tokenizer");
        let mut session = model.session(&options(3)).expect("a session");
        let mut requests = Requests::new(&mut session, &tokenizer, RequestLimits::default());
        let (mut prompts, mut results) = (HashMap::new(), Results::new());
        for seed in 0..12 {
            let tokens = prompt(seed % 3, seed as usize, 3 + seed as usize);
            let id = requests.submit(seed % 3, &tokens, &predict(5 + seed as usize)).expect("room");
            prompts.insert(id, tokens);
            note(requests.step().expect("a step"), &mut results);
        }
        while !requests.is_idle() {
            note(requests.step().expect("a step"), &mut results);
        }
        let shared: usize = results.values().flat_map(|(_, summary)| summary).map(|s| s.held_tokens).sum();
        assert!(shared >= 8 * 8, "{architecture}: prompts that begin alike are computed once: {shared}");
        for (id, (tokens, summary)) in &results {
            assert_eq!(summary.as_ref().expect("it ended").finish, Some(Finish::Limit));
            let mut single = model.session(&options(1)).expect("a session");
            let alone = Generation::start(&mut single, &tokenizer, &prompts[id], &predict(tokens.len()));
            let wanted: Vec<u32> =
                alone.expect("a prompt").filter_map(|p| p.expect("a piece").token).collect();
            assert_eq!((tokens, tokens.len()), (&wanted, 5 + id.0 as usize), "{architecture}, {id:?}");
        }
    }
}

/// One user's many requests do not hold up another's: they take turns.
#[test]
fn users_take_turns() {
    let model = tiny_model("qwen3");
    let tokenizer = Tokenizer::from_gguf(model.file().gguf()).expect("a tokenizer");
    let mut session = model.session(&options(1)).expect("a session");
    let mut requests = Requests::new(&mut session, &tokenizer, RequestLimits::default());
    let many: Vec<RequestId> =
        (0..6).map(|i| requests.submit(1, &prompt(1, i, 2), &predict(2)).expect("room")).collect();
    let mut order = Vec::new();
    for step in 0.. {
        if step == 3 {
            let few = (0..2).map(|i| requests.submit(2, &prompt(2, i, 2), &predict(2)).expect("room"));
            assert_eq!(few.collect::<Vec<_>>(), [RequestId(6), RequestId(7)]);
        }
        for event in requests.step().expect("a step") {
            if let Event::Ended(id, _) = event {
                order.push(id.0);
            }
        }
        if requests.is_idle() {
            break;
        }
    }
    let place = |id: u64| order.iter().position(|&other| other == id).expect("it ended");
    assert!(place(6) <= 3 && place(7) <= 5, "{order:?}");
    assert!(many.iter().map(|id| place(id.0)).is_sorted(), "{order:?}");
}

#[test]
fn full_queues_and_cancelled_requests() {
    let model = tiny_model("qwen3");
    let tokenizer = Tokenizer::from_gguf(model.file().gguf()).expect("a tokenizer");
    let mut session = model.session(&options(1)).expect("a session");
    let limits = RequestLimits::default().with_waiting(3).with_each(2);
    let mut requests = Requests::new(&mut session, &tokenizer, limits);
    let submit = |requests: &mut Requests<'_>, user| requests.submit(user, &prompt(user, 1, 2), &predict(9));
    let first = submit(&mut requests, 1).expect("room");
    let second = submit(&mut requests, 1).expect("room");
    let refused = |result: diptych::Result<RequestId>, part: &str| match result {
        Err(error @ Error::InvalidArgument { .. }) => assert!(error.to_string().contains(part), "{error}"),
        other => panic!("{other:?}"),
    };
    refused(submit(&mut requests, 1), "requests of the user");
    submit(&mut requests, 2).expect("room");
    refused(submit(&mut requests, 3), "requests that wait");
    refused(requests.submit(4, &[], &predict(1)), "requests that wait");
    let mut results = Results::new();
    note(requests.step().expect("a step"), &mut results);
    refused(requests.submit(4, &[], &predict(1)), "at least one");
    refused(requests.submit(4, &[1], &predict(1).with_stop(vec![String::new()])), "stop text");
    assert!(requests.cancel(first) && requests.cancel(second) && !requests.cancel(RequestId(99)));
    note(requests.step().expect("a step"), &mut results);
    note(requests.step().expect("a step"), &mut results);
    for id in [first, second] {
        let (_, summary) = &results[&id];
        assert_eq!(summary.as_ref().expect("it ended").finish, Some(Finish::Cancelled), "{id:?}");
    }
    assert!(!requests.cancel(first));
    while !requests.is_idle() {
        note(requests.step().expect("a step"), &mut results);
    }
    assert_eq!(results.len(), 3);
}

/// A device that fails ends what runs, and the next step says so; what waits goes on.
#[test]
fn a_failed_step_ends_what_runs() {
    let backend = backend("null=fail@compute").expect("the null backend");
    let model = model(&Shape { vocabulary: 300, ..tiny("qwen3", DType::F16) }, &backend);
    let tokenizer = Tokenizer::from_gguf(model.file().gguf()).expect("a tokenizer");
    let mut session = model.session(&options(1)).expect("a session");
    let mut requests = Requests::new(&mut session, &tokenizer, RequestLimits::default());
    let ids = [0, 1].map(|i| requests.submit(0, &prompt(0, i, 2), &predict(500)).expect("room"));
    let (mut results, mut failed) = (Results::new(), 0);
    for _ in 0..200 {
        match requests.step() {
            Ok(events) => note(events, &mut results),
            Err(Error::Injected { .. }) => failed += 1,
            Err(error) => panic!("{error}"),
        }
        if requests.is_idle() {
            break;
        }
    }
    assert!(failed > 0 && requests.is_idle(), "{failed}");
    for id in ids {
        assert!(results[&id].1.is_some(), "{id:?}");
    }
}

/// Thousands of requests come and go at random: all end, and nothing new is allocated.
#[test]
fn thousands_come_and_go() {
    let model = tiny_model("qwen35");
    let tokenizer = Tokenizer::from_gguf(model.file().gguf()).expect("a tokenizer");
    let mut session = model.session(&options(4)).expect("a session");
    let mut requests = Requests::new(&mut session, &tokenizer, RequestLimits::default().with_waiting(20));
    let (mut rng, mut results, mut begun) = (Rng::new(5), Results::new(), HashMap::new());
    let (mut longest, mut allocated) = (0, 0);
    for step in 0u64.. {
        if begun.len() < COUNT && rng.below(3) < 2 {
            let (user, seed) = (rng.below(5) as u64, rng.below(40));
            let tokens = prompt(user, seed, 1 + rng.below(8));
            if let Ok(id) = requests.submit(user, &tokens, &predict(rng.below(3))) {
                begun.insert(id, step);
                if rng.below(7) == 0 {
                    assert!(requests.cancel(id));
                }
            }
        }
        let mut new = Results::new();
        note(requests.step().expect("a step"), &mut new);
        for (id, (_, ended)) in new {
            if ended.is_some() {
                longest = longest.max(step - begun[&id]);
                assert!(results.insert(id, (Vec::new(), ended)).is_none());
            }
        }
        if results.len() == COUNT / 2 {
            allocated = model.backend().stats().driver_allocations;
        }
        if results.len() == COUNT && requests.is_idle() {
            break;
        }
    }
    assert!(longest < 120, "a request took {longest} steps");
    assert_eq!(model.backend().stats().driver_allocations, allocated);
    assert!(requests.session().tokens(0).expect("a sequence").len() <= CONTEXT);
}

const COUNT: usize = 10_000;
