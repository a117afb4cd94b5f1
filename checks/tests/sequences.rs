//! Several sequences in one session: each gets the result that it gets in its own session, whatever the
//! others do.

use crate::common;

use common::{backend, backends, model, tiny};
use diptych::ggml::metrics::distance;
use diptych::session::Item;
use diptych::synthesize::{ARCHITECTURES, Shape};
use diptych::{DType, Error, Model, Precision, Session, SessionOptions, greedy};
use proptest::prelude::*;

fn exact(context: usize, sequences: usize) -> SessionOptions {
    SessionOptions::default().with_context(context).with_sequences(sequences).with_precision(Precision::Exact)
}

/// A tiny model; in a model with recurrent layers, the second layer is an attention layer.
fn shape(architecture: &str, dtype: DType) -> Shape {
    let mut shape = tiny(architecture, dtype);
    if let Some(recurrent) = &mut shape.recurrent {
        recurrent.layers = vec![true, false];
    }
    shape
}

fn prompt(sequence: usize, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 5 + 61 * sequence as u32) % 203).collect()
}

fn items(tokens: &[Vec<u32>]) -> Vec<Item<'_>> {
    tokens.iter().enumerate().map(|(sequence, tokens)| Item { sequence, tokens }).collect()
}

fn close(got: &[f32], wanted: &[f32], what: &str) {
    let nmse = distance(got, wanted).nmse;
    assert!(got.len() == wanted.len() && nmse < 1e-10, "{what}: {nmse:.1e}");
}

/// Returns the logits after the prompts and the greedy tokens that follow, all prompts in one batch.
fn together(session: &mut Session, prompts: &[Vec<u32>], count: usize) -> (Vec<Vec<f32>>, Vec<Vec<u32>>) {
    let first = session.batch(&items(prompts)).unwrap();
    let (mut logits, mut tokens) = (first.clone(), vec![Vec::new(); prompts.len()]);
    for _ in 0..count {
        let next: Vec<Vec<u32>> = logits.iter().map(|row| vec![greedy(row).unwrap()]).collect();
        tokens.iter_mut().zip(&next).for_each(|(all, token)| all.extend(token));
        logits = session.batch(&items(&next)).unwrap();
    }
    (first, tokens)
}

/// Returns the logits after a prompt in its own session, and the greedy tokens that follow.
fn alone(session: &mut Session, prompt: &[u32], count: usize) -> (Vec<f32>, Vec<u32>) {
    session.reset();
    let first = session.prefill(prompt).unwrap();
    let (mut logits, mut tokens) = (first.clone(), Vec::new());
    for _ in 0..count {
        tokens.push(greedy(&logits).unwrap());
        logits = session.decode(tokens[tokens.len() - 1]).unwrap();
    }
    (first, tokens)
}

#[test]
fn each_gets_the_tokens_that_it_gets_alone() {
    let prompts: Vec<Vec<u32>> = [5, 17, 11].iter().enumerate().map(|(i, &n)| prompt(i, n)).collect();
    for (name, backend) in backends() {
        let model = model(&tiny("qwen3", DType::Q8_0), &backend);
        let (first, tokens) = together(&mut model.session(&exact(64, 3)).unwrap(), &prompts, 6);
        let mut single = model.session(&exact(64, 1)).unwrap();
        for (i, prompt) in prompts.iter().enumerate() {
            let (logits, wanted) = alone(&mut single, prompt, 6);
            close(&first[i], &logits, &format!("{name}, sequence {i}"));
            assert_eq!(tokens[i], wanted, "{name}, sequence {i}");
        }
    }
}

/// Covers windows, LongRoPE's choice of factors, and batches that end within an item.
#[test]
fn every_kind_of_model_and_of_batch() {
    let backend = backend("cpu").unwrap();
    let prompts: Vec<Vec<u32>> = [9, 1, 14].iter().enumerate().map(|(i, &n)| prompt(i, n)).collect();
    for architecture in ARCHITECTURES {
        let mut shape = shape(architecture, DType::F16);
        shape.window = shape.window.and(Some(5));
        // Positions of one sequence stay within the original context; cells of all sequences exceed it.
        shape.original_context = shape.original_context.and(Some(32));
        let model = model(&shape, &backend);
        let mut single = model.session(&exact(32, 1)).unwrap();
        let wanted: Vec<_> = prompts.iter().map(|prompt| alone(&mut single, prompt, 4)).collect();
        for batch in [512, 7, 1] {
            let options = exact(32, 3).with_batch(batch);
            let (first, tokens) = together(&mut model.session(&options).unwrap(), &prompts, 4);
            for (i, (logits, ids)) in wanted.iter().enumerate() {
                close(&first[i], logits, &format!("{architecture}, sequence {i}, batches of {batch}"));
                assert_eq!(&tokens[i], ids, "{architecture}, sequence {i}, batches of {batch}");
            }
        }
    }
}

/// Prompts start while other sequences are decoded; one sequence ends and the next one reuses its cells.
#[test]
fn sequences_come_and_go() {
    let backend = backend("cpu").unwrap();
    let model = model(&tiny("qwen2", DType::Q8_0), &backend);
    let mut session = model.session(&exact(300, 3)).unwrap();
    let mut single = model.session(&exact(300, 1)).unwrap();
    let mut after = |tokens: &[u32]| {
        single.reset();
        single.prefill(tokens).unwrap()
    };
    let (a, mut b, c) = (prompt(0, 200), prompt(1, 120), prompt(2, 290));
    session.batch(&[Item { sequence: 0, tokens: &a }, Item { sequence: 1, tokens: &b }]).unwrap();
    // The prompt of 2 together with a token of 1.
    let logits =
        session.batch(&[Item { sequence: 2, tokens: &c }, Item { sequence: 1, tokens: &[7] }]).unwrap();
    b.push(7);
    close(&logits[0], &after(&c), "2");
    close(&logits[1], &after(&b), "1");
    // 0 ends; another sequence uses its cells, before and after those of 1.
    session.reset_sequence(0).unwrap();
    assert_eq!((0..3).map(|i| session.position_of(i).unwrap()).collect::<Vec<_>>(), [0, 121, 290]);
    let d = prompt(3, 250);
    let logits =
        session.batch(&[Item { sequence: 0, tokens: &d }, Item { sequence: 1, tokens: &[9] }]).unwrap();
    b.push(9);
    close(&logits[0], &after(&d), "the next 0");
    close(&logits[1], &after(&b), "1 in the same batch");
    // Sequence 1 is truncated.
    session.truncate(1, 100).unwrap();
    b.truncate(100);
    b.extend([3, 4]);
    let logits = session.batch(&[Item { sequence: 1, tokens: &[3, 4] }]).unwrap();
    close(&logits[0], &after(&b), "1 taken back");
    assert_eq!(session.position_of(1).unwrap(), 102);
    session.reset();
    close(&session.prefill(&c).unwrap(), &after(&c), "everything forgotten");
}

fn refused<T: std::fmt::Debug>(result: diptych::Result<T>, part: &str) {
    match result {
        Err(error @ Error::InvalidArgument { .. }) => assert!(error.to_string().contains(part), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_batch_changes_nothing() {
    let backend = backend("cpu").unwrap();
    let model = model(&tiny("llama", DType::F16), &backend);
    let mut session = model.session(&exact(16, 2)).unwrap();
    let prompts = [prompt(0, 15), prompt(1, 4)];
    let mut wanted = together(&mut session, &prompts, 1).1;
    let positions = |s: &Session| [s.position_of(0).unwrap(), s.position_of(1).unwrap()];
    assert_eq!(positions(&session), [16, 5]);
    let one = |sequence| Item { sequence, tokens: &[1] };
    refused(session.batch(&[one(1), one(0)]), "17 positions in sequence 0; expected at most 16");
    refused(session.batch(&[one(1), one(2)]), "sequence: 2; expected a number below 2");
    refused(session.batch(&[one(1), one(1)]), "twice in one batch");
    refused(
        session.batch(&[Item { sequence: 1, tokens: &[1, 203] }]),
        "token id: 203; expected below 203, the size of the vocabulary",
    );
    refused(session.batch(&[one(1), Item { sequence: 0, tokens: &[] }]), "at least one");
    refused(session.position_of(2), "a number below 2");
    refused(session.reset_sequence(2), "a number below 2");
    refused(session.truncate(1, 6), "6; expected at most 5");
    assert_eq!(positions(&session), [16, 5]);
    assert_eq!(session.batch(&[]).unwrap(), [[0f32; 0]; 0]);
    // The full sequence stays full, the other continues.
    let logits = session.batch(&[one(1)]).unwrap();
    let mut single = model.session(&exact(16, 1)).unwrap();
    let history = [&prompts[1][..], &wanted.remove(1), &[1]].concat();
    close(&logits[0], &single.prefill(&history).unwrap(), "the other sequence");
    refused(model.session(&exact(16, 0)).map(|_| ()), "at least 1");
    refused(model.session(&exact(1 << 20, 1 << 20)).map(|_| ()), "positions in all");
}

/// A device error in the middle of a call undoes the whole call.
#[test]
fn a_failed_batch_changes_nothing() {
    let backend = backend("null=fail@compute").unwrap();
    let model = model(&tiny("llama", DType::F16), &backend);
    let mut session = model.session(&exact(16, 2).with_batch(4)).unwrap();
    let tokens = prompt(0, 4);
    session.batch(&[Item { sequence: 0, tokens: &tokens[..2] }]).unwrap();
    // The program for four tokens runs once, then fails.
    let both = [Item { sequence: 1, tokens: &tokens }, Item { sequence: 0, tokens: &tokens }];
    assert!(matches!(session.batch(&both), Err(Error::Injected { .. })));
    assert_eq!([session.position_of(0).unwrap(), session.position_of(1).unwrap()], [2, 0]);
}

/// Recurrent state that a failed call has changed is computed again from the last checkpoint.
#[test]
fn a_failed_batch_takes_recurrent_state_back() {
    let backend = backend("null=fail@compute").unwrap();
    let model = model(&shape("qwen35", DType::F16), &backend);
    let mut session = model.session(&exact(32, 2).with_batch(4).with_checkpoint_every(2)).unwrap();
    let tokens = prompt(0, 3);
    session.batch(&[Item { sequence: 0, tokens: &tokens }]).unwrap();
    assert!(matches!(session.batch(&[Item { sequence: 0, tokens: &tokens }]), Err(Error::Injected { .. })));
    assert_eq!(session.tokens(0).unwrap(), tokens);
}

/// Decoding the same sequences together runs prepared programs only.
#[test]
fn decoding_together_prepares_nothing() {
    for (name, backend) in backends() {
        let model = model(&tiny("qwen3", DType::Q8_0), &backend);
        let mut session = model.session(&exact(64, 3)).unwrap();
        let token = |sequence| Item { sequence, tokens: &[3] };
        session.batch(&[token(0), token(1), token(2)]).unwrap();
        let before = backend.stats();
        for _ in 0..5 {
            session.batch(&[token(2), token(0), token(1)]).unwrap();
        }
        let after = backend.stats();
        assert_eq!(after.driver_allocations, before.driver_allocations, "{name}");
        assert_eq!((after.recordings, after.programs), (before.recordings, before.programs), "{name}");
    }
}

/// A saved sequence with non-contiguous cells continues under another number, in a session with a different
/// layout.
#[test]
fn a_saved_sequence_goes_on_elsewhere() {
    let kinds = ["qwen2", "qwen35", "granitehybrid"];
    for (architecture, (name, backend)) in
        kinds.into_iter().flat_map(|kind| backends().into_iter().map(move |b| (kind, b)))
    {
        let model = model(&shape(architecture, DType::Q8_0), &backend);
        let mut session = model.session(&exact(64, 3)).unwrap();
        let prompts: Vec<Vec<u32>> = (0..3).map(|i| prompt(i, 4 + i)).collect();
        together(&mut session, &prompts, 3);
        let saved = session.save_sequence(1).unwrap();
        let tokens = [7, 8].map(|id| vec![id]);
        let go_on = |session: &mut Session, sequence: usize| -> Vec<f32> {
            tokens
                .iter()
                .flat_map(|t| session.batch(&[Item { sequence, tokens: t }]).unwrap().concat())
                .collect()
        };
        let wanted = go_on(&mut session, 1);
        // Into this session, whose free cells are not contiguous either.
        session.reset_sequence(0).unwrap();
        session.restore_sequence(2, &saved).unwrap();
        assert_eq!(session.position_of(2).unwrap(), 8, "{name}");
        close(&go_on(&mut session, 2), &wanted, name);
        let mut other = model.session(&exact(40, 1)).unwrap();
        other.restore(&saved).unwrap();
        close(&go_on(&mut other, 0), &wanted, name);
        refused(session.save_sequence(3), "a number below 3");
        refused(session.restore_sequence(3, &saved), "a number below 3");
    }
}

/// An operation on a session.
#[derive(Clone, Debug)]
enum Action {
    /// Tokens for some of the sequences, in this order.
    Batch(Vec<(usize, Vec<u32>)>),
    Truncate(usize, usize),
    /// A sequence that begins as another one.
    Share(usize, usize, usize),
    CatchUp(usize),
    /// Saves a sequence and restores it as a sequence of the other session.
    Move(usize, usize),
}

const CONTEXT: usize = 24;

fn action() -> impl Strategy<Value = Action> {
    let tokens = proptest::collection::vec(0u32..203, 0..9);
    let batch = (Just(vec![0, 1, 2]).prop_shuffle(), [tokens.clone(), tokens.clone(), tokens]);
    prop_oneof![
        4 => batch.prop_map(|(order, tokens)| {
            Action::Batch(order.into_iter().zip(tokens).filter(|(_, t)| !t.is_empty()).collect())
        }),
        2 => (0usize..3, prop_oneof![Just(0), 0usize..CONTEXT]).prop_map(|(i, n)| Action::Truncate(i, n)),
        1 => (0usize..3, 0usize..3, 0usize..CONTEXT).prop_map(|(from, to, n)| Action::Share(from, to, n)),
        1 => (0usize..3).prop_map(Action::CatchUp),
        1 => (0usize..3, 0usize..3).prop_map(|(from, to)| Action::Move(from, to)),
    ]
}

/// Two sessions of three sequences, and the tokens of every sequence.
struct Pair {
    sessions: [Session; 2],
    histories: [[Vec<u32>; 3]; 2],
    /// Session for the next action.
    current: usize,
}

impl Pair {
    fn new(model: &Model) -> Pair {
        // With all checkpoints, and with memory for few.
        let session = |batch, every, memory| {
            let options = exact(CONTEXT, 3).with_batch(batch).with_checkpoint_every(every);
            model.session(&options.with_checkpoint_memory(memory)).unwrap()
        };
        let sessions = [session(512, Some(3), 1 << 30), session(5, None, 20_000)];
        Pair { sessions, histories: Default::default(), current: 0 }
    }

    /// Executes a action; returns the logits, each with the tokens that led to them.
    fn apply(&mut self, action: &Action) -> Vec<(Vec<u32>, Vec<f32>)> {
        let (session, histories) = (&mut self.sessions[self.current], &mut self.histories[self.current]);
        let mut results = Vec::new();
        match action {
            Action::Batch(work) => {
                let fits = |(i, t): &(usize, Vec<u32>)| histories[*i].len() + t.len() <= CONTEXT;
                let items: Vec<Item<'_>> =
                    work.iter().map(|(sequence, tokens)| Item { sequence: *sequence, tokens }).collect();
                let logits = session.batch(&items);
                assert_eq!(logits.is_ok(), work.iter().all(fits));
                for ((i, tokens), row) in work.iter().zip(logits.unwrap_or_default()) {
                    histories[*i].extend(tokens);
                    results.push((histories[*i].clone(), row));
                }
            }
            Action::Truncate(i, position) => {
                let length = histories[*i].len();
                let fits = *position <= length;
                assert_eq!(session.truncate(*i, *position).is_ok(), fits);
                histories[*i].truncate(if fits { *position } else { length });
            }
            Action::Share(from, to, position) => {
                let fits = from != to && *position <= histories[*from].len();
                assert_eq!(session.share_prefix(*from, *to, *position).is_ok(), fits);
                if fits {
                    histories[*to] = histories[*from][..*position].to_vec();
                }
            }
            Action::CatchUp(i) => {
                session.catch_up(*i).unwrap();
                assert_eq!(session.catch_up(*i).unwrap(), 0);
            }
            Action::Move(from, to) => {
                let (saved, history) = (session.save_sequence(*from).unwrap(), histories[*from].clone());
                self.current = 1 - self.current;
                self.sessions[self.current].restore_sequence(*to, &saved).unwrap();
                self.histories[self.current][*to] = history;
            }
        }
        results
    }
}

/// Checks that the results of every sequence depend on its own tokens only.
fn check(architecture: &str, actions: &[Action]) -> Result<(), TestCaseError> {
    let backend = backend("cpu").unwrap();
    let model = model(&shape(architecture, DType::F16), &backend);
    let mut single = model.session(&exact(CONTEXT, 1)).unwrap();
    let mut pair = Pair::new(&model);
    for action in actions {
        for (history, logits) in pair.apply(action) {
            single.reset();
            let wanted = single.prefill(&history).unwrap();
            prop_assert!(distance(&logits, &wanted).nmse < 1e-10);
        }
        for (session, histories) in pair.sessions.iter().zip(&pair.histories) {
            for (i, history) in histories.iter().enumerate() {
                prop_assert_eq!(session.tokens(i).unwrap(), history);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_with_attention(actions in proptest::collection::vec(action(), 1..14)) {
        check("qwen2", &actions)?;
    }

    #[test]
    fn whatever_happens_with_recurrent_state(actions in proptest::collection::vec(action(), 1..14)) {
        check("qwen35", &actions)?;
    }
}
